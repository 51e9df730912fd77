"""The open-span table: which coarse spans are open, readable while the process hangs or is dead.

A small memory-mapped file with fixed slots, written on the calling thread. A hang that holds the
interpreter lock stops the flush thread too; what this table says was in the page cache before.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from threading import get_native_id
from zlib import crc32

from rlvr_probe.access import PRIVATE, Access
from rlvr_probe.filesystem import file_system, is_network
from rlvr_probe.model import schema

__all__ = ["OpenTable"]

_SIZE = (schema.OPEN_SLOTS + 1) * schema.OPEN_SLOT_BYTES
_SPAN = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_BODY = struct.Struct(schema.OPEN_SLOT.format.removesuffix("I"))
_SPAN_B, _BODY_B = _SPAN.size, _BODY.size
_put_span, _put_crc = _SPAN.pack_into, _CRC.pack_into


class OpenTable:
    """Open coarse spans of this process.

    Thread-safe, and so is an alarm of the user that interrupts any of it: a slot belongs to one
    span from :meth:`open` to :meth:`close`, and lies in exactly one of two containers.
    """

    def __init__(self, path: Path, process: str, access: Access = PRIVATE) -> None:
        """Make the file, with its blocks really allocated, and map it.

        A sparse file on a disk that fills up would end the process by SIGBUS at the next store.

        Raises:
            OSError: It cannot be made here, or the file system is a network one, where a store to
                mapped memory can hang or kill the process when the server goes away.
        """
        if _is_network(path.parent):
            raise OSError(f"no open-span table on a network file system: {path.parent.name}")
        self._path = path
        self._access = access
        self._map: mmap.mmap | None = _mapped(path, bytes(_SIZE), access)
        self._file = _identity(path)
        self._process = process.encode()
        self._free = list(range(schema.OPEN_SLOTS, 0, -1))
        self._slots: dict[int, int] = {}
        # Takes a free slot each time it is asked, IndexError if there is none. Asked from C, where
        # no signal handler runs between the taking and the keeping.
        self._take = iter(self._free.pop, None)
        self._overflow = 0
        self.beat(0, 0, 0)

    def open(
        self, span: int, parent: int, start_ns: int, step: int | None, name: bytes, detail: str
    ) -> None:
        """Note an open span; if all slots are taken, that is counted.

        After an error, :meth:`close` is due all the same.
        """
        table = self._map
        if table is None:
            return
        try:
            self._slots.update(zip((span,), self._take, strict=False))
        except IndexError:
            self._overflow += 1
            return
        # As schema.pack_block does it, without its copies: this is the hot path.
        body = _BODY.pack(
            span,
            parent,
            start_ns,
            get_native_id(),
            -1 if step is None else step,
            name,
            detail.encode("utf-8", "replace") if detail else b"",
        )
        offset = self._slots[span] * schema.OPEN_SLOT_BYTES
        table[offset + _SPAN_B : offset + _BODY_B] = body[_SPAN_B:]
        _put_crc(table, offset + _BODY_B, crc32(body))
        _put_span(table, offset, span)

    def close(self, span: int) -> None:
        """Free the slot of ``span``, if it has one."""
        table, slot = self._map, self._slots.get(span, 0)
        if slot and table is not None:
            offset = slot * schema.OPEN_SLOT_BYTES
            _put_span(table, offset, 0)
            _put_crc(table, offset + _BODY_B, 0)
            self._free.extend(map(self._slots.pop, (span,)))

    def beat(self, now_ns: int, lost: int, written: int, ended: bool = False) -> None:
        """Note that the process was alive at ``now_ns`` (CLOCK_MONOTONIC).

        Args:
            now_ns: The moment.
            lost: Rows lost so far. A disk that is full to the end has no room to say so elsewhere.
            written: Lines that the journal holds, by which a reader knows whether any are missing.
            ended: Whether it closed its journal in an orderly way.
        """
        if self._map is not None:
            block = schema.pack_block(
                schema.OPEN_HEADER,
                schema.OPEN_MAGIC,
                self._process,
                now_ns,
                self._overflow,
                schema.OPEN_SLOTS,
                int(ended),
                lost,
                written,
            )
            self._map[: len(block)] = block

    def refill(self) -> None:
        """Make the file as long as it was, if somebody cut it; what was cut off is lost.

        A store behind its end would end the process by SIGBUS. The next one may come before this
        does: writes through a descriptor would be safe, but give up the interpreter lock, which
        costs milliseconds where other threads want it.

        Raises:
            OSError: The disk is full; the table is not used any more.
        """
        table = self._map
        if table is None or _identity(self._path) != self._file:
            return
        if os.stat(self._path).st_size >= _SIZE:
            return
        self._map = None
        fd = os.open(self._path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        try:
            os.truncate(fd, _SIZE)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, _SIZE)
        finally:
            os.close(fd)
        self._map = table

    def restore(self) -> None:
        """Make the file again, with what it said, if it was deleted.

        Raises:
            OSError: It cannot be made.
        """
        if self._map is not None and not self._path.exists():
            self._path = self._access.own(self._path.parent) / self._path.name
            self._map = _mapped(self._path, bytes(self._map), self._access)
            self._file = _identity(self._path)

    def abandon(self) -> None:
        """Never touch the file again: it belongs to the parent of this forked process."""
        self._map = None


def _mapped(path: Path, content: bytes, access: Access) -> mmap.mmap:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    fd = access.open(path, flags)
    try:
        if os.write(fd, content) != len(content):
            raise OSError("no room for the open-span table")
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, len(content))
        return mmap.mmap(fd, len(content))
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(fd)


def _identity(path: Path) -> tuple[int, int]:
    """Device and number of a file; zeros if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def _is_network(folder: Path) -> bool:
    try:
        return is_network(file_system(folder))
    except OSError:
        return False
