"""What took a known time at an unknown moment, as a workload says, put to where it belongs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlvr_probe.model.given import GivenBatch, Lasting

__all__ = ["Durations", "seconds_between"]

_Row = Sequence[Any]


def seconds_between(start_ns: int | None, end_ns: int | None) -> float | None:
    """From one moment to another, s; None if one is unknown."""
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / 1e9


class Durations:
    """What a workload says of a batch besides its lengths; nothing of one that was recorded.

    Attributes:
        turns: Seconds by row of the batch and turn.
        placed: Whether it is known which process told of a trajectory.
    """

    def __init__(self, given: GivenBatch | None) -> None:
        """Sort it by what it is."""
        self._context: Sequence[int] = () if given is None else given.context_tokens
        shards = () if given is None else given.batch.shards
        self.placed = given is None or any(shard.rank is not None for shard in shards)
        self._tools, self._rewards = list[Lasting](), list[Lasting]()
        self.turns = dict[int, dict[int, float | None]]()
        for one in () if given is None else given.lasting:
            if one.what == "turn" and one.row is not None and one.turn is not None:
                self.turns.setdefault(one.row, {})[one.turn] = one.seconds
            elif one.what == "tool_call":
                self._tools.append(one)
            elif one.what == "reward_call":
                self._rewards.append(one)

    def context_of(self, row: int) -> int | None:
        """Tokens of the whole context of the trajectory in ``row`` of the batch."""
        return self._context[row] if row < len(self._context) else None

    def tool_rows(self, first: int) -> Iterator[_Row]:
        """Rows of ``tool_call``; ``first`` is the number of the first trajectory."""
        for one in self._tools:
            if one.row is not None:
                yield (
                    first + one.row, one.turn, one.name, one.status, None, None, None, one.seconds,
                    one.added_tokens, one.queries,
                )  # fmt: skip

    def reward_rows(self, batch: int) -> Iterator[_Row]:
        """Rows of ``reward_call``."""
        for one in self._rewards:
            yield batch, one.process, one.name, None, None, one.seconds, one.samples
