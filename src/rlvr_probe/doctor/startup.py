"""Questions to a fresh Python, and whether the start-up hook runs in one.

What happens there cannot hurt, hold up or change this process.
"""

from __future__ import annotations

import os
import signal
import site
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rlvr_probe.config import ARM
from rlvr_probe.doctor.environment import tilde

__all__ = ["Child", "NoAnswer", "Startup", "ask_startup"]

_MARK = "rlvr-probe-doctor:"
# The working directory of the caller may hold modules of any name.
_PREFACE = "import sys\nsys.path[:] = [path for path in sys.path if path]\n"
_EPILOGUE = f"\nprint(f'\\n{_MARK}{{answer}}', flush=True)\n"
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


class NoAnswer(Exception):
    """A child did not answer; the message says why."""


class Child:
    """A Python process that runs ``code``, which sets ``answer``."""

    def __init__(self, code: str, environ: Mapping[str, str]) -> None:
        """Start it; a failure to do so is what :meth:`answer` raises."""
        self._failed = ""
        self._process: subprocess.Popen[bytes] | None = None
        if not sys.executable:
            self._failed = "this Python does not know its own executable"
            return
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"{_PREFACE}{code}{_EPILOGUE}"],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # A hang must be ended with all that it started, and Ctrl-C is for us alone.
                start_new_session=True,
            )
        except OSError as error:
            self._failed = f"a new Python cannot be started ({error.strerror})"

    def answer(self, patience_s: float) -> str:
        """What it answered, waiting at most ``patience_s`` seconds.

        Raises:
            NoAnswer: It could not be started, failed, or took longer.
        """
        if self._process is None:
            raise NoAnswer(self._failed)
        try:
            printed, _ = self._process.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            raise NoAnswer("a new Python did not answer in time") from None
        finally:
            _end(self._process)
        answers = [
            line.removeprefix(_MARK)
            for line in printed.decode("utf-8", "replace").splitlines()
            if line.startswith(_MARK)
        ]
        if not answers:
            raise NoAnswer(f"a new Python ended with status {self._process.returncode}")
        return answers[-1]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of it behind, or only what the kernel does not let go of."""
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=1)
    except (OSError, subprocess.TimeoutExpired):
        pass
    if process.stdout is not None:
        process.stdout.close()


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
            reason = "this Python was started with -S, which omits every start-up hook"
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
