"""Steering: what makes a run repeat a recorded one. The counterpart of hooking, kept apart.

An adapter never alters a call; a replay alters what a run is given: prompts, lengths, rewards.
So it is a contract of its own, ``replay.py`` beside ``adapter.py``, loaded by ``rlvr-probe replay``
alone, by a variable of its own in the start-up hook; nothing else imports this package.

In a run that is steered nothing fails open: one that went on after an error would be another
workload than the recorded one. Importing this package loads no framework.
"""

from rlvr_probe.steering.contract import GROUP, Replay, Steering
from rlvr_probe.steering.plan import (
    Plan,
    PlannedBatch,
    PlannedCall,
    PlannedGroup,
    PlannedSample,
    PlannedTool,
    PlannedTurn,
    drawn_tokens,
)
from rlvr_probe.steering.waits import concurrent_functions, reward_waits, row_waits

__all__ = [
    "GROUP", "Plan", "PlannedBatch", "PlannedCall", "PlannedGroup", "PlannedSample", "PlannedTool",
    "PlannedTurn", "Replay", "Steering", "concurrent_functions", "drawn_tokens", "reward_waits",
    "row_waits",
]  # fmt: skip
