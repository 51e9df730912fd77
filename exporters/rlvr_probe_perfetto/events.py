"""The timeline as events of the Trace Event Format, which several viewers open."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from rlvr_probe.model.devices import DeviceSeries
from rlvr_probe.model.trace import Process, Rpc, Span, Trace
from rlvr_probe_perfetto.lanes import Bar, in_lanes
from rlvr_probe_perfetto.spans import Drawn, Left, Selection, bars, trajectories

__all__ = ["DEVICES", "TRAJECTORIES", "Event", "events"]

Event = dict[str, Any]

DEVICES: Final = 1_000_000
"""First ``pid`` of a device: processes have the numbers below."""

TRAJECTORIES: Final = 10_000
"""First ``tid`` of trajectories; those of coarse spans lie below."""

_POINTS: Final = 20_000
"""Most points of one counter of a device."""


def events(trace: Trace, selection: Selection, left: Left) -> Iterator[Event]:
    """Every event of the timeline; times are us on the clock of the run.

    Args:
        trace: The run.
        selection: How much of it.
        left: Gets what is not drawn.
    """
    drawn = bars(trace, selection)
    loose = dict[int, list[Bar[Drawn]]]()
    for index, found in trajectories(trace, selection, left):
        loose.setdefault(index, []).extend(found)
    threads = dict[tuple[int, Hashable], int]()
    for process in trace.processes:
        own, others = drawn.get(process.index, []), loose.get(process.index, [])
        if not own and not others:
            continue
        yield from _process(process)
        yield from _bars(process, own, 1, "spans", threads)
        yield from _bars(process, others, TRAJECTORIES, "trajectories", threads)
    for attempt in trace.attempts:
        if selection.steps is None:
            yield from _flows(attempt.rpcs, f"{attempt.index}", threads)
        for step in filter(selection.has, attempt.steps):
            where = f"{step.attempt}.{step.session}.{step.life}.{step.number}"
            yield from _flows(step.rpcs, where, threads)
    for number, device in enumerate(trace.devices):
        yield from _device(device, DEVICES + number)


def _process(process: Process) -> Iterator[Event]:
    rank = "" if process.rank is None else f"rank {process.rank}"
    name = " ".join(word for word in (process.role[:256], rank) if word) or "process"
    yield _meta(process.index + 1, "process_name", name=f"{name}, {process.host[:256]}")
    order = process.index if process.rank is None else process.rank
    yield _meta(process.index + 1, "process_sort_index", sort_index=order)


def _bars(
    process: Process,
    drawn: list[Bar[Drawn]],
    first: int,
    what: str,
    threads: dict[tuple[int, Hashable], int],
) -> Iterator[Event]:
    named = set[int]()
    for lane, bar in in_lanes(drawn):
        thread = first + lane
        threads[process.index, bar.key] = thread
        if lane not in named:
            named.add(lane)
            name = what if lane == 0 else f"{what} {lane + 1}"
            yield _meta(process.index + 1, "thread_name", thread, name=name)
            yield _meta(process.index + 1, "thread_sort_index", thread, sort_index=thread)
        yield {
            "ph": "X",
            "name": bar.content.name,
            "cat": bar.content.category,
            "pid": process.index + 1,
            "tid": thread,
            "ts": bar.start_ns / 1e3,
            "dur": (bar.end_ns - bar.start_ns) / 1e3,
            "args": dict(bar.content.arguments),
        }


def _meta(process: int, what: str, thread: int = 0, **arguments: Any) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": arguments}


def _flows(
    rpcs: Iterable[Rpc], where: str, threads: Mapping[tuple[int, Hashable], int]
) -> Iterator[Event]:
    """Arrows from a call to what each rank did."""
    for number, rpc in enumerate(rpcs):
        start = _end_of_flow(rpc.caller, threads)
        for rank, span in enumerate(rpc.ranks):
            end = _end_of_flow(span, threads)
            if start is not None and end is not None:
                one = {"name": "call", "cat": "rpc", "id": f"{where}.{number}.{rank}"}
                yield {**one, "ph": "s", **start}
                yield {**one, "ph": "f", "bp": "e", **end}


def _end_of_flow(span: Span, threads: Mapping[tuple[int, Hashable], int]) -> Event | None:
    """Where an arrow begins or ends: in the bar of ``span``."""
    thread = threads.get((span.process, span.id))
    if thread is None:
        return None
    return {"pid": span.process + 1, "tid": thread, "ts": span.start_ns / 1e3}


def _device(device: DeviceSeries, process: int) -> Iterator[Event]:
    facts = device.facts
    name = " ".join(word for word in (facts.kind, facts.model, device.uuid, facts.host) if word)
    yield _meta(process, "process_name", name=name[:256])
    yield _meta(process, "process_sort_index", sort_index=process)
    for counter in device.counters():
        unit = f", {counter.unit}" if counter.unit not in ("", "1") else ""
        rate = counter.kind == "total"
        title = f"{counter.name}{'/s' if rate else ''}{unit if not rate else ''}"
        for time_ns, value in _thinned(list(device.points(counter.name)), rate=rate):
            yield {
                "ph": "C", "name": title, "pid": process, "tid": 0, "ts": time_ns / 1e3,
                "args": {"value": value},
            }  # fmt: skip


def _thinned(points: list[tuple[int, float]], *, rate: bool) -> Iterator[tuple[int, float]]:
    """At most so many points: means of neighbours, or how fast what counts up went there."""
    size = -(-len(points) // _POINTS)
    if not rate:
        for begin in range(0, len(points), max(1, size)):
            part = points[begin : begin + size]
            yield part[-1][0], sum(value for _, value in part) / len(part)
        return
    edges = points[:: max(1, size)]
    for (before_ns, before), (time_ns, value) in pairwise(edges):
        # A counter that went back began anew.
        if time_ns > before_ns and value >= before:
            yield time_ns, (value - before) / ((time_ns - before_ns) / 1e9)
