"""A trajectory as a trace: its turns, its tool calls and its verification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rlvr_probe.exporter.sampling import FAILED, Candidate
from rlvr_probe.model import names
from rlvr_probe.model.batch import BatchShard, RewardCall
from rlvr_probe.model.trace import Step
from rlvr_probe.model.turns import ToolCall, Turn
from rlvr_probe_otlp.planning.data_model import (
    Attributes,
    Kind,
    Link,
    PlannedSpan,
    PlannedTrace,
    Value,
)
from rlvr_probe_otlp.planning.identity import Context
from rlvr_probe_otlp.planning.names import SPANS, allowed, error_type, known
from rlvr_probe_otlp.planning.span_tree import Placed, keep_longest
from rlvr_probe_otlp.planning.viewer_labels import OF_TRAJECTORY, line, seen, title

__all__ = ["link_to", "plan_trajectories"]

_WHOLE = SPANS[names.TRAJECTORY.name]

_Part = tuple[tuple[object, ...], str, Kind, int, int, int, dict[str, Value]]
"""What names it, span name, kind, start, end, process, attributes."""


def plan_trajectories(
    context: Context, step: Step, kept: Mapping[Candidate, Sequence[str]]
) -> list[PlannedTrace]:
    """The traces of the trajectories of a step that are kept, each linked to the step."""
    calls = _calls(kept)
    return [
        _plan(context, step, candidate, why, calls.get((id(candidate.shard), candidate.local), ()))
        for candidate, why in kept.items()
    ]


def link_to(context: Context, step: Step, candidate: Candidate) -> Link:
    """What leads from the step to the trajectory."""
    return Link(*context.trajectory(step, *candidate.place), {"rlvr.link.kind": "trajectory"})


def _calls(kept: Mapping[Candidate, Sequence[str]]) -> dict[tuple[int, int], list[RewardCall]]:
    """Verifications by shard and row; a shard may hold a million of them."""
    wanted = dict[int, tuple[BatchShard, set[int | None]]]()
    for candidate in kept:
        wanted.setdefault(id(candidate.shard), (candidate.shard, set()))[1].add(candidate.local)
    found = dict[tuple[int, int], list[RewardCall]]()
    for key, (shard, rows) in wanted.items():
        for call in shard.calls.of_rows(rows):
            if call.row is not None:
                found.setdefault((key, call.row), []).append(call)
    return found


def _plan(
    context: Context,
    step: Step,
    candidate: Candidate,
    why: Sequence[str],
    verified: Sequence[RewardCall],
) -> PlannedTrace:
    trace, top = context.trajectory(step, *candidate.place)
    model = context.models.get(step.attempt, {})
    parts = list(_parts(candidate.shard, candidate.local, verified, model))
    placed: dict[int, Placed[int]] = {
        at: Placed(part[3], part[4], None) for at, part in enumerate(parts)
    }
    kept = keep_longest(placed, dict.fromkeys(placed), context.limits.spans - 1)
    attributes = {**_attributes(step, candidate, why), **model}
    for at in sorted(placed.keys() - kept):
        _, name, _, start, end, *_ = parts[at]
        for what, value in (("count", 1), ("sum_s", (end - start) / 1e9)):
            key = f"rlvr.left_out.{name}.{what}"
            before = attributes.get(key, 0)
            attributes[key] = value + (before if isinstance(before, (int, float)) else 0)
    kind = "consumed_by" if candidate.batch.queued else "issued_by"
    start_ns = min((candidate.start_ns, *(part[3] for part in parts)))
    root = PlannedSpan(
        trace, top, None, _WHOLE, "internal", context.at(start_ns), context.at(candidate.end_ns),
        candidate.shard.process, seen(_WHOLE, {**attributes, **line(attributes, OF_TRAJECTORY)}),
        (Link(*context.step(step), {"rlvr.link.kind": kind}),),
    )  # fmt: skip
    spans = [root]
    for at in sorted(kept, key=lambda at: (parts[at][3], -parts[at][4], at)):
        what, name, span_kind, start, end, process, given = parts[at]
        _, span = context.trajectory(step, *candidate.place, *what)
        spans.append(
            PlannedSpan(
                trace, span, top, title(name, given), span_kind, context.at(start), context.at(end),
                process, seen(name, given),
            )
        )  # fmt: skip
    return PlannedTrace(trace, spans, len(parts) - len(kept))


def _parts(
    shard: BatchShard, local: int, verified: Sequence[RewardCall], model: Attributes
) -> Iterator[_Part]:
    for at, turn in enumerate(shard.turns.get(local, ())):
        if turn.start_ns is None or turn.end_ns is None:
            continue
        tokens = {
            "gen_ai.usage.input_tokens": turn.prompt_tokens,
            "gen_ai.usage.prompt_tokens": turn.prompt_tokens,
            "gen_ai.usage.output_tokens": turn.response_tokens,
            "gen_ai.usage.completion_tokens": turn.response_tokens,
            "gen_ai.usage.cache_read.input_tokens": turn.cached_tokens,
        }
        given: dict[str, Value] = {"gen_ai.operation.name": "chat", "rlvr.turn.index": turn.index}
        given.update({name: count for name, count in tokens.items() if count is not None})
        given.update({**model, **_served(turn)})
        yield (
            ("turn", at), SPANS[names.TURN.name], "client", turn.start_ns, turn.end_ns,
            shard.process, given,
        )  # fmt: skip
    for at, call in enumerate(shard.tool_calls.get(local, ())):
        given = {"gen_ai.operation.name": "execute_tool"}
        said = {
            "gen_ai.tool.name": call.tool,
            "rlvr.tool.status": call.status,
            "rlvr.turn.index": call.turn,
        }
        given.update({**known(said), **_error(call)})
        yield (
            ("tool", at), SPANS[names.TOOL_CALL.name], "internal", call.start_ns, call.end_ns,
            shard.process, given,
        )  # fmt: skip
    for at, done in enumerate(verified):
        given = dict(known({"rlvr.reward.fn": done.function or None}))
        yield (
            ("verify", at), SPANS[names.VERIFY.name], "internal", done.start_ns, done.end_ns,
            done.process, given,
        )  # fmt: skip


def _error(call: ToolCall) -> Attributes:
    """Why a tool call failed, if it did: what it raised, else what became of it."""
    if call.error is None and call.status in (None, "ok"):
        return {}
    return error_type(call.error or (call.status if call.status != "error" else None))


def _served(turn: Turn) -> Attributes:
    """What its engine did for a turn."""
    request = turn.request
    if request is None:
        return {}
    said = {
        "gen_ai.usage.cache_read.input_tokens": request.cached_tokens,
        "rlvr.queue_s": request.queue_s,
        "rlvr.prefill_s": request.prefill_s,
        "rlvr.decode_s": request.decode_s,
        "rlvr.kv.preemptions": request.preemptions,
        "rlvr.finish_reason": request.finish,
    }
    return known(said)


def _attributes(step: Step, candidate: Candidate, why: Sequence[str]) -> dict[str, Value]:
    shard, local = candidate.shard, candidate.local
    group = (
        candidate.row // candidate.batch.group_size if shard.groups is None else shard.groups[local]
    )
    runs = None if shard.loss_runs is None else shard.loss_runs[local]
    versions = None if shard.policy_versions is None else shard.policy_versions[local]
    cut = None if shard.truncated is None else shard.truncated[local]
    turns = shard.turns.get(local, ())
    found: dict[str, Value] = {
        "gen_ai.operation.name": "invoke_agent",
        "rl.loop.iteration": step.number,
        "rlvr.session": step.session,
        "rlvr.attempt": step.attempt,
        "rlvr.mode": candidate.batch.mode,
        "rlvr.batch": candidate.batch.ordinal,
        "rlvr.row": candidate.row,
        "rlvr.group.index": group,
        "rl.sample.input_tokens": shard.prompt_tokens[local],
        "rl.sample.output_tokens": shard.response_tokens[local],
        "rlvr.kept": list(why),
    }
    more = {
        "rl.sample.turns": len(turns) or None,
        "rlvr.engine.replica": None if shard.engines is None else shard.engines[local],
        "rlvr.policy.version": candidate.batch.policy_version,
        "rlvr.policy.version.start": None if versions is None else versions[0],
        "rlvr.policy.version.end": None if versions is None else versions[1],
        "rlvr.finish_reason": None if cut is None else ("length" if cut else "stop"),
        "rlvr.loss_tokens": None if runs is None else sum(runs[::2]),
    }
    failed = [call for call in shard.tool_calls.get(local, ()) if call.status in FAILED]
    error = _error(failed[0]) if failed else {}
    return {**found, **known(more), **error, **_rewards(shard, local)}


def _rewards(shard: BatchShard, local: int) -> Attributes:
    given = list[tuple[str, float]]()
    for column in shard.rewards:
        function, value = allowed(column.function), allowed(column.values[local])
        if isinstance(function, str) and isinstance(value, (int, float)):
            given.append((function, float(value)))
    if not given:
        return {}
    found: dict[str, Value] = {
        "rlvr.reward.functions": [function for function, _ in given],
        "rlvr.reward.values": [value for _, value in given],
    }
    return {**found, "rl.reward.score": given[0][1]} if len(given) == 1 else found
