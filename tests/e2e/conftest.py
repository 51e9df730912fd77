"""Fixtures of the tests that start real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from signal import SIG_IGN, SIGHUP, SIGINT, SIGQUIT, getsignal, signal

import pytest

from tests.disks import tmpfs
from tests.jobs import Job

__all__ = ["tmpfs"]


@pytest.fixture(autouse=True, scope="session")
def no_ignored_signals() -> Iterator[None]:
    """What nohup or a shell's background job ignores, a command of ours would ignore as well."""
    ignored = [one for one in (SIGINT, SIGHUP, SIGQUIT) if getsignal(one) is SIG_IGN]
    for one in ignored:
        signal(one, lambda *_: None)  # a handler is reset by exec, an ignored signal is not
    yield
    for one in ignored:
        signal(one, SIG_IGN)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A script to be run in an empty folder."""
    return Job(tmp_path)
