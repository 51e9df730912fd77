"""Who may read what the probe writes, and whose a folder is.

Run ids can be foretold, so that on a shared disk somebody else may have made the folder of a run:
to read what is written, to change it, or to have it written elsewhere through a link.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PRIVATE", "Access", "barrier", "is_private", "is_safe", "user_name", "whose"]

_GROUP: Final = stat.S_IRGRP | stat.S_IXGRP
_SHARED: Final = stat.S_IRGRP
_MOST: Final = 100
_NEW: Final = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may read what is written.

    Attributes:
        group: The group of the user, and not the user alone.
        claims: A folder has to be ours; a folder given by a setting is taken as it is.
    """

    group: bool = False
    claims: bool = True

    def own(self, folder: Path) -> Path:
        """A folder that is ours: ``folder``, or the first of those beside it, which is made.

        Every process of a run finds the same one.

        Raises:
            OSError: None can be made.
        """
        if not self.claims:
            return folder
        for candidate in _candidates(folder):
            self.make(candidate)
            if is_safe(candidate):
                return candidate
        raise PermissionError(f"{folder.name} and all names beside it are somebody else's")

    def find(self, folder: Path) -> Path:
        """The folder that :meth:`own` would return; nothing is made."""
        for candidate in _candidates(folder):
            if not os.path.lexists(candidate) or is_safe(candidate):
                return candidate
        return folder

    def open(self, path: Path, flags: int) -> int:
        """Open a file, made for whom it is meant if it is not there.

        Raises:
            OSError: It cannot be.
        """
        fd = os.open(path, flags, 0o600)
        if self.group:
            # A mode for os.open is less by the umask, which a sidecar has at 077.
            try:
                os.fchmod(fd, 0o600 | _SHARED)
            except OSError:  # not on this file system, or not ours
                pass
        return fd

    def make(self, folder: Path) -> None:
        """Make a folder, and those above it, if it is not there.

        Raises:
            OSError: It cannot be.
        """
        made = [folder]
        try:
            try:
                os.mkdir(folder, 0o700)
            except FileNotFoundError:
                made += [parent for parent in folder.parents if not parent.exists()]
                folder.parent.mkdir(parents=True, exist_ok=True)
                os.mkdir(folder, 0o700)
        except FileExistsError:
            if not is_safe(folder):
                return
        if self.group:
            for path in made:
                _share(path)


PRIVATE: Final = Access()
"""For the user alone."""


def is_safe(folder: Path) -> bool:
    """Whether a folder is the user's own, no link, and not for everybody to write to.

    Where a file system has owners and modes of its own (a server that maps root to ``nobody``, one
    without modes), it is compared with a file made there.
    """
    try:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode):
            return False
        open_to_all = found.st_mode & stat.S_IWOTH
        if found.st_uid == os.geteuid() and not open_to_all:
            return True
        made = _sample(folder)
    except OSError:
        return False
    return made.st_uid == found.st_uid and (not open_to_all or bool(made.st_mode & stat.S_IWOTH))


def is_private(folder: Path) -> bool:
    """Whether a folder on a disk of this node is the user's own, and closed to all others."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    closed = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return closed and found.st_uid == os.geteuid()


def barrier(path: Path) -> Path | None:
    """The uppermost folder above ``path`` that the user may not look into; None if there is none.

    A missing folder does not count.
    """
    for above in reversed(path.absolute().parents):
        if not os.access(above, os.X_OK):
            return above if os.path.isdir(above) else None
    return None


def whose(path: Path) -> str:
    """Whose a file or a folder is, in words, with its group and mode.

    Raises:
        OSError: It is not there, or not to be seen.
    """
    found = path.stat()
    return (
        f"belongs to {user_name(found.st_uid)}, group {_group_name(found.st_gid)}"
        f" (mode {stat.filemode(found.st_mode)})"
    )


def user_name(number: int) -> str:
    """Name of a user; where it has none, its number."""
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _group_name(number: int) -> str:
    import grp

    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _candidates(folder: Path) -> Iterator[Path]:
    # No run id has this sign.
    names = ("", *(f"+{number}" for number in range(1, _MOST)))
    return (folder.with_name(f"{folder.name}{name}") for name in names)


def _sample(folder: Path) -> os.stat_result:
    """What a new file in a folder looks like."""
    path = folder / f".rlvr-probe-{os.urandom(6).hex()}"
    fd = os.open(path, _NEW, 0o600)
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)
        os.unlink(path)


def _share(folder: Path) -> None:
    try:
        mode = stat.S_IMODE(os.lstat(folder).st_mode)
        if mode & _GROUP != _GROUP:
            os.chmod(folder, mode | _GROUP)
    except OSError:  # not on this file system
        pass
