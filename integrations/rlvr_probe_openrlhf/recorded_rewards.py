"""Reward function of a replay: the label of a sample says what to return, and when.

A file as OpenRLHF takes by ``--reward.remote_url``. It is loaded by its path, so that there are
two of it in a process: what is asked of a label is what it has, not its class.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

__all__ = ["PlannedLabel", "reward_func"]


class PlannedLabel(str):
    """The label of a prompt of the plan; it goes through Ray with what it knows.

    Attributes:
        group: Position of the prompt among all groups of the plan.
        own: Label of the user's dataset in its place.
        waits: Seconds after each turn of a sample, that of its reward function in the last one.
        reward: What that returns.
    """

    group: int
    own: object
    waits: tuple[float, ...]
    reward: float

    @classmethod
    def of(
        cls, group: int, own: object, waits: tuple[float, ...] = (), reward: float = 0.0
    ) -> PlannedLabel:
        """A label that knows these."""
        label = cls(own)
        label.group, label.own, label.waits, label.reward = group, own, waits, reward
        return label


def reward_func(
    queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: object
) -> dict[str, Any]:
    """Sleep as long as recorded, and return what was recorded, of one sample of one turn."""
    import torch

    [label] = labels
    time.sleep(label.waits[-1])
    reward = torch.tensor(label.reward)
    return {"rewards": reward, "scores": reward, "extra_logs": {}}
