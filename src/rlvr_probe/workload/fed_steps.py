"""Which trainer steps a generation batch feeds, from what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Reuse", "fed_steps", "linked"]


@dataclass(frozen=True, slots=True)
class Reuse:
    """How a trainer uses batches, in micro steps (forward and backward of one accumulation slice).

    Attributes:
        per_batch: Micro steps that one batch feeds: steps per generation times iterations.
        per_step: Micro steps of one trainer step: the accumulation.
    """

    per_batch: int
    per_step: int

    def steps_of(self, batch: int, first_step: int) -> range:
        """Trainer steps fed by batch number ``batch`` of a run that started at ``first_step``."""
        begin, end = batch * self.per_batch, (batch + 1) * self.per_batch
        return range(
            first_step + begin // self.per_step, first_step + (end - 1) // self.per_step + 1
        )

    def first_from(self, step: int, first_step: int) -> int:
        """Number of the first batch that is generated in ``step`` or later."""
        return -(-max(0, step - first_step) * self.per_step // self.per_batch)

    @property
    def per_each_step(self) -> int:
        """Batches that every step generates, 0 if that is not the same in every one."""
        return 0 if self.per_step % self.per_batch else self.per_step // self.per_batch


def fed_steps(
    generated: Sequence[int],
    reuse: Reuse | None,
    first_step: int,
    last_step: int,
    *,
    lossy: bool = False,
) -> list[range]:
    """The trainer steps that each batch of one training feeds.

    A batch feeds every step from the one it was generated in to the one before the next batch: that
    is recorded. A batch that also feeds part of the step in which the next one is generated, and
    how long the last one lasts, is known from ``reuse`` only; it is used where it agrees with what
    was recorded, and the last batch otherwise feeds every step that is left. No batch feeds more
    steps than it has micro steps.

    Where records may be missing, a batch between two that are known may be gone. A batch then feeds
    no more steps than ``reuse`` says, and its own alone where that is unknown.

    Args:
        generated: Step that each batch was generated in, ascending.
        reuse: How the trainer uses batches, None if unknown.
        first_step: First step of the training.
        last_step: Last step that was recorded.
        lossy: Whether records may be missing.
    """
    fed = list[range]()
    number = -1
    for place, step in enumerate(generated):
        following = generated[place + 1] if place + 1 < len(generated) else None
        end = last_step if following is None else max(step, following - 1)
        number += 1
        if reuse is None:
            end = step if lossy else end
        else:
            if lossy:
                number = max(number, reuse.first_from(step, first_step))
            said = reuse.steps_of(number, first_step)
            agrees = said.start == step
            if agrees and following is not None and said[-1] == following:
                end = following
            elif agrees and (lossy or following is None):
                end = min(end, said[-1])
            elif lossy or following is None:
                end = min(end, step + -(-reuse.per_batch // reuse.per_step) - 1)
            end = min(end, step + reuse.per_batch - 1)
        fed.append(range(step, max(step, end) + 1))
    return fed


def linked(fed: Sequence[range]) -> list[tuple[list[int], range]]:
    """Smallest sets of batches and steps that belong together: batch numbers and their steps."""
    groups = list[tuple[list[int], range]]()
    for number, steps in enumerate(fed):
        if groups and steps.start < groups[-1][1].stop:
            members, before = groups[-1]
            members.append(number)
            groups[-1] = (members, range(before.start, max(before.stop, steps.stop)))
        else:
            groups.append(([number], steps))
    return groups
