"""Append-only journal of one process start: a header, then rows as JSON Lines; nothing is raised.

Every way a disk can fail is met here: a short write, a full disk, a read-only or deleted folder.
Rows that cannot be written are dropped and counted by reason, and the next chunk is tried again.
Whatever happens, a file holds whole chunks, each with its sum, and after a kill part of one more.
"""

from __future__ import annotations

import errno
import os
import platform
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from rlvr_probe.access import PRIVATE, Access
from rlvr_probe.model import names, schema
from rlvr_probe.probe import identity

__all__ = ["JournalWriter", "build_header", "epoch_pair", "ignore"]

Row = Sequence[Any]

_PLAIN: dict[type, Callable[[Any], object]] = {
    int: int.__pos__,
    float: float.__pos__,
    str: str.__str__,
}
"""What subclasses of numbers and of text are worth, without a line of theirs being run."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_UNENCODABLE = (
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
    MemoryError,
    msgspec.EncodeError,  # no ValueError before msgspec 0.21
)
_RETRY_CHUNKS = 32
"""Chunks dropped between two tries to open a file where none can be opened: about 3 s."""

_SUM_B = 48
"""No sum is longer, bytes."""


def epoch_pair() -> tuple[int, int]:
    """(CLOCK_MONOTONIC, ns since 1970) of one moment, within the time of one clock read."""
    before = time.monotonic_ns()
    epoch = time.time_ns()
    return (before + time.monotonic_ns()) // 2, epoch


def build_header(
    *,
    process: str,
    run: str,
    owner: str | None,
    mono_ns: int,
    epoch_ns: int,
) -> dict[str, Any]:
    """The header of this process, with every key of ``schema.HEADER_KEYS`` but ``segment``.

    Neither argv nor environment nor paths enter it, only ids that match a narrow pattern.
    """
    environ = os.environ
    pid = os.getpid()
    return {
        "journal": "rlvr-probe",
        "schema": schema.SCHEMA_VERSION,
        "names": names.NAMES_VERSION,
        "probe": _version(),
        "process": process,
        "run": run,
        "job": identity.job_key(environ),
        "owner": owner,
        "host": identity.host(),
        "boot": identity.boot_id(),
        "pid": pid,
        "ppid": os.getppid(),
        "start_ticks": identity.process_start_ticks(pid),
        "mono_ns": mono_ns,
        "epoch_ns": epoch_ns,
        "python": platform.python_version(),
        "rank": identity.rank(environ),
        "local_rank": identity.local_rank(environ),
        "world_size": identity.world_size(environ),
        "ids": identity.ids(environ),
    }


def _version() -> str:
    try:
        return metadata.version("rlvr-probe")
    except metadata.PackageNotFoundError:
        return "unknown"


class JournalWriter:
    """Segments of one process in one run folder. Used by one thread at a time.

    Attributes:
        folder: Where it writes: another one than was given, where that is somebody else's.
        lost: Rows dropped so far, by reason.
        written_b: Bytes written so far, in all segments.
    """

    def __init__(
        self,
        folder: Path,
        process: str,
        header: dict[str, Any],
        definitions: Callable[[int], Sequence[Row]],
        segment_b: int,
        access: Access = PRIVATE,
    ) -> None:
        """Touch nothing yet: the first chunk makes the folder and the file.

        Args:
            folder: Run folder or spool, absolute.
            process: 16 hex digits.
            header: Line 1 of every segment, without its ``segment`` number.
            definitions: ``definitions(n)`` gives every definition row from number n on; each file
                carries all it needs.
            segment_b: Size at which the next segment starts, bytes.
            access: Who may read it.
        """
        self.lost: Counter[str] = Counter()
        self.written_b = 0
        self.folder = folder
        self._access = access
        self._process = process
        self._header = header
        self._definitions = definitions
        self._segment_b = segment_b
        self._encoder = msgspec.json.Encoder(enc_hook=self._plain)
        self._fd = -1
        self._file = (0, 0)
        self._path = folder
        self._closed: list[tuple[Path, int, int]] = []
        self._segment = -1
        self._size = 0
        self._lines = 0
        self._rows = 0
        self._defined = 0
        self._wait = 0
        self._refused: str | None = None
        self._why = "disk_full"

    @property
    def refused(self) -> str | None:
        """Name of the error that keeps the journal from being opened, or None."""
        return self._refused

    @property
    def written(self) -> int:
        """Lines in its files, as far as they are not known to be deleted; without sums."""
        return self._lines + sum(lines for _, _, lines in self._closed)

    def write(self, rows: Sequence[Row], *, records: bool = True) -> bool:
        """Append ``rows``, all or only the first of them, and count the rest as lost.

        Args:
            rows: Rows in the shape of the schema.
            records: False for rows about the recording itself, which are not counted.

        Returns:
            Whether all of them were written.
        """
        if not self._ready():
            if records:
                self.lost[f"unwritable_{self._refused}"] += len(rows)
            return False
        kept = self._append_rows(rows)
        if kept < len(rows) and self._why == "write_efbig" and self._next_segment():
            # A limit on the size of files (RLIMIT_FSIZE) below ours.
            kept += self._append_rows(rows[kept:])
        if records:
            self._rows += kept
            if kept < len(rows):
                self.lost[self._why] += len(rows) - kept
        return kept == len(rows)

    def close(self) -> None:
        """Close the current segment; a later write opens the next one."""
        if self._fd < 0:
            return
        self._note_closed()
        fd, self._fd = self._fd, -1
        if self._is_ours(fd):
            os.close(fd)
        self._count_deleted()

    def abandon(self) -> None:
        """Close this forked process's copy of the descriptor and forget it."""
        fd, self._fd = self._fd, -1
        if fd >= 0 and self._is_ours(fd):
            os.close(fd)

    def _ready(self) -> bool:
        """Whether there is an open segment with room, opening the next one if need be."""
        if self._fd >= 0:
            if not self._is_ours(self._fd):
                # The user's program closed every descriptor, or reused this number: it is not
                # ours any more, not even to close. What was written stays.
                self._note_closed()
                self._fd = -1
            elif os.fstat(self._fd).st_nlink == 0 or self._size >= self._segment_b:
                # A write to a deleted file succeeds silently.
                self.close()
        return self._fd >= 0 or self._open()

    def _next_segment(self) -> bool:
        self.close()
        return self._open()

    def _is_ours(self, fd: int) -> bool:
        try:
            status = os.fstat(fd)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._file

    def _note_closed(self) -> None:
        self._closed.append((self._path, self._rows, self._lines))
        self._lines = 0

    def _count_deleted(self) -> None:
        """Count the rows of closed segments that are gone."""
        gone = [segment for segment in self._closed if not _exists(segment[0])]
        if gone:
            self.lost["deleted"] += sum(rows for _, rows, _ in gone)
            self._closed = [segment for segment in self._closed if segment not in gone]

    def _open(self) -> bool:
        if self._wait:
            self._wait -= 1
            return False
        try:
            try:
                path, self._fd = self._new()
            except FileNotFoundError:  # a spool that was done with was deleted at this moment
                path, self._fd = self._new()
            status = os.fstat(self._fd)
        except OSError as error:
            self._refused = errno.errorcode.get(error.errno or 0, "unknown").lower()
            self._wait = _RETRY_CHUNKS
            return False
        self._file = (status.st_dev, status.st_ino)
        self._path = path
        self._refused = None
        self._segment += 1
        self._size = self._lines = self._rows = self._defined = 0
        if self._append([{**self._header, "segment": self._segment}]) == 1:
            return True
        # A file without a header says nothing; the number is free again.
        self.abandon()
        self._segment -= 1
        try:
            path.unlink()
        except OSError:
            self._segment += 1
        self._refused, self._wait = "enospc", _RETRY_CHUNKS
        return False

    def _new(self) -> tuple[Path, int]:
        self.folder = self._access.own(self.folder)
        ignore(self.folder)
        path = self.folder / schema.segment_name(self._process, self._segment + 1)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        return path, self._access.open(path, flags)

    def _append_rows(self, rows: Sequence[Row]) -> int:
        """Write rows, and the definitions they may need first; how many of ``rows`` are kept.

        Definitions are chunks of their own: damage to rows does not take them along.
        """
        definitions = self._definitions(self._defined)
        written = self._append(definitions)
        self._defined += written
        return self._append(rows) if written == len(definitions) else 0

    def _append(self, lines: Sequence[Any]) -> int:
        """Write whole lines in chunks and return how many, the first ones, are in the file."""
        data, bad = self._encode(lines)
        if len(data) > schema.CHUNK_B and len(lines) > 1:
            half = len(lines) // 2
            kept = self._append(lines[:half])
            return kept + (self._append(lines[half:]) if kept == half else 0)
        room = self._write_chunk(data)
        if room is not None:
            data = data[: data.rfind(b"\n", 0, max(0, room - _SUM_B)) + 1]
            if not data or self._write_chunk(data) is not None:
                return 0
        if bad:
            self.lost["unencodable"] += bad
        return len(lines) if room is None else data.count(b"\n") + bad

    def _write_chunk(self, data: bytes) -> int | None:
        """Append ``data`` and its sum; None if done, else how much found room and was cut off."""
        if not data:
            return None
        lines = self._lines + data.count(b"\n")
        view = memoryview(data + schema.sum_row(lines, zlib.crc32(data)))
        done = 0
        try:
            while done < len(view):
                done += os.write(self._fd, view[done:])
        except OSError as error:
            code = errno.errorcode.get(error.errno or 0, "unknown").lower()
            self._why = "disk_full" if error.errno in _FULL else f"write_{code}"
            try:
                os.ftruncate(self._fd, self._size)
            except OSError:
                self.close()
                return 0
            return done
        self._size += done
        self.written_b += done
        self._lines = lines
        return None

    def _plain(self, value: object) -> object:
        """JSON form of a value of no plain type; a value without one is absent, and counted."""
        for kind, plain in _PLAIN.items():
            if issubclass(type(value), kind):
                return plain(value)
        self.lost["unencodable_value"] += 1
        return None

    def _encode(self, lines: Sequence[Any]) -> tuple[bytes, int]:
        """JSON Lines, and how many rows were dropped because they cannot be encoded."""
        before = self.lost["unencodable_value"]
        try:
            return self._encoder.encode_lines(lines), 0
        except _UNENCODABLE:
            if self.lost["unencodable_value"] > before:
                self.lost["unencodable_value"] = before
            good = bytearray()
            bad = 0
            for line in lines:
                try:
                    good += self._encoder.encode(line) + b"\n"
                except _UNENCODABLE:
                    bad += 1
            return bytes(good), bad


def _exists(path: Path) -> bool:
    """Whether a segment is there, or what it became, which is there before it goes."""
    forms = ("", *schema.PACKED_SUFFIXES, schema.MOVED_SUFFIX)
    return any(os.path.exists(f"{path}{form}") for form in forms)


def ignore(folder: Path) -> None:
    """Keep a run out of the user's repository, and out of what Ray and hub clients upload.

    In the run's own folder: the one around it may be the user's.
    """
    try:
        with open(folder / ".gitignore", "x", encoding="ascii") as file:
            file.write("*\n")
    except OSError:
        return
