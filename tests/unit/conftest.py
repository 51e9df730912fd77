"""Simulated runs that the tests of one session share."""

from __future__ import annotations

import os

import pytest

from tests.simulated import Corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Runs that are simulated once, by whichever process of the session needs one first."""
    folder = tmp_path_factory.getbasetemp()
    # The folder of a worker of pytest-xdist is in that of the session.
    return Corpus((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "simulated")
