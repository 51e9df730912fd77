"""Records of the step files: one line per prompt, one line of reward time per rank."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rlvr_probe.exceptions import WorkloadError
from rlvr_probe.model.batch import Group, RewardCall, Trajectory
from rlvr_probe.model.workload import WorkloadBatch
from rlvr_probe_polytrace.layout import SCHEMA_VERSION
from rlvr_probe_polytrace.placement import Placement, engine_of

__all__ = ["Share", "packed_records", "reward_records", "seconds"]

_T = TypeVar("_T")


@dataclass(slots=True)
class Share:
    """What one data-parallel rank holds of one step.

    Attributes:
        prompts, samples: Counts.
        prompt_tokens: Summed, each prompt once.
        response_tokens: Summed, tokens.
        longest: Longest response, tokens.
    """

    prompts: int = 0
    samples: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    longest: int = 0

    def add(self, prompt: int, responses: Sequence[int]) -> None:
        """Count one prompt and its responses, tokens."""
        self.prompts += 1
        self.samples += len(responses)
        self.prompt_tokens += prompt
        self.response_tokens += sum(responses)
        self.longest = max(self.longest, *responses)


def seconds(ns: int) -> float:
    """Nanoseconds as seconds, rounded to what they resolve."""
    return round(ns / 1e9, 9)


def packed_records(
    batch: WorkloadBatch, placement: Placement, labels: Mapping[int, str], shares: dict[int, Share]
) -> Iterator[dict[str, object]]:
    """One record per prompt in the order of PolyTrace's sort, which is the order of the prompts.

    Args:
        batch: Read lazily.
        placement: Where its groups go.
        labels: Name of each reward function by position.
        shares: Filled while the records are taken: by data-parallel rank.

    Raises:
        WorkloadError: Samples of one prompt have prompts of different length.
    """
    ranks = {
        shard.process: batch.ranks.get(shard.process, shard.rank) for shard in batch.batch.shards
    }
    for group in batch.batch.groups():
        head = group.trajectories[0]
        responses = [int(sample.response_tokens) for sample in group.trajectories]
        if any(sample.prompt_tokens != head.prompt_tokens for sample in group.trajectories):
            lengths = sorted({sample.prompt_tokens for sample in group.trajectories})
            raise WorkloadError(
                f"batch {batch.index} (step {batch.batch.step}): found prompt lengths {lengths} in "
                f"group {group.index}, expected one for all samples of a prompt; its rows are not "
                "grouped as the trainer's group size says"
            )
        rank = ranks[head.process]
        dp_rank = placement.dp_rank(None if rank is None else rank // placement.tp)
        share = shares.setdefault(dp_rank, Share())
        local_index = share.prompts
        share.add(head.prompt_tokens, responses)
        yield {
            "step": batch.index,
            "rank": dp_rank * placement.tp,
            "tp_rank": 0,
            "dp_rank": dp_rank,
            "local_index": local_index,
            "input": int(head.prompt_tokens),
            "output": responses,
            "n_sampling": len(responses),
            "validate": False,
            "x_rlvr": _extension(batch, group, ranks, placement.tp, labels),
        }


def _extension(
    batch: WorkloadBatch,
    group: Group,
    ranks: Mapping[int, int | None],
    tp: int,
    labels: Mapping[int, str],
) -> dict[str, object]:
    """What PolyTrace cannot say about a group; only what is known."""
    samples = group.trajectories
    of_sample = [ranks[sample.process] for sample in samples]
    policy = {sample.policy_version for sample in samples}
    found: dict[str, object] = {
        "v": SCHEMA_VERSION,
        "prompt_uid": (f"s{batch.session}t{batch.batch.step}b{batch.batch.ordinal}g{group.index}"),
        "policy_version": policy.pop()
        if len(policy) == 1
        else _known([sample.policy_version for sample in samples]),
        "trainer_step": batch.batch.step,
        "engine_id": _known([None if rank is None else rank // tp for rank in of_sample]),
        "rank": _known(of_sample) if tp > 1 else None,
        "start_s": _known([_since(batch, sample, sample.start_ns) for sample in samples]),
        "end_s": _known([_since(batch, sample, _end_ns(sample)) for sample in samples]),
        "finish_reason": _known([_finish_reason(sample.truncated) for sample in samples]),
        "cached_tokens": _known([_cached_tokens(sample) for sample in samples]),
    }
    _add_rewards(found, samples, labels)
    return {key: value for key, value in found.items() if value is not None}


def _known(values: list[_T | None]) -> list[_T | None] | None:
    """``values``, or None if nothing in them is known."""
    return None if all(value is None for value in values) else values


def _since(batch: WorkloadBatch, sample: Trajectory, at_ns: int | None) -> float | None:
    origin_ns = batch.origin_ns.get(sample.process)
    return None if at_ns is None or origin_ns is None else seconds(at_ns - origin_ns)


def _end_ns(sample: Trajectory) -> int | None:
    """End of the last turn; None where turns were not recorded, for the batch's end is not it."""
    return sample.turns[-1].end_ns if sample.turns else None


