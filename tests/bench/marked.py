"""Stages of a process of its own: when each was over, and how much memory it had taken by then."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["run_marked"]

_BEGIN = """
import json, re, sys, time
from pathlib import Path

clock, begin, marks = time.perf_counter, time.perf_counter(), {}

def mark(name):
    # Not ru_maxrss, which begins with that of the process that started this one.
    peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
    s, cpu_s = clock() - begin, time.process_time()
    marks[name] = {"s": s, "cpu_s": cpu_s, "memory_b": int(peak[1]) * 1024}
"""


def run_marked(stages: str, *arguments: str | Path) -> dict[str, Any]:
    """What ``stages`` left in ``marks``.

    Args:
        stages: Python code. It calls ``mark(name)`` where a stage is over, which notes seconds
            since the begin, ``s``, CPU seconds of the process, ``cpu_s``, and the peak of its
            memory, ``memory_b``; it has ``Path`` and ``sys``.
        arguments: ``sys.argv[1:]`` of it.
    """
    code = f"{_BEGIN}\n{stages}\nprint(json.dumps(marks))\n"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    marks: dict[str, Any] = json.loads(done.stdout)
    return marks
