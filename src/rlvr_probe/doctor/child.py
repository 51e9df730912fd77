"""Questions to a fresh Python: what happens there cannot hurt, hold up or change this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping

__all__ = ["Child", "NoAnswer"]

_MARK = "rlvr-probe-doctor:"
# The working directory of whoever asks may hold modules of any name.
_PREFACE = "import sys\nsys.path[:] = [one for one in sys.path if one]\n"
_EPILOGUE = f"\nprint(f'\\n{_MARK}{{answer}}', flush=True)\n"


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
