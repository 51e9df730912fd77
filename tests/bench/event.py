"""Cost of one recorded call on the calling thread: ``python -m tests.bench.event``.

Every variant runs in turn, round by round, in one process. A turn is a tight loop of about a
seventh of a second, longer than the time between two writes of each background thread, so that a
figure holds what the background costs the caller; between turns the background is waited for.
"""

from __future__ import annotations

import statistics
import time
from array import array
from collections.abc import Callable
from typing import Any

from rlvr_probe.probe.recorder import FULL, OFF
from tests.bench.report import main, table
from tests.bench.variants import COUNTS, Variant, hooked, others, recording, work

__all__ = ["LABELS", "measure", "tables"]

LABELS = {
    "append": "bare append of a tuple, with two clock reads",
    "inert": "hook, nothing recorded (switched off, or after a detach)",
    "hook": "**hook**",
    "coarse": "hook, with the open-span table",
    "otel": "OpenTelemetry SDK span, batch processor, encoded, not sent",
    "logfire": "logfire span, batch processor, encoded, not sent",
}
TURN_S = 0.15


def measure(quick: bool = False) -> dict[str, Any]:
    """Figures of a call by variant, us: median with range of turns, 99th percentile."""
    rounds, turn_s = (2, 0.02) if quick else (12, TURN_S)
    with recording() as used, others() as variants:
        variants |= {f"hook, {count}": Variant(hooked(count), _nothing) for count in COUNTS}
        variants |= {
            "coarse, 5": Variant(hooked(5, coarse=True), _nothing),
            "inert, 5": Variant(hooked(5), _nothing),
            "bare": Variant(work, _nothing),
        }
        turns: dict[str, list[array[int]]] = {name: [] for name in variants}
        for _ in range(rounds):
            for name, variant in variants.items():
                used.recorder.level = OFF if name.startswith("inert") else FULL
                turns[name].append(_turn(variant.call, turn_s))
                variant.settle()
                used.recorder.flush()
        used.close()
        lost = sum(used.recorder.lost.values())
    base = statistics.median(statistics.median(turn) for turn in turns.pop("bare"))
    return {
        "rounds": rounds,
        "turn_s": turn_s,
        "rows_lost": lost,
        "variants": {name: _figures(found, base) for name, found in turns.items()},
    }


def _nothing() -> None:
    pass


def _turn(call: Callable[[int], int], seconds: float) -> array[int]:
    """How long each call took, ns."""
    clock = time.perf_counter_ns
    times = array("q")
    until = clock() + round(seconds * 1e9)
    i = 0
    while True:
        i += 1
        begin = clock()
        call(i)
        end = clock()
        times.append(end - begin)
        if end > until:
            return times


def _figures(turns: list[array[int]], base: float) -> dict[str, float]:
    medians = sorted(statistics.median(turn) - base for turn in turns)
    every = sorted(time_ns for turn in turns for time_ns in turn)
    return {
        "calls": len(every),
        "p50_us": statistics.median(medians) / 1e3,
        "p50_low_us": medians[0] / 1e3,
        "p50_high_us": medians[-1] / 1e3,
        "mean_us": (statistics.fmean(every) - base) / 1e3,
        "p99_us": (every[int(len(every) * 0.99)] - base) / 1e3,
    }


def tables(figures: dict[str, Any]) -> str:
    """The figures as a table."""
    found = figures["variants"]
    one = found["hook, 5"]["p50_us"]
    rows = []
    for name, row in sorted(found.items(), key=lambda item: list(LABELS).index(_kind(item[0]))):
        count = name.partition(", ")[2]
        rows.append(
            (
                LABELS[_kind(name)],
                f"{count}",
                f"{row['p50_us']:.2f}",
                f"{row['p50_low_us']:.2f} to {row['p50_high_us']:.2f}",
                f"{row['mean_us']:.2f}",
                f"{row['p99_us']:.1f}",
                f"{row['p50_us'] / one:.2g}",
            )
        )
    heads = ("variant", "values", "median, µs", "range, µs", "mean, µs", "p99, µs", "ratio")
    lost = f"Rows of ours that were lost: {figures['rows_lost']:,}."
    return f"{table(heads, rows)}\n\n{lost}"


def _kind(name: str) -> str:
    return name.partition(", ")[0]


if __name__ == "__main__":
    main(measure, tables)
