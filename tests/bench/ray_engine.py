"""A recording characterized here and on Ray, with one CPU and two: ``tests.bench.ray_engine``.

The recording is the largest of ``tests.bench.compaction``. CPU time is of the command and of all
processes of the cluster, from before the command starts to its end. On two cores this shows that
the work is shared and what sharing costs, and nothing of larger clusters.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from rlvr_probe_ray.tests.runs import cluster, descendants, environment, node, python

from tests.bench.report import main, table
from tests.simulator.volume import write_volume

__all__ = ["BAR_CPU", "BAR_SPEED", "measure", "tables"]

BAR_SPEED: Final = 1.5
"""How many times as fast two workers are to be as one."""
BAR_CPU: Final = 1.3
"""CPU time that they may take, of that without Ray."""

_TRAJECTORIES: Final = 10_000_000
_QUICK: Final = 20_000
_CLUSTERS: Final[Mapping[str, tuple[int, ...]]] = {
    "1 worker": (1,),
    "2 workers": (2,),
    "2 nodes of 1 worker": (1, 1),
}
"""CPUs of each node."""
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


def measure(quick: bool = False) -> dict[str, Any]:
    """Seconds and CPU seconds by engine."""
    count = _QUICK if quick else _TRAJECTORIES
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        rows = write_volume(run, count).rows
        program = python().with_name("rlvr-probe")
        subprocess.run([program, "compact", run], check=True, capture_output=True)
        command: list[str | Path] = [program, "characterize", run]
        cases = {"here": _timed(command, environment(), [])}
        for name, nodes in _CLUSTERS.items():
            with ExitStack() as stack:
                running = stack.enter_context(cluster("--num-cpus", str(nodes[0])))
                for cpus in nodes[1:]:
                    stack.enter_context(node(running, python(), "--num-cpus", str(cpus)))
                variables = environment(RAY_ADDRESS=running.address)
                before = descendants(os.getpid())
                cases[name] = _timed([*command, "--engine", "ray"], variables, before)
    return {"trajectories": count, "rows": rows, "cases": cases}


def _timed(
    command: list[str | Path], variables: dict[str, str], others: Iterable[int]
) -> dict[str, float]:
    """Time of a command, and CPU time of it and of what started from ``others`` meanwhile, s."""
    before, used = _used_s(others), dict[int, float]()
    begin = time.monotonic()
    with subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL) as started:
        while started.poll() is None:
            used |= _used_s(descendants(os.getpid()))
            time.sleep(0.05)
    elapsed_s = time.monotonic() - begin
    if started.returncode:
        raise RuntimeError(f"{command}: status {started.returncode}")
    cpu_s = sum(seconds - before.get(pid, 0.0) for pid, seconds in used.items())
    return {"s": elapsed_s, "cpu_s": cpu_s}


def _used_s(pids: Iterable[int]) -> dict[int, float]:
    """CPU time that processes have used, those that are there."""
    used = {}
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        fields = text.rpartition(")")[2].split()
        used[pid] = (int(fields[11]) + int(fields[12])) * _TICK_S
    return used


def tables(figures: dict[str, Any]) -> str:
    """The figures as a table."""
    cases = figures["cases"]
    here, alone = cases["here"], cases["1 worker"]
    return table(
        ("engine", "s", "of 1 worker", "CPU, s", "of here"),
        [
            (
                name,
                f"{case['s']:.0f}",
                f"{alone['s'] / case['s']:.2f} times as fast",
                f"{case['cpu_s']:.0f}",
                f"{case['cpu_s'] / here['cpu_s']:.2f}",
            )
            for name, case in cases.items()
        ],
    )


if __name__ == "__main__":
    main(measure, tables)
