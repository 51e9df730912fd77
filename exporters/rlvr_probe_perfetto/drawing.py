"""A whole run as one timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO

from rlvr_probe.exporter.timed_trajectories import candidates
from rlvr_probe.model.trace import Attempt, Step, Trace
from rlvr_probe_perfetto.devices import draw_devices
from rlvr_probe_perfetto.processes import draw_processes, nodes_of, step_slice
from rlvr_probe_perfetto.scope import Scope
from rlvr_probe_perfetto.slices import Group, Slice, in_order, shown
from rlvr_probe_perfetto.trace_events import Timeline
from rlvr_probe_perfetto.trajectories import trajectory_slices

__all__ = ["Limits", "draw"]

_FILES = "ignored, not of a recording"
"""What a note says before names of files that are not ours."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a run is drawn.

    Attributes:
        trajectories: Most trajectories of one step.
        points: Most values of one counter of a device.
    """

    trajectories: int = 64
    points: int = 100_000


@dataclass(slots=True)
class _Trajectories:
    """How many were recorded, have times of their own, and are drawn."""

    recorded: int = 0
    timed: int = 0
    drawn: int = 0


def draw(
    trace: Trace, stream: IO[bytes], limits: Limits | None = None, scope: Scope | None = None
) -> Sequence[str]:
    """Write ``trace`` to ``stream``; what was drawn and what was not, in lines.

    The run comes first, with its steps, then its processes, the trajectories, and the devices.
    """
    limits, scope = limits or Limits(), scope or Scope.of(trace)
    timeline = Timeline(stream, min(0, scope.start_ns))
    run = timeline.track("run")
    for attempt in trace.attempts:
        line = "steps" if len(trace.attempts) == 1 else f"steps of attempt {attempt.index}"
        bars = ((step, step_slice(step)) for step in scope.steps(attempt))
        groups = [(bar.start_ns, partial(_step, step)) for step, bar in bars if bar is not None]
        for bar in in_order(groups):
            run.slice(bar, line)
    nodes = nodes_of(trace)
    draw_processes(timeline, trace, nodes, scope)
    drawn = _Trajectories()
    for attempt in trace.attempts:
        _draw_trajectories(timeline, trace, attempt, scope, limits, drawn)
    averaged = draw_devices(timeline, trace, nodes, limits.points, scope)
    said = list(_not_drawn(drawn, averaged, limits))
    for number, note in enumerate([*_missing(trace), *map(_note, trace.notes), *said]):
        run.slice(
            Slice(0, number, None, str(shown(note)), "note", scope.start_ns, scope.end_ns), "notes"
        )
    timeline.finish()
    counts = timeline.counts
    first = f"timeline of {_many(len(trace.processes), 'process', 'es')},"
    first += f" {_many(counts['slices'], 'slice')}, {drawn.drawn:,} trajectories among them"
    if trace.devices:
        first += f", {_many(counts['points'], 'value')} of {_many(len(trace.devices), 'device')}"
    return [first, *said]


def _step(step: Step) -> Iterator[Slice]:
    bar = step_slice(step)
    if bar is not None:
        yield bar


def _draw_trajectories(
    timeline: Timeline,
    trace: Trace,
    attempt: Attempt,
    scope: Scope,
    limits: Limits,
    drawn: _Trajectories,
) -> None:
    groups = list[Group]()
    for step in scope.steps(attempt):
        drawn.recorded += sum(batch.rows for batch in (*step.batches, *step.evaluations))
        starts = [candidate.start_ns for candidate in candidates(step)]
        drawn.timed += len(starts)
        if starts and limits.trajectories:
            drawn.drawn += min(limits.trajectories, len(starts))
            groups.append((min(starts), partial(trajectory_slices, step, limits.trajectories)))
    if not groups:
        return
    of_attempt = f"attempt {attempt.index} " if len(trace.attempts) > 1 else ""
    track = timeline.track(f"{of_attempt}trajectories")
    for bar in in_order(groups):
        track.slice(bar, "trajectory")


def _not_drawn(drawn: _Trajectories, averaged: int, limits: Limits) -> Iterator[str]:
    if drawn.drawn < drawn.timed:
        yield (
            f"{drawn.timed - drawn.drawn:,} of {drawn.timed:,} trajectories are not drawn: at most"
            f" {limits.trajectories:,} of a step are, the slowest, the failed and a sample of the"
            " rest"
        )
    if drawn.timed < drawn.recorded:
        yield (
            f"{drawn.recorded - drawn.timed:,} trajectories are not drawn: they have no times of"
            " their own"
        )
    if averaged:
        yield (
            f"{_many(averaged, 'counter')} of devices with more than {limits.points:,}"
            " readings: means over equal times are drawn"
        )


def _missing(trace: Trace) -> Iterator[str]:
    for reason, count in sorted(trace.lost.items()):
        yield f"rows lost: {count:,} ({reason.replace('_', ' ')})"
    for sidecar in trace.sidecars:
        if sidecar.lost or sidecar.faults:
            count = sum(sidecar.lost.values()) + sum(sidecar.faults.values())
            yield f"rows lost, and errors, of a process that reads devices: {count:,}"


def _note(note: str) -> str:
    """A note of the reader without the names of files that it met."""
    before, found, _ = note.partition(_FILES)
    return before + found


def _many(count: int, word: str, plural: str = "s") -> str:
    return f"{count:,} {word}{'' if count == 1 else plural}"
