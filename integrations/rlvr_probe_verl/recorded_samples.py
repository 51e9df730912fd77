"""The samples of a plan, as the plug-ins of verl find them in each process, and their rewards.

:func:`compute_score` is the reward function that a replay gives verl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlvr_probe.exceptions import SteeringError
from rlvr_probe.steering import PlannedSample, Steering, reward_waits, row_waits

__all__ = [
    "FILES", "GROUP", "LOOP", "NUMBER", "ROW", "Samples", "compute_score", "samples", "use",
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


class Samples:
    """The plan of this process, by the position of a sample.

    Attributes:
        steering: What the replay was given.
        groups: All groups of the plan.
        group_size: Samples of each.
        rows: Samples of each batch.
    """

    def __init__(self, steering: Steering) -> None:
        self.steering = steering
        self.groups = list(steering.plan.groups)
        self.group_size = len(self.groups[0].samples)
        self.rows = self.group_size * len(steering.plan.batches[0].groups)
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
        batch, row = divmod(number, self.rows)
        self.steering.report(batch, row, self.rows)

    def reward(self, number: int) -> float:
        """Its reward."""
        return self.sample(number).reward

    def seconds(self, number: int) -> float:
        """How long its reward takes, s.

        What was recorded of its whole batch starts when this sample is generated: the last one
        ends as late as recorded.
        """
        batch, row = divmod(number, self.rows)
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
