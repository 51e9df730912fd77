"""Records of ``multiturn_workload_step_N.jsonl``: one line per trajectory.

Every field that the format wants is there. Where the recording does not know one, it has the value
that PolyTrace's readers take where the field is missing, or that is in the way of none, and is
counted, so that the manifest says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rlvr_probe.model.batch import ToolCall, Trajectory
from rlvr_probe_polytrace.extension import Extender, seconds
from rlvr_probe_polytrace.order import PlannedBatch
from rlvr_probe_polytrace.placement import Placement
from rlvr_probe_polytrace.records import Share
from rlvr_probe_polytrace.turns import Grown, LossMask, grow, mask_of

__all__ = ["Caps", "NotKnown", "multiturn_records"]

_STATUSES = {"ok": "success", "error": "api_error"}
"""Words of PolyTrace for those of ``names.TOOL_STATUSES``; it has none for the others."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Longest lengths that the replay allows, tokens: of a response, and of a whole context."""

    response: int
    context: int


@dataclass(slots=True)
class NotKnown:
    """Fields that hold no recorded value: what was written for them, and how often."""

    written: dict[str, object] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, written: object) -> None:
        """Count one value of the field ``name``."""
        self.written[name] = written
        self.counts[name] += 1

    def listed(self) -> list[dict[str, object]]:
        """For the manifest, by field."""
        return [
            {"field": name, "written": self.written[name], "count": self.counts[name]}
            for name in sorted(self.counts)
        ]


def multiturn_records(
    planned: PlannedBatch,
    placement: Placement,
    labels: Mapping[int, str],
    tools: Mapping[str | None, str],
    caps: Caps,
    shares: dict[int, Share],
    unknown: NotKnown,
) -> Iterator[dict[str, object]]:
    """One record per trajectory: prompts in written order, samples in theirs.

    Args:
        planned: Read lazily; no trajectory of it has a flaw.
        placement: Where its groups go.
        labels: Name of each reward function by position.
        tools: Name of each tool as written.
        caps: No length is longer.
        shares: Filled while the records are taken: by data-parallel rank.
        unknown: Filled while the records are taken.
    """
    extender = Extender(planned.batch, placement.tp, labels)
    for number, group in enumerate(planned.groups()):
        dp_rank = placement.dp_rank(extender.engine(group.trajectories[0]))
        share = shares.setdefault(dp_rank, Share())
        row = share.prompts
        share.add(
            group.trajectories[0].prompt_tokens,
            [sample.response_tokens for sample in group.trajectories],
        )
        for place, sample in enumerate(group.trajectories):
            yield {
                "step": planned.batch.index,
                **_trajectory(sample, tools, caps, unknown),
                "prompt_group_id": number,
                "sample_id": place,
                "x_rlvr": {
                    **extender.of_trajectory(group, sample),
                    "batch_data_id": row,
                    "rollout_offset": place,
                    "dp_rank": dp_rank,
                    "rank": dp_rank * placement.tp,
                },
            }


def _trajectory(
    sample: Trajectory, tools: Mapping[str | None, str], caps: Caps, unknown: NotKnown
) -> dict[str, object]:
    """The keys of PolyTrace, in its order; those that name the record come after them."""
    grown = grow(sample)
    mask, trained = mask_of(sample, grown), LossMask(sample)
    if sample.loss_runs is None and mask != [[1, sample.response_tokens]]:
        unknown.add("response_loss_mask_rle", "what the model generated")
    unknown.add("max_model_len", caps.context)
    return {
        "prompt_len": int(sample.prompt_tokens),
        "max_response_len": caps.response,
        "max_model_len": caps.context,
        "turns": [
            _turn(sample, place, one, trained, place + 1 == len(grown), caps, unknown)
            for place, one in enumerate(grown)
        ],
        "tool_calls": [
            record
            for place, one in enumerate(grown)
            for record in _tool_calls(trained, place, one, tools, unknown)
        ],
        "finish_reason": _reason(sample.truncated, "finish_reason", unknown),
        "final_total_len": int(sample.prompt_tokens + sample.response_tokens),
        "final_response_len": int(sample.response_tokens),
        "final_response_attention_len": int(sample.response_tokens),
        "final_response_loss_len": sum(tokens for value, tokens in mask if value),
        "response_loss_mask_rle": mask,
        "turn_count": len(grown),
        "tool_call_count": len(sample.tool_calls),
        "validate": False,
    }


