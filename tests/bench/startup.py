"""What the start-up hook costs every Python process: ``python -m tests.bench.startup``.

One round starts each kind of process once, so that drift of the machine hits all alike; a figure
is the median of the paired differences with the 95 % interval of that median.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.report import main, table

__all__ = ["measure", "tables"]

_ARMED = {"RLVR_PROBE": "1", "RLVR_PROBE_OUT": os.devnull}


def measure(quick: bool = False) -> dict[str, Any]:
    """Milliseconds that a Python process and the launcher take longer.

    ``off_line_us``: the ``.pth`` line alone, which looks for one variable.
    ``off``: the ``.pth`` line is there and RLVR_PROBE is not set. ``armed``: it is, in a process
    that imports nothing else. ``armed_third_party``: in one that imports a package, which reads the
    installed integrations. ``launcher``: ``rlvr-probe run -- true`` against ``true``.
    """
    rounds = 5 if quick else 100
    with tempfile.TemporaryDirectory() as folder:
        # -S and then the packages without .pth lines, against the same with ours alone.
        packages = next(path for path in sys.path if path.endswith("site-packages"))
        hook = next(Path(packages).glob("rlvr_probe_boot.pth")).read_bytes()
        (Path(folder) / "rlvr_probe_boot.pth").write_bytes(hook)
        empty = Path(folder) / "empty"
        empty.mkdir()
        add = "import site; site.addsitedir({!r})"
        bare = [sys.executable, "-S", "-c", add.format(str(empty))]
        line = [sys.executable, "-S", "-c", add.format(folder)]
        plain, package = ([sys.executable, "-c", code] for code in ("pass", "import iniconfig"))
        launcher = [str(Path(sys.executable).with_name("rlvr-probe")), "run", "--", "true"]
        kinds: dict[str, tuple[list[str], dict[str, str]]] = {
            "bare": (bare, {}),
            "off": (line, {}),
            "plain": (plain, {}),
            "armed": (plain, _ARMED),
            "package": (package, {}),
            "armed_third_party": (package, _ARMED),
            "true": (["true"], {}),
            "launcher": (launcher, {"RLVR_PROBE_OUT": folder}),
        }
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind, (command, environ) in kinds.items():
                times[kind].append(_start_ms(command, environ))
    figures: dict[str, Any] = {"rounds": rounds, "python_ms": statistics.median(times["plain"])}
    figures["off_line_us"] = _line_us(hook.decode())
    pairs = {
        "off": "bare",
        "armed": "plain",
        "armed_third_party": "package",
        "launcher": "true",
    }
    for kind, base in pairs.items():
        added = sorted(a - b for a, b in zip(times[kind], times[base], strict=True))
        low, high = _interval(len(added))
        figures[f"{kind}_adds_ms"] = statistics.median(added)
        figures[f"{kind}_adds_low_ms"] = added[low]
        figures[f"{kind}_adds_high_ms"] = added[high]
    return figures


def _line_us(line: str) -> float:
    """What `site` does with the line while RLVR_PROBE is not set, us: too little to see in a start.

    A virtual environment's Python does it twice.
    """
    environ = {name: os.environ.pop(name) for name in list(os.environ) if name == "RLVR_PROBE"}
    times = []
    for _ in range(2_000):
        begin = time.perf_counter_ns()
        exec(line, {})
        times.append(time.perf_counter_ns() - begin)
    os.environ.update(environ)
    return statistics.median(times) / 1e3


def _start_ms(command: list[str], environ: dict[str, str]) -> float:
    environ = {"PATH": os.environ.get("PATH", os.defpath), **environ}
    start = time.perf_counter()
    subprocess.run(command, env=environ, check=True, capture_output=True)
    return (time.perf_counter() - start) * 1e3


def _interval(count: int) -> tuple[int, int]:
    """Positions of the 95 % interval of the median in a sorted list (normal approximation)."""
    half = 0.98 * count**0.5
    low = max(0, int(count / 2 - half))
    return low, count - 1 - low


_LABELS = {
    "off": "the start-up line, nothing armed, in a whole start",
    "armed": "armed by `attach()` or the launcher, no third-party import",
    "armed_third_party": "armed, one third-party import",
    "launcher": "the launcher, around a command that does nothing",
}


def tables(figures: dict[str, Any]) -> str:
    """The figures as a table."""
    line = f"{figures['off_line_us'] / 1e3:.3f}"
    rows = [
        ("the start-up line, nothing armed, by itself (twice in a virtual environment)", line, "")
    ]
    for kind, label in _LABELS.items():
        low, high = (figures[f"{kind}_adds_{end}_ms"] for end in ("low", "high"))
        middle = f"{figures[f'{kind}_adds_ms']:.2f}"
        if low <= 0 <= high or high < 0:
            middle = "too small to see"
        rows.append((label, middle, f"{low:.2f} to {high:.2f}"))
    heads = (f"{figures['rounds']} starts", "added, ms", "95 % interval")
    return f"{table(heads, rows)}\n\nA bare Python takes {figures['python_ms']:.1f} ms here."


if __name__ == "__main__":
    main(measure, tables)
