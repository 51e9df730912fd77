"""Very many real processes that record into one run: ``python -m tests.bench.ranks``.

Every rank is a Python that attaches and trains (:mod:`tests.bench.rank_training`), eight of them on
a node, which has a boot id, a name and a disk for its spool of its own, and with them a sidecar,
which moves the spool to the run folder. So many nodes run at once as half of the free memory holds,
and as the cores can start. Every step and trajectory of the ranks' own books has to be read again.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil

from tests.bench import rank_adapter
from tests.bench.marked import run_marked
from tests.bench.rank_nodes import PER_NODE, makes_nodes, run_nodes
from tests.bench.report import main, table, training_environ

__all__ = ["ARGUS_B", "XPUTIMER_B", "measure", "tables"]

ARGUS_B = 2_700
"""Bytes per rank and step of ARGUS (arXiv 2606.20374): the GPU kernels of a step, summarized."""
XPUTIMER_B = 1_500_000
"""Bytes per GPU of XPUTimer's log (arXiv 2502.05413)."""

_NODE_B = 400 << 20
"""What the ranks of a node, their sidecar and its children take at most."""
_NODES_OF_A_CORE = 6
"""More of them would wait for a core longer than a process waits for its own thread at its end."""
_SIZES, _STEPS, _STEP_S = (128, 512, 2_048), 12, 0.5
_QUICK = (16, 32), 3, 0.05

_ATTACH = "import rlvr_probe; rlvr_probe.attach()"
_TRAIN = "from tests.bench.rank_training import main; main({steps}, {step_s}, {books!r})"
_READ = """
import contextlib
from rlvr_probe.cli import main
with open(sys.argv[1], "w") as out, contextlib.redirect_stdout(out):
    code = main(sys.argv[2:])
mark("read")
if code:
    sys.exit(code)
"""


