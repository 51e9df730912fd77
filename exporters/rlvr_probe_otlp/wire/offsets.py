"""How far an export came: what was taken is written down, and not sent again.

One line per unit, appended once the collector took it, or refused some of it for good: then it says
how much and why. A line that is torn or foreign is ignored: its unit is sent again, with the same
ids.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Final

import msgspec

from rlvr_probe.exceptions import ProbeError

__all__ = ["FILE", "Note", "Offsets", "opened"]

FILE: Final = "otlp.offsets"
"""Name of the file in the run folder."""

_LINE_B: Final = 512


_Why = Annotated[str, msgspec.Meta(pattern=r"\A[a-z][a-z0-9_]{0,39}\Z")]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]


class Note(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """One line: of a collector and a unit with its content, what was refused how much, by why."""

    collector: str
    unit: str
    content: str
    refused: dict[_Why, _Count] = {}


_NOTES: Final = msgspec.json.Decoder(Note)


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
        self._known: dict[tuple[str, str, str], Mapping[str, int]] = {}
        torn = False
        with os.fdopen(os.dup(file), "rb") as lines:
            lines.seek(0)
            for line in lines:
                torn = not line.endswith(b"\n")
                if not torn and len(line) <= _LINE_B:
                    with suppress(msgspec.DecodeError, UnicodeDecodeError):
                        self._learn(_NOTES.decode(line))
        for note in unwritten or ():
            self._learn(note)
        if again:
            self._known = {key: refused for key, refused in self._known.items() if not refused}
        if torn:
            os.write(file, b"\n")

    def _learn(self, note: Note) -> None:
        self._known[note.collector, note.unit, note.content] = note.refused

    def has(self, collector: str, unit: str, content: str) -> bool:
        """Whether ``collector`` has the unit with exactly this content."""
        return self._known.get((collector, unit, content)) == {}

    def rejected(self, collector: str, unit: str, content: str) -> Mapping[str, int] | None:
        """What ``collector`` refused of it for good, by why; None if nothing."""
        return self._known.get((collector, unit, content)) or None

    def note(self, collector: str, unit: str, content: str, refused: Mapping[str, int]) -> None:
        """Write down that ``collector`` has the unit, but for what it refused of it for good.

        How much that is in spans or points, ``refused`` says by a word for the reason.

        Raises:
            OSError: It cannot be written down.
        """
        note = Note(collector, unit, content, dict(refused))
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
        # A whole unit is three texts: the file stays what earlier releases read.
        whole = (note.collector, note.unit, note.content)
        line = msgspec.json.encode(note if note.refused else whole) + b"\n"
        if (written := os.write(self._file, line)) < len(line):
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), FILE)


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
