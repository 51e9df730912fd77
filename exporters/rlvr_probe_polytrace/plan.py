"""Decides what of a workload is written, before the first byte: flavour, numbering, placement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlvr_probe.exceptions import WorkloadError
from rlvr_probe.model.workload import Iteration, LeftOut, Workload
from rlvr_probe_polytrace.files import FLAVORS
from rlvr_probe_polytrace.filter_indices import Filter, make_filter
from rlvr_probe_polytrace.placement import (
    Layout,
    Placement,
    PlannedBatch,
    ReplayCaps,
    choose_placement,
    hide_controller,
    rows_of_controller,
)
from rlvr_probe_polytrace.reward_times import RewardTimes, reward_times
from rlvr_probe_polytrace.survey import Survey, check_workload, drop, survey

__all__ = ["REASONS", "Plan", "make_plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is written, and what is said about the rest.

    Attributes:
        workload: What it is of.
        surveyed: Its flavour, and what its trajectories hold.
        keep_names: Whether names of functions, tools and models are written.
        batches: To write; position = workload step N.
        iterations: Those of ``batches``, renumbered.
        left_out: What is not written, from the workload and from here.
        placement: Data-parallel ranks.
        labels: Name of each reward function as written, by its position in the trainer.
        tools: Name of each tool as written.
        sources: Name of each source of the data as written.
        reward_times: Per batch, reward time of each data-parallel rank; None unless known for all.
        cut: Batches without some of the groups that were trained on.
        filter: Which prompts the trainer took; None if it took all, or the format cannot say it.
        max_prompt_tokens: Longest seen, tokens.
        response_cap: Cap on a response, tokens; None if unknown or contradicted by the data.
        caps: Of a multi-turn replay.
        notes: For the manifest and the closing lines of the command.
    """

    workload: Workload
    surveyed: Survey
    keep_names: bool
    batches: tuple[PlannedBatch, ...]
    iterations: tuple[Iteration, ...]
    left_out: tuple[LeftOut, ...]
    placement: Placement
    labels: Mapping[int, str]
    tools: Mapping[str | None, str]
    sources: Mapping[str | None, str]
    reward_times: tuple[RewardTimes, ...] | None
    cut: frozenset[int]
    filter: Filter | None
    max_prompt_tokens: int
    response_cap: int | None
    caps: ReplayCaps
    notes: tuple[str, ...]


def make_plan(workload: Workload, *, keep_names: bool, flavor: str | None = None) -> Plan:
    """Decide what of ``workload`` can be written.

    Raises:
        WorkloadError: It breaks its own rules, or nothing of it can be written.
    """
    if flavor is not None and flavor not in FLAVORS:
        raise WorkloadError(
            f"found the flavor {flavor!r}, expected one of {', '.join(FLAVORS)}, or none for the "
            "one that fits what was recorded"
        )
    check_workload(workload)
    surveyed = survey(workload, flavor)
    batches, iterations, dropped = drop(workload, surveyed)
    if rows_of_controller(workload):
        batches = [(old, hide_controller(batch)) for old, batch in batches]
    if not batches:
        raise WorkloadError(_why_nothing(workload, surveyed))
    layouts = [
        Layout.of(batch, workload.rollout_tp, surveyed.skipped.get(old, frozenset()))
        for old, batch in batches
    ]
    placement = choose_placement(layouts, workload.rollout_tp)
    planned = tuple(
        PlannedBatch(batch, _order(layout, placement))
        for (_, batch), layout in zip(batches, layouts, strict=True)
    )
    notes = [*workload.notes, *surveyed.notes(workload)]
    if dropped:
        notes.append(_why_dropped(dropped))
    notes += _placement_notes(placement)
    cap = _cap(workload, surveyed, notes)
    times = _reward_times(planned, layouts, placement, notes) if surveyed.packed else None
    selected, note = make_filter(planned)
    if selected is not None and not surveyed.packed:
        selected = None
        note = (
            "no filter indices: PolyTrace's multi-turn replay has none and trains on every "
            "trajectory; x_rlvr says which were used"
        )
    if note is not None:
        notes.append(note)
    context = surveyed.context
    if workload.max_prompt_tokens is not None and cap is not None:
        context = max(context, workload.max_prompt_tokens + cap)
    return Plan(
        workload=workload,
        surveyed=surveyed,
        keep_names=keep_names,
        batches=planned,
        iterations=iterations,
        left_out=(*workload.left_out, *dropped, *surveyed.ragged),
        placement=placement,
        labels=_labels(workload, planned, keep_names=keep_names),
        tools={
            tool: tool if keep_names else f"tool_{number}"
            for number, tool in enumerate(surveyed.tools)
        },
        sources={
            source: source if keep_names else f"s{number}"
            for number, source in enumerate(_sources(planned), 1)
        },
        reward_times=times,
        cut=frozenset(batch.index for old, batch in batches if old in surveyed.cut),
        filter=selected,
        max_prompt_tokens=max(
            max(shard.prompt_tokens)
            for batch in planned
            for shard in batch.batch.batch.shards
            if len(shard.prompt_tokens)
        ),
        response_cap=cap,
        caps=ReplayCaps(cap or surveyed.longest, context),
        notes=tuple(notes),
    )


