"""Replay buffer of verl that a replay has its V1 trainer load: it drops what the plan drops.

Like the other plug-ins it imports verl as it is imported; verl does it, by the name in settings.
"""

# pyright: reportMissingImports=false
# verl is in no environment that types are checked in.

from __future__ import annotations

from collections import Counter
from typing import Any

import transfer_queue
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from rlvr_probe_verl.recorded_samples import GROUP, samples

__all__ = ["PlannedBuffer"]


class PlannedBuffer(ReplayBuffer):  # type: ignore[misc]  # verl is not followed
    """verl's own buffer of synchronous training, with the groups of the plan.

    verl refills for as long as too few groups have passed, which depends on when each ends. Here
    the groups that were generated for a step start together, and those of the plan are taken.
    """

    def __init__(self, **given: Any) -> None:
        """See verl."""
        prompts = samples().trained // samples().group_size
        super().__init__(
            **given, filter_groups_metric="planned", train_batch_size=prompts, gen_batch_size=1
        )
        self._start: Any = given["refill_fn"]
        self.refill_fn = lambda _: 0

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> Any:
        """See verl."""
        if partition_id == "train":
            # Also of a run that was resumed.
            planned = samples().steering.plan.batches[global_steps - 1]
            if more := len(planned.groups) - batch_size:
                self._start(more)
        return super().sample(global_steps, partition_id, batch_size)

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set[str], Counter[float]]:
        """Finished groups that the plan drops; verl looks at their rewards."""
        finished = self.finished_keys[partition_id]
        rows = [key for key in self.partitions[partition_id] if key.split("_")[0] in finished]
        if partition_id != "train" or not rows:
            return set(), Counter()
        known = transfer_queue.kv_batch_get(
            keys=rows, partition_id=partition_id, select_fields=[GROUP]
        )
        groups = (int(getattr(value, "data", value)) for value in known[GROUP])
        return {
            key.split("_")[0]
            for key, group in zip(rows, groups, strict=True)
            if not samples().groups[group].trained
        }, Counter()
