"""Whether the start-up hook runs where children of a training start."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rlvr_probe.config import ARM
from rlvr_probe.doctor.child import Child, NoAnswer
from rlvr_probe.doctor.paths import tilde

__all__ = ["Startup", "ask_startup"]

_FILE = "rlvr_probe_boot.pth"
_CODE = """
armed = any(type(finder).__module__ == "rlvr_probe._boot" for finder in sys.meta_path)
try:
    import rlvr_probe.probe.attach
    failed = ""
except BaseException as error:
    failed = f"{type(error).__name__} {getattr(error, 'name', None) or ''}".strip()
answer = f"{int(armed)}{failed}"
"""


@dataclass(frozen=True, slots=True)
class Startup:
    """The start-up hook.

    Attributes:
        works: A new Python with ``RLVR_PROBE=1`` had it in effect.
        file: Where it is installed, None if nowhere.
        reason: Why it does not work, and what to do.
    """

    works: bool
    file: str | None
    reason: str | None


def ask_startup(environ: Mapping[str, str]) -> Callable[[float], Startup]:
    """Start a Python as a child of a recorded training, and return what waits for its answer."""
    asked = {name: value for name, value in environ.items() if not name.startswith(ARM)}
    child = Child(_CODE, {**asked, ARM: "1"})

    def wait(patience_s: float) -> Startup:
        read, unread = _installed(site_folders()), _installed(sys.path)
        file = read or unread
        shown = None if file is None else tilde(file)
        if sys.flags.no_site:
            reason = "this Python was started with -S, which leaves every start-up hook out"
            return Startup(False, shown, reason)
        try:
            answer = child.answer(patience_s)
        except NoAnswer as missing:
            return Startup(False, shown, str(missing))
        if answer == "1":
            return Startup(True, shown, None)
        if answer.startswith("1"):
            reason = f"the probe cannot be loaded ({answer[1:]}); install rlvr-probe again"
        elif read is not None:
            reason = f"{_FILE} is installed and did not run in a new Python; start it with -v"
        elif unread is not None:
            reason = (
                f"{_FILE} lies where Python reads no .pth file; install rlvr-probe into "
                "site-packages, not with --target or by PYTHONPATH"
            )
        else:
            reason = f"{_FILE} is not installed; install rlvr-probe with pip, into site-packages"
        return Startup(False, shown, reason)

    return wait


def site_folders() -> list[str]:
    """Folders whose ``.pth`` files Python reads at its start."""
    folders = list(site.getsitepackages())
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return folders


def _installed(folders: Iterable[str]) -> Path | None:
    for folder in folders:
        file = Path(folder, _FILE)
        if os.path.isfile(file):
            return file
    return None
