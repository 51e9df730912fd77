"""Reading counts out of TRL's values: pure functions that never touch an accelerator.

A value of an unexpected shape is unknown: None, never 0 and never an exception. Nothing here
returns text, a token id or anything derived from one but its count.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rlvr_probe.reading import attribute, mask_runs, number, on_host

__all__ = ["end_id", "is_module", "lengths", "loss_runs", "reward_values", "row_sums", "stop_ids"]
__all__ += ["truncated"]

_LISTS = (list, tuple)


def lengths(rows: object) -> list[int] | None:
    """Length of each row of a list of token lists."""
    if not isinstance(rows, _LISTS):
        return None
    try:
        return [len(row) for row in rows]
    except TypeError:
        return None


def row_sums(mask: Any) -> list[int] | None:
    """Number of ones in each row of a mask (rows x tokens) that lies in host memory."""
    if not on_host(mask) or number(mask, "ndim") != 2:
        return None
    sums: list[int] = mask.sum(1).tolist()
    return sums


def stop_ids(trainer: object) -> frozenset[int]:
    """Token ids that TRL takes for the end of a completion; empty if they are unknown."""
    tokenizer = attribute(trainer, "_tokenizer")
    if tokenizer is None:  # TRL < 1.1 has no `_tokenizer`
        tokenizer = attribute(trainer, "processing_class")
    eos = attribute(trainer, "eos_token_ids")
    if eos is None:
        eos = _token(trainer, tokenizer, "eos_token_id")
    pad = _token(trainer, tokenizer, "pad_token_id")
    stops = [*(eos if isinstance(eos, _LISTS) else (eos,)), pad]
    return frozenset(token for token in stops if isinstance(token, int))


def end_id(trainer: object) -> frozenset[int]:
    """The one token id that ends a completion for TRL below 0.24: padding did not count as one."""
    eos = _token(trainer, attribute(trainer, "processing_class"), "eos_token_id")
    return frozenset([eos] if isinstance(eos, int) else ())


def _token(trainer: object, tokenizer: object, name: str) -> Any:
    # TRL 0.20 to 1.0 keep it themselves: a processor of a vision model has none.
    kept = attribute(trainer, name)
    return attribute(tokenizer, name) if kept is None else kept


def truncated(rows: object, stops: Collection[int]) -> list[int] | None:
    """1 for each completion that ends on no stop token, by TRL's own rule.

    An empty completion ended on none, so it counts as truncated. Unknown if a completion is a
    tensor, whose last entry could not be read without waiting for its device.
    """
    if not stops or not isinstance(rows, _LISTS):
        return None
    if not all(isinstance(row, _LISTS) for row in rows):
        return None
    return [0 if row and row[-1] in stops else 1 for row in rows]


def is_module(value: object) -> bool:
    """Whether ``value`` is a torch module, without importing torch."""
    return any(
        kind.__name__ == "Module" and kind.__module__ == "torch.nn.modules.module"
        for kind in type(value).__mro__
    )


def reward_values(rewards: Any) -> list[float | None] | None:
    """Rewards as plain floats, NaN and infinity among them; None for a sample without one.

    Unknown for anything but a sequence (a generator must reach TRL unread), and for what lives on
    an accelerator.
    """
    if not on_host(rewards):
        return None
    if hasattr(rewards, "tolist"):
        rewards = rewards.tolist()
    if not isinstance(rewards, _LISTS):
        return None
    values: list[float | None] = []
    for reward in rewards:
        if reward is None:
            values.append(None)
            continue
        if not isinstance(reward, (float, int)) and not on_host(reward):
            return None
        try:
            value = float(reward)
        except (TypeError, ValueError, RuntimeError):
            return None
        values.append(value)
    return values


def loss_runs(masks: object, response_tokens: Sequence[int]) -> list[list[int]] | None:
    """Runs of each mask in turn, those of ones first; None unless every row has a sound one.

    Args:
        masks: Per row, 1 for a token of the model and 0 for one of a tool or an environment.
        response_tokens: Lengths that they must have.
    """
    if not isinstance(masks, _LISTS) or len(masks) != len(response_tokens):
        return None
    pairs = zip(masks, response_tokens, strict=True)
    runs = [mask_runs(mask, length) for mask, length in pairs]
    known = [run for run in runs if run is not None]
    return known if known and len(known) == len(runs) else None