def _turn(
    sample: Trajectory,
    place: int,
    one: Grown,
    mask: LossMask,
    last: bool,
    caps: Caps,
    unknown: NotKnown,
) -> dict[str, object]:
    turn = sample.turns[place]
    cached = turn.cached_tokens
    if cached is None or cached >= one.sent:
        # An engine computes at least the last token that it gets.
        unknown.add("turns.cached_tokens", 0)
        cached = 0
    latency_s = 0.0
    if turn.start_ns is None or turn.end_ns is None:
        unknown.add("turns.engine_latency_s", 0.0)
    else:
        latency_s = seconds(max(0, turn.end_ns - turn.start_ns))
    if one.calls:
        reason = "tool_calls"
    elif last:
        reason = _reason(sample.truncated, "turns.finish_reason", unknown)
    else:
        unknown.add("turns.finish_reason", "unknown")
        reason = "unknown"
    unknown.add("turns.generated_text_token_len", 0)
    unknown.add("turns.tool_call_count", "calls that were made")
    trained = mask.between(one.sent, one.sent + one.kept)
    return {
        "turn": place,
        "generation_prompt_len": one.sent,
        "prompt_tokens": one.sent,
        "cached_tokens": cached,
        "max_new_tokens": min(caps.response, caps.context - one.sent - 1),
        "completion_tokens": one.generated,
        "generated_text_token_len": 0,
        "assistant_append_len": one.kept,
        "assistant_loss_len": one.kept if trained is None else trained,
        "total_len_after": one.sent + one.kept,
        "finish_reason": reason,
        "tool_call_count": len(one.calls),
        "engine_latency_s": latency_s,
    }


def _tool_calls(
    mask: LossMask,
    place: int,
    one: Grown,
    tools: Mapping[str | None, str],
    unknown: NotKnown,
) -> Iterator[dict[str, object]]:
    """The calls of one turn. What they added together is known: it stands with the last of them."""
    begin = one.sent + one.kept
    for number, call in enumerate(one.calls):
        last = number + 1 == len(one.calls)
        if not last:
            unknown.add("tool_calls.append_len", "0: with the last call of the turn")
        unknown.add("tool_calls.query_count", 1)
        unknown.add("tool_calls.response_token_len", 0)
        unknown.add("tool_calls.total_results", 0)
        yield {
            "turn": place,
            "tool_name": _tool_name(call, tools, unknown),
            "query_count": 1,
            "latency_s": seconds(max(0, call.end_ns - call.start_ns)),
            "response_token_len": 0,
            "append_len": one.added if last else 0,
            "loss_len": (mask.between(begin, begin + one.added) or 0) if last else 0,
            "status": _status(call, unknown),
            "total_results": 0,
        }


def _tool_name(call: ToolCall, tools: Mapping[str | None, str], unknown: NotKnown) -> str:
    if call.tool is None:
        unknown.add("tool_calls.tool_name", "unknown")
        return "unknown"
    return tools[call.tool]


def _status(call: ToolCall, unknown: NotKnown) -> str:
    found = _STATUSES.get(call.status or "")
    if found is None:
        unknown.add("tool_calls.status", "unknown")
        return "unknown"
    return found


def _reason(truncated: bool | None, name: str, unknown: NotKnown) -> str:
    if truncated is None:
        unknown.add(name, "unknown")
        return "unknown"
    return "length" if truncated else "stop"
