"""CPU of the whole process per event, and the rate at which the first rows are dropped.

    python -m tests.bench.rate

A caller keeps to a rate in ticks of a millisecond. What the process takes for the same ticks with
the bare function is subtracted, so that a figure holds hook, readers, encoder and thread alone.
Drops are counted twice: by the recorder, and from the lines of the journals against the calls.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.bench.report import main, table
from tests.bench.variants import Variant, hooked, others, recording, work

__all__ = ["BAR_PER_S", "measure", "tables"]

RATES = (0, 1_000, 10_000)
"""Events per second; 0 is a recorder that has nothing to do."""
BAR_PER_S = 200_000
_TICK_S = 0.01
"""Of the CPU figures."""


@dataclass(frozen=True)
class _Paced:
    events: int
    wall_s: float
    cpu_s: float

    @property
    def per_s(self) -> float:
        return self.events / self.wall_s


def _pace(
    call: Callable[[int], int], per_s: float, seconds: float, tick_s: float = 0.001
) -> _Paced:
    """Call ``per_s`` times a second; as fast as it goes where that is too much.

    Waking up takes CPU as well, so that few events a second go with few ticks, and none with none.
    """
    clock = time.perf_counter
    cpu, begin = time.process_time(), clock()
    done = 0
    while (passed := clock() - begin) < seconds:
        due = int(per_s * passed)
        for i in range(done, min(due, done + 1_000)):
            call(i)
        if done + 1_000 < due:
            done += 1_000
        else:
            done = due
            time.sleep(tick_s if per_s else seconds)
    return _Paced(done, clock() - begin, time.process_time() - cpu)


def _cpu(seconds: float, rounds: int) -> list[dict[str, Any]]:
    """CPU per event by rate and variant, less that of the bare function; medians of rounds."""
    return [
        _median(name, per_s, [_added(name, per_s, seconds) for _ in range(rounds)])
        for per_s in RATES
        for name in (("hook", "otel", "logfire") if per_s >= 1_000 else ("hook",))
    ]


def _added(name: str, per_s: int, seconds: float) -> float:
    """CPU seconds per second that recording takes, all threads, until all is encoded."""
    idle = _pace(work, per_s, seconds, _TICK_S)
    with _variant(name) as variant:
        variant.call(0)  # its threads run
        variant.settle()
        cpu = time.process_time()
        paced = _pace(variant.call, per_s, seconds, _TICK_S)
        variant.settle()
        cpu = time.process_time() - cpu
    return cpu / paced.wall_s - idle.cpu_s / idle.wall_s


@contextmanager
def _variant(name: str) -> Iterator[Variant]:
    if name == "hook":
        with recording() as used:
            yield Variant(hooked(5), used.recorder.flush)
    else:
        with others((5,)) as variants:
            yield variants[f"{name}, 5"]


def _median(name: str, per_s: int, added: list[float]) -> dict[str, Any]:
    share = statistics.median(added)
    return {
        "variant": name,
        "events_per_s": per_s,
        "cpu_of_one_core": share,
        "cpu_us_per_event": share / per_s * 1e6 if per_s else None,
    }


def _sustain(per_s: float, seconds: float) -> dict[str, Any]:
    """One try at a rate: what was called, written and dropped, and whether the books agree."""
    with recording() as used:
        paced = _pace(hooked(5), per_s, seconds)
        begin = time.perf_counter()
        used.close()
        drained = time.perf_counter() - begin
        written, size_b = _count(used.folder)
        dropped = sum(used.recorder.lost.values())
    return {
        "asked_per_s": per_s,
        "called": paced.events,
        "called_per_s": paced.per_s,
        "written": written,
        "written_per_s": written / (paced.wall_s + drained),
        "dropped": dropped,
        "uncounted": paced.events - written - dropped,
        "cpu_us_per_event": paced.cpu_s / max(1, paced.events) * 1e6,
        "bytes_per_event": size_b / max(1, written),
    }


def _count(folder: Path) -> tuple[int, int]:
    """Rows of spans in the journals of a folder, by their lines, and bytes of the journals."""
    decode = msgspec.json.Decoder().decode
    rows = size_b = 0
    for path in sorted(folder.glob("*.jsonl")):
        size_b += path.stat().st_size
        with path.open("rb") as lines:
            next(lines)
            rows += sum(type(decode(line)[0]) is int for line in lines)
    return rows, size_b


def _drop_point(seconds: float, tries: int) -> list[dict[str, Any]]:
    """Tries around the highest rate without a drop, by halves."""
    low, high = 0.0, 600_000.0
    found = [_sustain(high, seconds)]
    if not found[0]["dropped"]:
        return found
    high = min(high, found[0]["called_per_s"])
    for _ in range(tries):
        found.append(_sustain((low + high) / 2 if low else BAR_PER_S, seconds))
        last = found[-1]
        if last["dropped"]:
            high = last["asked_per_s"]
        else:
            low = last["asked_per_s"]
    return found


def measure(quick: bool = False) -> dict[str, Any]:
    """CPU per event by rate, and the tries at the drop point."""
    seconds = 0.3 if quick else 5.0
    tries = _drop_point(seconds, 1 if quick else 6)
    dropped = [one["called_per_s"] for one in tries if one["dropped"]]
    first = min(dropped, default=None)
    held = [one["called_per_s"] for one in tries if not one["dropped"]]
    held = [per_s for per_s in held if first is None or per_s < first]
    return {
        "seconds": seconds,
        "cpu": _cpu(0.2, 1) if quick else _cpu(1.0, 3),
        "tries": tries,
        "held_per_s": max(held, default=0.0),
        "dropping_per_s": first,
        "uncounted": sum(abs(one["uncounted"]) for one in tries),
    }


def tables(figures: dict[str, Any]) -> str:
    """The figures as tables."""
    cpu = [
        (
            {"hook": "**hook**", "otel": "OpenTelemetry SDK span"}.get(
                row["variant"], "logfire span"
            ),
            f"{row['events_per_s']:,}",
            f"{row['cpu_of_one_core']:.2%}",
            "" if row["cpu_us_per_event"] is None else f"{row['cpu_us_per_event']:.1f}",
        )
        for row in figures["cpu"]
    ]
    tries = [
        (
            f"{row['called_per_s']:,.0f}",
            f"{row['called']:,}",
            f"{row['written']:,}",
            f"{row['dropped']:,}",
            f"{row['uncounted']:,}",
            f"{row['cpu_us_per_event']:.2f}",
            f"{row['bytes_per_event']:.0f}",
        )
        for row in sorted(figures["tries"], key=lambda one: float(one["called_per_s"]))
    ]
    heads = ("variant, 5 values", "events/s", "of one core", "CPU, µs per event")
    more = (
        "events/s",
        "called",
        "written",
        "dropped",
        "in no count",
        "CPU with the loop, µs",
        "bytes",
    )
    held = (
        f"Held for {figures['seconds']:g} s without a drop: {figures['held_per_s']:,.0f} events/s"
    )
    if figures["dropping_per_s"]:
        held += f"; the first rows are dropped below {figures['dropping_per_s']:,.0f}"
    return f"{table(heads, cpu)}\n\n{table(more, tries)}\n\n{held}."


if __name__ == "__main__":
    main(measure, tables)
