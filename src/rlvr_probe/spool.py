"""Where the processes of a node write a run that lies on a network file system: its spool.

A folder on a local disk, one for each run, found by every process of the node by itself. The
sidecar moves what is in it to the run folder; no process of a run asks the server after the start.
Its place is not in the environment, which differs within a job, unless a setting names one.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from rlvr_probe.access import is_private
from rlvr_probe.config import AUTO, OFF, Config
from rlvr_probe.filesystem import is_network, reach

__all__ = [
    "LEAVING_SUFFIX",
    "PLACES",
    "ROUND_S",
    "TARGET",
    "Target",
    "choose",
    "every",
    "find",
    "home",
    "read_target",
    "wanted",
    "write_target",
]

PLACES: tuple[str, ...] = ("/var/tmp", "/tmp")  # noqa: S108 - in a folder of our own there, checked to be ours
"""Where spools are by default. What is in the first one outlives a reboot."""

LEAVING_SUFFIX: Final = ".leaving"
"""Behind ``p<process>``: it has written its last row, and waits until this file is gone, which says
that everything of it is in the run folder."""

ROUND_S: Final = 4.0
"""How often a spool is copied, s: what is lost with a node is no older, but for the writing."""

TARGET: Final = "target"
"""File that says where the spool belongs."""

_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_NAME_CHARACTERS: Final = 40


class Target:
    """Where what is in a spool belongs.

    Attributes:
        folder: Run folder.
        network: It was on a network file system when the spool was made.
    """

    def __init__(self, folder: Path, *, network: bool) -> None:
        """Take note of both."""
        self.folder = folder
        self.network = network

    def is_there(self) -> bool:
        """Whether what it lies on is mounted; asks no server."""
        return not self.network or is_network(reach(self.folder)[1])


def wanted(folder: Path, config: Config) -> bool:
    """Whether a run is to be written to a spool on this node."""
    if config.spool == OFF or not config.sidecar or sys.platform != "linux" or not sys.executable:
        return False
    return config.spool != AUTO or is_network(reach(folder)[1])


def choose(folder: Path, config: Config) -> Path:
    """Where this process writes a run: the run folder, or a spool, which is made.

    Args:
        folder: Run folder, absolute; it need not exist.
        config: Settings.

    Raises:
        OSError: A spool that a setting wants cannot be made. Without a setting, and without a place
            for one, as on a node without a disk, the run folder is written to.
    """
    if not wanted(folder, config):
        return folder
    real, kind = reach(folder)
    try:
        path = home(config.spool) / _name(real)
    except OSError:
        if config.spool == AUTO:
            return folder
        raise
    path.mkdir(0o700, exist_ok=True)
    _check(path)
    write_target(path, Target(real, network=is_network(kind)))
    return path


def find(folder: Path, environ: Mapping[str, str] | None = None) -> Path | None:
    """The spool of a run on this node, if there is one; asks no server.

    Args:
        folder: Run folder; it need not exist.
        environ: Where a setting may name a place besides the usual ones.
    """
    name = _name(reach(folder)[0])
    paths = (place / name for place in _homes(environ))
    return next((path for path in paths if is_private(path)), None)


def every(environ: Mapping[str, str] | None = None) -> Iterator[tuple[Path, Target]]:
    """Every spool of this user on this node, and where it belongs."""
    for place in _homes(environ):
        try:
            names = sorted(os.listdir(place))
        except OSError:
            continue
        for path in (place / name for name in names):
            target = read_target(path) if is_private(path) else None
            if target is not None:
                yield path, target


def read_target(path: Path) -> Target | None:
    """Where what is in a spool belongs; None if it does not say."""
    try:
        network, _, folder = (path / TARGET).read_bytes().partition(b"\n")
    except OSError:
        return None
    text = os.fsdecode(folder.removesuffix(b"\n"))
    if network not in (b"0", b"1") or not os.path.isabs(text):
        return None
    return Target(Path(text), network=network == b"1")


def write_target(path: Path, target: Target) -> None:
    """Note in a spool where it belongs, if that is not noted.

    Raises:
        OSError: It cannot be written.
    """
    if (path / TARGET).exists():
        return
    own = path / f"{TARGET}.{os.urandom(4).hex()}"
    own.write_bytes(b"%d\n%s\n" % (target.network, os.fsencode(target.folder)))
    own.replace(path / TARGET)


def _name(real: Path) -> str:
    """Name of the spool of a run: for people, and for processes."""
    return f"{real.name[-_NAME_CHARACTERS:]}-{sha256(os.fsencode(real)).hexdigest()[:16]}"


def home(setting: str) -> Path:
    """The user's folder of spools on this node, which is made.

    Args:
        setting: Folder to make it in, or ``auto``.

    Raises:
        OSError: No place can hold it.
    """
    places = PLACES if setting == AUTO else (setting,)
    reasons = list[str]()
    for place in places:
        path = _home_in(place)
        try:
            _check_place(place, make=setting != AUTO)
            path.mkdir(0o700, exist_ok=True)
            _check(path)
        except OSError as error:
            reasons.append(f"{place} {error.strerror or error}")
            continue
        return path
    raise OSError(f"no place for a spool: {'; '.join(reasons)}")


def _home_in(place: str) -> Path:
    return Path(place, f"rlvr-probe-spool-{os.geteuid()}")


def _homes(environ: Mapping[str, str] | None) -> list[Path]:
    if sys.platform != "linux":
        return []
    given = (os.environ if environ is None else environ).get("RLVR_PROBE_SPOOL", "")
    places = [os.path.expanduser(given)] if given.startswith(("/", "~")) else []
    return [_home_in(place) for place in dict.fromkeys((*places, *PLACES))]


def _check_place(place: str, *, make: bool) -> None:
    """Refuse what is not on a disk of this node, or where somebody could put aside what is ours."""
    kind = reach(place)[1]
    if is_network(kind):
        raise OSError(f"is on a network file system ({kind})")
    if make:
        os.makedirs(place, 0o700, exist_ok=True)
    elif kind in _MEMORY:
        raise OSError(f"is memory ({kind})")
    found = os.stat(place)
    if found.st_uid not in (0, os.geteuid()):
        raise OSError("belongs to another user")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise OSError("lets everybody rename what is in it")


def _check(path: Path) -> None:
    if not is_private(path):
        raise PermissionError(f"has {path.name}, which is not ours alone")
    if not os.access(path, os.W_OK | os.X_OK):  # of a read-only file system it says no
        raise PermissionError("cannot be written to")
