"""What is drawn of a run: bars by process, from its spans and its trajectories."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rlvr_probe.model import names
from rlvr_probe.model.batch import BatchShard
from rlvr_probe.model.trace import OpenSpan, Span, Step, Trace
from rlvr_probe_perfetto.lanes import Bar

__all__ = ["Drawn", "Left", "Selection", "bars", "trajectories"]

_DECLARED: Final = {
    one.name: frozenset(attribute.name for attribute in one.attributes) for one in names.ALL
}
_TEXT: Final = 256
_INT: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a bar says."""

    name: str
    category: str
    arguments: Mapping[str, Any]


@dataclass(slots=True)
class Left:
    """What is not drawn.

    Attributes:
        trajectories: Beyond the bound of their step.
    """

    trajectories: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """How much of a run is drawn.

    Attributes:
        steps: First and last trainer step; None for all, and what lies outside of steps.
        trajectories: Most of one step: the slowest.
    """

    steps: tuple[int, int] | None = None
    trajectories: int = 500

    def has(self, step: Step) -> bool:
        """Whether a step is drawn."""
        return self.steps is None or self.steps[0] <= step.number <= self.steps[1]


def bars(trace: Trace, selection: Selection) -> dict[int, list[Bar[Drawn]]]:
    """Coarse spans by process; what a process left open until it was last seen."""
    found = dict[int, list[Bar[Drawn]]]()

    def add(span: Span) -> None:
        if span.name in _DECLARED:
            found.setdefault(span.process, []).append(_bar(span))

    for attempt in trace.attempts:
        for step in filter(selection.has, attempt.steps):
            for span in step.spans:
                add(span)
    if selection.steps is None:
        for span in (*trace.unplaced, *trace.user_spans):
            add(span)
        for opened in trace.open_spans:
            process = trace.processes[opened.process]
            if process.state == "died" and opened.name in _DECLARED:
                bar = _unfinished(opened, process.last_seen_ns)
                found.setdefault(opened.process, []).append(bar)
    return found


def _bar(span: Span) -> Bar[Drawn]:
    said = {
        name: value
        for name, value in span.attributes.items()
        if name in _DECLARED[span.name] and _sayable(value)
    }
    if span.error is not None:
        said["error"] = span.error[:_TEXT]
    title = str(said.get("method") or said.get("label") or said.get("function") or "")[:_TEXT]
    if span.name == names.STEP.name:
        title = str(said.get("step", ""))
    drawn = Drawn(f"{span.name} {title}".strip(), _category(span.name), said)
    return Bar(span.id, span.parent or None, span.start_ns, span.end_ns, drawn)


def _unfinished(span: OpenSpan, end_ns: int) -> Bar[Drawn]:
    said: dict[str, Any] = {"unfinished": True}
    if span.step is not None:
        said["step"] = span.step
    if span.detail:
        said["detail"] = span.detail[:_TEXT]
    drawn = Drawn(f"{span.name} (unfinished)", _category(span.name), said)
    return Bar(span.id, None, span.start_ns, max(span.start_ns, end_ns), drawn)


def _category(name: str) -> str:
    return "stage" if name in names.STAGES else name


def _sayable(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _TEXT
    if isinstance(value, (bool, int)):
        return -_INT < value < _INT
    return isinstance(value, float) and math.isfinite(value)


def trajectories(
    trace: Trace, selection: Selection, left: Left
) -> Iterator[tuple[int, list[Bar[Drawn]]]]:
    """Trajectories with times of their own, by step and process; ``left`` gets the others."""
    for attempt in trace.attempts:
        for step in filter(selection.has, attempt.steps):
            known = list(_known(step))
            kept = heapq.nlargest(selection.trajectories, known, key=lambda one: one[:2])
            left.trajectories += len(known) - len(kept)
            by_process = dict[int, list[Bar[Drawn]]]()
            for _, place, mode, shard, local in sorted(kept, key=lambda one: one[1]):
                found = by_process.setdefault(shard.process, [])
                found += _trajectory((*_of(step), *place), mode, shard, local)
            yield from sorted(by_process.items())


def _of(step: Step) -> tuple[int, int, int, int]:
    return step.attempt, step.session, step.life, step.number


def _known(
    step: Step,
) -> Iterator[tuple[int, tuple[str, int, int], str, BatchShard, int]]:
    """Length, ns, place in the step, mode, and where it is."""
    for batch in (*step.batches, *step.evaluations):
        for shard in batch.shards:
            for local, times in enumerate(shard.times_ns or ()):
                if times is not None:
                    place = (batch.mode, batch.ordinal, shard.offset + local)
                    yield times[1] - times[0], place, batch.mode, shard, local


def _trajectory(
    place: tuple[Any, ...], mode: str, shard: BatchShard, local: int
) -> Iterator[Bar[Drawn]]:
    times = None if shard.times_ns is None else shard.times_ns[local]
    if times is None:
        return
    row = shard.offset + local
    said = {
        "mode": mode,
        "row": row,
        "prompt_tokens": shard.prompt_tokens[local],
        "response_tokens": shard.response_tokens[local],
    }
    engine = None if shard.engines is None else shard.engines[local]
    if engine is not None:
        said["engine"] = engine
    yield Bar(place, None, *times, Drawn(f"trajectory {row}", "trajectory", said))
    for at, turn in enumerate(shard.turns.get(local, ())):
        if turn.start_ns is not None and turn.end_ns is not None:
            tokens = {
                "prompt_tokens": turn.prompt_tokens,
                "response_tokens": turn.response_tokens,
                "cached_tokens": turn.cached_tokens,
            }
            known = {name: count for name, count in tokens.items() if count is not None}
            drawn = Drawn(f"turn {turn.index}", "turn", known)
            yield Bar((*place, "turn", at), place, turn.start_ns, turn.end_ns, drawn)
    for at, call in enumerate(shard.tool_calls.get(local, ())):
        words = {"status": call.status, "error": call.error}
        told = {name: word[:_TEXT] for name, word in words.items() if word is not None}
        drawn = Drawn(f"tool {call.tool or ''}".strip()[:_TEXT], "tool_call", told)
        yield Bar((*place, "tool", at), place, call.start_ns, call.end_ns, drawn)
