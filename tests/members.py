"""Some files of large wheels, taken out of them over HTTP: the rest is never downloaded.

What a hash of the whole wheel would prove, one of the files that are taken does.
"""

from __future__ import annotations

import hashlib
import io
import os
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.wheels import REQUIREMENTS, made

__all__ = ["listed", "unpacked"]

_GAP_B = 1 << 16
"""Files with less than this between them are asked for at once."""

_END_B = 3 << 20
"""What is asked for of the end of a wheel, where its table of contents is."""


def listed(name: str) -> dict[str, str]:
    """Lines of a list in ``requirements/`` by version: package, address, SHA-256 of the files."""
    lines = (REQUIREMENTS / name).read_text().splitlines()
    return {line.split()[0].partition("==")[2]: line for line in lines if "==" in line[:40]}


def unpacked(name: str, line: str, pick: Callable[[str], bool]) -> Path:
    """The folder ``name`` with those files of a wheel that ``pick`` wants.

    Args:
        name: Name of the folder, kept in the virtual environment.
        line: Of :func:`listed`.
        pick: Whether a file is wanted, by its path in the wheel.

    Raises:
        AssertionError: They are not those that the list names.
    """
    _, address, expected = line.split()

    def fill(folder: Path, _: Path) -> None:
        found = digest(take(address, folder, pick))
        if found != expected:
            raise AssertionError(f"{name}: the files of {address} have the digest {found}")

    try:
        return made(name, f"{line}\n", fill)
    except (urllib.error.URLError, TimeoutError) as error:
        reason = f"{name} could not be downloaded: {error}"
        if os.environ.get("CI"):
            raise AssertionError(reason) from None
        pytest.skip(reason)


def take(address: str, folder: Path, pick: Callable[[str], bool]) -> list[tuple[str, bytes]]:
    """Unpack the files that are wanted; their paths and contents."""
    wheel = _Wheel(address)
    with zipfile.ZipFile(wheel) as archive:
        wanted = sorted(
            (item for item in archive.infolist() if pick(item.filename)),
            key=lambda item: item.header_offset,
        )
        # Behind a header lies a name, and what else a packer put there: never much.
        wheel.load((item.header_offset, item.compress_size + 1024) for item in wanted)
        found = [(item.filename, archive.read(item)) for item in wanted]
        archive.extractall(folder, wanted)
    return found


def digest(files: Iterable[tuple[str, bytes]]) -> str:
    """SHA-256 of paths and contents, in the order of the paths."""
    known = hashlib.sha256()
    for path, content in sorted(files):
        known.update(f"{path}\0{len(content)}\0".encode())
        known.update(content)
    return known.hexdigest()


class _Wheel(io.RawIOBase):
    """A file on a server that is asked for parts of it only."""

    def __init__(self, address: str) -> None:
        self._address = address
        with self._ask("HEAD") as answer:
            self._size = int(answer.headers["Content-Length"])
        self._at = 0
        self._parts = list[tuple[int, bytes]]()
        self._fetch(max(0, self._size - _END_B), self._size)

    def load(self, parts: Iterable[tuple[int, int]]) -> None:
        """Ask for parts, given as offset and size in their order, in few requests."""
        runs = list[list[int]]()
        for begin, size in parts:
            end = min(begin + size, self._size)
            if runs and begin - runs[-1][1] < _GAP_B:
                runs[-1][1] = max(end, runs[-1][1])
            else:
                runs.append([begin, end])
        for begin, end in runs:
            self._fetch(begin, end)

    def _fetch(self, begin: int, end: int) -> None:
        with self._ask("GET", f"bytes={begin}-{end - 1}") as answer:
            assert answer.status == 206, "the server gives no parts of a file"
            self._parts.append((begin, answer.read()))

    def _ask(self, method: str, part: str = "") -> urllib.request._UrlopenRet:
        headers = {"Range": part} if part else {}
        return urllib.request.urlopen(
            urllib.request.Request(self._address, method=method, headers=headers), timeout=120
        )

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        for begin, content in self._parts:
            if begin <= self._at and end <= begin + len(content):
                found = content[self._at - begin : end - begin]
                self._at = end
                return found
        raise AssertionError(f"bytes {self._at} to {end} of {self._address} were not asked for")
