"""Spreads tests over worker processes: what shares a job stays together, what waits goes first.

A pytest plugin: ``-p tests.scheduling``, with ``--dist loadfile --no-loadscope-reorder``. All tests
of an integration run in one worker, since they look at the same trainings, and those of any other
file do. (``--dist loadgroup`` would be told by marks; pytest 9.2 loses what pytest-xdist 3.8 makes
of them.)
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

__all__ = ["group_of", "rank_of"]

FIRST: Final = (
    "integrations/rlvr_probe_verl",
    "integrations/rlvr_probe_trl",
    "integrations/rlvr_probe_openrlhf",
    "integrations/rlvr_probe_vllm",
    "integrations/rlvr_probe_ray",
    "tests/e2e/test_spool.py",
    "tests/e2e/test_sidecar.py",
    "tests/e2e",
    "tests/faults",
    "tests/property",
    "exporters",
)
"""Longest first: a long file that starts last leaves the other workers without work."""


def group_of(path: PurePosixPath) -> str:
    """Which tests have to run in the same worker, by the file that they are in."""
    return path.parts[1] if path.parts[0] == "integrations" else str(path)


def rank_of(path: PurePosixPath) -> int:
    """When a file has its turn."""
    ranks = [rank for rank, folder in enumerate(FIRST) if path.is_relative_to(folder)]
    return ranks[0] if ranks else len(FIRST)


def _file_of(nodeid: str) -> PurePosixPath:
    return PurePosixPath(nodeid.partition("::")[0])


class _Groups(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return group_of(_file_of(nodeid))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests."""
    items.sort(key=lambda item: rank_of(_file_of(item.nodeid)))


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Hand out groups, one after the other."""
    return _Groups(config, log)
