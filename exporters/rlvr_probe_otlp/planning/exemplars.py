"""Exemplars: from a point of a histogram to the span behind the largest value that it took last.

Only spans that are sent are pointed to, so that a reader of a metric finds its trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from rlvr_probe.exporter.timed_trajectories import Candidate, shards_of
from rlvr_probe.model import names
from rlvr_probe.model.trace import Step
from rlvr_probe_otlp.planning.data_model import (
    Attributes,
    Exemplar,
    PlannedSpan,
    PlannedTrace,
    Point,
    Value,
)
from rlvr_probe_otlp.planning.identity import Context
from rlvr_probe_otlp.planning.names import duration_metric, known

__all__ = ["with_exemplars"]

_Series = tuple[str, tuple[tuple[str, Value], ...]]
_Found = tuple[_Series, float, PlannedSpan]

_PARTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "chat": ("rlvr.turn.duration", ()),
    "execute_tool": ("rlvr.tool.duration", ("gen_ai.tool.name", "rlvr.tool.status")),
    "": ("rlvr.verify.duration", ("rlvr.reward.fn",)),
}
"""Metric of a part of a trajectory by its operation, and the attributes that its points share."""


def with_exemplars(
    context: Context,
    step: Step,
    whole: PlannedTrace | None,
    kept: Iterable[tuple[Candidate, PlannedTrace]],
    points: Sequence[Point],
) -> list[Point]:
    """The points of a step, those of histograms with the span of its largest value.

    Args:
        context: The run.
        step: The one that the points were counted after.
        whole: Its trace.
        kept: Its trajectories that are traces.
        points: What was counted.
    """
    largest = dict[_Series, tuple[float, str, PlannedSpan]]()
    for series, value, span in (
        *_of_step(context, step, whole),
        *_of_trajectories(context, step, kept),
    ):
        found = (value, span.span_id, span)
        largest[series] = max(largest.get(series, found), found, key=itemgetter(0, 1))
    return [_pointing(point, largest) for point in points]


def _pointing(point: Point, largest: Mapping[_Series, tuple[float, str, PlannedSpan]]) -> Point:
    found = largest.get(_series(point.metric, point.attributes))
    if found is None or point.kind != "histogram":
        return point
    value, span_id, span = found
    return replace(point, exemplars=(Exemplar(value, span.end_ns, span.trace_id, span_id),))


def _of_step(context: Context, step: Step, whole: PlannedTrace | None) -> Iterator[_Found]:
    if whole is None:
        return
    root = whole.spans[0]
    wall_s = root.attributes.get("rlvr.step.wall_s")
    if isinstance(wall_s, float):
        yield _series("rl.loop.duration", {}), wall_s, root
    sent = {span.span_id: span for span in whole.spans}
    for span in step.spans:
        there = sent.get(context.span(span.process, span.id))
        if there is not None and span.name in names.STAGES:
            said = _chosen(there.attributes, ("rlvr.stage", "rlvr.mode"))
            yield _series(duration_metric(span.name), said), span.seconds, there
    yield from _of_rewards(context, step, sent)


def _of_rewards(context: Context, step: Step, sent: Mapping[str, PlannedSpan]) -> Iterator[_Found]:
    """Calls of reward functions for a whole batch: they are spans of the step."""
    # A call does not say which span it is, and a span not which batch it was for.
    spans = {
        (span.process, span.start_ns, span.end_ns, str(span.attributes.get("function") or "")): span
        for span in step.spans
        if span.name == names.REWARD_FN.name
    }
    if not spans:
        return
    for batch, shard in shards_of(step):
        for call in shard.calls:
            found = spans.get((call.process, call.start_ns, call.end_ns, call.function))
            there = None if found is None else sent.get(context.span(found.process, found.id))
            if found is not None and there is not None:
                said = known({"rlvr.mode": batch.mode, "rlvr.reward.fn": call.function or None})
                yield _series("rlvr.verify.duration", said), found.seconds, there


def _of_trajectories(
    context: Context, step: Step, kept: Iterable[tuple[Candidate, PlannedTrace]]
) -> Iterator[_Found]:
    model = context.models.get(step.attempt, {})
    for candidate, trace in kept:
        root, *parts = trace.spans
        shard, local = candidate.shard, candidate.local
        mode = _chosen(root.attributes, ("rlvr.mode",))
        if shard.times_ns is not None:
            lasted_s = (candidate.end_ns - candidate.start_ns) / 1e9
            yield _series("rlvr.trajectory.duration", mode), lasted_s, root
        if local in shard.turns:
            yield _series("rlvr.trajectory.turns", mode), len(shard.turns[local]), root
        versions = None if shard.policy_versions is None else shard.policy_versions[local]
        if versions is not None:
            behind = max(0, step.number - 1 - versions[0])
            yield _series("rlvr.staleness", mode), behind, root
        for kind, column in (("input", shard.prompt_tokens), ("output", shard.response_tokens)):
            said = {**model, **mode, "gen_ai.operation.name": "invoke_agent"}
            said["gen_ai.token.type"] = kind
            yield _series("gen_ai.client.token.usage", said), column[local], root
        for part in parts:
            metric, shared = _PARTS[str(part.attributes.get("gen_ai.operation.name", ""))]
            said = {**mode, **_chosen(part.attributes, shared)}
            yield _series(metric, said), (part.end_ns - part.start_ns) / 1e9, part


def _chosen(attributes: Attributes, shared: Iterable[str]) -> dict[str, Value]:
    return {name: attributes[name] for name in shared if name in attributes}


def _series(metric: str, attributes: Attributes) -> _Series:
    return metric, tuple(sorted(attributes.items()))
