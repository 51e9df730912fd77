"""Processes of a run: what each did, how it ended, and what is missing of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from rlvr_probe.model import names
from rlvr_probe.model.trace import Process, Rpc, Span, Step, Trace
from rlvr_probe_perfetto.order import Group, in_order
from rlvr_probe_perfetto.scope import Scope
from rlvr_probe_perfetto.slices import Slice, arguments, shown, slice_of, unfinished_slice
from rlvr_probe_perfetto.timeline import Timeline, Track

__all__ = ["draw_processes", "nodes_of", "step_slice"]

_CHUNK = 1024


@dataclass(frozen=True, slots=True)
class _Arrows:
    """Numbers of the arrows that begin or end at a slice, by process and id."""

    begin: dict[tuple[int, int], list[int]]
    end: dict[tuple[int, int], int]

    def add(self, calls: Iterable[Rpc], first: int) -> int:
        """Take an arrow from each caller to each rank; the number of the next one."""
        for call in calls:
            caller = call.caller.process, call.caller.id
            for span in call.ranks:
                # Clocks of two machines may disagree: no arrow goes back in time.
                if span.start_ns >= call.caller.start_ns:
                    self.begin.setdefault(caller, []).append(first)
                    self.end[span.process, span.id] = first
                    first += 1
        return first


def nodes_of(trace: Trace) -> dict[str, int]:
    """A number for each host, from 1, in the order in which they begin."""
    hosts = [one.host for one in (*trace.processes, *trace.sidecars)]
    hosts += [series.facts.host for series in trace.devices]
    return {host: number for number, host in enumerate(dict.fromkeys(hosts), 1)}


def draw_processes(
    timeline: Timeline, trace: Trace, nodes: Mapping[str, int], scope: Scope
) -> None:
    """Draw every process on lines of its own, sorted by launch, role and rank."""
    attempts = {index: attempt.index for attempt in trace.attempts for index in attempt.processes}
    tracks = dict[int, Track]()
    launches = len(trace.attempts) > 1

    def place(one: Process) -> tuple[int, str, bool, int, int, str]:
        attempt = attempts.get(one.index, len(trace.attempts))
        return attempt, one.role, one.rank is None, one.rank or 0, one.start_ns, one.key

    for one in sorted(trace.processes, key=place):
        words = [str(shown(one.role))] if one.role else []
        if one.rank is not None:
            words.append(f"rank {one.rank}")
        words = words or ["process"]
        if launches and one.index in attempts:
            words.insert(0, f"attempt {attempts[one.index]}")
        track = tracks[one.index] = timeline.track(" ".join(words))
        for bar in _life(one, nodes, scope):
            track.slice(bar, "process")
    arrows = _Arrows({}, {})
    for bar in in_order(_groups(trace, scope, arrows)):
        track = tracks[bar.process]
        thread = track.slice(bar, "spans")
        if isinstance(bar.key, int):
            for number in arrows.begin.pop((bar.process, bar.key), ()):
                track.arrow(number, thread, bar.start_ns, begins=True)
            ended = arrows.end.pop((bar.process, bar.key), None)
            if ended is not None:
                track.arrow(ended, thread, bar.start_ns, begins=False)


def _groups(trace: Trace, scope: Scope, arrows: _Arrows) -> Iterator[Group]:
    number = 1
    for attempt in trace.attempts:
        number = arrows.add(attempt.rpcs, number)
        for step in scope.steps(attempt):
            if step.spans:
                first_ns = min(span.start_ns for span in step.spans)
                yield first_ns, partial(_of_step, step, arrows, number)
                number += sum(len(call.ranks) for call in step.rpcs)
    for spans in (trace.unplaced, trace.user_spans):
        met = (span for span in spans if scope.meets(span.start_ns, span.end_ns))
        ordered = sorted(met, key=lambda span: span.start_ns)
        for begin in range(0, len(ordered), _CHUNK):
            chunk = ordered[begin : begin + _CHUNK]
            yield chunk[0].start_ns, partial(map, slice_of, chunk)
    unfinished = list(_open(trace, scope))
    if unfinished:
        yield min(one.start_ns for one in unfinished), lambda: unfinished


def _of_step(step: Step, arrows: _Arrows, number: int) -> Iterator[Slice]:
    arrows.add(step.rpcs, number)
    more = None
    if step.superseded_by is not None:
        more = {"thrown_away": f"attempt {step.superseded_by} resumed from before it"}
    for span in step.spans:
        one = slice_of(span, more)
        thrown = more is not None and span.name == names.STEP.name
        yield replace(one, name=f"{one.name} (thrown away)") if thrown else one


def _open(trace: Trace, scope: Scope) -> Iterator[Slice]:
    for span in trace.open_spans:
        process = trace.processes[span.process]
        if scope.meets(span.start_ns, process.last_seen_ns):
            yield unfinished_slice(span, process.last_seen_ns, process.state)


def _life(one: Process, nodes: Mapping[str, int], scope: Scope) -> Iterator[Slice]:
    """The life of a process, and what is known to be missing of it, one inside the other."""
    start_ns = max(one.start_ns, scope.start_ns)
    end_ns = min(one.last_seen_ns, scope.end_ns)
    if not scope.meets(one.start_ns, one.last_seen_ns):
        return
    said = {
        "state": one.state,
        "node": nodes[one.host],
        "pid": one.pid,
        "role": one.role or None,
        "rank": one.rank,
        "world_size": one.world_size,
        "level": one.level,
        "level_reason": one.level_reason or None,
        "own_s": one.own_s,
        "probe": one.probe or None,
    }
    bars: list[tuple[str, Mapping[str, object]]] = [
        (f"process {one.state.replace('_', ' ')}", said)
    ]
    if one.lost:
        bars.append((f"lost: {_sum(one.lost)}", one.lost))
    if one.faults:
        bars.append((f"errors inside the probe: {_sum(one.faults)}", one.faults))
    if one.muted:
        bars.append(("not read any more because of its cost", one.muted))
    for number, (name, given) in enumerate(bars):
        yield Slice(
            one.index,
            number,
            None,
            name,
            "process",
            start_ns,
            max(start_ns, end_ns),
            arguments(given),
        )


def _sum(counts: Mapping[str, int]) -> str:
    return f"{sum(counts.values()):,}"


def step_slice(step: Step) -> Slice | None:
    """A step over all ranks; None if nothing of it has a time."""
    spans: list[Span] = [span for span in step.spans if span.name == names.STEP.name]
    spans = spans or step.spans
    if not spans:
        return None
    thrown = "" if step.superseded_by is None else " (thrown away)"
    begun = bool(step.batches)
    given = {
        "step": step.number,
        "ranks": step.ranks,
        "ranks_done": step.ranks_done,
        "trajectories": sum(batch.rows for batch in step.batches) if begun else None,
        "response_tokens": sum(
            sum(shard.response_tokens) for batch in step.batches for shard in batch.shards
        )
        if begun
        else None,
    }
    return Slice(
        step.attempt,
        (step.session, step.life, step.number),
        None,
        f"step {step.number}{thrown}",
        "step",
        min(span.start_ns for span in spans),
        max(span.end_ns for span in spans),
        arguments(given),
        False,
    )