def _cached_tokens(sample: Trajectory) -> int | None:
    """Prompt tokens found in the prefix cache over all turns; None unless known for each."""
    total = 0
    for turn in sample.turns:
        if turn.cached_tokens is None:
            return None
        total += turn.cached_tokens
    return total if sample.turns else None


def _finish_reason(truncated: bool | None) -> str | None:
    if truncated is None:
        return None
    return "length" if truncated else "stop"


def _add_rewards(
    found: dict[str, object], samples: Sequence[Trajectory], labels: Mapping[int, str]
) -> None:
    """Add rewards and verification times: lists for one function, lists by name for several."""
    rewards: dict[int, list[float | None]] = {}
    times: dict[int, list[float | None]] = {}
    for position, sample in enumerate(samples):
        for reward in sample.rewards:
            for columns, value in ((rewards, reward.value), (times, reward.verify_s)):
                column = columns.setdefault(reward.index, [None] * len(samples))
                # JSON has no NaN and no infinity; both mean that there is no usable reward.
                column[position] = (
                    float(value) if value is not None and math.isfinite(value) else None
                )
    times = {index: column for index, column in times.items() if _known(column)}
    if len(labels) == 1:
        for index, column in rewards.items():
            found["reward"] = column
            found["verifier"] = labels[index]
        for column in times.values():
            found["verify_s"] = column
        return
    if rewards:
        found["rewards"] = {labels[index]: rewards[index] for index in sorted(rewards)}
    if times:
        found["verify_s"] = {labels[index]: times[index] for index in sorted(times)}


def reward_records(
    batch: WorkloadBatch, placement: Placement, shares: Mapping[int, Share]
) -> Iterator[dict[str, object]]:
    """One record per data-parallel rank: wall seconds of reward work, and what was rewarded.

    Ranks folded into one data-parallel rank worked side by side, so the slowest counts. Only the
    functions' own calls count, not the wait of a rank for the others.
    """
    calls: dict[int, dict[int, list[RewardCall]]] = {}
    for shard in batch.batch.shards:
        dp_rank = placement.dp_rank(engine_of(batch, shard, placement.tp))
        calls.setdefault(dp_rank, {}).setdefault(shard.process, []).extend(shard.calls)
    for dp_rank in range(placement.dp_size):
        share = shares[dp_rank]
        yield {
            "step": batch.index,
            "rank": dp_rank * placement.tp,
            "tp_rank": 0,
            "dp_rank": dp_rank,
            "batch_size": share.samples,
            "reward_time_s": max(seconds(_busy_ns(of_one)) for of_one in calls[dp_rank].values()),
            "response_sum": share.response_tokens,
            "response_mean": share.response_tokens / share.samples,
            "response_max": share.longest,
            "validate": False,
        }


def _busy_ns(calls: Iterable[RewardCall]) -> int:
    """Time in which at least one of ``calls`` ran, ns: asynchronous functions overlap."""
    busy = 0
    until: int | None = None
    for call in sorted(calls, key=lambda call: call.start_ns):
        start = call.start_ns if until is None else max(call.start_ns, until)
        busy += max(0, call.end_ns - start)
        until = call.end_ns if until is None else max(until, call.end_ns)
    return busy
