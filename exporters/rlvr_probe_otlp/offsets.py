"""How far an export came: what was taken is written down, and not sent again.

One line per unit, appended once the collector took it. A line that is torn, or no line of ours,
counts for nothing: its unit is sent again, with the same ids.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rlvr_probe.exceptions import ProbeError

__all__ = ["FILE", "Offsets", "opened"]

FILE: Final = "otlp.offsets"
"""Name of the file in the run folder."""

_LINE_B: Final = 512


_Note = tuple[str, str, str]
"""Collector, unit, content."""


class Offsets:
    """What each collector has taken of a run."""

    def __init__(self, file: int, unwritten: list[_Note] | None = None) -> None:
        """Read what is known.

        Args:
            file: Its descriptor.
            unwritten: Where what cannot be written down is remembered, and was; None where that is
                an error.
        """
        self._file = file
        self._unwritten = unwritten
        self._taken = set[tuple[str, str, str]]()
        torn = False
        with os.fdopen(os.dup(file), "rb") as lines:
            lines.seek(0)
            for line in lines:
                torn = not line.endswith(b"\n")
                if not torn and len(line) <= _LINE_B:
                    self._read(line)
        self._taken.update(unwritten or ())
        if torn:
            os.write(file, b"\n")

    def _read(self, line: bytes) -> None:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return
        if isinstance(found, list) and len(found) == 3 and all(type(one) is str for one in found):
            self._taken.add((found[0], found[1], found[2]))

    def has(self, collector: str, unit: str, content: str) -> bool:
        """Whether ``collector`` has the unit with exactly this content."""
        return (collector, unit, content) in self._taken

    def note(self, collector: str, unit: str, content: str) -> None:
        """Write down that ``collector`` took the unit.

        Raises:
            OSError: It cannot be written down.
        """
        found = (collector, unit, content)
        self._taken.add(found)
        if self._unwritten is None:
            self._write(found)
            return
        self._unwritten.append(found)
        try:
            while self._unwritten:
                self._write(self._unwritten[0])
                del self._unwritten[0]
        except OSError:  # no room: the next note tries again
            pass

    def _write(self, note: _Note) -> None:
        line = (json.dumps(note, separators=(",", ":")) + "\n").encode("ascii")
        if (written := os.write(self._file, line)) < len(line):
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), FILE)


@contextmanager
def opened(path: Path, unwritten: list[_Note] | None = None) -> Iterator[Offsets]:
    """The offsets in the file ``path``, which is made if it is not there; for one export at a time.

    Args:
        path: The file.
        unwritten: As for :class:`Offsets`.

    Raises:
        ProbeError: It cannot be opened or written, or another export has it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        file = os.open(path, flags, 0o600)
    except OSError as error:
        raise ProbeError(
            f"{path.name} cannot be written ({error.strerror}): it says what was sent already;"
            " give another place with --state FILE"
        ) from None
    try:
        # A pipe would block, and some devices never end.
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ProbeError(f"{path.name} is no file; give another one with --state FILE")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ProbeError(
                "another export of this run is under way; wait for it, or give --state FILE"
            ) from None
        yield Offsets(file, unwritten)
    finally:
        os.close(file)
