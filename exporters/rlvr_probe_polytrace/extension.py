"""``x_rlvr``: what PolyTrace has no word for, and ignores. Only what is known is in it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from rlvr_probe.model.batch import Group, Trajectory
from rlvr_probe.model.workload import WorkloadBatch
from rlvr_probe_polytrace.layout import SCHEMA_VERSION
from rlvr_probe_polytrace.placement import engines_of_processes

__all__ = ["Extender", "seconds", "since"]

_T = TypeVar("_T")


def seconds(ns: int) -> float:
    """Nanoseconds as seconds, rounded to what they resolve."""
    return round(ns / 1e9, 9)


def since(batch: WorkloadBatch, process: int, at_ns: int | None) -> float | None:
    """``at_ns`` in s since the first rollout of the batch on the same machine began."""
    origin_ns = batch.origin_ns.get(process)
    return None if at_ns is None or origin_ns is None else seconds(at_ns - origin_ns)


class Extender:
    """Makes the ``x_rlvr`` objects of one batch."""

    def __init__(self, batch: WorkloadBatch, tp: int, labels: Mapping[int, str]) -> None:
        """Take the names of the reward functions by position in ``labels``."""
        self._batch = batch
        self._tp = tp
        self._labels = labels
        self._engines = engines_of_processes(batch, tp)
        self._ranks = {
            shard.process: batch.ranks.get(shard.process, shard.rank)
            for shard in batch.batch.shards
        }

    def engine(self, sample: Trajectory) -> int | None:
        """Index of the engine that served ``sample``; None if unknown."""
        return self._engines[sample.process] if sample.engine is None else sample.engine

    def of_group(self, group: Group) -> dict[str, object]:
        """Of the samples of one prompt: lists with one entry per sample."""
        samples = group.trajectories
        policy = {sample.policy_version for sample in samples}
        one = len(policy) == 1
        found: dict[str, object] = {
            **self._head(group),
            "policy_version": policy.pop()
            if one
            else _known([sample.policy_version for sample in samples]),
            "policy_version_min": _known([_bound(sample, 0) for sample in samples]),
            "policy_version_max": _known([_bound(sample, 1) for sample in samples]),
            "trainer_step": self._batch.batch.step,
            "engine_id": _known([self.engine(sample) for sample in samples]),
            "rank": _known([self._rank(sample) for sample in samples]),
            "start_s": _known([self._since(sample, sample.start_ns) for sample in samples]),
            "end_s": _known([self._since(sample, _end_ns(sample)) for sample in samples]),
            "finish_reason": _known([_finish_reason(sample) for sample in samples]),
            "cached_tokens": _known([_cached_tokens(sample) for sample in samples]),
            "loss_tokens": _loss_tokens(samples),
            **self._chosen(group),
        }
        rewards, times = _reward_columns(samples)
        if len(self._labels) == 1:
            for index, column in rewards.items():
                found |= {"reward": column, "verifier": self._labels[index]}
            for column in times.values():
                found["verify_s"] = column
        else:
            found["rewards"] = {self._labels[index]: rewards[index] for index in sorted(rewards)}
            found["verify_s"] = {self._labels[index]: times[index] for index in sorted(times)}
        return _present({**found, "not_finite": self._not_finite(samples)})

    def of_trajectory(self, group: Group, sample: Trajectory) -> dict[str, object]:
        """Of one trajectory: what :meth:`of_group` has in lists, and the times of its turns."""
        found: dict[str, object] = {
            **self._head(group),
            "policy_version": sample.policy_version,
            "policy_version_min": _bound(sample, 0),
            "policy_version_max": _bound(sample, 1),
            "trainer_step": self._batch.batch.step,
            "engine_id": self.engine(sample),
            "start_s": self._since(sample, sample.start_ns),
            "end_s": self._since(sample, _end_ns(sample)),
            "cached_tokens": _cached_tokens(sample),
            "turn_start_s": _known([self._since(sample, turn.start_ns) for turn in sample.turns]),
            "tool_start_s": _known(
                [self._since(sample, call.start_ns) for call in sample.tool_calls]
            ),
            "tool_status": _known([call.status for call in sample.tool_calls]),
            **self._chosen(group),
        }
        rewards, times = _reward_columns([sample])
        if len(self._labels) == 1:
            for index, column in rewards.items():
                found |= {"reward": column[0], "verifier": self._labels[index]}
            for column in times.values():
                found["verify_s"] = column[0]
        else:
            found["rewards"] = {self._labels[index]: rewards[index][0] for index in sorted(rewards)}
            found["verify_s"] = {self._labels[index]: times[index][0] for index in sorted(times)}
        return _present({**found, "not_finite": self._not_finite([sample])})

    def _not_finite(self, samples: Sequence[Trajectory]) -> dict[str, int]:
        """How often each function gave NaN or infinity, if any did: JSON holds neither."""
        odd = Counter(
            self._labels[reward.index]
            for sample in samples
            for reward in sample.rewards
            if reward.value is not None and not math.isfinite(reward.value)
        )
        return dict(sorted(odd.items()))

    def _head(self, group: Group) -> dict[str, object]:
        batch = self._batch
        uid = f"s{batch.session}t{batch.batch.step}b{batch.batch.ordinal}g{group.index}"
        return {"v": SCHEMA_VERSION, "prompt_uid": uid}

    def _chosen(self, group: Group) -> dict[str, object]:
        """Whether the trainer's filter kept the group, and whether it was trained on."""
        inner = self._batch.batch
        return {
            name: None if groups is None else group.index in groups
            for name, groups in (("kept", inner.kept), ("used", inner.used))
        }

    def _rank(self, sample: Trajectory) -> int | None:
        """True rank where an engine has several; a process that told of others has none."""
        if self._tp == 1 or self._engines[sample.process] is None:
            return None
        return self._ranks[sample.process]

    def _since(self, sample: Trajectory, at_ns: int | None) -> float | None:
        return since(self._batch, sample.process, at_ns)


def _present(found: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in found.items() if value is not None and value != {}}


def _known(values: list[_T | None]) -> list[_T | None] | None:
    """``values``, or None if nothing in them is known."""
    return None if all(value is None for value in values) else values


def _bound(sample: Trajectory, place: int) -> int | None:
    return None if sample.policy_versions is None else sample.policy_versions[place]


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


def _finish_reason(sample: Trajectory) -> str | None:
    if sample.truncated is None:
        return None
    return "length" if sample.truncated else "stop"


def _loss_tokens(samples: Sequence[Trajectory]) -> list[int | None] | None:
    """Tokens in the loss, where they are not whole responses."""
    if all(sample.loss_tokens in (None, sample.response_tokens) for sample in samples):
        return None
    return [sample.loss_tokens for sample in samples]


def _reward_columns(
    samples: Sequence[Trajectory],
) -> tuple[dict[int, list[float | None]], dict[int, list[float | None]]]:
    """Rewards, and times of verification, by position of the function: one entry per sample."""
    rewards: dict[int, list[float | None]] = {}
    times: dict[int, list[float | None]] = {}
    for position, sample in enumerate(samples):
        for reward in sample.rewards:
            for columns, value in ((rewards, reward.value), (times, reward.verify_s)):
                column = columns.setdefault(reward.index, [None] * len(samples))
                # JSON has no NaN and no infinity: how many they are is in not_finite.
                column[position] = (
                    float(value) if value is not None and math.isfinite(value) else None
                )
    return rewards, {index: column for index, column in times.items() if _known(column)}
