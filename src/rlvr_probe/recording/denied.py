"""Says whose a recording is that the user may not read, and how to get at it."""

from __future__ import annotations

import os
from pathlib import Path

from rlvr_probe.access import barrier, user_name, whose
from rlvr_probe.exceptions import RecordingError

__all__ = ["check_readable", "is_readable"]


def check_readable(path: Path) -> None:
    """Refuse what is there and may not be read.

    Raises:
        RecordingError: It may not, or a folder above it may not be looked into.
    """
    try:
        path.stat()
    except PermissionError:
        raise RecordingError(_text(path, barrier(path) or path.parent)) from None
    except OSError:  # not there, which others say
        return
    if not is_readable(path):
        raise RecordingError(_text(path, path))


def is_readable(path: Path) -> bool:
    """Whether a file may be read, or a folder listed and looked into."""
    return os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK)


def _text(path: Path, closed: Path) -> str:
    owner = closed.stat().st_uid
    what = "it" if closed == path else str(closed)
    said = f"no permission to read {path}: {what} {whose(closed)}"
    if owner == os.geteuid():
        return f"{said}; chmod -R u+rX gives it back to you"
    return (
        f"{said}, and you are {user_name(os.geteuid())}; ask {user_name(owner)} for it: chmod -R"
        " g+rX gives the group what is recorded, RLVR_PROBE_GROUP_READABLE=1 what will be"
    )
