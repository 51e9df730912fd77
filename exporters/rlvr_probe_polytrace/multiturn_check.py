"""Checks of ``multiturn_workload_step_N.jsonl``: trajectories with turns and tool calls.

Required is what holds in every published record, not what one would expect: completion and append
lengths differ by template tokens, totals by cuts, and fewer calls are recorded than announced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rlvr_probe_polytrace.extension_check import check_trajectory_extension
from rlvr_probe_polytrace.fields import (
    ARRAY,
    COUNT,
    FLAG,
    LENGTH,
    SECONDS,
    TEXT,
    Kind,
    Place,
    integer,
    is_integer,
)
from rlvr_probe_polytrace.findings import Findings, shown
from rlvr_probe_polytrace.layout import MAX_COUNT
from rlvr_probe_polytrace.reading import FileReader
from rlvr_probe_polytrace.sums import Share, StepSums

__all__ = ["MULTITURN_KEYS", "TOOL_KEYS", "TURN_KEYS", "check_multiturn"]

MULTITURN_KEYS = {
    "step": COUNT,
    "prompt_group_id": COUNT,
    "sample_id": COUNT,
    "prompt_len": LENGTH,
    "max_response_len": LENGTH,
    "max_model_len": LENGTH,
    "turns": ARRAY,
    "tool_calls": ARRAY,
    "finish_reason": TEXT,
    "final_total_len": LENGTH,
    "final_response_len": LENGTH,
    "final_response_attention_len": COUNT,
    "final_response_loss_len": COUNT,
    "response_loss_mask_rle": ARRAY,
    "turn_count": COUNT,
    "tool_call_count": COUNT,
    "validate": FLAG,
}
TURN_KEYS = {
    "turn": COUNT,
    "generation_prompt_len": LENGTH,
    "prompt_tokens": LENGTH,
    "cached_tokens": COUNT,
    "max_new_tokens": LENGTH,
    "completion_tokens": LENGTH,
    "generated_text_token_len": COUNT,
    "assistant_append_len": COUNT,
    "assistant_loss_len": COUNT,
    "total_len_after": LENGTH,
    "finish_reason": TEXT,
    "tool_call_count": COUNT,
    "engine_latency_s": SECONDS,
}
TOOL_KEYS = {
    "turn": COUNT,
    "tool_name": TEXT,
    "query_count": COUNT,
    "latency_s": SECONDS,
    "response_token_len": COUNT,
    "append_len": COUNT,
    "loss_len": COUNT,
    "status": TEXT,
    "total_results": COUNT,
}


def check_multiturn(
    reader: FileReader, step: int, response_cap: int | None, findings: Findings
) -> StepSums:
    """Check one merged multi-turn file and sum it up, all on one data-parallel rank.

    Args:
        reader: Of the file.
        step: As in its name.
        response_cap: Longest response allowed, tokens; None if unknown.
        findings: Takes what is wrong.
    """
    found = StepSums(step)
    share = found.shares.setdefault(0, Share())
    sizes: Counter[int] = Counter()
    seen: set[tuple[int, int]] = set()
    whole = True
    for line, record in reader.records():
        place = Place(findings, reader.name, line)
        if not place.check(record, MULTITURN_KEYS):
            whole = False
            continue
        group, sample = integer(record, "prompt_group_id"), integer(record, "sample_id")
        if (group, sample) in seen:
            place.report("unique", "sample_id", sample, f"each once in prompt group {group}")
        seen.add((group, sample))
        sizes[group] += 1
        _check_trajectory(place, record, step)
        response = integer(record, "final_response_len")
        if response_cap is not None and response > response_cap:
            place.report("cap", "final_response_len", response, f"at most {response_cap} tokens")
        if "x_rlvr" in record:
            check_trajectory_extension(place.within("x_rlvr"), record)
        share.samples += 1
        share.response_tokens += response
        share.longest = max(share.longest, response)
        if sample == 0:
            share.prompts += 1
            share.prompt_tokens += integer(record, "prompt_len")
    found.sound = whole and reader.whole
    if not found.sound:
        # A record that could not be read would be reported again as a gap.
        return found
    place = Place(findings, reader.name, None)
    if sizes and sorted(sizes) != list(range(len(sizes))):
        text = f"{len(sizes)} groups up to {max(sizes)}"
        place.report("groups", "prompt_group_id", text, "every group from 0, without a gap")
    if len(set(sizes.values())) > 1:
        text = shown(dict(sorted(Counter(sizes.values()).items())))
        expected = "one size for all groups (size: groups of it)"
        place.report("group sizes", "prompt_group_id", text, expected)
    size = max(sizes.values(), default=0)
    found.n = size or None
    outside = sorted(sample for _, sample in seen if sample >= size)
    if outside:
        place.report("samples", "sample_id", outside[0], f"less than the group size {size}")
    return found


def _check_trajectory(place: Place, record: Mapping[str, object], step: int) -> None:
    place.equal(record, "step", step, " as in the file name")
    place.equal(record, "validate", False, ": validation is no workload")
    turns = _objects(place, record, "turns", TURN_KEYS)
    calls = _objects(place, record, "tool_calls", TOOL_KEYS)
    if turns is None or calls is None:
        return
    place.equal(record, "turn_count", len(turns), ", the length of turns")
    place.equal(record, "tool_call_count", len(calls), ", the length of tool_calls")
    _check_turns(place, record, turns)
    _check_calls(place, turns, calls)
    _check_final(place, record)
    _check_mask(place, record)


def _objects(
    place: Place, record: Mapping[str, object], field: str, table: Mapping[str, Kind]
) -> list[dict[str, object]] | None:
    """The objects of an array, or None if one of them is unsound."""
    items = record[field]
    assert isinstance(items, list)  # noqa: S101 - narrows a checked value
    sound = True
    for position, item in enumerate(items):
        within = place.within(f"{field}[{position}]")
        if not isinstance(item, dict):
            place.report("element", f"{field}[{position}]", shown(item), "an object")
            sound = False
        elif not within.check(item, table):
            sound = False
    return items if sound else None


def _check_turns(
    place: Place, record: Mapping[str, object], turns: list[dict[str, object]]
) -> None:
    before = integer(record, "prompt_len")
    cap, room = integer(record, "max_response_len"), integer(record, "max_model_len")
    for position, turn in enumerate(turns):
        at = place.within(f"turns[{position}]")
        at.equal(turn, "turn", position, ", its position")
        prompt = integer(turn, "generation_prompt_len")
        if position == 0:
            at.equal(turn, "generation_prompt_len", before, ", prompt_len of the trajectory")
        elif prompt < before:
            at.report(
                "growth", "generation_prompt_len", prompt, f"at least {before} of the turn before"
            )
        before = prompt
        at.equal(turn, "prompt_tokens", prompt, ", generation_prompt_len")
        if integer(turn, "cached_tokens") >= integer(turn, "prompt_tokens"):
            expected = f"less than prompt_tokens {turn['prompt_tokens']}"
            at.report("cached", "cached_tokens", integer(turn, "cached_tokens"), expected)
        most = integer(turn, "max_new_tokens")
        at.equal(turn, "max_new_tokens", min(cap, room - prompt - 1), ", what the caps leave")
        if integer(turn, "completion_tokens") > most:
            expected = f"at most max_new_tokens {most}"
            at.report(
                "completion", "completion_tokens", integer(turn, "completion_tokens"), expected
            )
        if integer(turn, "assistant_loss_len") > integer(turn, "assistant_append_len"):
            expected = f"at most assistant_append_len {turn['assistant_append_len']}"
            at.report("loss", "assistant_loss_len", integer(turn, "assistant_loss_len"), expected)


def _check_calls(
    place: Place, turns: list[dict[str, object]], calls: list[dict[str, object]]
) -> None:
    of_turn: Counter[int] = Counter()
    for position, call in enumerate(calls):
        at = place.within(f"tool_calls[{position}]")
        turn = integer(call, "turn")
        of_turn[turn] += 1
        if turn >= len(turns):
            at.report("call turn", "turn", turn, f"one of the {len(turns)} turns")
        elif of_turn[turn] > integer(turns[turn], "tool_call_count"):
            announced = integer(turns[turn], "tool_call_count")
            at.report(
                "announced", "turn", turn, f"at most {announced} calls, as the turn announced"
            )
        if integer(call, "loss_len") > integer(call, "append_len"):
            expected = f"at most append_len {call['append_len']}"
            at.report("loss", "loss_len", integer(call, "loss_len"), expected)


def _check_final(place: Place, record: Mapping[str, object]) -> None:
    total, prompt = integer(record, "final_total_len"), integer(record, "prompt_len")
    response, cap = integer(record, "final_response_len"), integer(record, "max_response_len")
    place.equal(record, "final_response_len", min(cap, total - prompt), ", from total and cap")
    place.equal(record, "final_response_attention_len", response, ", final_response_len")
    if total > integer(record, "max_model_len"):
        expected = f"at most max_model_len {record['max_model_len']}"
        place.report("total", "final_total_len", total, expected)
    if total < prompt + response:
        expected = f"at least prompt and response, {prompt + response}"
        place.report("total", "final_total_len", total, expected)


def _check_mask(place: Place, record: Mapping[str, object]) -> None:
    """Runs of the loss mask: well formed, merged, and of the lengths the record states."""
    field = "response_loss_mask_rle"
    runs = record[field]
    assert isinstance(runs, list)  # noqa: S101 - narrows a checked value
    total = ones = 0
    previous: int | None = None
    for run in runs:
        if not (
            isinstance(run, list)
            and len(run) == 2
            and all(map(is_integer, run))
            and run[0] in (0, 1)
            and 0 < run[1] <= MAX_COUNT
        ):
            place.report("mask form", field, shown(run), "[0 or 1, a length of at least 1]")
            return
        if run[0] == previous:
            place.report("mask form", field, shown(run), "runs that alternate between 0 and 1")
        previous = run[0]
        total += run[1]
        ones += run[0] * run[1]
    if total != record["final_response_len"]:
        expected = f"runs that sum to final_response_len {record['final_response_len']}"
        place.report("mask length", field, f"a sum of {total}", expected)
    if ones != record["final_response_loss_len"]:
        expected = f"final_response_loss_len {record['final_response_loss_len']} ones"
        place.report("mask ones", field, f"{ones} ones", expected)
