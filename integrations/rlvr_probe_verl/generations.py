"""What a controller remembers of each generation: prompt and lengths of every row.

verl sends batches on in another order, in parts and in new objects; that is how a row is known
again. Prompts have uids, given before the generation since 0.6 and after it before; a prompt is
named by what stands for its uid, or else by its generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.reading import digest
from rlvr_probe_verl.reading import column, lengths, tensor

__all__ = ["Generation", "Groups", "find", "match", "prompt_names"]


@dataclass(frozen=True, slots=True)
class Groups:
    """Which rows belong together.

    Attributes:
        of_rows: Group of each row, ascending from 0.
        size: Rows of the largest group.
        uids: What stands for the uid of each group; None where it has none yet.
    """

    of_rows: list[int]
    size: int
    uids: list[str] | None

    @classmethod
    def by_uid(cls, uids: Sequence[str]) -> Groups:
        """From what stands for the uid of each row.

        Raises:
            LookupError: Rows of one prompt do not follow each other.
        """
        of_rows: list[int] = []
        names: list[str] = []
        for uid in uids:
            if not names or uid != names[-1]:
                names.append(uid)
            of_rows.append(len(names) - 1)
        if len(set(names)) != len(names):
            raise LookupError("the rows of a prompt do not follow each other")
        sizes = [0] * len(names)
        for group in of_rows:
            sizes[group] += 1
        return cls(of_rows, max(sizes, default=1), names)

    @classmethod
    def by_size(cls, rows: int, size: int) -> Groups:
        """From the number of rows that each prompt has.

        Raises:
            LookupError: They do not go into it.
        """
        if size < 1 or rows % size:
            raise LookupError(f"{rows} rows are not {size} for each prompt")
        return cls([row // size for row in range(rows)], size, None)

    @property
    def even(self) -> bool:
        """Whether each has as many rows."""
        return all(group == row // self.size for row, group in enumerate(self.of_rows))


@dataclass(slots=True)
class Generation:
    """One generation of the step, or of the evaluation, in work.

    Attributes:
        span: Its rollout span, which joins lengths and rewards.
        mode: 'train' or 'eval'.
        groups: Which rows belong together.
        names: Name of the prompt of each group.
        prompt_tokens, response_tokens: Lengths, by row.
        rewarded: Whether its rewards were recorded.
        uids: Group of what stands for a uid, as far as uids are known.
    """

    span: int
    mode: str
    groups: Groups
    names: list[str]
    prompt_tokens: list[int]
    response_tokens: list[int]
    rewarded: bool = False
    uids: dict[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Trajectories of it."""
        return len(self.response_tokens)

    def __post_init__(self) -> None:
        self.uids = {uid: group for group, uid in enumerate(self.groups.uids or ())}


def prompt_names(span: int, groups: Groups) -> list[str]:
    """Name of the prompt of each group."""
    if groups.uids is not None:
        return groups.uids
    count = groups.of_rows[-1] + 1 if groups.of_rows else 0
    return [f"{span}-{group}" for group in range(count)]


def find(
    generations: Iterable[Generation], data: Any, order: Sequence[int] | None
) -> tuple[Generation, list[int]] | None:
    """The first generation that a batch is certain to hold, and what :func:`match` says of it.

    To add up the lengths of a batch takes longer than all that follows: it is done once, and not
    for a batch of another size.
    """
    prompts = tensor(data, "prompts")
    chosen = [] if prompts is None else [one for one in generations if one.rows == len(prompts)]
    found = lengths(data) if chosen else None
    if found is None:
        return None
    for generation in chosen:
        rows = match(generation, data, found, order)
        if rows is not None:
            return generation, rows
    return None


def match(
    generation: Generation,
    data: Any,
    found: tuple[list[int], list[int]],
    order: Sequence[int] | None,
) -> list[int] | None:
    """Row of the generation in each row of ``data``; None if it is not certain that they are it.

    Learns the uids of the generation, where they were given afterwards.

    Args:
        generation: Whose rows they may be.
        data: A ``DataProto`` with the tensors of a generation.
        found: Lengths of its prompts and responses, tokens.
        order: Row that each row was before it was moved; None if none was.
    """
    rows = generation.rows
    if len(found[1]) != rows:
        return None
    places = list(range(rows)) if order is None else list(order)
    if sorted(places) != list(range(rows)):
        return None
    for place, prompt, response in zip(places, *found, strict=True):
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
    if len(learnt) != len(generation.names):
        return None
    generation.uids = learnt
    return places
