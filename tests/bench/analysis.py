"""Characterizing recordings of growing size: ``python -m tests.bench.analysis``.

Recordings of a job with one controller, three rows for each trajectory, of one with very many
processes, and of a small job whose eight GPUs are read five times a second. Each is characterized
by a process of its own, as ``rlvr-probe characterize`` does, from journal files to the last figure;
its peak memory is asked of the kernel. DuckDB has two threads.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.actors import Job
from tests.bench.marked import run_marked
from tests.bench.report import main, table
from tests.simulator.volume import write_volume

__all__ = ["BAR_B", "BAR_S", "measure", "tables"]

BAR_S = 60.0
"""Time that ten million trajectories may take, and 2,048 processes with 100 steps, s."""
BAR_B = 2 << 30
_SIZES = (100_000, 1_000_000, 10_000_000)
_QUICK = (2_000, 20_000)
_PROCESSES = (2_048, 100)
_FEW = (8, 4)
_READ = (3_200, 12_800)
"""Trajectories of recordings whose GPUs are read."""
_HZ = 5.0
_PER_STEP = 64
_AGAIN = "SELECT step_id, quantile_cont(response_tokens, 0.99) FROM trajectory GROUP BY step_id"

_STAGES = """
from rlvr_probe.analysis.characterization import characterize
from rlvr_probe.recording.tables import open_saved, open_tables, save_tables
mark("start")
if sys.argv[1] == "whole":
    with open_tables(Path(sys.argv[2]), threads=2) as tables:
        mark("tables")
        found = characterize(tables)
        mark("figures")
        [[marks["trajectories"]]] = tables.sql.execute("SELECT count(*) FROM trajectory").fetchall()
        marks["notes"] = [note for note in tables.notes if note.startswith("read row by row")]
        save_tables(tables, Path(sys.argv[3]))
        mark("save")
else:
    with open_saved(Path(sys.argv[3]), threads=2) as tables:
        rows = tables.sql.execute(sys.argv[4]).fetchall()
        mark("again")
"""


def measure(quick: bool = False) -> dict[str, Any]:
    """Seconds and peak memory by recording."""
    cases = [_trajectories(count) for count in (_QUICK if quick else _SIZES)]
    return {
        "cases": cases,
        "processes": _processes(*(_FEW if quick else _PROCESSES)),
        "readings": [_readings(count) for count in (_QUICK[:1] if quick else _READ)],
    }


def _trajectories(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        books = write_volume(Path(scratch) / "run", count)
        return {"trajectories": count, "rows": books.rows, **_case(Path(scratch), count)}


def _processes(ranks: int, steps: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        books = Job(Path(scratch) / "run", steps=steps, ranks=ranks, booked=False).write()
        found = _case(Path(scratch), None)
    return {"processes": ranks, "steps": steps, "rows": books.rows, **found}


def _readings(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        books = write_volume(Path(scratch) / "run", count, per_step=_PER_STEP, hz=_HZ)
        found = _case(Path(scratch), count)
    return {"rows": books.rows, "steps": books.steps, **found}


def _case(scratch: Path, count: int | None) -> dict[str, Any]:
    run, saved = scratch / "run", scratch / "tables"
    size_b = sum(path.stat().st_size for path in run.glob("*.jsonl"))
    marks = run_marked(_STAGES, "whole", run, saved)
    if count is not None and marks["trajectories"] != count:
        raise RuntimeError(f"{marks['trajectories']} trajectories, expected {count}")
    if marks["notes"]:
        raise RuntimeError(f"{run}: {marks['notes'][0]}")
    again = run_marked(_STAGES, "again", run, saved, _AGAIN)
    saved_b = sum(path.stat().st_size for path in saved.iterdir())
    return {
        "journal_b": size_b,
        "saved_b": saved_b,
        "tables_s": marks["tables"]["s"] - marks["start"]["s"],
        "figures_s": marks["figures"]["s"] - marks["tables"]["s"],
        "save_s": marks["save"]["s"] - marks["figures"]["s"],
        "again_s": again["again"]["s"] - again["start"]["s"],
        "tables_memory_b": marks["tables"]["memory_b"],
        "memory_b": marks["figures"]["memory_b"],
    }


def tables(figures: dict[str, Any]) -> str:
    """The figures as tables."""
    heads = (
        "trajectories",
        "rows",
        "journals, MB",
        "to tables, s",
        "to figures, s",
        "µs per trajectory",
        "memory, MB",
        "saved, MB",
        "another quantile, s",
    )
    rows = []
    for row in figures["cases"]:
        whole_s = row["tables_s"] + row["figures_s"]
        rows.append(
            (
                f"{row['trajectories']:,}",
                f"{row['rows']:,}",
                f"{row['journal_b'] / 1e6:,.0f}",
                f"{row['tables_s']:.1f}",
                f"{row['figures_s']:.1f}",
                f"{whole_s / row['trajectories'] * 1e6:.1f}",
                f"{row['memory_b'] / 1e6:,.0f}",
                f"{row['saved_b'] / 1e6:,.0f}",
                f"{row['again_s']:.2f}",
            )
        )
    one = figures["processes"]
    many = (
        f"{one['processes']:,}", f"{one['steps']:,}", f"{one['rows']:,}",
        f"{one['journal_b'] / 1e6:,.0f}", f"{one['tables_s']:.1f}", f"{one['figures_s']:.1f}",
        f"{one['memory_b'] / 1e6:,.0f}",
    )  # fmt: skip
    heads_many = (
        "processes", "steps", "rows", "journals, MB", "to tables, s", "to figures, s", "memory, MB",
    )  # fmt: skip
    heads_read = (
        "rows", "steps", "journals, MB", "to tables, s", "to figures, s", "µs per row",
        "memory, MB",
    )  # fmt: skip
    read = [
        (
            f"{row['rows']:,}",
            f"{row['steps']:,}",
            f"{row['journal_b'] / 1e6:,.0f}",
            f"{row['tables_s']:.1f}",
            f"{row['figures_s']:.1f}",
            f"{(row['tables_s'] + row['figures_s']) / row['rows'] * 1e6:.1f}",
            f"{row['memory_b'] / 1e6:,.0f}",
        )
        for row in figures["readings"]
    ]
    return "\n\n".join((table(heads, rows), table(heads_many, [many]), table(heads_read, read)))


if __name__ == "__main__":
    main(measure, tables)
