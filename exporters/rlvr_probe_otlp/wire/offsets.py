"""How far an export came: what was taken is written down, and not sent again.

One line per unit, appended once the collector took it, or refused some of it for good: then it says
how much and why. A line that is torn, or no line of ours, counts for nothing: its unit is sent
again, with the same ids.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rlvr_probe.exceptions import ProbeError

__all__ = ["FILE", "Note", "Offsets", "opened"]

FILE: Final = "otlp.offsets"
"""Name of the file in the run folder."""

_LINE_B: Final = 512


_WHY: Final = re.compile("[a-z][a-z0-9_]{0,39}")
_COUNT_MAX: Final = 1 << 40

Note = tuple[str, str, str] | tuple[str, str, str, dict[str, int]]
"""Collector, unit, content; of what was refused how much, by why."""


class Offsets:
    """What each collector has taken of a run, and what it refused for good."""

    def __init__(
        self, file: int, unwritten: list[Note] | None = None, *, again: bool = False
    ) -> None:
        """Read what is known.

        Args:
            file: Its descriptor.
            unwritten: Where what cannot be written down is remembered, and was; None where that is
                an error.
            again: Forget what was refused: it is to be sent again.
        """
        self._file = file
        self._unwritten = unwritten
        self._taken = set[tuple[str, str, str]]()
        self._rejected: dict[tuple[str, str, str], Mapping[str, int]] = {}
        torn = False
        with os.fdopen(os.dup(file), "rb") as lines:
            lines.seek(0)
            for line in lines:
                torn = not line.endswith(b"\n")
                if not torn and len(line) <= _LINE_B:
                    self._read(line)
        for note in unwritten or ():
            self._learn(note)
        if again:
            self._rejected.clear()
        if torn:
            os.write(file, b"\n")

    def _read(self, line: bytes) -> None:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(found, list) or not all(type(text) is str for text in found[:3]):
            return
        if len(found) == 3:
            self._learn((found[0], found[1], found[2]))
        elif len(found) == 4 and _is_count(found[3]):
            self._learn((found[0], found[1], found[2], found[3]))

    def _learn(self, note: Note) -> None:
        key = note[:3]
        if len(note) == 4:
            self._rejected[key] = note[3]
            self._taken.discard(key)
        else:
            self._taken.add(key)
            self._rejected.pop(key, None)

    def has(self, collector: str, unit: str, content: str) -> bool:
        """Whether ``collector`` has the unit with exactly this content."""
        return (collector, unit, content) in self._taken

    def rejected(self, collector: str, unit: str, content: str) -> Mapping[str, int] | None:
        """What ``collector`` refused of it for good, by why; None if nothing."""
        return self._rejected.get((collector, unit, content))

    def note(self, collector: str, unit: str, content: str) -> None:
        """Write down that ``collector`` took the unit.

        Raises:
            OSError: It cannot be written down.
        """
        self._add((collector, unit, content))

    def give_up(self, collector: str, unit: str, content: str, why: Mapping[str, int]) -> None:
        """Write down that ``collector`` refused some of the unit for good, and has the rest.

        How much that is in spans or points, ``why`` says by a word for the reason.

        Raises:
            OSError: It cannot be written down.
        """
        self._add((collector, unit, content, dict(why)))

    def _add(self, note: Note) -> None:
        self._learn(note)
        if self._unwritten is None:
            self._write(note)
            return
        self._unwritten.append(note)
        try:
            while self._unwritten:
                self._write(self._unwritten[0])
                del self._unwritten[0]
        except OSError:  # no room: the next note tries again
            pass

    def _write(self, note: Note) -> None:
        line = (json.dumps(note, separators=(",", ":")) + "\n").encode("ascii")
        if (written := os.write(self._file, line)) < len(line):
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), FILE)


def _is_count(found: object) -> bool:
    return isinstance(found, dict) and all(
        _WHY.fullmatch(why) and type(count) is int and 0 <= count < _COUNT_MAX
        for why, count in found.items()
    )


@contextmanager
def opened(
    path: Path, unwritten: list[Note] | None = None, *, again: bool = False
) -> Iterator[Offsets]:
    """The offsets in the file ``path``, which is made if it is not there; for one export at a time.

    Args:
        path: The file.
        unwritten: As for :class:`Offsets`.
        again: As there.

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
            raise ProbeError(f"{path.name} is not a file; give another one with --state FILE")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ProbeError(
                "another export of this run is under way; wait for it, or give --state FILE"
            ) from None
        yield Offsets(file, unwritten, again=again)
    finally:
        os.close(file)
