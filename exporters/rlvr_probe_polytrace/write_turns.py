"""Makes records of ``multiturn_workload_step_N.jsonl``: one line per trajectory.

Every field that the format wants is there. An unknown one has the value that PolyTrace's readers
take where the field is missing, or a harmless one, and is counted for the manifest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rlvr_probe.model.batch import Trajectory
from rlvr_probe_polytrace.placement import Placement, PlannedBatch, ReplayCaps
from rlvr_probe_polytrace.records import Share, ToolCallRecord, TrajectoryRecord, TurnRecord
from rlvr_probe_polytrace.turns import Grown, LossMask, grow, mask_of
from rlvr_probe_polytrace.x_rlvr import Extender, seconds

__all__ = ["NotKnown", "multiturn_records"]

_T = TypeVar("_T")

_STATUSES = {"ok": "success", "error": "api_error"}
"""Words of PolyTrace for those of ``names.TOOL_STATUSES``; it has none for the others."""


@dataclass(slots=True)
class NotKnown:
    """Fields that hold no recorded value: what was written for them, and how often."""

    written: dict[str, object] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, written: _T) -> _T:
        """``written``, counted as one value of the field ``name``."""
        self.written[name] = written
        self.counts[name] += 1
        return written

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
    caps: ReplayCaps,
    shares: dict[int, Share],
    unknown: NotKnown,
) -> Iterator[TrajectoryRecord]:
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
        for position, sample in enumerate(group.trajectories):
            grown = grow(sample)
            mask, trained = mask_of(sample, grown), LossMask(sample)
            if sample.loss_runs is None and mask != [(1, sample.response_tokens)]:
                unknown.add("response_loss_mask_rle", "what the model generated")
            turns = [
                _turn(sample, index, turn, trained, index + 1 == len(grown), caps, unknown)
                for index, turn in enumerate(grown)
            ]
            yield TrajectoryRecord(
                step=planned.batch.index,
                prompt_len=sample.prompt_tokens,
                max_response_len=caps.response,
                max_model_len=unknown.add("max_model_len", caps.context),
                turns=turns,
                tool_calls=[
                    call
                    for index, turn in enumerate(grown)
                    for call in _tool_calls(trained, index, turn, tools, unknown)
                ],
                finish_reason=_reason(sample.truncated, "finish_reason", unknown),
                final_total_len=sample.prompt_tokens + sample.response_tokens,
                final_response_len=sample.response_tokens,
                final_response_attention_len=sample.response_tokens,
                final_response_loss_len=sum(tokens for value, tokens in mask if value),
                response_loss_mask_rle=mask,
                turn_count=len(grown),
                tool_call_count=len(sample.tool_calls),
                validate=False,
                prompt_group_id=number,
                sample_id=position,
                x_rlvr=extender.of_trajectory(group, position, row, dp_rank),
            )


def _turn(
    sample: Trajectory,
    index: int,
    grown: Grown,
    mask: LossMask,
    last: bool,
    caps: ReplayCaps,
    unknown: NotKnown,
) -> TurnRecord:
    turn = sample.turns[index]
    cached = turn.cached_tokens
    if cached is None or cached >= grown.sent:
        # An engine computes at least the last token that it gets.
        cached = unknown.add("turns.cached_tokens", 0)
    if turn.start_ns is None or turn.end_ns is None:
        latency_s = unknown.add("turns.engine_latency_s", 0.0)
    else:
        latency_s = seconds(max(0, turn.end_ns - turn.start_ns))
    if grown.calls:
        reason = "tool_calls"
    else:
        reason = _reason(sample.truncated if last else None, "turns.finish_reason", unknown)
    unknown.add("turns.tool_call_count", "calls that were made")
    trained = mask.between(grown.sent, grown.sent + grown.kept)
    return TurnRecord(
        turn=index,
        generation_prompt_len=grown.sent,
        prompt_tokens=grown.sent,
        cached_tokens=cached,
        max_new_tokens=min(caps.response, caps.context - grown.sent - 1),
        completion_tokens=grown.generated,
        generated_text_token_len=unknown.add("turns.generated_text_token_len", 0),
        assistant_append_len=grown.kept,
        assistant_loss_len=grown.kept if trained is None else trained,
        total_len_after=grown.sent + grown.kept,
        finish_reason=reason,
        tool_call_count=len(grown.calls),
        engine_latency_s=latency_s,
    )


def _tool_calls(
    mask: LossMask,
    index: int,
    grown: Grown,
    tools: Mapping[str | None, str],
    unknown: NotKnown,
) -> Iterator[ToolCallRecord]:
    """The calls of one turn. What they added together is known: it stands with the last of them."""
    start = grown.sent + grown.kept
    for number, call in enumerate(grown.calls):
        last = number + 1 == len(grown.calls)
        if not last:
            unknown.add("tool_calls.append_len", "0: with the last call of the turn")
        yield ToolCallRecord(
            turn=index,
            tool_name=unknown.add("tool_calls.tool_name", "unknown")
            if call.tool is None
            else tools[call.tool],
            query_count=unknown.add("tool_calls.query_count", 1),
            latency_s=seconds(max(0, call.end_ns - call.start_ns)),
            response_token_len=unknown.add("tool_calls.response_token_len", 0),
            append_len=grown.added if last else 0,
            loss_len=(mask.between(start, start + grown.added) or 0) if last else 0,
            status=_STATUSES.get(call.status or "") or unknown.add("tool_calls.status", "unknown"),
            total_results=unknown.add("tool_calls.total_results", 0),
        )


def _reason(truncated: bool | None, name: str, unknown: NotKnown) -> str:
    if truncated is None:
        return unknown.add(name, "unknown")
    return "length" if truncated else "stop"
