"""What kind of file system a path lies on."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["file_system", "is_network", "least_free_b", "reach"]

_FREE_SHARE = 0.1
_FREE_MOST_B = 10 << 30
"""Enough for a while even where a tenth of the file system would be terabytes: what the recordings
of a node may take by default is half of this."""

_LINKS = 40
"""Links that Linux follows in a path."""

_MOUNTS = "/proc/self/mountinfo"
_NETWORK = frozenset(
    (
        "9p", "afs", "autofs", "beegfs", "ceph", "cifs", "gpfs", "lustre",
        "nfs", "nfs4", "panfs", "pvfs2", "smb3", "virtiofs", "wekafs",
    )
)  # fmt: skip


def file_system(path: str | os.PathLike[str]) -> str | None:
    """Type of the file system of an existing path, as mounted: ``ext4``, ``nfs4``, ``fuse.sshfs``.

    None if the system does not say, as outside Linux.

    Raises:
        OSError: The path cannot be looked at.
    """
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    real = os.path.realpath(path)
    above = {}
    for number, point, kind in _mounts():
        if number == wanted:
            return kind
        # Of two mounts at one place the later one hides the earlier one.
        above[point] = kind
    # btrfs gives each subvolume a device number of its own, which is in no list.
    return _deepest(above, real)


def reach(path: str | os.PathLike[str]) -> tuple[Path, str | None]:
    """Where a path leads, and the type of file system there.

    No network file system is asked, which might not answer: links are followed that lie on local
    ones, the rest is taken as it is written. Neither needs to exist.
    """
    mounts = {point: kind for _, point, kind in _mounts()}
    here, kind = "/", _deepest(mounts, "/")
    rest = _parts(os.path.join(os.getcwd(), path))
    links = 0
    while rest:
        name = rest.pop()
        if name == "..":
            here = os.path.dirname(here)
            kind = _deepest(mounts, here)
            continue
        here = os.path.join(here, name)
        if here in mounts:
            kind = mounts[here]
        elif not is_network(kind):
            try:
                target = os.readlink(here)
            except OSError:  # no link, or nothing yet
                continue
            links += 1
            if links > _LINKS:
                break
            rest += _parts(target)
            here = "/" if target.startswith("/") else os.path.dirname(here)
            kind = _deepest(mounts, here)
    return Path(here, *reversed(rest)), kind


def _parts(path: str) -> list[str]:
    """Names in a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _deepest(mounts: dict[str, str], path: str) -> str | None:
    """Type of what is mounted at a path or nearest above it."""
    above = [point for point in mounts if f"{path}/".startswith(point.rstrip("/") + "/")]
    return mounts[max(above, key=len)] if above else None


def _mounts() -> list[tuple[str, str, str]]:
    """Device number, place and type of everything that is mounted; nothing outside Linux."""
    found = []
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                left, _, right = line.partition(" - ")
                fields, kind = left.split(), right.split()
                if len(fields) >= 5 and kind:
                    point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), fields[4])
                    found.append((fields[2], point, kind[0]))
    except OSError:
        pass
    return found


def is_network(kind: str | None) -> bool:
    """Whether a type is that of a network or FUSE file system; unknown counts as local."""
    return kind is not None and (kind in _NETWORK or kind.startswith("fuse"))


def least_free_b(size_b: int) -> int:
    """Bytes that recordings leave free by default on a file system of ``size_b`` bytes."""
    return int(min(_FREE_SHARE * size_b, _FREE_MOST_B))
