"""Simulated runs that the tests of one session share, and object storage for those of one file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from tests.s3 import BUCKET, serve
from tests.simulated import Corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Runs that are simulated once, by whichever process of the session needs one first."""
    folder = tmp_path_factory.getbasetemp()
    # The folder of a worker of pytest-xdist is in that of the session.
    return Corpus((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "simulated")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with serve(tmp_path_factory.mktemp("s3")) as variables:
        yield variables


@pytest.fixture
def bucket(
    server: dict[str, str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> str:
    """A place of its own for each test."""
    import s3fs

    # A client of another test may have another server.
    s3fs.S3FileSystem.clear_instance_cache()
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{re.sub(r'[^a-z0-9]+', '-', request.node.name)}"
