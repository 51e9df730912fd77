"""What kind of file system a path lies on."""

from __future__ import annotations

import os
import re

__all__ = ["file_system", "is_network", "least_free_b"]

_FREE_SHARE = 0.1
_FREE_MOST_B = 10 << 30
"""Enough for a while even where a tenth of the file system would be terabytes: what the recordings
of a node may take by default is half of this."""

_MOUNTS = "/proc/self/mountinfo"
_NETWORK = frozenset(
    (
        "9p", "afs", "beegfs", "ceph", "cifs", "gpfs", "lustre",
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
    real = os.path.realpath(path) + "/"
    above = {}
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                left, _, right = line.partition(" - ")
                fields, kind = left.split(), right.split()
                if len(fields) < 5 or not kind:
                    continue
                if fields[2] == wanted:
                    return kind[0]
                point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), fields[4])
                if real.startswith(point.rstrip("/") + "/"):
                    # Of two mounts at one place the later one hides the earlier one.
                    above[point] = kind[0]
    except OSError:
        return None
    # btrfs gives each subvolume a device number of its own, which is in no list.
    return above[max(above, key=len)] if above else None


def is_network(kind: str | None) -> bool:
    """Whether a type is that of a network or FUSE file system; unknown counts as local."""
    return kind is not None and (kind in _NETWORK or kind.startswith("fuse"))


def least_free_b(size_b: int) -> int:
    """Bytes that recordings leave free by default on a file system of ``size_b`` bytes."""
    return int(min(_FREE_SHARE * size_b, _FREE_MOST_B))
