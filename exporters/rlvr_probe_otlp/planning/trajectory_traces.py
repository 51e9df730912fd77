"""A trajectory as a trace: its turns, its tool calls and its verification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from rlvr_probe.exporter.timed_trajectories import FAILED, Candidate
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
from rlvr_probe_otlp.planning.viewer_labels import OF_TRAJECTORY, line, seen, title

__all__ = ["link_to", "plan_trajectories"]

_WHOLE = SPANS[names.TRAJECTORY.name]

_Value = TypeVar("_Value")


class _Part(NamedTuple):
    """One span of a trajectory; ``what`` names it there."""

    what: tuple[str, int]
    name: str
    kind: Kind
    start_ns: int
    end_ns: int
    process: int
    attributes: Attributes


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
    longest = sorted(range(len(parts)), key=lambda at: parts[at].start_ns - parts[at].end_ns)
    bound = context.limits.spans - 1
    dropped = dict[str, float]()
    for part in map(parts.__getitem__, sorted(longest[bound:])):
        for what, value in (("count", 1), ("sum_s", (part.end_ns - part.start_ns) / 1e9)):
            key = f"rlvr.left_out.{part.name}.{what}"
            dropped[key] = dropped.get(key, 0) + value
    attributes = {**_attributes(step, candidate, why), **model, **dropped}
    kind = "consumed_by" if candidate.batch.queued else "issued_by"
    start_ns = min((candidate.start_ns, *(part.start_ns for part in parts)))
    root = PlannedSpan(
        trace, top, None, _WHOLE, "internal", context.at(start_ns), context.at(candidate.end_ns),
        candidate.shard.process, seen(_WHOLE, {**attributes, **line(attributes, OF_TRAJECTORY)}),
        (Link(*context.step(step), {"rlvr.link.kind": kind}),),
    )  # fmt: skip
    kept = map(parts.__getitem__, sorted(longest[:bound]))
    spans = [
        PlannedSpan(
            trace, context.trajectory(step, *candidate.place, *part.what)[1], top,
            title(part.name, part.attributes), part.kind, context.at(part.start_ns),
            context.at(part.end_ns), part.process, seen(part.name, part.attributes),
        )
        for part in sorted(kept, key=lambda part: (part.start_ns, -part.end_ns))
    ]  # fmt: skip
    return PlannedTrace(trace, [root, *spans], len(longest[bound:]))


def _parts(
    shard: BatchShard, local: int, verified: Sequence[RewardCall], model: Attributes
) -> Iterator[_Part]:
    for at, turn in enumerate(shard.turns.get(local, ())):
        if turn.start_ns is None or turn.end_ns is None:
            continue
        said = {
            "gen_ai.operation.name": "chat",
            "rlvr.turn.index": turn.index,
            "gen_ai.usage.input_tokens": turn.prompt_tokens,
            "gen_ai.usage.prompt_tokens": turn.prompt_tokens,
            "gen_ai.usage.output_tokens": turn.response_tokens,
            "gen_ai.usage.completion_tokens": turn.response_tokens,
            "gen_ai.usage.cache_read.input_tokens": turn.cached_tokens,
        }
        yield _Part(
            ("turn", at), SPANS[names.TURN.name], "client", turn.start_ns, turn.end_ns,
            shard.process, {**known(said), **model, **_served(turn)},
        )  # fmt: skip
    for at, call in enumerate(shard.tool_calls.get(local, ())):
        said = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool,
            "rlvr.tool.status": call.status,
            "rlvr.turn.index": call.turn,
        }
        yield _Part(
            ("tool", at), SPANS[names.TOOL_CALL.name], "internal", call.start_ns, call.end_ns,
            shard.process, {**known(said), **_error(call)},
        )  # fmt: skip
    for at, done in enumerate(verified):
        yield _Part(
            ("verify", at), SPANS[names.VERIFY.name], "internal", done.start_ns, done.end_ns,
            done.process, known({"rlvr.reward.fn": done.function or None}),
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

    def here(column: Sequence[_Value] | None) -> _Value | None:
        return None if column is None else column[local]

    group, runs, cut = here(shard.groups), here(shard.loss_runs), here(shard.truncated)
    oldest, newest = here(shard.policy_versions) or (None, None)
    said = {
        "gen_ai.operation.name": "invoke_agent",
        "rl.loop.iteration": step.number,
        "rlvr.session": step.session,
        "rlvr.attempt": step.attempt,
        "rlvr.mode": candidate.batch.mode,
        "rlvr.batch": candidate.batch.ordinal,
        "rlvr.row": candidate.row,
        "rlvr.group.index": candidate.row // candidate.batch.group_size if group is None else group,
        "rl.sample.input_tokens": shard.prompt_tokens[local],
        "rl.sample.output_tokens": shard.response_tokens[local],
    }
    more = {
        "rl.sample.turns": len(shard.turns.get(local, ())) or None,
        "rlvr.engine.replica": here(shard.engines),
        "rlvr.policy.version": candidate.batch.policy_version,
        "rlvr.policy.version.start": oldest,
        "rlvr.policy.version.end": newest,
        "rlvr.finish_reason": None if cut is None else ("length" if cut else "stop"),
        "rlvr.loss_tokens": None if runs is None else sum(runs[::2]),
    }
    failed = [call for call in shard.tool_calls.get(local, ()) if call.status in FAILED]
    error = _error(failed[0]) if failed else {}
    kept = {"rlvr.kept": list(why)}
    return {**known(said), **kept, **known(more), **error, **_rewards(shard, local)}


def _rewards(shard: BatchShard, local: int) -> Attributes:
    given = [
        (function, float(value))
        for column in shard.rewards
        if isinstance(function := allowed(column.function), str)
        and isinstance(value := allowed(column.values[local]), (int, float))
    ]
    if not given:
        return {}
    found: dict[str, Value] = {
        "rlvr.reward.functions": [function for function, _ in given],
        "rlvr.reward.values": [value for _, value in given],
    }
    return {**found, "rl.reward.score": given[0][1]} if len(given) == 1 else found
