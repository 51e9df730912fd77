"""Processes of a run: what each did, how it ended, and what is missing of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from rlvr_probe.model import names
from rlvr_probe.model.trace import Process, Rpc, Step, Trace
from rlvr_probe_perfetto.scope import Scope
from rlvr_probe_perfetto.slices import (
    Group,
    Slice,
    arguments,
    in_order,
    shown,
    slice_of,
    unfinished_slice,
)
from rlvr_probe_perfetto.trace_events import Timeline, Track

__all__ = ["draw_processes", "nodes_of", "step_slice"]

_CHUNK = 1024


@dataclass(frozen=True, slots=True)
class _Arrows:
    """Numbers of the arrows that start or end at a slice, by process and id."""

    start: dict[tuple[int, int], list[int]]
    end: dict[tuple[int, int], int]

    def add(self, calls: Iterable[Rpc], first: int) -> int:
        """Take an arrow from each caller to each rank; the number of the next one."""
        for call in calls:
            caller = call.caller.process, call.caller.id
            for span in call.ranks:
                # Clocks of two machines may disagree: no arrow goes back in time.
                if span.start_ns >= call.caller.start_ns:
                    self.start.setdefault(caller, []).append(first)
                    self.end[span.process, span.id] = first
                    first += 1
        return first


def nodes_of(trace: Trace) -> dict[str, int]:
    """A number for each host, from 1, in the order in which they start."""
    hosts = [process.host for process in (*trace.processes, *trace.sidecars)]
    hosts += [series.facts.host for series in trace.devices]
    return {host: number for number, host in enumerate(dict.fromkeys(hosts), 1)}


def draw_processes(
    timeline: Timeline, trace: Trace, nodes: Mapping[str, int], scope: Scope
) -> None:
    """Draw every process on lines of its own, sorted by launch, role and rank."""
    attempts = {index: attempt.index for attempt in trace.attempts for index in attempt.processes}
    tracks = dict[int, Track]()
    launches = len(trace.attempts) > 1

    def place(process: Process) -> tuple[int, str, bool, int, int, str]:
        attempt, rank = attempts.get(process.index, len(trace.attempts)), process.rank
        return attempt, process.role, rank is None, rank or 0, process.start_ns, process.key

    for process in sorted(trace.processes, key=place):
        rank = "" if process.rank is None else f"rank {process.rank}"
        words = [word for word in (str(shown(process.role)), rank) if word] or ["process"]
        if launches and process.index in attempts:
            words.insert(0, f"attempt {attempts[process.index]}")
        track = tracks[process.index] = timeline.track(" ".join(words))
        for bar in _life(process, nodes, scope):
            track.slice(bar, "process")
    arrows = _Arrows({}, {})
    for bar in in_order(_groups(trace, scope, arrows)):
        track = tracks[bar.process]
        thread = track.slice(bar, "spans")
        if isinstance(bar.key, int):
            for number in arrows.start.pop((bar.process, bar.key), ()):
                track.arrow(number, thread, bar.start_ns, starts=True)
            ended = arrows.end.pop((bar.process, bar.key), None)
            if ended is not None:
                track.arrow(ended, thread, bar.start_ns, starts=False)


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
        for first in range(0, len(ordered), _CHUNK):
            chunk = ordered[first : first + _CHUNK]
            yield chunk[0].start_ns, partial(map, slice_of, chunk)
    unfinished = list(_open(trace, scope))
    if unfinished:
        yield min(bar.start_ns for bar in unfinished), lambda: unfinished


def _of_step(step: Step, arrows: _Arrows, number: int) -> Iterator[Slice]:
    arrows.add(step.rpcs, number)
    more = None
    if step.superseded_by is not None:
        more = {"thrown_away": f"attempt {step.superseded_by} resumed from before it"}
    for span in step.spans:
        bar = slice_of(span, more)
        thrown = more is not None and span.name == names.STEP.name
        yield replace(bar, name=f"{bar.name} (thrown away)") if thrown else bar


def _open(trace: Trace, scope: Scope) -> Iterator[Slice]:
    for span in trace.open_spans:
        process = trace.processes[span.process]
        if scope.meets(span.start_ns, process.last_seen_ns):
            yield unfinished_slice(span, process.last_seen_ns, process.state)


def _life(process: Process, nodes: Mapping[str, int], scope: Scope) -> Iterator[Slice]:
    """The life of a process, and what is known to be missing of it, one inside the other."""
    start_ns = max(process.start_ns, scope.start_ns)
    end_ns = min(process.last_seen_ns, scope.end_ns)
    if not scope.meets(process.start_ns, process.last_seen_ns):
        return
    said = {
        "state": process.state,
        "node": nodes[process.host],
        "pid": process.pid,
        "role": process.role or None,
        "rank": process.rank,
        "world_size": process.world_size,
        "level": process.level,
        "level_reason": process.level_reason or None,
        "own_s": process.own_s,
        "probe": process.probe or None,
    }
    bars: list[tuple[str, Mapping[str, object]]] = [
        (f"process {process.state.replace('_', ' ')}", said),
        (f"lost: {sum(process.lost.values()):,}", process.lost),
        (f"errors inside the probe: {sum(process.faults.values()):,}", process.faults),
        ("not read any more because of its cost", process.muted),
    ]
    for number, (name, given) in enumerate(bar for bar in bars if bar[1]):
        yield Slice(
            process.index, number, None, name, "process", start_ns, max(start_ns, end_ns),
            arguments(given),
        )  # fmt: skip


def step_slice(step: Step) -> Slice | None:
    """A step over all ranks; None if nothing of it has a time."""
    spans = [span for span in step.spans if span.name == names.STEP.name] or step.spans
    if not spans:
        return None
    thrown = "" if step.superseded_by is None else " (thrown away)"
    given = {"step": step.number, "ranks": step.ranks, "ranks_done": step.ranks_done}
    if step.batches:
        shards = [shard for batch in step.batches for shard in batch.shards]
        given["trajectories"] = sum(batch.rows for batch in step.batches)
        given["response_tokens"] = sum(sum(shard.response_tokens) for shard in shards)
    return Slice(
        step.attempt, (step.session, step.life, step.number), None, f"step {step.number}{thrown}",
        "step", min(span.start_ns for span in spans), max(span.end_ns for span in spans),
        arguments(given), False,
    )  # fmt: skip
