"""Append-only journal of one process start: chunks of rows in, JSON Lines out, nothing raised.

Every way a disk can fail is met here: a short write, a full disk, a read-only or deleted folder.
Rows that cannot be written are dropped and counted by reason, and the next chunk is tried again.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rlvr_probe.model import schema

__all__ = ["JournalWriter"]

Row = Sequence[Any]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_RETRY_CHUNKS = 32
"""Chunks dropped between two tries to open a file where none can be opened: about 3 s."""


class JournalWriter:
    """Segments of one process in one run folder. Used by one thread at a time.

    Attributes:
        lost: Rows dropped so far, by reason.
    """

    def __init__(
        self,
        folder: Path,
        process: str,
        header: dict[str, Any],
        definitions: Callable[[int], Sequence[Row]],
        segment_b: int,
    ) -> None:
        """Touch nothing yet: the first chunk makes the folder and the file.

        Args:
            folder: Run folder, absolute.
            process: 16 hex digits.
            header: Line 1 of every segment, without its ``segment`` number.
            definitions: ``definitions(n)`` gives every definition row from number n on; each file
                carries all it needs.
            segment_b: Size at which the next segment begins, bytes.
        """
        self.lost: Counter[str] = Counter()
        self._folder = folder
        self._process = process
        self._header = header
        self._definitions = definitions
        self._segment_b = segment_b
        self._encoder = msgspec.json.Encoder()
        self._fd = -1
        self._segment = -1
        self._size = 0
        self._rows = 0
        self._defined = 0
        self._wait = 0
        self._refused: str | None = None
        self._why = "disk_full"

    @property
    def refused(self) -> str | None:
        """Name of the error that keeps the journal from being opened, or None."""
        return self._refused

    def write(self, rows: Sequence[Row], *, records: bool = True) -> bool:
        """Append ``rows``, all or only the first of them, and count the rest as lost.

        Args:
            rows: Rows in the shape of the schema.
            records: False for rows about the recording itself, which are not counted.

        Returns:
            Whether all of them were written.
        """
        if self._fd >= 0:
            self._check_deleted()
            if self._size >= self._segment_b:
                self.close()
        if self._fd < 0 and not self._open():
            if records:
                self.lost[f"unwritable_{self._refused}"] += len(rows)
            return False
        definitions = self._definitions(self._defined)
        written = self._append([*definitions, *rows])
        self._defined += min(written, len(definitions))
        kept = max(0, written - len(definitions))
        if records:
            self._rows += kept
            if kept < len(rows):
                self.lost[self._why] += len(rows) - kept
        return kept == len(rows)

    def close(self) -> None:
        """Close the current segment; a later write opens the next one."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> bool:
        if self._wait:
            self._wait -= 1
            return False
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _ignore(self._folder.parent)
            path = self._folder / schema.segment_name(self._process, self._segment + 1)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
            self._fd = os.open(path, flags, 0o666)
        except OSError as error:
            self._refused = errno.errorcode.get(error.errno or 0, "unknown").lower()
            self._wait = _RETRY_CHUNKS
            return False
        self._refused = None
        self._segment += 1
        self._size = self._rows = self._defined = 0
        if self._append([{**self._header, "segment": self._segment}]) == 1:
            return True
        # A file without a header says nothing; the number is free again.
        os.close(self._fd)
        self._fd = -1
        self._segment -= 1
        path.unlink(missing_ok=True)
        self._refused, self._wait = "enospc", _RETRY_CHUNKS
        return False

    def _append(self, lines: Sequence[Any]) -> int:
        """Write whole lines and return how many; a torn one is cut off again."""
        data, bad = self._encode(lines)
        view = memoryview(data)
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, view[done:])
        except OSError as error:
            code = errno.errorcode.get(error.errno or 0, "unknown").lower()
            self._why = "disk_full" if error.errno in _FULL else f"write_{code}"
            keep = data.rfind(b"\n", 0, done) + 1
            try:
                os.ftruncate(self._fd, self._size + keep)
            except OSError:
                self.close()
            self._size += keep
            return data.count(b"\n", 0, keep) + (bad if keep else 0)
        self._size += done
        return len(lines)

    def _encode(self, lines: Sequence[Any]) -> tuple[bytes, int]:
        """JSON Lines, and how many rows were left out because they cannot be encoded."""
        try:
            return self._encoder.encode_lines(lines), 0
        except (TypeError, ValueError, OverflowError, RecursionError):
            good = bytearray()
            bad = 0
            for line in lines:
                try:
                    good += self._encoder.encode(line) + b"\n"
                except (TypeError, ValueError, OverflowError, RecursionError):
                    bad += 1
            self.lost["unencodable"] += bad
            return bytes(good), bad

    def _check_deleted(self) -> None:
        """A write to a deleted file succeeds silently: look, count, begin a new file."""
        if os.fstat(self._fd).st_nlink == 0:
            self.lost["deleted"] += self._rows
            self.close()


def _ignore(folder: Path) -> None:
    """Keep recordings out of the user's repository and out of what Ray uploads."""
    try:
        with open(folder / ".gitignore", "x", encoding="ascii") as file:
            file.write("*\n")
    except OSError:
        return
