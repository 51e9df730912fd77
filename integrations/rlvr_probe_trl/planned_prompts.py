"""A tokenizer that has token ids for the prompts of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rlvr_probe.reading import attribute

__all__ = ["PlannedPrompts", "replaced"]


class PlannedPrompts:
    """A trainer's tokenizer, but for the prompts of a plan.

    Attributes:
        usable: Token ids that texts are drawn from: no special ones.
    """

    def __init__(self, trainer: Any, ids: Callable[[str, Sequence[int]], list[int]]) -> None:
        """Know the tokenizer of a trainer.

        Args:
            trainer: TRL's.
            ids: Token ids of a prompt, drawn from usable ones.
        """
        own = trainer.processing_class
        self._own = own
        tokenizer = getattr(own, "tokenizer", own)
        self._pad = tokenizer.pad
        special = set(tokenizer.all_special_ids)
        room = attribute(trainer.model, "config", "vocab_size") or len(tokenizer)
        size = min(len(tokenizer), room)
        self.usable = [token for token in range(size) if token not in special]
        self._ids = ids

    def ids(self, prompt: str) -> list[int]:
        """Token ids of a prompt."""
        return self._ids(prompt, self.usable)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __call__(self, text: Sequence[str], **options: Any) -> Any:
        """What a tokenizer makes of prompts."""
        drawn = {prompt: self.ids(prompt) for prompt in dict.fromkeys(text)}
        made = {"input_ids": [list(drawn[prompt]) for prompt in text]}
        if "return_tensors" not in options:  # TRL >= 0.29.1 pads by itself
            return made
        return self._pad(made, padding_side="left", return_tensors=options["return_tensors"])


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give ``owner`` an attribute of its own for the block."""
    missing = object()
    before = vars(owner).get(name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
