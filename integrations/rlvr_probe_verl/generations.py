"""What a controller remembers of each generation: prompt and lengths of every row.

verl sends batches on in another order, in parts and in new objects; that is how a row is known
again. Prompts have uids, given before the generation since 0.6 and after it before; a prompt is
named by what stands for its uid, or else by its generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.adapter.batch_events import Groups
from rlvr_probe.reading import digest
from rlvr_probe_verl.reading import column, lengths, tensor

__all__ = ["Generation", "find", "groups_by_size", "groups_by_uid", "match"]


def groups_by_uid(uids: Sequence[str]) -> Groups:
    """From what stands for the uid of each row.

    Raises:
        LookupError: Rows of one prompt do not follow each other.
    """
    groups = Groups.by_name(uids)
    if len(set(groups.names)) != len(groups.names):
        raise LookupError("the rows of a prompt do not follow each other")
    return groups


def groups_by_size(span: int, rows: int, size: int) -> Groups:
    """From the number of rows that each prompt has; the prompts are named by their generation.

    Raises:
        LookupError: They do not go into it.
    """
    if size < 1 or rows % size:
        raise LookupError(f"{rows} rows are not {size} for each prompt")
    return Groups.by_name(f"{span}-{row // size}" for row in range(rows))


@dataclass(slots=True)
class Generation:
    """One generation of the step, or of the evaluation, in work.

    Attributes:
        span: Its rollout span, which joins lengths and rewards.
        mode: 'train' or 'eval'.
        groups: Which rows belong together, and the name of the prompt of each group.
        prompt_tokens, response_tokens: Lengths, by row.
        uids: Group of what stands for a uid, as far as uids are known.
        rewarded: Whether its rewards were recorded.
    """

    span: int
    mode: str
    groups: Groups
    prompt_tokens: list[int]
    response_tokens: list[int]
    uids: dict[str, int] = field(default_factory=dict)
    rewarded: bool = False

    @property
    def rows(self) -> int:
        """Trajectories of it."""
        return len(self.response_tokens)


def find(
    generations: Iterable[Generation], data: Any, order: Sequence[int] | None
) -> tuple[Generation, list[int]] | None:
    """The first generation that a batch is certain to hold, and what :func:`match` says of it.

    To add up the lengths of a batch takes longer than all that follows: it is done once, and not
    for a batch of another size.
    """
    prompts = tensor(data, "prompts")
    rows = None if prompts is None else len(prompts)
    candidates = [generation for generation in generations if generation.rows == rows]
    tokens = lengths(data) if candidates else None
    if tokens is None:
        return None
    for generation in candidates:
        places = match(generation, data, tokens, order)
        if places is not None:
            return generation, places
    return None


def match(
    generation: Generation,
    data: Any,
    tokens: tuple[list[int], list[int]],
    order: Sequence[int] | None,
) -> list[int] | None:
    """Row of the generation in each row of ``data``; None if it is not certain that they are it.

    Learns the uids of the generation, where they were given afterwards.

    Args:
        generation: Whose rows they may be.
        data: A ``DataProto`` with the tensors of a generation.
        tokens: Lengths of its prompts and responses.
        order: Row that each row was before it was moved; None if none was.
    """
    rows = generation.rows
    if len(tokens[1]) != rows:
        return None
    places = list(range(rows)) if order is None else list(order)
    if sorted(places) != list(range(rows)):
        return None
    for place, prompt, response in zip(places, *tokens, strict=True):
        if generation.prompt_tokens[place] != prompt:
            return None
        if generation.response_tokens[place] != response:
            return None
    uids = column(data, "uid")
    if uids is None:
        return places
    known: dict[Any, str] = {uid: digest(uid) for uid in set(uids)}
    learnt = dict(generation.uids)
    for place, uid in zip(places, uids, strict=True):
        group = generation.groups.of_rows[place]
        if learnt.setdefault(known[uid], group) != group:
            return None
    if len(learnt) != len(generation.groups.names):
        return None
    generation.uids = learnt
    return places
