"""Where the threads of suspects are, as py-spy sees it from outside, without stopping them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from rlvr_probe.analysis.finding import Finding
    from rlvr_probe.report.stuck import Frame, Stacks

__all__ = ["stacks_of"]

_SUSPECTS: Final = 3
_PATIENCE_S: Final = 20
_UNREADABLE: Final = (
    ValueError,  # also of msgspec, whose own error does not cover bad UTF-8
    msgspec.DecodeError,  # no ValueError before 0.21
)
_REFUSED: Final = ("permission denied", "operation not permitted")
"""What py-spy passes on of EACCES and EPERM."""


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int


class _Thread(msgspec.Struct):
    """One thread as ``py-spy dump --json`` has it; null is what it could not read."""

    frames: list[_Frame]
    os_thread_id: int | None = None
    thread_name: str | None = None


_DECODE: Final = msgspec.json.Decoder(list[_Thread]).decode


def stacks_of(findings: Sequence[Finding]) -> tuple[Stacks, str]:
    """Stacks of the first suspects that run here: of each process the most suspicious thread.

    Returns:
        The stacks, and why there are fewer than there could be, and what helps.
    """
    from rlvr_probe.analysis.finding import WRONG

    suspects: dict[int, Finding] = {}
    for finding in findings:
        here = finding.member.state == "running" and not finding.member.hidden
        if here and (finding.verdict in WRONG or finding.verdict == "apart"):
            suspects.setdefault(finding.member.header.pid, finding)
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which(
        "py-spy"
    )
    if suspects and program is None:
        return {}, "install py-spy to see where the suspect is: pip install py-spy"
    found: dict[tuple[int, int | None], list[Frame]] = {}
    hints = list[str]()
    for pid, finding in list(suspects.items())[:_SUSPECTS]:
        try:
            found[finding.thread] = _stack(_dump(str(program), pid), *finding.thread)
        except (OSError, subprocess.SubprocessError, *_UNREADABLE, LookupError) as error:
            hints.append(_hint(pid, error))
    return found, hints[0] if hints else ""


def _dump(program: str, pid: int) -> list[_Thread]:
    done = subprocess.run(
        [program, "dump", "--nonblocking", "--json", "--pid", str(pid)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_PATIENCE_S,
        check=True,
    )
    return _DECODE(done.stdout)


def _stack(threads: Sequence[_Thread], pid: int, thread: int | None) -> list[Frame]:
    """Of the thread with that native id, else of the main thread.

    Raises:
        LookupError: There is neither.
    """
    by_id = {thread.os_thread_id: thread for thread in threads if thread.os_thread_id is not None}
    by_name = {thread.thread_name: thread for thread in threads}
    # On Linux the native id of the main thread is the process id.
    for chosen in (by_id.get(thread or 0), by_id.get(pid), by_name.get("MainThread")):
        if chosen is not None:
            return [(frame.name, Path(frame.filename).name, frame.line) for frame in chosen.frames]
    raise LookupError(f"neither the thread of the open span nor the main one among {len(threads)}")


def _hint(pid: int, error: Exception) -> str:
    """What was found, what was expected, what to do."""
    from rlvr_probe.report.blocks import clean

    by_hand = f"try py-spy dump --pid {pid}"
    if isinstance(error, subprocess.TimeoutExpired):
        return (
            f"py-spy did not end within {_PATIENCE_S} s, expected the threads of process {pid}:"
            f" the machine is busy, or its memory cannot be read; {by_hand}"
        )
    if isinstance(error, subprocess.CalledProcessError):
        said = bytes(error.stderr).decode("utf-8", "replace")
        if any(word in said.lower() for word in _REFUSED):
            return (
                f"py-spy could not read process {pid}: it takes the right to trace it (root, or"
                " kernel.yama.ptrace_scope 0; in a container SYS_PTRACE)"
            )
        line = next((line for line in said.splitlines() if line.strip()), "nothing")
        return (
            f"py-spy ended with {error.returncode} and said: {clean(line, 160)};"
            f" expected the threads of process {pid}; {by_hand}, or look again if it has just ended"
        )
    if isinstance(error, _UNREADABLE):
        return (
            f"py-spy printed something else than the threads of process {pid} as JSON ({error});"
            " expected what release 0.4 prints: pip install --upgrade py-spy"
        )
    if isinstance(error, LookupError):
        return f"py-spy found {error.args[0]}, expected one of these in process {pid}; {by_hand}"
    return f"py-spy could not be started ({error}), expected a program: pip install py-spy"
