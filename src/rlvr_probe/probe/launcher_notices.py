"""Notices from processes of a command to the launcher that waits for it: lines in a file.

The launcher makes the file and reads it at the end, when nothing was recorded: a recording says
more. A process that cannot reach it, as on another node or as another user, sends none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

__all__ = ["NOTICES", "PLACES", "Notice", "make", "notify", "read"]

NOTICES: Final = "RLVR_PROBE_NOTICES"
"""Path of the file."""

PLACES: tuple[str, ...] = ("/dev/shm", "/tmp")  # noqa: S108 - a new file under a random name
"""Where it is made."""

Kind = Literal["imported", "failed", "refused"]
"""A framework was imported; it cannot be hooked; no journal can be opened."""

_FLAGS: Final = os.O_WRONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_MOST_B: Final = 1 << 20
_SUFFIX: Final = ".notices"


class Notice(NamedTuple):
    """A line: its process, kind and text."""

    pid: int
    kind: str
    text: str


def make() -> Path | None:
    """A new file; None where it cannot be made."""
    own = f"rlvr-probe-{os.geteuid()}-"
    for place in PLACES:
        _clean_up(Path(place), own)
        path = Path(place, f"{own}{os.getpid()}-{os.urandom(8).hex()}{_SUFFIX}")
        try:
            os.close(os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError:
            continue
        return path
    return None


def _clean_up(place: Path, own: str) -> None:
    """Delete what launchers left that were killed."""
    try:
        for name in os.listdir(place):
            pid = name.removeprefix(own).partition("-")[0]
            ours = name.startswith(own) and name.endswith(_SUFFIX) and pid.isdecimal()
            if ours and not os.path.exists(f"/proc/{pid}"):
                os.unlink(place / name)
    except OSError:
        pass


def notify(kind: Kind, text: str, environ: Mapping[str, str] | None = None) -> None:
    """Notify the launcher, if there is one; an error is ignored."""
    path = (os.environ if environ is None else environ).get(NOTICES)
    if not path:
        return
    try:
        # Somebody may have put a pipe there since the launcher left.
        fd = os.open(path, _FLAGS | os.O_APPEND | os.O_NONBLOCK)
    except OSError:
        return
    try:
        os.write(
            fd, f"{os.getpid()}\t{kind}\t{' '.join(text.split())}\n".encode("utf-8", "replace")
        )
    except OSError:
        pass
    finally:
        os.close(fd)


def read(path: Path) -> list[Notice]:
    """The notices, each of them once, in the order in which they came."""
    try:
        with path.open("rb") as file:
            lines = file.read(_MOST_B).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    found = dict[Notice, None]()
    for line in lines:
        pid, _, rest = line.partition("\t")
        kind, _, text = rest.partition("\t")
        if pid.isdecimal() and text:
            found[Notice(int(pid), kind, text)] = None
    return list(found)
