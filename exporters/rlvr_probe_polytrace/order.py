"""A batch as it is written: which of its groups, in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlvr_probe.model.batch import Group
from rlvr_probe.model.workload import WorkloadBatch

__all__ = ["PlannedBatch"]


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch and its groups in the order in which they are written.

    Attributes:
        batch: Its index is the workload step.
        order: Indices of groups; prompt ``i`` of the workload is group ``order[i]`` of the batch.
    """

    batch: WorkloadBatch
    order: Sequence[int]

    @property
    def prompts(self) -> int:
        """Groups that are written."""
        return len(self.order)

    def groups(self) -> Iterator[Group]:
        """The groups in their order; held together only where the trainer had another one."""
        written = set[int]() if isinstance(self.order, range) else set(self.order)
        taken = (one for one in self.batch.batch.groups() if not written or one.index in written)
        if list(self.order) == sorted(self.order):
            yield from taken
            return
        by_index = {group.index: group for group in taken}
        for index in self.order:
            yield by_index[index]
