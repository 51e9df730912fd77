"""Fixtures of the tests that start real processes."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIG_IGN, SIGHUP, SIGINT, SIGQUIT, getsignal, signal

import pytest

from tests.jobs import Job


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


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount small file systems of their own; needs the right to."""
    libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
    mounted: list[Path] = []

    def mount(options: str) -> Path:
        path = tmp_path / f"disk{len(mounted)}"
        path.mkdir()
        read_only = 1 if options == "ro" else 0
        data = b"" if read_only else options.encode()
        if libc.mount(b"none", bytes(path), b"tmpfs", read_only, data):
            pytest.skip(f"mounting a tmpfs is not permitted here (errno {ctypes.get_errno()})")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        libc.umount2(bytes(path), 2)
