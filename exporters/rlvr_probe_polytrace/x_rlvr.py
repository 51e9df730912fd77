"""Makes ``x_rlvr``: known values that PolyTrace has no key for, and ignores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, TypeVar

from rlvr_probe.model.batch import Batch, BatchShard, Trajectory
from rlvr_probe.model.turns import cached_tokens, turn_ends
from rlvr_probe.model.workload import WorkloadBatch
from rlvr_probe_polytrace.placement import engines_of_processes
from rlvr_probe_polytrace.records import SCHEMA_VERSION, Extension, TrajectoryExtension

__all__ = ["Extender", "seconds"]

_T = TypeVar("_T")

_OF_PROMPT: Final = ("rank", "finish_reason", "loss_tokens")
"""Columns that the record of a trajectory says otherwise, or has no place for."""


def seconds(ns: int) -> float:
    """Nanoseconds as seconds, rounded to what they resolve."""
    return round(ns / 1e9, 9)


class Extender:
    """Makes the ``x_rlvr`` objects of one batch, of its rows in columns."""

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
        self._engine_of = engines_of_processes(batch, tp)
        columns = dict[str, list[Any]]()
        for shard in batch.batch.shards:
            for name, column in self._of_shard(shard).items():
                columns.setdefault(name, []).extend(column)
        self._engines: list[int | None] = columns["engine_id"]
        self._origins = columns.pop("source")
        self._columns = {name: column for name, column in columns.items() if _known(column)}
        self._rewards = _Rewards(batch.batch)

    def engine(self, row: int) -> int | None:
        """Index of the engine that served a row of the batch; None if unknown."""
        return self._engines[row]

    def of_group(self, group: int, rows: slice, responses: Sequence[int]) -> Extension:
        """Of the samples of one prompt: lists with one entry per sample.

        Args:
            group: Index of the prompt in the batch.
            rows: Of the batch.
            responses: Their lengths, tokens.
        """
        columns: dict[str, Any] = {
            name: _known(column[rows]) for name, column in self._columns.items()
        }
        loss = columns.pop("loss_tokens", None)
        if loss is not None:
            # Tokens in the loss, where they are not whole responses.
            pairs = zip(loss, responses, strict=True)
            if any(tokens is not None and tokens != length for tokens, length in pairs):
                columns["loss_tokens"] = loss
        return Extension(
            policy_version=self._batch.batch.policy_version,
            **columns,
            **self._of_rows(group, rows, list),
        )

    def of_trajectory(
        self, group: int, sample: Trajectory, position: int, row: int, dp_rank: int
    ) -> TrajectoryExtension:
        """Of one trajectory: what :meth:`of_group` has in lists, and the times of its turns.

        Args:
            group: Index of its prompt in the batch.
            sample: The trajectory.
            position: Of the trajectory among those of its prompt.
            row: Of the prompt on its data-parallel rank.
            dp_rank: That rank.
        """
        calls, at = sample.tool_calls, sample.row
        since = self._batch.origin_ns.get(sample.process)
        return TrajectoryExtension(
            policy_version=sample.policy_version,
            turn_start_s=_known(_since([turn.start_ns for turn in sample.turns], since)),
            tool_start_s=_known(_since([call.start_ns for call in calls], since)),
            tool_status=_known([call.status for call in calls]),
            batch_data_id=row,
            rollout_offset=position,
            dp_rank=dp_rank,
            rank=dp_rank * self._tp,
            **{
                name: column[at] for name, column in self._columns.items() if name not in _OF_PROMPT
            },
            **self._of_rows(group, slice(at, at + 1), lambda column: column[0]),
        )

    def _of_shard(self, shard: BatchShard) -> dict[str, Sequence[Any]]:
        """What is known of each row of a shard, by field; unknown ones are None."""
        size = len(shard.response_tokens)
        unknown: Sequence[Any] = [None] * size
        batch, process = self._batch, shard.process
        engine, since = self._engine_of[process], batch.origin_ns.get(process)
        versions = unknown if shard.policy_versions is None else shard.policy_versions
        starts: Sequence[int | None] = [shard.start_ns] * size
        if shard.times_ns is not None:
            starts = [times and times[0] for times in shard.times_ns]
        # Without recorded turns the end is unknown: the batch may end later.
        ends = turn_ends(shard.turns, size)
        loss = shard.loss_of_rows
        # True rank where an engine has several; unknown where another process reported it.
        rank = None if self._tp == 1 or engine is None else batch.ranks.get(process, shard.rank)
        return {
            "policy_version_min": [pair and pair[0] for pair in versions],
            "policy_version_max": [pair and pair[1] for pair in versions],
            "engine_id": [
                engine if served is None else served for served in shard.engines or unknown
            ],
            "rank": [rank] * size,
            "start_s": _since(starts, since),
            "end_s": _since(ends, since),
            "finish_reason": unknown
            if shard.truncated is None
            else ["length" if cut else "stop" for cut in shard.truncated],
            "cached_tokens": cached_tokens(shard.turns, size),
            "source": unknown if shard.sources is None else shard.sources,
            "loss_tokens": unknown if loss is None else loss,
        }

    def _of_rows(
        self, group: int, rows: slice, shape: Callable[[list[Any]], object]
    ) -> dict[str, Any]:
        """Prompt, step, filter and rewards; ``shape`` makes a value of one entry per sample."""
        batch, inner = self._batch, self._batch.batch
        rewards, times = self._rewards.of(rows)
        values: dict[str, Any] = {
            "v": SCHEMA_VERSION,
            "prompt_uid": f"s{batch.session}t{inner.step}b{inner.ordinal}g{group}",
            "trainer_step": inner.step,
            "kept": None if inner.kept is None else group in inner.kept,
            "used": None if inner.used is None else group in inner.used,
            "not_finite": self._not_finite(rows) or None,
            "source": self._sources.get(self._origins[rows.start]),
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

    def _not_finite(self, rows: slice) -> dict[str, int]:
        """How often each function gave NaN or infinity, if any did: JSON holds neither."""
        counts = Counter[str]()
        for index, odd in self._rewards.odd.items():
            counts[self._labels[index]] += sum(row in odd for row in range(rows.start, rows.stop))
        return {label: count for label, count in sorted(counts.items()) if count}


class _Rewards:
    """Rewards of a batch, and times of verification, by position of the function.

    Attributes:
        odd: Rows whose reward is NaN or infinite, of functions that gave any.
    """

    def __init__(self, batch: Batch) -> None:
        self.odd = dict[int, set[int]]()
        self._values = dict[int, list[float | None]]()
        self._times = dict[int, list[float | None]]()
        # Positions that each row has: one object for all rows of a shard.
        self._functions = list[frozenset[int]]()
        size = batch.rows
        for shard in batch.shards:
            begin = len(self._functions)
            own = frozenset(column.index for column in shard.rewards)
            self._functions += [own] * len(shard.response_tokens)
            for column in shard.rewards:
                index, values = column.index, [*column.values]
                finite = _put(self._values, index, begin, values, size)
                if finite.count(None) > values.count(None):
                    pairs = enumerate(zip(values, finite, strict=True), begin)
                    odd = {
                        row for row, (value, kept) in pairs if value is not None and kept is None
                    }
                    self.odd.setdefault(index, set()).update(odd)
                if column.verify_s is not None:
                    _put(self._times, index, begin, column.verify_s, size)

    def of(
        self, rows: slice
    ) -> tuple[dict[int, list[float | None]], dict[int, list[float | None]]]:
        """Rewards of some rows, and times where any is known, by position of the function."""
        functions = frozenset[int]().union(*{*self._functions[rows]})
        times = {index: column[rows] for index, column in self._times.items()}
        return (
            {index: self._values[index][rows] for index in functions},
            {index: column for index, column in times.items() if _known(column)},
        )


def _put(
    columns: dict[int, list[float | None]],
    index: int,
    begin: int,
    values: Sequence[float | None],
    size: int,
) -> list[float | None]:
    """Put the finite ones of ``values`` into the column ``index``, which is ``size`` long."""
    finite = list(map(_finite, values))
    if index not in columns:
        columns[index] = [None] * size
    columns[index][begin : begin + len(finite)] = finite
    return finite


def _finite(value: float | None) -> float | None:
    # JSON has no NaN and no infinity: how many they are is in not_finite.
    return float(value) if value is not None and isfinite(value) else None


def _since(times_ns: Sequence[int | None], origin_ns: int | None) -> list[float | None]:
    """``times_ns`` in s since the first rollout of the batch on the same machine started."""
    if origin_ns is None:
        return [None] * len(times_ns)
    return [None if at_ns is None else seconds(at_ns - origin_ns) for at_ns in times_ns]


def _known(values: list[_T | None]) -> list[_T | None] | None:
    """``values``, or None if none of them is known."""
    return None if values.count(None) == len(values) else values
