"""What it takes to send a run while it goes on: ``python -m tests.bench.live``.

A writer makes a run of two ranks in real time, at a rate of events of its own; the live child of a
sidecar sends it to a collector that takes everything. Lag is from the end of a step to when its
root arrived. Processor time is that of the child alone; the writer and the collector share another
process.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from rlvr_probe_otlp.tests.collector import Collector, http_collector

from rlvr_probe.model import names
from rlvr_probe.probe import identity
from rlvr_probe.sidecar.live import Children
from tests.bench.report import main, table
from tests.synthetic import SECOND, Process

__all__ = ["RATES", "measure", "tables"]

RATES = (1_000, 10_000, 50_000)
"""Events per second, of both ranks together."""

_RANKS = 2
_FLUSH_S = 0.1
_ROWS = 64
"""Trajectories of a rank and step."""


def measure(quick: bool = False) -> dict[str, Any]:
    """Figures by rate: lag and processor time, in the first and the second half of the run."""
    seconds, step_s = (6.0, 1.0) if quick else (40.0, 4.0)
    rates = RATES[:1] if quick else RATES
    figures = []
    for rate in rates:
        figures.append(_rate(rate, seconds, step_s))
        print(figures[-1], file=sys.stderr, flush=True)
    return {"step_s": step_s, "rates": figures}


def _rate(rate: int, seconds: float, step_s: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch, http_collector() as collector:
        folder = Path(scratch) / "run"
        mono_ns, epoch_ns = time.monotonic_ns(), time.time_ns()
        real = {
            "boot": identity.boot_id(), "pid": os.getpid(), "mono_ns": mono_ns,
            "epoch_ns": epoch_ns, "start_ticks": identity.process_start_ticks(os.getpid()),
        }  # fmt: skip
        ranks = [
            Process(folder, rank, header={**real, "rank": rank, "world_size": _RANKS})
            for rank in range(_RANKS)
        ]
        for one in ranks:
            one.event(names.SESSION, 0, session=0, rank=one.number, world_size=_RANKS)
            one.flush()
        children = Children(folder, lambda *fault: print(*fault, flush=True))
        children.begin({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint})
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.endpoint
        children.look(time.monotonic_ns())
        [child] = psutil.Process().children()
        arrived = _run(ranks, rate, seconds, step_s, mono_ns, child, collector)
        children.end()
        children.stop(60)
    return {"rate": rate, **arrived}


def _run(
    ranks: list[Process],
    rate: int,
    seconds: float,
    step_s: float,
    mono_ns: int,
    child: psutil.Process,
    collector: Collector,
) -> dict[str, Any]:
    """Write in real time; what became of it."""
    each = max(1, round(rate * _FLUSH_S / len(ranks)))
    cpu, lags, memory, events = [_cpu_s(child)], dict[str, float](), 0, 0
    step, steps = 1, round(seconds / step_s)
    ended = SECOND // 1_000
    whole = [[one.next_span(), one.next_span()] for one in ranks]
    begin = time.monotonic()
    while step <= steps:
        now = time.monotonic_ns() - mono_ns
        for one, (_, rollout) in zip(ranks, whole, strict=True):
            for at in range(each):
                one.span(
                    names.TURN, now - SECOND // 10, now - at, rollout, 0, batch=rollout,
                    rows=at % _ROWS, turn=at // _ROWS, prompt_tokens=100, response_tokens=50,
                )  # fmt: skip
        if time.monotonic() - begin >= step * step_s:
            for one, (span, rollout) in zip(ranks, whole, strict=True):
                _end(one, step, span, rollout, now, now - ended)
            ended = now
            whole = [[one.next_span(), one.next_span()] for one in ranks]
            step += 1
            if step == steps // 2 + 1:
                cpu.append(_cpu_s(child))
        events += sum(one.flush() for one in ranks)
        memory = max(memory, child.memory_info().rss)
        _note(collector, lags)
        rest = _FLUSH_S - (time.monotonic_ns() - mono_ns - now) / 1e9
        time.sleep(max(0.0, rest))
    took_s = time.monotonic() - begin
    cpu.append(_cpu_s(child))
    until = time.monotonic() + 30
    while len(lags) < steps - 1 and time.monotonic() < until:
        _note(collector, lags)
        time.sleep(0.05)
    found = list(lags.values())
    return {
        "events_per_s": events / took_s,
        "steps": len(found),
        "lag_s": statistics.median(found) if found else None,
        "longest_lag_s": max(found, default=None),
        "core_first_half": 2 * (cpu[1] - cpu[0]) / took_s,
        "core_second_half": 2 * (cpu[2] - cpu[1]) / took_s,
        "memory_b": memory,
    }


def _end(one: Process, step: int, span: int, rollout: int, now: int, length: int) -> None:
    where = {"session": 0, "step": step}
    one.event(
        names.TRAJECTORIES, now, rollout, **where, mode="train", batch=rollout, ordinal=0,
        policy_version=step - 1, offset=one.number * _ROWS, total=_ROWS * _RANKS, group_size=8,
        prompt_tokens=[100] * _ROWS, response_tokens=[500] * _ROWS,
    )  # fmt: skip
    one.span(names.ROLLOUT, now - length, now, span, rollout, **where, mode="train")
    one.span(names.STEP, now - length, now, 0, span, **where)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _note(collector: Collector, lags: dict[str, float]) -> None:
    """Take note of roots that arrived since the last look."""
    now = time.time()
    # Others come in meanwhile.
    got = Collector(traces=[collector.traces.pop(0) for _ in range(len(collector.traces))])
    for _, span in got.spans():
        if span.name == "rl.loop" and not span.parent_span_id:
            lags.setdefault(span.trace_id.hex(), now - span.end_time_unix_nano / 1e9)
    collector.metrics.clear()


def tables(figures: dict[str, Any]) -> str:
    """The figures as a table."""
    heads = (
        "events per second", "lag, s", "longest, s", "of a core, first half", "second half",
        "memory, MB",
    )  # fmt: skip
    rows = [
        (
            f"{row['events_per_s']:,.0f}",
            "none" if row["lag_s"] is None else f"{row['lag_s']:.1f}",
            "none" if row["longest_lag_s"] is None else f"{row['longest_lag_s']:.1f}",
            f"{row['core_first_half']:.1%}",
            f"{row['core_second_half']:.1%}",
            f"{row['memory_b'] / 1e6:.0f}",
        )
        for row in figures["rates"]
    ]
    return table(heads, rows)


if __name__ == "__main__":
    main(measure, tables)
