"""Small file systems of a test's own."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

__all__ = ["fill", "tmpfs"]


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


def fill(disk: Path) -> Path:
    """Leave no room on a file system; the file to delete for some."""
    path = disk / "fill"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(os.statvfs(disk).f_bsize))
        except OSError:
            return path
