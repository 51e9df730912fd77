"""Reading and converting recordings of growing size: ``python -m tests.bench.conversion``.

Synthetic recordings of a TRL run on five ranks; each is read, converted and validated by processes
of its own, as ``rlvr-probe convert`` and ``rlvr-probe validate`` do, and their peak memory is asked
of the kernel.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.bench.marked import run_marked
from tests.bench.report import main, table
from tests.synthetic import write_recording

__all__ = ["BAR_B", "measure", "tables"]

BAR_B = 300_000_000
"""Memory that converting may take besides the largest step."""
_CASES = ((10, 1_000), (100, 1_000), (1_000, 1_000), (10, 100_000))
_QUICK = ((2, 1_000), (20, 1_000))
_RANKS = 5

_STAGES = """
from importlib.metadata import entry_points
from rlvr_probe.recording import read_run
from rlvr_probe.workload import build_workload
(entry,) = entry_points(group="rlvr_probe.exporters", name="polytrace")
exporter = entry.load()()
mark("start")
if sys.argv[1] == "convert":
    trace = read_run(Path(sys.argv[2]))
    mark("read")
    workload = build_workload(trace)
    mark("build")
    written = exporter.write(workload, Path(sys.argv[3]), keep_names=False)
    mark("write")
    marks["trajectories"] = written.trajectories
else:
    problems = exporter.validate(Path(sys.argv[3]))
    mark("validate")
    marks["problems"] = len(problems)
"""


def measure(quick: bool = False) -> dict[str, Any]:
    """Seconds and peak memory by recording."""
    return {"ranks": _RANKS, "cases": [_case(*case) for case in (_QUICK if quick else _CASES)]}


def _case(steps: int, per_step: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        run, out = Path(scratch) / "run", Path(scratch) / "workload"
        out.mkdir()
        books = write_recording(run, steps=steps, ranks=_RANKS, trajectories=per_step)
        marks = run_marked(_STAGES, "convert", run, out)
        checked = run_marked(_STAGES, "validate", run, out)
        size_b = sum(path.stat().st_size for path in out.iterdir())
    if marks["trajectories"] != books.trajectories or checked["problems"]:
        raise RuntimeError(f"{steps} steps of {per_step}: {marks} {checked}, expected {books}")
    begun = marks["start"]
    return {
        "steps": steps,
        "trajectories": books.trajectories,
        "journal_b": books.journal_b,
        "workload_b": size_b,
        "read_s": marks["read"]["s"] - begun["s"],
        "build_s": marks["build"]["s"] - marks["read"]["s"],
        "write_s": marks["write"]["s"] - marks["build"]["s"],
        "validate_s": checked["validate"]["s"] - checked["start"]["s"],
        "start_memory_b": begun["memory_b"],
        "read_memory_b": marks["read"]["memory_b"],
        "memory_b": marks["write"]["memory_b"],
        "validate_memory_b": checked["validate"]["memory_b"],
    }


def tables(figures: dict[str, Any]) -> str:
    """The figures as a table."""
    heads = (
        "trajectories",
        "steps",
        "journals, MB",
        "read, s",
        "convert, s",
        "µs per trajectory",
        "memory, MB",
        "validate, s",
        "memory, MB",
    )
    rows = []
    for row in figures["cases"]:
        converted_s = row["build_s"] + row["write_s"]
        rows.append(
            (
                f"{row['trajectories']:,}",
                f"{row['steps']:,}",
                f"{row['journal_b'] / 1e6:.1f}",
                f"{row['read_s']:.2f}",
                f"{converted_s:.2f}",
                f"{(row['read_s'] + converted_s) / row['trajectories'] * 1e6:.1f}",
                f"{row['memory_b'] / 1e6:.0f}",
                f"{row['validate_s']:.2f}",
                f"{row['validate_memory_b'] / 1e6:.0f}",
            )
        )
    return table(heads, rows)


if __name__ == "__main__":
    main(measure, tables)