def measure(quick: bool = False, at_once: int | None = None) -> dict[str, Any]:
    """What recording and reading takes, by number of ranks.

    Args:
        quick: Only whether it works.
        at_once: Most ranks at a time; as memory and cores allow, if None.
    """
    sizes, steps, step_s = _QUICK if quick else (_SIZES, _STEPS, _STEP_S)
    if at_once is None:
        free_b, cores = psutil.virtual_memory().available, len(os.sched_getaffinity(0))
        at_once = min(free_b // 2 // _NODE_B, cores * _NODES_OF_A_CORE) * PER_NODE
    cases = [_case(ranks, steps, step_s, max(2 * PER_NODE, at_once)) for ranks in sizes]
    return {"steps": steps, "step_s": step_s, "cases": cases}


def _case(ranks: int, steps: int, step_s: float, at_once: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        scratch, run = Path(folder), Path(folder) / "runs" / "job"
        rank_adapter.install(scratch / "site")
        begin = time.monotonic()
        books, nodes = _train(scratch, ranks, steps, step_s, at_once)
        whole_s = time.monotonic() - begin
        bare, _ = _train(scratch, PER_NODE, steps, step_s, PER_NODE, probe=False)
        sizes = [path.stat().st_size for path in run.iterdir()]
        shown, show = _read(scratch, "show", "--json", run)
        told, characterize = _read(scratch, "characterize", run, "--json", "-")
    counts = dict(zip(told["counts"]["columns"], told["counts"]["rows"][0], strict=True))
    _check(ranks, steps, books, shown, counts)
    return {
        "ranks": ranks,
        "at_once": min(ranks, at_once),
        "s": whole_s,
        "trajectories": shown["trajectories"],
        "files": len(sizes),
        "folder_b": sum(sizes),
        **{f"rank_{name}": fmean(one[name] for one in books) for name in ("cpu_s", "memory_b")},
        **{f"bare_{name}": fmean(one[name] for one in bare) for name in ("cpu_s", "memory_b")},
        "nodes": len(nodes) if makes_nodes() else 1,
        "sidecars_cpu_s": sum(one["cpu_s"] for one in nodes),
        "sidecar_memory_b": max(one["memory_b"] for one in nodes),
        "show": show,
        "characterize": characterize,
    }


def _train(
    scratch: Path, ranks: int, steps: int, step_s: float, at_once: int, *, probe: bool = True
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What ranks have in their books, and what nodes say."""
    books = scratch / ("books" if probe else "books-bare")
    program = _TRAIN.format(steps=steps, step_s=step_s, books=str(books))
    environ = {
        "PYTHONPATH": os.pathsep.join((str(scratch / "site"), os.environ.get("PYTHONPATH", ""))),
        "RLVR_PROBE_OUT": str(scratch / "runs"),
        "RLVR_PROBE_RUN_ID": "job",
        "RLVR_PROBE_FRAMEWORKS": "rank_training",
    }
    program = f"{_ATTACH if probe else ''}\n{program}"
    nodes = run_nodes(scratch, program, ranks, at_once, training_environ(environ))
    if any(one["failed"] for one in nodes):
        raise RuntimeError(f"{sum(one['failed'] for one in nodes)} of {ranks} ranks failed")
    lines = books.read_text(encoding="ascii").splitlines()
    return [json.loads(line) for line in lines], nodes


def _read(scratch: Path, *command: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a command prints, and what it took."""
    out = scratch / "printed.json"
    took = run_marked(_READ, out, *command)["read"]
    return json.loads(out.read_text(encoding="utf-8")), took


def _check(
    ranks: int,
    steps: int,
    books: list[dict[str, Any]],
    shown: dict[str, Any],
    counts: dict[str, Any],
) -> None:
    """Compare what both commands say with the books of the ranks.

    Raises:
        RuntimeError: Something was lost, or is there twice.
    """
    whole = {
        "steps": steps,
        "trajectories": sum(one["trajectories"] for one in books),
        "response_tokens": sum(one["response_tokens"] for one in books),
    }
    everyone = list(range(ranks))
    steps_done = [(step, ranks, ranks) for step in range(1, steps + 1)]
    ended = [(one["rank"], one["state"]) for one in shown["process_list"]]
    for wanted, found in (
        (everyone, sorted(one["rank"] for one in books)),
        ([(rank, "exited") for rank in everyone], sorted(ended)),
        (steps_done, [(s["step"], s["ranks_done"], s["ranks"]) for s in shown["step_list"]]),
        ((1, {}, {}), (shown["attempts"], shown["lost"], shown["faults"])),
        (whole, {name: shown[name] for name in whole}),
        (whole | {"lost": 0}, {name: counts[name] for name in (*whole, "lost")}),
    ):
        if wanted != found:
            raise RuntimeError(f"{ranks} ranks: found {found}, expected {wanted}")


_Columns = dict[str, Callable[[dict[str, Any]], str]]

_RECORDING: _Columns = {
    "ranks": lambda case: f"{case['ranks']:,}",
    "at once": lambda case: f"{case['at_once']:,}",
    "until all is over, s": lambda case: f"{case['s']:.0f}",
    "CPU of a rank without and with it, s": lambda case: (
        f"{case['bare_cpu_s']:.2f}, {case['rank_cpu_s']:.2f}"
    ),
    "memory, MB": lambda case: (
        f"{case['bare_memory_b'] / 1e6:.1f}, {case['rank_memory_b'] / 1e6:.1f}"
    ),
    "nodes": lambda case: f"{case['nodes']:,}",
    "CPU of a sidecar, s": lambda case: f"{case['sidecars_cpu_s'] / case['nodes']:.2f}",
    "memory of a sidecar, MB": lambda case: f"{case['sidecar_memory_b'] / 1e6:.0f}",
}
_READING: _Columns = {
    "ranks": lambda case: f"{case['ranks']:,}",
    "trajectories": lambda case: f"{case['trajectories']:,}",
    "files": lambda case: f"{case['files']:,}",
    "MB": lambda case: f"{case['folder_b'] / 1e6:.1f}",
    "show, s": lambda case: f"{case['show']['s']:.1f}",
    "its memory, MB": lambda case: f"{case['show']['memory_b'] / 1e6:,.0f}",
    "characterize, s": lambda case: f"{case['characterize']['s']:.1f}",
    "memory of that, MB": lambda case: f"{case['characterize']['memory_b'] / 1e6:,.0f}",
}


def tables(figures: dict[str, Any]) -> str:
    """The figures as tables."""
    *_, before, last = cases = figures["cases"]
    rank_b = last["folder_b"] / last["ranks"]
    powers = {what: _power(before, last, what) for what in ("show", "characterize")}
    others = [
        (
            f"{last['ranks']:,} ranks, {figures['steps']} steps",
            "stages, turns, lengths, rewards, readings of hosts",
            f"{rank_b / figures['steps']:,.0f}",
            f"{rank_b:,.0f}",
        ),
        ("ARGUS", "the GPU kernels of each step, summarized", f"{ARGUS_B:,}", ""),
        ("XPUTimer", "its log", "", f"{XPUTIMER_B:,}"),
    ]
    return "\n\n".join(
        (
            *(
                table(tuple(columns), [[text(case) for text in columns.values()] for case in cases])
                for columns in (_RECORDING, _READING)
            ),
            "CPU time grows with the number of ranks to the power of"
            f" {powers['show']:.2f} (`show`) and {powers['characterize']:.2f} (`characterize`).",
            table(("", "records", "bytes per rank and step", "bytes per rank"), others),
        )
    )


def _power(before: dict[str, Any], last: dict[str, Any], what: str) -> float:
    """1 where CPU time grows as the ranks do, 2 where it is quadratic."""
    return math.log(last[what]["cpu_s"] / before[what]["cpu_s"], last["ranks"] / before["ranks"])


if __name__ == "__main__":
    main(measure, tables)
