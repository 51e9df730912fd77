"""Where the threads of suspects are, as py-spy sees it from outside, without stopping them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rlvr_probe.analysis.stuck import Finding
    from rlvr_probe.report.stuck import Frame

__all__ = ["stacks_of"]

_SUSPECTS: Final = 3
_PATIENCE_S: Final = 20
_WRONG: Final = ("overdue", "silent", "apart")


def stacks_of(findings: Sequence[Finding]) -> tuple[dict[int, list[Frame]], str]:
    """Stacks of the first suspects that run here, by pid, innermost frame first.

    Returns:
        The stacks, and why there are fewer than there could be, and what helps.
    """
    pids = {
        one.member.header.pid: one
        for one in findings
        if one.verdict in _WRONG and one.member.state == "running"
    }
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which(
        "py-spy"
    )
    if pids and program is None:
        return {}, "install py-spy to see where the suspect is: pip install py-spy"
    found: dict[int, list[Frame]] = {}
    hint = ""
    for pid, one in list(pids.items())[:_SUSPECTS]:
        try:
            found[pid] = _stack(str(program), pid, None if one.work is None else one.work.thread)
        except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
            hint = (
                f"py-spy could not read process {pid}: it takes the right to trace it (root, or"
                " kernel.yama.ptrace_scope 0; in a container SYS_PTRACE)"
            )
    return found, hint


def _stack(program: str, pid: int, thread: int | None) -> list[Frame]:
    done = subprocess.run(
        [program, "dump", "--nonblocking", "--json", "--pid", str(pid)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_PATIENCE_S,
        check=True,
    )
    threads: list[dict[str, Any]] = json.loads(done.stdout)
    chosen = next((one for one in threads if one["os_thread_id"] == thread), None)
    chosen = chosen or next(one for one in threads if one["thread_name"] == "MainThread")
    return [
        (str(frame["name"]), Path(str(frame["filename"])).name, int(frame["line"]))
        for frame in chosen["frames"]
    ]
