"""One cluster for all tests of Ray that join one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rlvr_probe_ray.tests.runs import Cluster, cluster


@pytest.fixture(scope="session")
def running() -> Iterator[Cluster]:
    """It runs before any driver comes, and outlives each of them."""
    with cluster() as address:
        yield address
