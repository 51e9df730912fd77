"""The samples of a plan, as the plug-ins of verl find them in each process, and their rewards.

:func:`compute_score` is the reward function that a replay gives verl.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

from rlvr_probe.exceptions import SteeringError
from rlvr_probe.steering import Plan, PlannedSample, Steering, reward_waits, row_waits

__all__ = [
    "FILES", "GROUP", "LOOP", "NUMBER", "ROW", "Samples", "compute_score", "has_filter", "samples",
    "trained_groups", "use",
]  # fmt: skip

FILES = "rlvr-probe-replay"
"""What stands for the data files of a run, where the plan is its data."""
GROUP = "rlvr_probe_group"
"""Of a row of the dataset: position of its group among all groups of the plan."""
ROW = "rlvr_probe_row"
"""Of a row of a batch: position of its sample in the group. V1 has its own word for it."""
NUMBER = "rlvr_probe_sample"
"""Of what an agent loop gives: position of the sample among all samples of the plan."""
LOOP = "rlvr_probe_replay"
"""Name of the agent loop."""

_samples: Samples | None = None


def has_filter(plan: Plan) -> bool:
    """Whether steps had one batch each, and trained on the same number of its groups, not on all.

    A recipe may fill a step with groups of several batches: then it is not known as a filter.
    """
    counts = {sum(group.trained for group in batch.groups) for batch in plan.batches}
    single = len({batch.step for batch in plan.batches}) == len(plan.batches)
    dropped = not all(group.trained for group in plan.groups)
    return single and dropped and len(counts) == 1 and 0 not in counts


def trained_groups(plan: Plan) -> int:
    """Groups that a step trains on."""
    first = plan.batches[0].groups
    return sum(group.trained for group in first) if has_filter(plan) else len(first)


class Samples:
    """The plan of this process, by the position of a sample.

    Attributes:
        steering: What the replay was given.
        groups: All groups of the plan.
        group_size: Samples of each.
        trained: Samples that a step trains on: of its batch, without what a filter drops.
    """

    def __init__(self, steering: Steering) -> None:
        self.steering = steering
        self.groups = list(steering.plan.groups)
        self.group_size = len(self.groups[0].samples)
        batches = steering.plan.batches
        self._ends = [*accumulate(self.group_size * len(batch.groups) for batch in batches)]
        self.trained = self.group_size * trained_groups(steering.plan)
        self._waits: dict[int, tuple[Mapping[int, float], float]] = {}

    def number(self, group: int, row: int) -> int:
        """Position of a sample among all.

        Raises:
            SteeringError: The plan has no such sample.
        """
        if not (0 <= group < len(self.groups) and 0 <= row < self.group_size):
            raise SteeringError(
                f"verl generates sample {row} of group {group}; expected {self.group_size} samples"
                f" of {len(self.groups)} groups"
            )
        return group * self.group_size + row

    def sample(self, number: int) -> PlannedSample:
        """What is planned of it."""
        group, row = divmod(number, self.group_size)
        return self.groups[group].samples[row]

    def report(self, number: int) -> None:
        """Note that it was generated as planned."""
        batch, row, rows = self._place(number)
        self.steering.report(batch, row, rows)

    def _place(self, number: int) -> tuple[int, int, int]:
        """Of a sample its batch, its row there, and how many these are."""
        batch = bisect_right(self._ends, number)
        first = self._ends[batch - 1] if batch else 0
        return batch, number - first, self._ends[batch] - first

    def reward(self, number: int) -> float:
        """Its reward."""
        return self.sample(number).reward

    def seconds(self, number: int) -> float:
        """How long its reward takes, s.

        What was recorded of its whole batch starts when this sample is generated: the last one
        ends as late as recorded.
        """
        batch, row, _ = self._place(number)
        if batch not in self._waits:
            self._waits[batch] = self._waits_of(batch)
        own, together = self._waits[batch]
        return own.get(row, 0.0) + together

    def _waits_of(self, number: int) -> tuple[Mapping[int, float], float]:
        """By row what its own calls take, and what all calls take that are of no single row."""
        plan = self.steering.plan
        batch = plan.batches[number]
        whole = replace(batch, calls=tuple(call for call in batch.calls if call.row is None))
        together = max(
            sum(reward_waits(whole, len(plan.functions), share, batch.shares))
            for share in range(batch.shares)
        )
        return row_waits(batch), together


def use(steering: Steering) -> None:
    """Replay by ``steering`` in this process, once it is known."""
    global _samples
    if _samples is None:
        _samples = Samples(steering)


def samples() -> Samples:
    """Those of the plan that is replayed.

    Raises:
        SteeringError: This process knows no plan: it did not start as a part of the replay.
    """
    if _samples is None:
        raise SteeringError(
            "a process of verl has no plan: rlvr-probe must be installed in its Python, and TMPDIR"
            " be a folder that all nodes share"
        )
    return _samples


async def compute_score(
    data_source: object, solution_str: object, ground_truth: object, extra_info: Any, **_: object
) -> float:
    """The reward function of a replay; a sample of an evaluation gets 0 at once."""
    number = (extra_info or {}).get(NUMBER)
    if number is None:
        return 0.0
    await asyncio.sleep(samples().seconds(number))
    return samples().reward(number)
