"""Checks of multi-turn trajectories beyond keys and types.

Required is what holds in every published record, not what one would expect: completion and append
lengths differ by template tokens, totals by cuts, and fewer calls are recorded than announced.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from msgspec import UNSET

from rlvr_probe_polytrace.files import FileReader
from rlvr_probe_polytrace.findings import Location, shown
from rlvr_probe_polytrace.records import Share, StepTotals, TrajectoryRecord

__all__ = ["check_multiturn", "check_trajectory_extension"]


def check_multiturn(reader: FileReader, step: int, response_cap: int | None) -> StepTotals:
    """Check one merged multi-turn file and sum it up, all on one data-parallel rank.

    Args:
        reader: Of the file.
        step: As in its name.
        response_cap: Longest response allowed, tokens; None if unknown.
    """
    totals = StepTotals(step)
    share = totals.shares.setdefault(0, Share())
    sizes: Counter[int] = Counter()
    seen: set[tuple[int, int]] = set()
    for location, record in reader.records(TrajectoryRecord):
        group, sample = record.prompt_group_id, record.sample_id
        if (group, sample) in seen:
            location.report("unique", "sample_id", sample, f"each once in prompt group {group}")
        seen.add((group, sample))
        sizes[group] += 1
        _check_trajectory(location, record, step)
        response = record.final_response_len
        if response_cap is not None and response > response_cap:
            expected = f"at most {response_cap} tokens"
            location.report("cap", "final_response_len", response, expected)
        check_trajectory_extension(location, record)
        share.samples += 1
        share.response_tokens += response
        share.longest = max(share.longest, response)
        if sample == 0:
            share.prompts += 1
            share.prompt_tokens += record.prompt_len
    totals.sound = reader.whole
    if totals.sound:
        # A record that could not be read would be reported again as a gap.
        totals.n = max(sizes.values(), default=0) or None
        _check_groups(reader.location, sizes, seen)
    return totals


def _check_groups(location: Location, sizes: Counter[int], seen: set[tuple[int, int]]) -> None:
    """Groups are dense, of one size, and number their samples from 0."""
    if sizes and sorted(sizes) != list(range(len(sizes))):
        text = f"{len(sizes)} groups up to {max(sizes)}"
        location.report("groups", "prompt_group_id", text, "every group from 0, without a gap")
    if len(set(sizes.values())) > 1:
        text = shown(dict(sorted(Counter(sizes.values()).items())))
        expected = "one size for all groups (size: groups of it)"
        location.report("group sizes", "prompt_group_id", text, expected)
    size = max(sizes.values(), default=0)
    outside = min((sample for _, sample in seen if sample >= size), default=None)
    if outside is not None:
        location.report("samples", "sample_id", outside, f"less than the group size {size}")


def check_trajectory_extension(location: Location, record: TrajectoryRecord) -> None:
    """Check that ``x_rlvr`` has one value per turn and per tool call, and the same sample."""
    extension, within = record.x_rlvr, location.within("x_rlvr")
    if extension is UNSET:
        return
    for key, column, of, items in (
        ("turn_start_s", extension.turn_start_s, "turns", len(record.turns)),
        ("tool_start_s", extension.tool_start_s, "tool_calls", len(record.tool_calls)),
        ("tool_status", extension.tool_status, "tool_calls", len(record.tool_calls)),
    ):
        if column is not None and len(column) != items:
            found, expected = f"{len(column)} values", f"{items}, as many as {of}"
            within.report("extension", key, found, expected)
    offset = extension.rollout_offset
    if offset is not None:
        within.equal("rollout_offset", offset, record.sample_id, ", sample_id")


def _check_trajectory(location: Location, record: TrajectoryRecord, step: int) -> None:
    location.equal("step", record.step, step, " as in the file name")
    location.equal("validate", record.validate, False, ": a workload has no validation")
    turns, calls = len(record.turns), len(record.tool_calls)
    location.equal("turn_count", record.turn_count, turns, ", the length of turns")
    location.equal("tool_call_count", record.tool_call_count, calls, ", the length of tool_calls")
    _check_turns(location, record)
    _check_calls(location, record)
    _check_final(location, record)
    _check_mask(location, record)


def _at_most(location: Location, field: str, value: int, limit_name: str, limit: int) -> None:
    if value > limit:
        location.report(f"limit of {field}", field, value, f"at most {limit_name} {limit}")


def _check_turns(location: Location, record: TrajectoryRecord) -> None:
    before = record.prompt_len
    for position, turn in enumerate(record.turns):
        at = location.within(f"turns[{position}]")
        at.equal("turn", turn.turn, position, ", its position")
        prompt = turn.generation_prompt_len
        if position == 0:
            at.equal("generation_prompt_len", prompt, before, ", prompt_len of the trajectory")
        elif prompt < before:
            expected = f"at least {before} of the turn before"
            at.report("growth", "generation_prompt_len", prompt, expected)
        before = prompt
        at.equal("prompt_tokens", turn.prompt_tokens, prompt, ", generation_prompt_len")
        if turn.cached_tokens >= turn.prompt_tokens:
            expected = f"less than prompt_tokens {turn.prompt_tokens}"
            at.report("cached", "cached_tokens", turn.cached_tokens, expected)
        most, left = turn.max_new_tokens, record.max_model_len - prompt - 1
        at.equal(
            "max_new_tokens", most, min(record.max_response_len, left), ", what the caps leave"
        )
        _at_most(at, "completion_tokens", turn.completion_tokens, "max_new_tokens", most)
        kept = turn.assistant_append_len
        _at_most(at, "assistant_loss_len", turn.assistant_loss_len, "assistant_append_len", kept)


def _check_calls(location: Location, record: TrajectoryRecord) -> None:
    of_turn: Counter[int] = Counter()
    for position, call in enumerate(record.tool_calls):
        at = location.within(f"tool_calls[{position}]")
        of_turn[call.turn] += 1
        if call.turn >= len(record.turns):
            at.report("call turn", "turn", call.turn, f"one of the {len(record.turns)} turns")
        elif of_turn[call.turn] > record.turns[call.turn].tool_call_count:
            announced = record.turns[call.turn].tool_call_count
            expected = f"at most {announced} calls, as the turn announced"
            at.report("announced", "turn", call.turn, expected)
        _at_most(at, "loss_len", call.loss_len, "append_len", call.append_len)


def _check_final(location: Location, record: TrajectoryRecord) -> None:
    total, prompt = record.final_total_len, record.prompt_len
    response, attention = record.final_response_len, record.final_response_attention_len
    expected = min(record.max_response_len, total - prompt)
    location.equal("final_response_len", response, expected, ", from total and cap")
    location.equal("final_response_attention_len", attention, response, ", final_response_len")
    _at_most(location, "final_total_len", total, "max_model_len", record.max_model_len)
    if total < prompt + response:
        text = f"at least prompt and response, {prompt + response}"
        location.report("total", "final_total_len", total, text)


def _check_mask(location: Location, record: TrajectoryRecord) -> None:
    """Runs of the loss mask are merged, and of the lengths that the record states."""
    field, mask = "response_loss_mask_rle", record.response_loss_mask_rle
    if any(len(list(runs)) > 1 for _, runs in groupby(mask, key=lambda run: run[0])):
        location.report("mask form", field, mask, "runs that alternate between 0 and 1")
    total = sum(tokens for _, tokens in mask)
    if total != record.final_response_len:
        expected = f"runs that sum to final_response_len {record.final_response_len}"
        location.report("mask length", field, f"a sum of {total}", expected)
    ones = sum(tokens for value, tokens in mask if value)
    if ones != record.final_response_loss_len:
        expected = f"final_response_loss_len {record.final_response_loss_len} ones"
        location.report("mask ones", field, f"{ones} ones", expected)
