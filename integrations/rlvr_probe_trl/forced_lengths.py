"""A logits processor that lets each row of ``transformers.generate`` have a length of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from rlvr_probe.exceptions import SteeringError
from rlvr_probe.reading import attribute

__all__ = ["ForcedLengths", "generate_forced"]


class ForcedLengths:
    """Keeps a row from ending before its length, and ends it there.

    Attributes:
        stops: Token ids that end a sample, or that TRL takes for that.
    """

    def __init__(self, trainer: Any, targets: Sequence[tuple[int, bool]], prompts: Any) -> None:
        """Force the lengths of one generation.

        Args:
            trainer: TRL's, which knows the tokens that end a sample.
            targets: Of each row, its tokens, and whether the last of them is an end token.
            prompts: Token ids (rows x longest prompt).

        Raises:
            SteeringError: There are other rows than targets.
        """
        if prompts.shape[0] != len(targets):
            raise SteeringError(
                f"TRL generates {prompts.shape[0]} rows at once; expected {len(targets)}"
            )
        self._targets = targets
        self._width = prompts.shape[1]
        tokenizer = trainer.processing_class
        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        self._end: int = tokenizer.eos_token_id
        self.stops = _ids(
            self._end,
            # TRL takes a sample that ends with it for one that ended by itself.
            tokenizer.pad_token_id,
            attribute(trainer, "eos_token_ids"),
            attribute(trainer, "generation_config", "eos_token_id"),
            attribute(trainer.model, "generation_config", "eos_token_id"),
        )
        self._stops = prompts.new_tensor(self.stops)
        self._ending = defaultdict[int, list[int]](list)
        for row, (tokens, ends) in enumerate(targets):
            if ends:
                self._ending[tokens].append(row)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Scores of the next token: no row may end but those whose turn it is, which must."""
        scores.index_fill_(1, self._stops, float("-inf"))
        rows = self._ending.get(input_ids.shape[1] - self._width + 1)
        if rows:
            scores[rows] = float("-inf")
            scores[rows, self._end] = 0.0
        return scores

    def inject(self, drawn: Sequence[list[int]], prompts: Any) -> Any:
        """What a generation would return: prompts and drawn responses, padded to the longest.

        Args:
            drawn: Token ids of each row, as many as its target, none of which ends it.
            prompts: Token ids (rows x longest prompt).

        Raises:
            SteeringError: A row would have another length or end than its target.
        """
        from torch import cat

        longest = max(map(len, drawn))
        made = [
            [*own[:-1], self._end if ends else own[-1], *[self._end] * (longest - len(own))]
            for own, (_, ends) in zip(drawn, self._targets, strict=True)
        ]
        sequences = cat([prompts, prompts.new_tensor(made)], dim=1)
        self.check(sequences)
        return sequences

    def check(self, sequences: Any) -> None:
        """Look at what was generated (rows x prompt and response).

        Raises:
            SteeringError: A row has another length or end than it should.
        """
        from torch import isin

        ends = isin(sequences[:, self._width :], self._stops)
        first = (ends.int().argmax(dim=1) + 1).tolist()
        for row, ended in enumerate(ends.any(dim=1).tolist()):
            found = (first[row], True) if ended else (ends.shape[1], False)
            if found != self._targets[row]:
                raise SteeringError(
                    f"row {row} was generated with {found[0]} tokens, expected"
                    f" {self._targets[row][0]}: something else in the settings of generation"
                    " decides lengths, as stop_strings or min_new_tokens do"
                )


def generate_forced(
    own: Callable[..., Any],
    trainer: Any,
    targets: Sequence[tuple[int, bool]],
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Call the model's ``generate``, and let each row end where the plan says.

    Args:
        own: It.
        trainer: TRL's.
        targets: Of each row, its tokens, and whether the last of them is an end token.
        *args: Passed on.
        **kwargs: Passed on.

    Raises:
        SteeringError: A row ended elsewhere.
    """
    from transformers import LogitsProcessorList

    prompts = args[0] if args else kwargs["input_ids"]
    forced = ForcedLengths(trainer, targets, prompts)
    others = kwargs.get("logits_processor") or ()
    kwargs["logits_processor"] = LogitsProcessorList([*others, forced])
    made = own(*args, **kwargs)
    forced.check(getattr(made, "sequences", made))
    return made


def _ids(*known: object) -> list[int]:
    """All token ids in numbers and lists of them."""
    found = set[int]()
    for value in known:
        found.update(token for token in (value if isinstance(value, (list, tuple)) else [value])
                     if isinstance(token, int))  # fmt: skip
    return sorted(found)
