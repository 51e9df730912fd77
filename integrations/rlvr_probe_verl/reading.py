"""Reading names and counts out of verl's values: pure functions that never touch an accelerator.

A value of an unexpected shape is unknown: None, never 0 and never an exception. Nothing here
returns text, a token id or anything derived from one but its count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlvr_probe.reading import attribute, option

__all__ = ["batch_rows", "column", "lengths", "loss_runs", "row_sums", "tensor", "truncated"]


_BATCHES = frozenset({"DataProto", "TensorDict", "KVBatchMeta", "BatchMeta"})


def batch_rows(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
    """Rows of the first batch among the arguments of a call; None if there is none."""
    for value in (*args, *kwargs.values()):
        if any(kind.__name__ in _BATCHES for kind in type(value).__mro__):
            # Of a KVBatchMeta, which holds keys and no rows, neither `len` nor `size` is certain.
            keys = getattr(value, "keys", None)
            return len(keys) if isinstance(keys, list) else len(value)
    return None


# ---------------------------------------------------------------- batches


def column(data: Any, name: str) -> list[Any] | None:
    """A column of a ``DataProto`` outside of its tensors; None if it has none of this name."""
    values = option(attribute(data, "non_tensor_batch"), name)
    return None if values is None else list(values)


def tensor(data: Any, name: str) -> Any:
    """A tensor (rows x tokens) of a ``DataProto`` that lies in host memory; None for any other."""
    values = option(attribute(data, "batch"), name)
    on_host = attribute(values, "device", "type") == "cpu"
    return values if on_host and attribute(values, "ndim") == 2 else None


def lengths(data: Any) -> tuple[list[int], list[int]] | None:
    """Tokens of the prompt and of the response in each row, without padding; None if unknown."""
    prompts, mask = tensor(data, "prompts"), tensor(data, "attention_mask")
    if prompts is None or mask is None:
        return None
    width = prompts.shape[1]
    return mask[:, :width].sum(1).long().tolist(), mask[:, width:].sum(1).long().tolist()


def loss_runs(data: Any, response_tokens: list[int]) -> list[list[int]] | None:
    """Tokens in and out of the loss in turn, by row, those in it first; None if all are in it.

    Args:
        data: A ``DataProto`` with ``response_mask``: 1 for what the model generated.
        response_tokens: Length of each response, what tools returned included.
    """
    mask = tensor(data, "response_mask")
    if mask is None or mask.sum(1).long().tolist() == response_tokens:
        return None
    inside = mask.bool()
    first = inside[:, 0].tolist()
    runs: list[list[int]] = [[] if starts else [0] for starts in first]
    ends = [0] * len(runs)
    for row, before in (inside[:, 1:] != inside[:, :-1]).nonzero().tolist():
        if before + 1 < response_tokens[row]:
            runs[row].append(before + 1 - ends[row])
            ends[row] = before + 1
    for row, length in enumerate(response_tokens):
        if length > ends[row]:
            runs[row].append(length - ends[row])
        elif not length:
            runs[row] = []
    return runs


def truncated(data: Any, response_tokens: list[int], end: int | None) -> list[int] | None:
    """1 for each response that fills its place and does not end on ``end``; None if unknown.

    verl keeps no flag of its own. Its engines return the token that ended a response with it.
    Without ``end`` it is unknown how one that fills its place ended.
    """
    responses = tensor(data, "responses")
    if responses is None or not responses.shape[1]:
        return None
    cap = responses.shape[1]
    if end is None:
        return None if cap in response_tokens else [0] * len(response_tokens)
    ended = (responses[:, -1] == end).tolist()
    return [
        int(length >= cap and not stopped)
        for length, stopped in zip(response_tokens, ended, strict=True)
    ]


def row_sums(values: Any) -> list[float] | None:
    """Sum of each row of a tensor (rows x tokens) in host memory."""
    if attribute(values, "device", "type") != "cpu" or attribute(values, "ndim") != 2:
        return None
    sums: list[float] = values.sum(1).tolist()
    return [float(value) for value in sums]
