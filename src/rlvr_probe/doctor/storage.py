"""The folder of recordings: whether it can be written to, on what, and how much room there is."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rlvr_probe.config import Config
from rlvr_probe.doctor.environment import tilde
from rlvr_probe.filesystem import file_system, is_network, least_free_b
from rlvr_probe.spool import home, wanted

__all__ = ["Storage", "examine_spool", "examine_storage", "is_short", "unrecorded"]

_SAMPLE = bytes(4096)
_NO_UNNAMED = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS})


@dataclass(frozen=True, slots=True)
class Storage:
    """The folder of recordings.

    Attributes:
        path: The folder.
        exists: Whether it does; if not it is made by the first recording.
        writable: A file could be written to it, or to the folder it would be made in.
        reason: Why not.
        file_system: Type, as mounted; None if unknown.
        open_table: Whether processes keep a table of open spans.
        free_b: Bytes left for this user; None if unknown.
        size_b: Bytes it has in all; None if unknown.
        floor_b: Bytes that have to stay free; below that, turns are not recorded, and at half of it
            neither lengths nor rewards. None if unknown.
        free_files: Files that can still be made; None if unknown or without a limit.
        spool: Folder on a local disk that processes write to meanwhile; None: they write there.
        no_spool: Why there is none where one is wanted, or None.
        spool_free_b: Bytes left for this user on the disk of the spool; None: no spool, or unknown.
        spool_floor_b: Bytes that have to stay free there.
    """

    path: str
    exists: bool = False
    writable: bool = False
    reason: str | None = None
    file_system: str | None = None
    open_table: bool | None = None
    free_b: int | None = None
    size_b: int | None = None
    floor_b: int | None = None
    free_files: int | None = None
    spool: str | None = None
    no_spool: str | None = None
    spool_free_b: int | None = None
    spool_floor_b: int | None = None

    @property
    def rooms(self) -> Iterator[tuple[str, int, int]]:
        """Folders that need room, with bytes that are free there and bytes that have to stay so."""
        if self.free_b is not None and self.floor_b is not None:
            yield self.path, self.free_b, self.floor_b
        if self.spool is not None and self.spool_free_b is not None:
            yield self.spool, self.spool_free_b, self.spool_floor_b or 0


def is_short(free_b: int, floor_b: int, budget_b: int) -> bool:
    """Whether all is recorded for now, and there is less room than a run may take."""
    return 0 <= free_b - floor_b < budget_b


def unrecorded(free_b: int, floor_b: int) -> str:
    """What would not be recorded for lack of room; "" if all would."""
    if free_b >= floor_b:
        return ""
    samples = ", lengths and rewards" if free_b < floor_b / 2 else ""
    return f"turns and tool calls{samples}"


def examine_storage(folder: Path, patience_s: float, floor_b: int | None = None) -> Storage:
    """Examine a folder. Nothing of what is written there stays.

    Args:
        folder: Absolute.
        patience_s: How long a file server may take to answer, seconds.
        floor_b: What has to stay free, bytes; by default what recordings leave free by default.
    """
    found: list[Storage] = []
    thread = threading.Thread(target=lambda: found.append(_examine(folder, floor_b)), daemon=True)
    thread.start()
    thread.join(patience_s)
    if not found:
        reason = f"its file system did not answer within {patience_s:g} s"
        return Storage(tilde(folder), reason=reason)
    return found[0]


def examine_spool(found: Storage, folder: Path, config: Config) -> Storage:
    """The same with where processes of this node would write meanwhile. Nothing is asked there."""
    if not wanted(folder, config):
        return found
    try:
        path = home(config.spool)
        space = os.statvfs(path)
    except OSError as error:
        return replace(found, no_spool=str(error))
    free_b, _, floor_b = _room(space, config.free_b)
    return replace(
        found, spool=tilde(path), open_table=True, spool_free_b=free_b, spool_floor_b=floor_b
    )


def _room(
    space: os.statvfs_result, floor_b: int | None
) -> tuple[int | None, int | None, int | None]:
    """Bytes left for this user, in all, and that have to stay free; None if unknown."""
    size_b = space.f_blocks * space.f_frsize
    if not size_b:  # a file system of unknown size has no blocks at all
        return None, None, None
    free_b = space.f_bavail * space.f_frsize
    return free_b, size_b, least_free_b(size_b) if floor_b is None else floor_b


def _examine(folder: Path, floor_b: int | None) -> Storage:
    path = tilde(folder)
    try:
        there = folder
        while not os.path.lexists(there) and there != there.parent:
            there = there.parent
        exists = there == folder
        if not there.is_dir():
            return Storage(path, exists, reason=f"{tilde(there)} is not a folder")
        kind = file_system(there)
        space = os.statvfs(there)
        refusal = _write(there)
    except OSError as error:
        return Storage(path, reason=error.strerror)
    reason = None
    if refusal is not None:
        where = "it" if exists else tilde(there)
        reason = f"{where} takes no file ({refusal}); name another folder, or mount one"
    return Storage(
        path,
        exists,
        reason is None,
        reason,
        kind,
        not is_network(kind),
        *_room(space, floor_b),
        space.f_favail if space.f_files else None,
    )


def _write(folder: Path) -> str | None:
    """Why a file cannot be written to ``folder``, None if it can. It has no name if possible."""
    flags = os.O_WRONLY | getattr(os, "O_CLOEXEC", 0)
    name: Path | None = None
    try:
        try:
            fd = os.open(folder, flags | os.O_TMPFILE, 0o600)
        except (AttributeError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in _NO_UNNAMED:
                raise
            name = folder / f".rlvr-probe-doctor-{os.urandom(6).hex()}"
            fd = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(fd, _SAMPLE)
            os.fsync(fd)
        finally:
            os.close(fd)
            if name is not None:
                os.unlink(name)
    except OSError as error:
        return error.strerror
    return None
