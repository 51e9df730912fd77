"""Builds the tree of spans that a trace is: parents found, size bounded, under one root.

Viewers fail on traces of tens of thousands of spans.

NeMo-RL sums durations by ``rl.bucket``:
https://github.com/NVIDIA-NeMo/RL/blob/main/nemo_rl/telemetry/instrumentation.py. Only a stage that
holds no other stage has one, so that no time of a rank is summed twice: an evaluation has one where
nothing is known of what it is made of. Work on single trajectories overlaps itself, and has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from rlvr_probe.model import names
from rlvr_probe.model.trace import OpenSpan, Rpc, Span
from rlvr_probe_otlp.planning.data_model import (
    ERROR,
    Attributes,
    Kind,
    Link,
    PlannedSpan,
    PlannedTrace,
    Value,
)
from rlvr_probe_otlp.planning.identity import Context
from rlvr_probe_otlp.planning.names import DIED, KINDS, SPANS, attributes_of, error_type, known
from rlvr_probe_otlp.planning.viewer_labels import seen, title

__all__ = [
    "Node",
    "Placed",
    "Root",
    "Use",
    "keep_longest",
    "node_of",
    "plan_trace",
    "unfinished_node",
    "without_loops",
]


_BUCKET: Final = "rl.bucket"

_PRODUCTIVE: Final = frozenset(
    name.name for name in (names.ROLLOUT, names.REWARD, names.UPDATE_ACTOR, names.UPDATE_CRITIC)
)


def _bucket_of(stage: Attributes, *, superseded: bool) -> Mapping[str, str]:
    """The attribute of a span, from its others; none outside of a stage.

    Args:
        stage: Attributes of the span, which holds no stage.
        superseded: A later attempt resumed from before its step: its weights were thrown away.
    """
    name = stage.get("rlvr.stage")
    if name is None:
        return {}
    if name == names.WAIT.name:
        return {_BUCKET: "idle"}
    if superseded or ERROR in stage:
        return {_BUCKET: "wasted"}
    evaluated = stage.get("rlvr.mode") == "eval"
    return {_BUCKET: "productive" if name in _PRODUCTIVE and not evaluated else "overhead"}


_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Placed(Generic[_Key]):
    """A span as far as bounding looks at it: times on the clock of the run, ns, and its parent."""

    start_ns: int
    end_ns: int
    parent: _Key | None


def without_loops(spans: Mapping[_Key, Placed[_Key]]) -> dict[_Key, _Key | None]:
    """The parent of each span, None where it is not among ``spans`` or would be its own ancestor.

    Args:
        spans: In an order that is the same for the same spans.
    """
    parents = {key: span.parent if span.parent in spans else None for key, span in spans.items()}
    sound = set[_Key]()
    for key in spans:
        path = dict[_Key, None]()
        at: _Key | None = key
        while at is not None and at not in sound:
            path[at] = None
            if parents[at] in path:
                parents[at] = None
            at = parents[at]
        sound.update(path)
    return parents


def keep_longest(
    spans: Mapping[_Key, Placed[_Key]], parents: Mapping[_Key, _Key | None], limit: int
) -> set[_Key]:
    """The keys of at most ``limit`` spans: the longest, each with everything around it.

    Args:
        spans: In an order that is the same for the same spans; it decides between equals.
        parents: From :func:`without_loops`.
        limit: How many may be kept.
    """
    if len(spans) <= limit:
        return set(spans)
    kept = set[_Key]()
    for key in sorted(spans, key=lambda span: spans[span].start_ns - spans[span].end_ns):
        chain = list[_Key]()
        at: _Key | None = key
        while at is not None and at not in kept:
            chain.append(at)
            at = parents[at]
        if len(kept) + len(chain) <= limit:
            kept.update(chain)
    return kept


Key = tuple[int, int]
"""Process and number of a recorded span."""

Use = Callable[[int, int, int], Attributes]
"""What devices did during a span: by process, start and end, ns."""


_STAGES = frozenset(names.STAGES)


@dataclass(frozen=True, slots=True)
class Node(Placed[Key]):
    """One recorded span under the names it goes out with."""

    key: Key
    name: str
    attributes: Mapping[str, Value]
    kind: Kind = "internal"


@dataclass(frozen=True, slots=True)
class Root:
    """The root of a trace.

    Attributes:
        ids: Of the trace and of the root.
        key: Recorded span that the root is; None if it stands for several.
        process: Whose resource it has.
    """

    ids: tuple[str, str]
    name: str
    process: int
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value] = field(default_factory=dict)
    key: Key | None = None
    links: Sequence[Link] = ()


def node_of(span: Span) -> Node | None:
    """A finished span; None if its name is not one that goes out."""
    if span.name not in SPANS:
        return None
    failed = {} if span.error is None else error_type(span.error)
    return Node(
        span.start_ns, span.end_ns, (span.process, span.parent), (span.process, span.id),
        SPANS[span.name],
        {**attributes_of(span.name, span.attributes), **_stage_of(span), **failed},
        KINDS.get((span.name, str(span.attributes.get("side"))), "internal"),
    )  # fmt: skip


def unfinished_node(span: OpenSpan, end_ns: int) -> Node | None:
    """A span that was open when its process died; None if its name is not one that goes out."""
    if span.name not in SPANS:
        return None
    more = known({"rl.loop.iteration": span.step, "rlvr.detail": span.detail or None})
    return Node(
        span.start_ns, max(span.start_ns, end_ns), None, (span.process, span.id), SPANS[span.name],
        {"rlvr.unfinished": True, **error_type(DIED), **_stage_of(span), **more},
    )  # fmt: skip


def _stage_of(span: Span | OpenSpan) -> Attributes:
    return {"rlvr.stage": span.name} if span.name in _STAGES else {}


def plan_trace(
    context: Context,
    root: Root,
    nodes: Iterable[Node],
    rpcs: Iterable[Rpc] = (),
    use: Use = lambda *_: {},
) -> PlannedTrace:
    """One trace: ``nodes`` under ``root``, each under the span that really was around it.

    What a rank did for a caller lies under the call. Of more spans than the bound allows, the
    longest are kept, and the root says how many of which name were not, and for how long.

    Args:
        context: The run.
        root: Counts as one of the spans.
        nodes: Those of the trace; the one of ``root.key`` may be among them.
        rpcs: Calls of worker groups whose spans are among ``nodes``.
        use: What devices did during a span.
    """
    calls = {
        (span.process, span.id): (rpc.caller.process, rpc.caller.id)
        for rpc in rpcs
        for span in rpc.ranks
    }
    by_key = dict[Key, Node]()
    repeated = 0
    for node in sorted(nodes, key=lambda node: _order(context, node)):
        if node.key == root.key:
            continue
        # Damage can make two spans of one number: ids stay unique.
        repeated += node.key in by_key
        by_key.setdefault(node.key, replace(node, parent=calls.get(node.key, node.parent)))
    parents = without_loops(by_key)
    kept = keep_longest(by_key, parents, context.limits.spans - 1)
    stages = [key for key, node in by_key.items() if "rlvr.stage" in node.attributes]
    holding = _above(stages, parents)
    superseded = bool(root.attributes.get("rlvr.step.superseded"))
    trace, top = root.ids
    dropped = Counter[str]()
    for key in by_key.keys() - kept:
        node = by_key[key]
        dropped[f"rlvr.left_out.{node.name}.count"] += 1
        dropped[f"rlvr.left_out.{node.name}.sum_s"] += node.end_ns - node.start_ns
    attributes = dict(root.attributes)
    for name, value in sorted(dropped.items()):
        attributes[name] = value / 1e9 if name.endswith("_s") else value
    spans = [
        PlannedSpan(
            trace, top, None, root.name, "internal", context.at(root.start_ns),
            context.at(root.end_ns), root.process, seen(root.name, attributes),
            (*_application(context, root.key), *root.links),
        )
    ]  # fmt: skip
    for key, node in by_key.items():
        if key not in kept:
            continue
        attributes = {**node.attributes, **use(key[0], node.start_ns, node.end_ns)}
        if key not in holding:
            attributes |= _bucket_of(attributes, superseded=superseded)
        above = parents[key]
        parent = top if above is None else context.span(*above)
        spans.append(
            PlannedSpan(
                trace, context.span(*key), parent, title(node.name, attributes), node.kind,
                context.at(node.start_ns), context.at(node.end_ns), key[0],
                seen(node.name, attributes), _application(context, key),
            )
        )  # fmt: skip
    return PlannedTrace(trace, spans, len(by_key) - len(kept) + repeated)


def _above(keys: Iterable[Key], parents: Mapping[Key, Key | None]) -> set[Key]:
    """Everything that is around one of these spans."""
    found = set[Key]()
    for key in keys:
        above = parents[key]
        while above is not None and above not in found:
            found.add(above)
            above = parents[above]
    return found


def _application(context: Context, key: Key | None) -> tuple[Link, ...]:
    """What leads to the span of the application's own that was around a span."""
    ids = None if key is None else context.applications.get(key)
    return () if ids is None else (Link(*ids, {"rlvr.link.kind": "application"}),)


def _order(context: Context, node: Node) -> tuple[int, int, str, int, str]:
    """By start, outer ones first; the same whatever order they come in."""
    return node.start_ns, -node.end_ns, context.keys[node.key[0]], node.key[1], node.name
