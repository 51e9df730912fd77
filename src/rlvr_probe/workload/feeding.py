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
        """Trainer steps fed by number ``batch`` of a training that began at ``first_step``."""
        begin, end = batch * self.per_batch, (batch + 1) * self.per_batch
        return range(
            first_step + begin // self.per_step, first_step + (end - 1) // self.per_step + 1
        )


def fed_steps(
    generated: Sequence[int], reuse: Reuse | None, first_step: int, last_step: int
) -> list[range]:
    """The trainer steps that each batch of one training feeds.

    A batch feeds every step from the one it was generated in to the one before the next batch: that
    is recorded. A batch that also feeds part of the step in which the next one is generated, and
    how long the last one lasts, is known from ``reuse`` only; it is used where it agrees with what
    was recorded, and the last batch otherwise feeds every step that is left.

    Args:
        generated: Step that each batch was generated in, ascending.
        reuse: How the trainer uses batches, None if unknown.
        first_step: First step of the training.
        last_step: Last step that was recorded.
    """
    fed = list[range]()
    for number, step in enumerate(generated):
        following = generated[number + 1] if number + 1 < len(generated) else None
        end = last_step if following is None else max(step, following - 1)
        if reuse is not None:
            said = reuse.steps_of(number, first_step)
            agrees = said.start == step
            if agrees and following is None:
                end = min(end, said[-1])
            elif agrees and following is not None and said[-1] == following:
                end = following
            elif not agrees and following is None:
                end = min(end, step + -(-reuse.per_batch // reuse.per_step) - 1)
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
