"""A hundred million trajectories, by hand: ``python -m tests.bench.large [--folder FOLDER]``.

Ten million, then a hundred, are written, compacted and characterized, each by a process with two
threads, as in ``tests.bench.compaction``: time and CPU time are to grow with their number, and
memory is to stay below 4 GiB. It takes an hour and 60 GB; what is in ``FOLDER`` already is taken
as it is.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.bench import compaction
from tests.bench.report import table
from tests.simulator.volume import write_volume

__all__ = ["measure", "tables"]

LEAST_FREE_B: Final = 60_000_000_000
_SIZES: Final = (10_000_000, 100_000_000)


def measure(folder: Path) -> list[dict[str, Any]]:
    """Seconds, CPU seconds and memory by number of trajectories; what is written stays.

    Raises:
        SystemExit: The disk has no room for it.
    """
    free_b = shutil.disk_usage(folder).free + _size_b(folder)
    if free_b < LEAST_FREE_B:
        told = f"{folder} has {free_b / 1e9:.0f} GB of room, expected {LEAST_FREE_B / 1e9:.0f}"
        raise SystemExit(f"skipped: {told}")
    return [_case(folder / str(size) / "run", size) for size in _SIZES]


def _case(run: Path, size: int) -> dict[str, Any]:
    if not run.exists():
        written = run.with_name("written")
        shutil.rmtree(written, ignore_errors=True)  # of a run that was ended
        write_volume(written, size)
        program = Path(sys.executable).with_name("rlvr-probe")
        subprocess.run([program, "compact", written], check=True, stdout=subprocess.DEVNULL)
        written.rename(run)
    return {"trajectories": size, **compaction.characterized(run, size)}


def _size_b(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def tables(cases: list[dict[str, Any]]) -> str:
    """The figures as a table."""
    first = cases[0]["trajectories"]
    return table(
        (
            "trajectories",
            "to tables, s",
            "to figures, s",
            "CPU, s",
            "of the first, for as many",
            "memory, MB",
        ),
        [
            (
                f"{case['trajectories']:,}",
                f"{case['tables_s']:.1f}",
                f"{case['s']:.1f}",
                f"{case['cpu_s']:,.0f}",
                f"{case['cpu_s'] / cases[0]['cpu_s'] / (case['trajectories'] / first):.2f}",
                f"{case['memory_b'] / 1e6:,.0f}",
            )
            for case in cases
        ],
    )


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--folder", type=Path, help="keep the recordings there")
    given = parser.parse_args()
    if given.folder is not None:
        given.folder.mkdir(parents=True, exist_ok=True)
        print(tables(measure(given.folder)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        print(tables(measure(Path(scratch))))


if __name__ == "__main__":
    main()
