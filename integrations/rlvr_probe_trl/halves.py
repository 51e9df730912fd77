"""One half of a trainer step alone: its batch, or what is computed from drawn responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

from rlvr_probe_trl.forced_lengths import ForcedLengths

__all__ = ["inject_responses", "skip_updates"]


def inject_responses(
    trainer: Any,
    targets: Sequence[tuple[int, bool]],
    usable: Sequence[int],
    draw: Callable[[Sequence[int]], Iterable[list[int]]],
    *args: Any,
    **kwargs: Any,
) -> Any:
    """What the model's ``generate`` would return, with drawn tokens as responses.

    Args:
        trainer: TRL's.
        targets: Of each row, its tokens, and whether the last of them is an end token.
        usable: Token ids to draw from.
        draw: Draws the responses of all rows from those of them that end none.
        *args: Of ``generate``.
        **kwargs: Of ``generate``.
    """
    prompts = args[0] if args else kwargs["input_ids"]
    forced = ForcedLengths(trainer, targets, prompts)
    drawn = draw([token for token in usable if token not in forced.stops])
    return forced.inject(list(drawn), prompts)


def skip_updates(trainer: Any) -> None:
    """Let a step of the trainer end with its batch: without gradients no weight changes.

    TRL's own step goes on to count, log and call back.
    """
    own = trainer.compute_loss

    @wraps(own)
    def compute_loss(model: Any, *args: Any, **kwargs: Any) -> Any:
        if not model.training:  # an evaluation
            return own(model, *args, **kwargs)
        from torch import zeros

        return zeros((), device=trainer.accelerator.device)

    def backward(*_: Any, **__: Any) -> None:
        """No loss, no gradients; the one of DeepSpeed would do the optimizer step, too."""

    trainer.compute_loss, trainer.accelerator.backward = compute_loss, backward
