"""Spreads tests over worker processes: what shares a job stays together, what waits goes first.

Files that mostly wait are spread over those that mostly compute, so that the cores have work from
the first minute to the last.

A pytest plugin: ``-p tests.scheduling``, with ``--dist loadfile --no-loadscope-reorder``. All tests
of an integration run in one worker, since they look at the same trainings, and those of any other
file do. (``--dist loadgroup`` would be told by marks; pytest 9.2 loses what pytest-xdist 3.8 makes
of them.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

__all__ = ["COMPUTING", "WAITING", "group_of", "in_turns", "rank_of"]

WAITING: Final = (
    "tests/e2e/test_spool.py",
    "tests/e2e/test_sidecar.py",
    "integrations/rlvr_probe_verl",
    "integrations/rlvr_probe_trl",
    "integrations/rlvr_probe_openrlhf",
    "integrations/rlvr_probe_vllm",
    "integrations/rlvr_probe_ray",
    "tests/e2e",
)
"""Longest first: a long file that starts last leaves the other workers without work."""

COMPUTING: Final = ("tests/faults", "tests/property", "exporters")
"""The same of the others."""


def group_of(path: PurePosixPath) -> str:
    """Which tests have to run in the same worker, by the file that they are in."""
    return path.parts[1] if path.parts[0] == "integrations" else str(path)


def rank_of(path: PurePosixPath) -> int:
    """When a file has its turn."""
    first = (*WAITING, *COMPUTING)
    ranks = [rank for rank, folder in enumerate(first) if path.is_relative_to(folder)]
    return ranks[0] if ranks else len(first)


def in_turns(paths: Iterable[PurePosixPath]) -> list[str]:
    """The groups of some files, in the order in which workers take them."""
    ranks: dict[str, int] = {}
    for path in sorted(dict.fromkeys(paths), key=rank_of):
        ranks.setdefault(group_of(path), rank_of(path))
    waiting = [group for group, rank in ranks.items() if rank < len(WAITING)]
    computing = deque(group for group, rank in ranks.items() if rank >= len(WAITING))
    between = max(1, len(computing) // (len(waiting) + 2))  # what comes last does not wait
    order = list[str]()
    for group in waiting:
        order += group, *(computing.popleft() for _ in range(min(between, len(computing))))
    return [*order, *computing]


def _file_of(nodeid: str) -> PurePosixPath:
    return PurePosixPath(nodeid.partition("::")[0])


class _Groups(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return group_of(_file_of(nodeid))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests."""
    paths = {item: _file_of(item.nodeid) for item in items}
    turns = {group: turn for turn, group in enumerate(in_turns(paths.values()))}
    items.sort(key=lambda item: turns[group_of(paths[item])])


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Hand out groups, one after the other."""
    return _Groups(config, log)
