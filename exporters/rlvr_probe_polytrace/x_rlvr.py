"""Makes ``x_rlvr``: known values that PolyTrace has no key for, and ignores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from rlvr_probe.model.batch import Group, Trajectory
from rlvr_probe.model.workload import WorkloadBatch
from rlvr_probe_polytrace.placement import engines_of_processes
from rlvr_probe_polytrace.records import SCHEMA_VERSION, Extension, TrajectoryExtension

__all__ = ["Extender", "seconds"]

_T = TypeVar("_T")


def seconds(ns: int) -> float:
    """Nanoseconds as seconds, rounded to what they resolve."""
    return round(ns / 1e9, 9)


class Extender:
    """Makes the ``x_rlvr`` objects of one batch."""

    def __init__(
        self,
        batch: WorkloadBatch,
        tp: int,
        labels: Mapping[int, str],
        sources: Mapping[str | None, str],
    ) -> None:
        """Take names as written: ``labels`` are those of reward functions by position."""
        self._batch = batch
        self._tp = tp
        self._labels = labels
        self._sources = sources
        self._engines = engines_of_processes(batch, tp)
        self._ranks = {
            shard.process: batch.ranks.get(shard.process, shard.rank)
            for shard in batch.batch.shards
        }

    def engine(self, sample: Trajectory) -> int | None:
        """Index of the engine that served ``sample``; None if unknown."""
        return self._engines[sample.process] if sample.engine is None else sample.engine

    def of_group(self, group: Group) -> Extension:
        """Of the samples of one prompt: lists with one entry per sample."""
        samples = group.trajectories
        policies = [sample.policy_version for sample in samples]
        rows = [self._of_sample(sample) for sample in samples]
        columns: dict[str, Any] = {key: _known(row[key] for row in rows) for key in rows[0]}
        return Extension(
            policy_version=policies[0] if len(set(policies)) == 1 else _known(policies),
            rank=_known(self._rank(sample) for sample in samples),
            finish_reason=_known(_finish_reason(sample) for sample in samples),
            loss_tokens=_loss_tokens(samples),
            **columns,
            **self._of_group(group, samples, list),
        )

    def of_trajectory(
        self, group: Group, position: int, row: int, dp_rank: int
    ) -> TrajectoryExtension:
        """Of one trajectory: what :meth:`of_group` has in lists, and the times of its turns.

        Args:
            group: Its prompt.
            position: Of the trajectory in it.
            row: Of the prompt on its data-parallel rank.
            dp_rank: That rank.
        """
        sample = group.trajectories[position]
        calls = sample.tool_calls
        return TrajectoryExtension(
            policy_version=sample.policy_version,
            turn_start_s=_known(self._since(sample, turn.start_ns) for turn in sample.turns),
            tool_start_s=_known(self._since(sample, call.start_ns) for call in calls),
            tool_status=_known(call.status for call in calls),
            batch_data_id=row,
            rollout_offset=position,
            dp_rank=dp_rank,
            rank=dp_rank * self._tp,
            **self._of_sample(sample),
            **self._of_group(group, [sample], lambda column: column[0]),
        )

    def _of_sample(self, sample: Trajectory) -> dict[str, Any]:
        """Policy, engine, times and cache of one sample; unknown ones are None."""
        oldest, newest = sample.policy_versions or (None, None)
        # Without recorded turns the end is unknown: the batch may end later.
        end_ns = sample.turns[-1].end_ns if sample.turns else None
        # Prompt tokens found in the prefix cache over all turns, if known for each.
        cached = [turn.cached_tokens for turn in sample.turns]
        known = [count for count in cached if count is not None]
        return {
            "policy_version_min": oldest,
            "policy_version_max": newest,
            "engine_id": self.engine(sample),
            "start_s": self._since(sample, sample.start_ns),
            "end_s": self._since(sample, end_ns),
            "cached_tokens": sum(known) if known and len(known) == len(cached) else None,
        }

    def _of_group(
        self, group: Group, samples: Sequence[Trajectory], shape: Callable[[list[Any]], object]
    ) -> dict[str, Any]:
        """Prompt, step, filter and rewards; ``shape`` makes a value of one entry per sample."""
        batch, inner = self._batch, self._batch.batch
        rewards, times = _reward_columns(samples)
        values: dict[str, Any] = {
            "v": SCHEMA_VERSION,
            "prompt_uid": f"s{batch.session}t{inner.step}b{inner.ordinal}g{group.index}",
            "trainer_step": inner.step,
            "kept": None if inner.kept is None else group.index in inner.kept,
            "used": None if inner.used is None else group.index in inner.used,
            "not_finite": self._not_finite(samples) or None,
            "source": self._sources.get(samples[0].source),
        }
        if len(self._labels) == 1:
            for index, column in rewards.items():
                values |= {"reward": shape(column), "verifier": self._labels[index]}
            for column in times.values():
                values["verify_s"] = shape(column)
        else:
            for key, columns in (("rewards", rewards), ("verify_s", times)):
                by_name = {self._labels[index]: shape(columns[index]) for index in sorted(columns)}
                values[key] = by_name or None
        return values

    def _not_finite(self, samples: Sequence[Trajectory]) -> dict[str, int]:
        """How often each function gave NaN or infinity, if any did: JSON holds neither."""
        counts = Counter(
            self._labels[reward.index]
            for sample in samples
            for reward in sample.rewards
            if reward.value is not None and not math.isfinite(reward.value)
        )
        return dict(sorted(counts.items()))

    def _rank(self, sample: Trajectory) -> int | None:
        """True rank where an engine has several; unknown where another process reported it."""
        if self._tp == 1 or self._engines[sample.process] is None:
            return None
        return self._ranks[sample.process]

    def _since(self, sample: Trajectory, at_ns: int | None) -> float | None:
        """``at_ns`` in s since the first rollout of the batch on the same machine started."""
        origin_ns = self._batch.origin_ns.get(sample.process)
        return None if at_ns is None or origin_ns is None else seconds(at_ns - origin_ns)


def _known(values: Iterable[_T | None]) -> list[_T | None] | None:
    """``values`` as a list, or None if none of them is known."""
    listed = list(values)
    return None if all(value is None for value in listed) else listed


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
                if value is not None and math.isfinite(value):
                    column[position] = float(value)
    return rewards, {index: column for index, column in times.items() if _known(column)}