def _placement_notes(placement: Placement) -> Iterator[str]:
    if placement.reason is not None:
        yield f"data-parallel ranks: {placement.reason}"
    if placement.reordered:
        yield (
            "prompts are written by engine, in the trainer's order within each; indices of the "
            "filter follow the written order, and prompt_uid has the number of the trainer"
        )


def _cap(workload: Workload, surveyed: Survey, notes: list[str]) -> int | None:
    """The recorded cap on a response, tokens; None if unknown or contradicted by the data."""
    cap = workload.max_response_tokens
    if cap is None or surveyed.longest <= cap:
        return cap
    what = "a response" if surveyed.packed else "a turn or a response"
    notes.append(
        f"the recorded cap of {cap} response tokens is omitted: {what} has {surveyed.longest}"
    )
    return None


def _reward_times(
    planned: Sequence[PlannedBatch],
    layouts: Sequence[Layout],
    placement: Placement,
    notes: list[str],
) -> tuple[RewardTimes, ...] | None:
    """Per batch, reward time of each data-parallel rank; None unless known for all."""
    times = [
        reward_times(batch, layout, placement)
        for batch, layout in zip(planned, layouts, strict=True)
    ]
    known = tuple(time for time in times if time is not None)
    if len(known) == len(times):
        return known
    notes.append(
        "no reward timings: not every data-parallel rank of every batch has a recorded reward "
        "call, or what was verified while others were generated is inseparable from their rollout"
    )
    return None


def _order(layout: Layout, placement: Placement) -> range | tuple[int, ...]:
    if isinstance(layout.groups, range) and not placement.reordered:
        return layout.groups
    pairs = list(zip(layout.groups, layout.heads, strict=True))
    if placement.reordered:
        pairs.sort(key=lambda pair: placement.dp_rank(pair[1]))
    return tuple(group for group, _ in pairs)


def _why_nothing(workload: Workload, surveyed: Survey) -> str:
    start = (
        f"found {len(workload.batches)} complete batches, none of which PolyTrace can say, "
        "expected at least one; "
    )
    if not workload.batches:
        return start + "record at least one whole step"
    said = "; ".join(
        f"{count:,} of {surveyed.rows:,} {REASONS[reason]}"
        for reason, count in sorted(surveyed.flaws.items())
    )
    hint = ""
    if not surveyed.packed:
        hint = "; the flavor packed writes each response as if it were one generation"
    return f"{start}{said}{hint}"


REASONS = {
    "empty_response": "trajectories have a response or turn of 0 tokens, replayed as 1",
    "missing_turns": "trajectories lack turns or tool calls",
    "no_selection": "trajectories may have been thrown away by a filter, or not",
    "no_turns": "trajectories have no recorded turn",
    "other_prompt": "trajectories start with another prompt than they were given",
    "ragged_group": "trajectories are in groups of another size, and no other is in their batch",
    "shrinking_context": "trajectories dropped part of their context",
    "unknown_lengths": "trajectories have turns of unknown length",
}
"""Why a batch is omitted, in words."""


def _why_dropped(dropped: tuple[LeftOut, ...]) -> str:
    reasons = sorted({entry.reason for entry in dropped})
    words = ", ".join(f"{REASONS[reason]} ({reason})" for reason in reasons)
    return f"{len(dropped)} batches are omitted with the steps they belong to: {words}"


def _sources(batches: tuple[PlannedBatch, ...]) -> list[str]:
    """Where the data of these batches is from, in the order of its first prompt."""
    shards = (shard for planned in batches for shard in planned.batch.batch.shards)
    names = dict.fromkeys(source for shard in shards for source in shard.sources or ())
    return [name for name in names if name]


def _labels(
    workload: Workload, batches: tuple[PlannedBatch, ...], *, keep_names: bool
) -> dict[int, str]:
    """Name of each reward function by position; an alias unless ``keep_names``."""
    names = dict(enumerate(workload.reward_functions))
    for planned in batches:
        for shard in planned.batch.batch.shards:
            for column in shard.rewards:
                names.setdefault(column.index, column.function)
    if not keep_names:
        return {index: f"reward_{index}" for index in sorted(names)}
    listed = list(names.values())
    return {
        index: name if listed.count(name) == 1 else f"{name}_{index}"
        for index, name in sorted(names.items())
    }
