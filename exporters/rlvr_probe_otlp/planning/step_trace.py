"""A step as a trace: what every rank did in it, under one root."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rlvr_probe.exporter.timed_trajectories import shards_of
from rlvr_probe.model import names
from rlvr_probe.model.trace import Span, Step
from rlvr_probe_otlp.planning.data_model import ERROR, Attributes, Link, PlannedTrace, Value
from rlvr_probe_otlp.planning.identity import Context
from rlvr_probe_otlp.planning.names import LINKED, RANK_STEP, SPANS, known
from rlvr_probe_otlp.planning.span_tree import Node, Root, Use, node_of, plan_trace
from rlvr_probe_otlp.planning.viewer_labels import OF_STEP, line

__all__ = ["extent_of", "plan_step"]

_WHOLE = SPANS[names.STEP.name]


def extent_of(step: Step, more: Iterable[Node] = ()) -> tuple[int, int] | None:
    """When the step started and ended, ns: as its ranks say, else by all that is known of it."""
    wholes = [span for span in step.spans if span.name == names.STEP.name]
    parts: Iterable[Span | Node] = wholes or (*step.spans, *more)
    times = [(part.start_ns, part.end_ns) for part in parts]
    if not times:
        recorded = (shard.recorded_ns for _, shard in shards_of(step))
        times = [(time_ns, time_ns) for time_ns in recorded if time_ns is not None]
    return (min(start for start, _ in times), max(end for _, end in times)) if times else None


def plan_step(
    context: Context,
    step: Step,
    more: Sequence[Node],
    links: Sequence[Link],
    use: Use,
) -> PlannedTrace | None:
    """The trace of a step; None if nothing of it has a time.

    Of one rank, the root is its step, if nothing of the trace starts before: prompts may be
    fetched, and a model evaluated, between two steps. Of several, it lasts to the last of them.

    Args:
        context: The run.
        step: With its spans.
        more: Spans of it that the recording keeps elsewhere: those of the user, those not ended.
        links: To its trajectories.
        use: What devices did during a span.
    """
    extent = extent_of(step, more)
    if extent is None:
        return None
    nodes = [*more, *filter(None, map(node_of, step.spans))]
    start_ns = min((extent[0], *(node.start_ns for node in nodes)))
    wholes = [node for node in nodes if node.name == _WHOLE]
    alone = len(wholes) == step.ranks == 1 and start_ns == extent[0]
    only = wholes[0] if alone else None
    attributes = {**_attributes(step, len(links)), **_error(context, wholes)}
    if wholes:
        attributes["rlvr.step.wall_s"] = (extent[1] - extent[0]) / 1e9
    if only is not None:
        used = use(only.key[0], only.start_ns, only.end_ns)
        attributes = {**only.attributes, **attributes, **used}
    attributes.update(line(attributes, OF_STEP))
    root = Root(
        ids=context.step(step),
        name=_WHOLE,
        process=_speaker(context, step, wholes or nodes),
        start_ns=start_ns,
        end_ns=extent[1],
        attributes=attributes,
        key=None if only is None else only.key,
        links=links,
    )
    named = (_of_rank(context, node) if node.name == _WHOLE else node for node in nodes)
    return plan_trace(context, root, named, step.rpcs, use)


def _of_rank(context: Context, whole: Node) -> Node:
    """A step as one rank did it. Not every receiver keeps resources, so it says which."""
    rank = context.ranks[whole.key[0]]
    more = {} if rank is None else {"rlvr.rank": rank}
    return replace(whole, name=RANK_STEP, attributes={**whole.attributes, **more})


def _error(context: Context, wholes: Iterable[Node]) -> Attributes:
    """Why the step failed, by the first rank that it ended on."""
    failed = (node for node in wholes if ERROR in node.attributes)
    first = min(failed, key=lambda node: (node.end_ns, context.keys[node.key[0]]), default=None)
    return {} if first is None else {ERROR: first.attributes[ERROR]}


def _speaker(context: Context, step: Step, nodes: Iterable[Node]) -> int:
    """The process whose resource the root has: the same whatever order they come in."""
    found = {node.key[0] for node in nodes} or {shard.process for _, shard in shards_of(step)}
    return min(found, key=lambda index: context.keys[index])


def _attributes(step: Step, linked: int) -> dict[str, Value]:
    lengths = [shard.response_tokens for batch in step.batches for shard in batch.shards]
    found = known(
        {
            "rl.loop.iteration": step.number,
            "rlvr.session": step.session,
            "rlvr.attempt": step.attempt,
            "rlvr.life": step.life,
            "rlvr.step.done": step.done,
            "rlvr.step.superseded": step.superseded_by is not None,
            "rlvr.ranks": step.ranks,
            "rlvr.ranks.done": step.ranks_done,
            "rlvr.trajectories": sum(batch.rows for batch in step.batches)
            if step.batches
            else None,
            "rlvr.response_tokens": sum(map(sum, lengths)) if step.batches else None,
            LINKED: linked or None,
        }
    )
    for stage, by_process in sorted(_stages(step).items()):
        everywhere = [interval for intervals in by_process.values() for interval in intervals]
        found[f"rlvr.stage.{stage}.wall_s"] = _union_ns(everywhere) / 1e9
        found[f"rlvr.stage.{stage}.sum_s"] = sum(map(_union_ns, by_process.values())) / 1e9
    return found


_Intervals = list[tuple[int, int]]


def _stages(step: Step) -> dict[str, dict[int, _Intervals]]:
    """When each process was in each stage; stages inside an evaluation are part of that alone."""
    found = dict[str, dict[int, _Intervals]]()
    for span in step.spans:
        inside = span.attributes.get("mode") == "eval" and span.name != names.EVAL.name
        if span.name in names.STAGES and not inside:
            intervals = found.setdefault(span.name, {}).setdefault(span.process, [])
            intervals.append((span.start_ns, span.end_ns))
    return found


def _union_ns(intervals: _Intervals) -> int:
    total, covered = 0, -1 << 63
    for start, end in sorted(intervals):
        total += max(0, end - max(start, covered))
        covered = max(covered, end)
    return total
