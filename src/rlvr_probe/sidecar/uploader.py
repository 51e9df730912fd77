"""Uploads what lies in a run folder to object storage, so that a node needs no shared disk.

Finished segments go once, in their final form. One that is written to goes up to its last whole
chunk, every few minutes, so that a node that vanishes takes no more than these with it. An object
appears whole or not at all, and what a killed uploader left is gone on with.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.model import schema
from rlvr_probe.recording.files import JOURNAL
from rlvr_probe.recording.lake import RECORDING, run_folder
from rlvr_probe.recording.opentable import read_whole_table
from rlvr_probe.recording.processes import read_beginning
from rlvr_probe.sidecar.segment_copy import last_end
from rlvr_probe.storage import answering

__all__ = ["Uploader"]

_AGAIN_S: Final = 300.0
"""How often a file that grows is uploaded, s."""

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Uploader:
    """Uploads one run folder. Used by one thread.

    Attributes:
        sent: Objects written so far.
        sent_b: Their bytes.
    """

    def __init__(self, folder: Path, lake: Path, prefix: str = "p") -> None:
        """Look at nothing yet.

        Args:
            folder: Run folder.
            lake: Where runs lie, in object storage.
            prefix: First letters of the names of the files that are this node's to upload.
        """
        self.sent = self.sent_b = 0
        self._folder = folder
        self._lake = lake
        self._prefix = prefix
        self._files: Any = lake.fs  # type: ignore[attr-defined]
        self._root = ""
        self._there = dict[str, int]()
        self._tables = dict[str, bytes]()
        self._due_s = dict[str, float]()

    def round(self, *, whole: bool) -> bool:
        """Upload what is new; whether anything says yet which run it is of.

        Args:
            whole: All of it, also what is behind the last whole chunk: no process writes any more.

        Raises:
            OSError: The run folder cannot be read.
            StorageError: The storage does not answer, or refuses; what was uploaded is there.
        """
        names = sorted(name for name in os.listdir(self._folder) if name.startswith(self._prefix))
        if not self._root and not self._open(names):
            return False
        processes = dict[str, list[str]]()
        for name in names:
            found = JOURNAL.fullmatch(name)
            if found is not None:
                processes.setdefault(found[1], []).append(name)
        for process, journals in processes.items():
            with answering(self._lake):
                self._put_process(process, journals, whole=whole)
        return True

    def _put_process(self, process: str, journals: Sequence[str], *, whole: bool) -> None:
        """Upload what is finished, and from time to time the rest."""
        packed = [name for name in journals if name.endswith(schema.PACKED_SUFFIXES)]
        for name in packed:
            self._put_packed(name)
        if not whole and time.monotonic() < self._due_s.get(process, 0.0):
            return
        # Read before the journal, and uploaded behind it: it must not name lines that are missing.
        name = f"p{process}{schema.OPEN_SUFFIX}"
        table = read_whole_table(self._folder / name, process)
        for plain in sorted({*journals} - {*packed} - set(map(_plain, packed))):
            self._put_plain(plain, whole=whole)
        if table is not None and self._tables.get(name) != table:
            self._put(name, table)
            self._tables[name] = table
        self._due_s[process] = time.monotonic() + _AGAIN_S

    def _open(self, names: list[str]) -> bool:
        """Find out which run it is, and what of it is there; whether anything says so yet."""
        run = next(filter(None, (_run(self._folder / name) for name in names)), "")
        if run:
            place = run_folder(self._lake, run) / RECORDING
            self._root = place.path  # type: ignore[attr-defined]
            with answering(place), suppress(FileNotFoundError):
                found = self._files.ls(self._root, detail=True, refresh=True)
                self._there = {info["name"].rpartition("/")[2]: info["size"] for info in found}
        return bool(run)

    def _put_packed(self, name: str) -> None:
        """Upload a segment in its final form, which takes the place of what it was."""
        path = self._folder / name
        status = path.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            return
        if self._there.get(name) != status.st_size:
            self._files.put_file(str(path), f"{self._root}/{name}")
            self._note(name, status.st_size)
        plain = _plain(name)
        if plain in self._there:
            self._files.rm_file(f"{self._root}/{plain}")
            del self._there[plain]

    def _put_plain(self, name: str, *, whole: bool) -> None:
        try:
            fd = os.open(self._folder / name, _FLAGS)
        except FileNotFoundError:  # in its final form meanwhile
            return
        with open(fd, "rb", buffering=0) as file:
            status = os.fstat(fd)
            size_b = status.st_size if whole else last_end(fd, status.st_size)
            # What was written is never changed: of the same size it is the same.
            if stat.S_ISREG(status.st_mode) and size_b and self._there.get(name) != size_b:
                self._put(name, file.read(size_b))

    def _put(self, name: str, data: bytes) -> None:
        self._files.pipe_file(f"{self._root}/{name}", data)
        self._note(name, len(data))

    def _note(self, name: str, size_b: int) -> None:
        self._there[name] = size_b
        self.sent += 1
        self.sent_b += size_b


def _plain(name: str) -> str:
    """The name that a segment was written under."""
    return name.partition(schema.JOURNAL_SUFFIX)[0] + schema.JOURNAL_SUFFIX


def _run(path: Path) -> str:
    """The run that a journal says it is of; empty if it does not say."""
    if not JOURNAL.fullmatch(path.name) or path.is_symlink() or not path.is_file():
        return ""
    try:
        header, _ = read_beginning(path)
    except (OSError, ProbeError):  # in a form that takes a library, too
        return ""
    return "" if header is None else header.run
