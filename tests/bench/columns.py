"""Cost of the lengths of a batch as the batch grows: ``python -m tests.bench.columns``.

What a rank does once per batch, with the reading functions of the TRL integration: the length of
each list of tokens, whether it was cut off, one row with a list per column. On the calling thread,
and the bytes that the row takes.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

from rlvr_probe_trl.reading import lengths, truncated

from rlvr_probe.model.names import TRAJECTORIES
from tests.bench.report import main, table
from tests.bench.variants import Recording, recording

__all__ = ["SIZES", "measure", "tables"]

SIZES = (8, 64, 512, 4_096)
"""Trajectories of one rank and batch."""
_STOPS = frozenset({1})


def measure(quick: bool = False) -> dict[str, Any]:
    """Figures by number of trajectories: us on the calling thread, CPU of the writer, bytes."""
    rounds = 20 if quick else 300
    return {"rounds": rounds, "sizes": [_size(size, rounds) for size in SIZES]}


def _size(size: int, rounds: int) -> dict[str, float]:
    draw = random.Random(0)
    prompts = [[7] * draw.randint(20, 200) for _ in range(size)]
    responses = [[7] * draw.randint(1, 1_000) + [1] for _ in range(size)]
    times, drains = list[int](), list[int]()
    with recording() as used:
        used.recorder.event_row(used.recorder.define(TRAJECTORIES, ()), 0, ())
        used.recorder.flush()
        before = _bytes(used)
        for _ in range(rounds):
            begin = time.perf_counter_ns()
            _emit(used, prompts, responses)
            times.append(time.perf_counter_ns() - begin)
            cpu = time.thread_time_ns()
            used.recorder.flush()
            drains.append(time.thread_time_ns() - cpu)
        size_b = (_bytes(used) - before) / rounds
    times.sort()
    middle = statistics.median(times)
    return {
        "trajectories": size,
        "p50_us": middle / 1e3,
        "p99_us": times[int(rounds * 0.99)] / 1e3,
        "ns_per_trajectory": middle / size,
        "writer_us": statistics.median(drains) / 1e3,
        "bytes_per_trajectory": size_b / size,
    }


def _emit(used: Recording, prompts: list[list[int]], responses: list[list[int]]) -> None:
    used.probe.emit(
        TRAJECTORIES,
        {
            "session": 0,
            "step": 17,
            "mode": "train",
            "batch": 12_345,
            "ordinal": 0,
            "policy_version": 16,
            "offset": 0,
            "total": len(responses),
            "group_size": 8,
            "prompt_tokens": lengths(prompts),
            "response_tokens": lengths(responses),
            "truncated": truncated(responses, _STOPS),
        },
        parent=12_346,
    )


def _bytes(used: Recording) -> int:
    return sum(path.stat().st_size for path in used.folder.glob("*.jsonl"))


def tables(figures: dict[str, Any]) -> str:
    """The figures as a table."""
    heads = (
        "trajectories of a rank and batch",
        "median, µs",
        "p99, µs",
        "per trajectory, ns",
        "encoding and writing, µs",
        "bytes per trajectory",
    )
    rows = [
        (
            f"{row['trajectories']:,}",
            f"{row['p50_us']:.1f}",
            f"{row['p99_us']:.1f}",
            f"{row['ns_per_trajectory']:,.0f}",
            f"{row['writer_us']:.0f}",
            f"{row['bytes_per_trajectory']:.1f}",
        )
        for row in figures["sizes"]
    ]
    return table(heads, rows)


if __name__ == "__main__":
    main(measure, tables)
