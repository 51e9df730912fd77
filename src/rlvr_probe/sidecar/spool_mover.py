"""Moves what lies in the spool of a run to its folder, so that this is a recording at any moment.

It holds of each process the first part of what that wrote: of its journal whole chunks, segment
after segment, and a table of open spans from before. A segment that no process writes to any more
is copied once more when it is compressed, and then deleted here; a name stays that says so.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from rlvr_probe.access import PRIVATE, Access
from rlvr_probe.model import schema
from rlvr_probe.probe.identity import NODE_DIGITS
from rlvr_probe.probe.journal.space import Room, write_room
from rlvr_probe.probe.journal.writer import ignore
from rlvr_probe.recording.opentable import read_whole_table
from rlvr_probe.sidecar.segment_copy import Copy
from rlvr_probe.sidecar.segments import (
    LEAST_B,
    is_finished,
    is_open_for_writing,
    place,
    sync_folder,
)
from rlvr_probe.spool import LEAVING_SUFFIX, TARGET, Target

__all__ = ["Mover", "leaving"]

_PLAIN: Final = ""
_PACKED: Final = schema.PACKED_SUFFIXES
_MOVED: Final = schema.MOVED_SUFFIX

_NAME: Final = re.compile(
    r"p([0-9a-f]{16})(?:"
    rf"\.([0-9]{{4,9}}){re.escape(schema.JOURNAL_SUFFIX)}"
    rf"(|{'|'.join(map(re.escape, (*_PACKED, _MOVED)))})"
    rf"|{re.escape(schema.OPEN_SUFFIX)}|{re.escape(LEAVING_SUFFIX)})"
)
_KEPT_S: Final = 1.0
"""How long what was compressed stays beside it in the run folder, at the end."""

_Forms = dict[int, set[str]]


class Mover:
    """Moves one spool. Used by one thread, which holds the lock of the spool."""

    def __init__(self, spool: Path, target: Target, access: Access = PRIVATE) -> None:
        """Touch nothing yet.

        Args:
            spool: Folder of the spool.
            target: Where it belongs.
            access: Who may read what is moved.
        """
        self._spool = spool
        self._target = target
        self._folder = target.folder
        self._access = access
        self._copies: dict[str, Copy] = {}
        self._packed: set[str] = set()
        self._tables: dict[str, bytes] = {}
        self._others_b = -1

    def round(self, ended: Collection[str] | None = None) -> None:
        """Copy everything that is new.

        Args:
            ended: Copy what these processes wrote, who write no more; None: of all, who may.

        Raises:
            OSError: Something could not be copied, the first of what; the rest was.
        """
        self._open_folder()
        failed: OSError | None = None
        found = _list(self._spool)
        for process, forms in found.items():
            if ended is None or process in ended:
                try:
                    self._process(process, forms, over=ended is not None)
                except OSError as error:
                    failed = failed or error
        sync_folder(self._folder)
        self._note_room(found)
        if failed is not None:
            raise failed

    def finish(self) -> bool:
        """Move all that is left and delete the spool; whether somebody writes to it still.

        Raises:
            OSError: Something could not be copied; what was not is still there.
        """
        before = _sizes(self._spool)
        if _is_written_to(self._spool):  # by who started anew, and has a sidecar of its own soon
            return True
        found = _list(self._spool)
        self.round(found)
        if self._packed:
            time.sleep(_KEPT_S)
            self.round(found)
        for copy in self._copies.values():
            if not copy.is_whole():
                raise OSError(errno.EAGAIN, "a file was deleted meanwhile")
        aside = self._spool.with_name(f"{self._spool.name}.{os.urandom(4).hex()}.moved")
        self._spool.rename(aside)
        if _is_written_to(aside) or not _sizes(aside).items() <= before.items():
            aside.rename(self._spool)
            return True
        # The target comes last: it says where a spool belongs of which only a part was deleted.
        for path in sorted(aside.iterdir(), key=lambda path: path.name == TARGET):
            path.unlink()
        aside.rmdir()
        return False

    # ---------------------------------------------------------------- the run folder

    def _open_folder(self) -> None:
        if not self._target.is_there():
            raise OSError(errno.ENODEV, "the file system of the run folder is not mounted")
        self._folder = self._access.own(self._folder)
        ignore(self._folder)

    def _note_room(self, found: dict[str, _Forms]) -> None:
        if self._others_b < 0:
            self._others_b = _others_b(self._folder, found)
        disk = os.statvfs(self._folder)
        size_b, free_b = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
        write_room(self._spool, Room(size_b, free_b, self._others_b))

    # ---------------------------------------------------------------- one process

    def _process(self, process: str, forms: _Forms, *, over: bool) -> None:
        # Before the journal: it must not name lines that are missing.
        table = read_whole_table(self._spool / f"p{process}{schema.OPEN_SUFFIX}", process)
        last = max(forms, default=-1)
        for number, kinds in sorted(forms.items()):
            name = schema.segment_name(process, number)
            if _MOVED in kinds:
                self._delete(name)
            elif packed := kinds.intersection(_PACKED):
                if _PLAIN in kinds:
                    self._copy(name, closed=True, over=True)
                self._move_packed(name, min(packed))
            else:
                self._copy(name, closed=number < last, over=over)
        if table is not None and forms and self._tables.get(process) != table:
            place(table, self._folder / f"p{process}{schema.OPEN_SUFFIX}", self._access)
            self._tables[process] = table

    def _copy(self, name: str, *, closed: bool, over: bool) -> None:
        source = self._spool / name
        copy = self._copies.get(name)
        if copy is None:
            if is_finished(self._folder / name):
                return
            copy = self._copies[name] = Copy(source, self._folder / name, self._access)
        try:
            copy.run(whole=closed or over)
            small = closed and source.stat().st_size < LEAST_B
        except FileNotFoundError:  # compressed meanwhile, or deleted
            if source.exists():
                raise
            self._forget(name)
            return
        if small and not over and copy.is_whole():
            self._forget(name)
            self._mark(name, self._folder / name)
            self._delete(name)

    def _move_packed(self, name: str, form: str) -> None:
        """Copy a segment in its final form; once it has been there for a while, delete what it was.

        Who reads takes the other one, as long as that is there: it has to be whole.
        """
        source, target = (folder / f"{name}{form}" for folder in (self._spool, self._folder))
        if not _same_size(source, target):
            place(source, target, self._access)
        elif name in self._packed:
            self._packed.discard(name)
            self._forget(name)
            (self._folder / name).unlink(missing_ok=True)
            self._mark(name, target)
            self._delete(name)
            return
        self._packed.add(name)
        if not (self._spool / name).exists():
            self._forget(name)
            (self._folder / name).unlink(missing_ok=True)

    def _forget(self, name: str) -> None:
        copy = self._copies.pop(name, None)
        if copy is not None:
            copy.close()

    def _mark(self, name: str, target: Path) -> None:
        with (self._spool / f"{name}{_MOVED}").open("wb") as file:
            file.truncate(target.stat().st_size)

    def _delete(self, name: str) -> None:
        for form in (_PLAIN, *_PACKED):
            (self._spool / f"{name}{form}").unlink(missing_ok=True)


def leaving(spool: Path) -> set[str]:
    """Processes that wait for what they wrote to be moved."""
    return {
        found[1]
        for name in os.listdir(spool)
        if name.endswith(LEAVING_SUFFIX) and (found := _NAME.fullmatch(name))
    }


def _list(spool: Path) -> dict[str, _Forms]:
    """By process, the forms in which each of its segments is there."""
    processes = dict[str, _Forms]()
    for name in os.listdir(spool):
        found = _NAME.fullmatch(name)
        if found is not None:
            forms = processes.setdefault(found[1], {})
            if found[2] is not None:
                forms.setdefault(int(found[2]), set()).add(found[3])
    return processes


def _is_written_to(spool: Path) -> bool:
    """Whether any process of this machine, in whatever container, has a journal open here."""
    return any(
        is_open_for_writing(spool / name)
        for name in os.listdir(spool)
        if name.endswith(schema.JOURNAL_SUFFIX)
    )


def _sizes(spool: Path) -> dict[str, tuple[int, int]]:
    """Size and number of the files that processes wrote."""
    with os.scandir(spool) as entries:
        return {
            entry.name: (entry.stat(follow_symlinks=False).st_size, entry.inode())
            for entry in entries
            if (found := _NAME.fullmatch(entry.name)) and found[3] in (_PLAIN, None)
            if not entry.name.endswith(LEAVING_SUFFIX)
        }


def _others_b(folder: Path, found: dict[str, _Forms]) -> int:
    """What processes of this node that are not in the spool left in the run folder, bytes."""
    prefixes = {f"p{process[:NODE_DIGITS]}" for process in found}
    total = 0
    for name in os.listdir(folder):
        mine = _NAME.fullmatch(name)
        if mine is not None and mine[1] not in found and name[: 1 + NODE_DIGITS] in prefixes:
            total += (folder / name).lstat().st_size
    return total


def _same_size(path: Path, other: Path) -> bool:
    try:
        return path.stat().st_size == other.stat().st_size
    except FileNotFoundError:
        return False
