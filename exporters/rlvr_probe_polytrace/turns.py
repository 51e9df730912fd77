"""Turns of a trajectory: whether they say all of it, and its record, one line per trajectory.

A context grows by what the model generates and by what tools, users and templates add to it. All of
it follows from the tokens sent in each turn, the tokens generated, and the mask of the trainer.

Every field of ``multiturn_workload_step_N.jsonl`` that the format wants is written. An unknown one
has the value that PolyTrace's readers take where the field is missing, or a harmless one, and is
counted for the manifest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import TypeVar

from rlvr_probe.model.batch import ToolCall, Trajectory
from rlvr_probe_polytrace.placement import Placement, PlannedBatch, ReplayCaps
from rlvr_probe_polytrace.records import Share, ToolCallRecord, TrajectoryRecord, TurnRecord
from rlvr_probe_polytrace.x_rlvr import Extender, seconds

__all__ = ["LossMask", "NotKnown", "flaw_of", "multiturn_records", "overlapping"]

_T = TypeVar("_T")

_STATUSES = {"ok": "success", "error": "api_error"}
"""Words of PolyTrace for those of ``names.TOOL_STATUSES``; it has none for the others."""


@dataclass(frozen=True, slots=True)
class _Grown:
    """One turn of a trajectory whose turns are all known.

    Attributes:
        sent, generated: Tokens that the engine got and made.
        kept: Of those generated, how many stayed in the context.
        added: Tokens that came after them, until the next turn or the end.
        calls: Tool calls that it asked for.
    """

    sent: int
    generated: int
    kept: int
    added: int
    calls: tuple[ToolCall, ...]


def flaw_of(sample: Trajectory, *, lossy: bool) -> str | None:
    """Why the turns of ``sample`` cannot be written as the whole of it; None if they can.

    Args:
        sample: To look at.
        lossy: Whether turns and tool calls may be missing. What was added to a context without a
            tool call may then be the result of one that is.
    """
    turns = sample.turns
    if not turns:
        return "no_turns"
    if [turn.index for turn in turns] != list(range(len(turns))):
        return "missing_turns"
    if any(call.turn is None or call.turn >= len(turns) for call in sample.tool_calls):
        return "missing_turns"
    if any(not turn.prompt_tokens or turn.response_tokens is None for turn in turns):
        return "unknown_lengths"
    if any(turn.response_tokens == 0 for turn in turns):
        return "empty_response"
    sent = [turn.prompt_tokens or 0 for turn in turns]
    if sent[0] != sample.prompt_tokens:
        return "other_prompt"
    if any(left > right for left, right in pairwise(sent)):
        return "shrinking_context"
    grown = _grow(sample)
    # Tokens in the loss are the model's own: more of them than the turns made are of other turns.
    trained = _runs(sample)
    if trained is not None:
        missing = sum(trained[::2]) > sum(turn.generated for turn in grown)
    else:
        missing = bool(grown[-1].added) and not grown[-1].calls
    if missing or (lossy and any(turn.added and not turn.calls for turn in grown)):
        return "missing_turns"
    return None


def _grow(sample: Trajectory) -> list[_Grown]:
    """The turns of ``sample``, which has no flaw."""
    calls: dict[int, list[ToolCall]] = {}
    for call in sample.tool_calls:
        calls.setdefault(-1 if call.turn is None else call.turn, []).append(call)
    end = sample.prompt_tokens + sample.response_tokens
    following = [*(turn.prompt_tokens or 0 for turn in sample.turns[1:]), end]
    grown = []
    for index, (turn, after) in enumerate(zip(sample.turns, following, strict=True)):
        sent, generated = turn.prompt_tokens or 0, turn.response_tokens or 0
        # A response may be cut to its cap before the last turn started.
        room = max(0, after - sent)
        kept = min(generated, room)
        grown.append(_Grown(sent, generated, kept, room - kept, tuple(calls.get(index, ()))))
    return grown


class LossMask:
    """Which tokens of a trajectory are in the loss, asked many times."""

    def __init__(self, sample: Trajectory) -> None:
        """Add up its runs."""
        runs = _runs(sample)
        self._known = runs is not None
        # Where each run starts in the context, and how many tokens before that are in the loss.
        self._starts, self._before = [sample.prompt_tokens], [0]
        for number, run in enumerate(runs or ()):
            self._starts.append(self._starts[-1] + run)
            self._before.append(self._before[-1] + (0 if number % 2 else run))

    def between(self, start: int, end: int) -> int | None:
        """Tokens in the loss among those of the context from ``start`` to before ``end``.

        None where the mask of the trainer is unknown.
        """
        return max(0, self._until(end) - self._until(start)) if self._known else None

    def _until(self, end: int) -> int:
        run = bisect_right(self._starts, end) - 1
        if run < 0:
            return 0
        inside = not run % 2 and run + 1 < len(self._starts)
        return self._before[run] + (end - self._starts[run] if inside else 0)


def _mask_of(sample: Trajectory, grown: Sequence[_Grown]) -> list[tuple[int, int]]:
    """The loss mask of the response: runs of 0 or 1, and their tokens.

    Where that of the trainer is unknown: what the model generated.
    """
    runs = _runs(sample)
    if runs is not None:
        return _merged((1 - number % 2, run) for number, run in enumerate(runs))
    generated = list[tuple[int, int]]()
    left = sample.response_tokens
    for turn in grown:
        for value, tokens in ((1, turn.kept), (0, turn.added)):
            generated.append((value, min(tokens, left)))
            left -= min(tokens, left)
    return _merged(generated)


def _runs(sample: Trajectory) -> tuple[int, ...] | None:
    runs = sample.loss_runs
    return runs if runs is not None and sum(runs) == sample.response_tokens else None


def _merged(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """``runs`` without empty ones; neighbours of one value are one run."""
    filled = (run for run in runs if run[1])
    return [
        (value, sum(tokens for _, tokens in members))
        for value, members in groupby(filled, key=lambda run: run[0])
    ]


def overlapping(calls: Sequence[ToolCall]) -> bool:
    """Whether two of ``calls`` ran at the same time."""
    ordered = sorted(calls, key=lambda call: call.start_ns)
    return any(left.end_ns > right.start_ns for left, right in pairwise(ordered))


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
    sources: Mapping[str | None, str],
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
        sources: Name of each source of the data as written.
        caps: No length is longer.
        shares: Filled while the records are taken: by data-parallel rank.
        unknown: Filled while the records are taken.
    """
    extender = Extender(planned.batch, placement.tp, labels, sources)
    for number, group in enumerate(planned.groups()):
        dp_rank = placement.dp_rank(extender.engine(group.trajectories[0].row))
        share = shares.setdefault(dp_rank, Share())
        row = share.prompts
        share.add(
            group.trajectories[0].prompt_tokens,
            [sample.response_tokens for sample in group.trajectories],
        )
        for position, sample in enumerate(group.trajectories):
            grown = _grow(sample)
            mask, trained = _mask_of(sample, grown), LossMask(sample)
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
                x_rlvr=extender.of_trajectory(group.index, sample, position, row, dp_rank),
            )


def _turn(
    sample: Trajectory,
    index: int,
    grown: _Grown,
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
    grown: _Grown,
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
