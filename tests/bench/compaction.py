"""Recordings characterized before and after they were compacted: ``tests.bench.compaction``.

The recordings are those of ``tests.bench.analysis``. ``rlvr-probe compact`` compacts one, and it is
characterized by a process of its own from its files to the last figure, with two threads; both
readings of a recording follow one another.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.marked import run_marked
from tests.bench.report import main, table
from tests.simulator.volume import write_volume

__all__ = ["BAR_CPU_S", "BAR_S", "characterized", "measure", "tables"]

BAR_S = 60.0
BAR_CPU_S = 95.0
"""Time and CPU time that ten million compacted trajectories may take, s."""
_SIZES = (100_000, 1_000_000, 10_000_000)
_QUICK = (20_000, 40_000)

_STAGES = """
from rlvr_probe.analysis.characterization import characterize
from rlvr_probe.recording.tables import open_tables
with open_tables(Path(sys.argv[1]), threads=2) as tables:
    mark("tables")
    characterize(tables)
    mark("figures")
    [[marks["trajectories"]]] = tables.sql.execute("SELECT count(*) FROM trajectory").fetchall()
"""


def measure(quick: bool = False) -> dict[str, Any]:
    """Seconds, CPU seconds and bytes by recording."""
    return {"cases": [_case(count) for count in (_QUICK if quick else _SIZES)]}


def _case(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        rows = write_volume(run, count).rows
        plain_b, plain = _size_b(run), characterized(run, count)
        before_s = _children_s()
        subprocess.run(
            [Path(sys.executable).with_name("rlvr-probe"), "compact", run],
            check=True,
            capture_output=True,
        )
        compacting_s = _children_s() - before_s
        compacted = characterized(run, count)
        return {
            "trajectories": count,
            "rows": rows,
            "plain_b": plain_b,
            "compacted_b": _size_b(run),
            "compacting_cpu_s": compacting_s,
            "plain": plain,
            "compacted": compacted,
        }


def characterized(run: Path, count: int) -> dict[str, Any]:
    """Seconds, CPU seconds and memory of reading a run, and of making all its figures.

    Raises:
        RuntimeError: It has not as many trajectories.
    """
    marks = run_marked(_STAGES, run)
    if marks["trajectories"] != count:
        raise RuntimeError(f"{marks['trajectories']} trajectories, expected {count}")
    return {
        "tables_s": marks["tables"]["s"],
        "s": marks["figures"]["s"],
        "cpu_s": marks["figures"]["cpu_s"],
        "memory_b": marks["figures"]["memory_b"],
    }


def _size_b(run: Path) -> int:
    return sum(path.stat().st_size for path in run.iterdir())


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tables(figures: dict[str, Any]) -> str:
    """The figures as a table."""
    heads = (
        "trajectories", "rows", "MB, compacted", "compacting, CPU µs per row", "to tables, s",
        "to figures, s", "CPU, s", "memory, MB",
    )  # fmt: skip
    found = []
    for case in figures["cases"]:
        plain, compacted = case["plain"], case["compacted"]
        found.append(
            (
                f"{case['trajectories']:,}",
                f"{case['rows']:,}",
                f"{case['plain_b'] / 1e6:,.0f}, {case['compacted_b'] / 1e6:,.0f}",
                f"{case['compacting_cpu_s'] / case['rows'] * 1e6:.1f}",
                f"{plain['tables_s']:.1f}, {compacted['tables_s']:.1f}",
                f"{plain['s']:.1f}, {compacted['s']:.1f}",
                f"{plain['cpu_s']:.1f}, {compacted['cpu_s']:.1f}",
                f"{plain['memory_b'] / 1e6:,.0f}, {compacted['memory_b'] / 1e6:,.0f}",
            )
        )
    return table(heads, found)


if __name__ == "__main__":
    main(measure, tables)
