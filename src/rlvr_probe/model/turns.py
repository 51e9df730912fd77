"""Turns and tool calls of a trajectory, kept in columns: a run can have millions of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["EngineCall", "ToolCall", "Turn", "TurnColumns"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One engine call of one trajectory."""

    index: int
    """Turns that the trajectory had before it."""
    prompt_tokens: int | None
    """Sent to the engine: everything so far."""
    response_tokens: int | None
    """Generated; a framework may keep fewer of the last turn, to stay within its cap."""
    cached_tokens: int | None
    """Of those sent, found in the engine's prefix cache."""
    start_ns: int | None
    end_ns: int | None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool by a trajectory. Its arguments and its result are not recorded."""

    turn: int | None
    """Turn that asked for it."""
    tool: str | None
    """Name of the tool; None where there is none of the name that the model asked for."""
    status: str | None
    """One of ``names.TOOL_STATUSES``."""
    error: str | None
    """Exception type name if the tool raised."""
    start_ns: int
    end_ns: int

    @property
    def latency_s(self) -> float:
        """How long it took, s; calls of one turn may overlap."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One call of the inference engine, with one entry per trajectory in it.

    Attributes:
        rows: Rows in the shard.
        turns: Turns that each of them had before.
        prompt_tokens, response_tokens: Tokens sent, tokens generated.
        cached_tokens: Of those sent, found in the prefix cache; None if unknown.
        start_ns, end_ns: Of the call.
    """

    rows: Sequence[int]
    turns: Sequence[int]
    prompt_tokens: Sequence[int]
    response_tokens: Sequence[int]
    cached_tokens: Sequence[int] | None
    start_ns: int
    end_ns: int


class TurnColumns(Mapping[int, tuple[Turn, ...]]):
    """The turns of a shard by row, made of engine calls; one is made when it is asked for.

    Rows and turns in an order of their own: engine calls overlap where trajectories go their own
    way.
    """

    def __init__(self, calls: Iterable[EngineCall]) -> None:
        """Take note of where each turn of each row is; ``calls`` by start."""
        self._calls = list(calls)
        counts = array("I", [0]) * (1 + max((max(call.rows) for call in self._calls), default=-1))
        for call in self._calls:
            for row in call.rows:
                counts[row] += 1
        self._first = array("I", [0])
        for count in counts:
            self._first.append(self._first[-1] + count)
        free = array("I", self._first)
        size = self._first[-1]
        self._call, self._place = array("I", [0]) * size, array("I", [0]) * size
        for number, call in enumerate(self._calls):
            for place, row in enumerate(call.rows):
                self._call[free[row]], self._place[free[row]] = number, place
                free[row] += 1

    def __getitem__(self, row: int) -> tuple[Turn, ...]:
        """The turns of one row, in order.

        Raises:
            KeyError: It has none.
        """
        if not 0 <= row < len(self._first) - 1 or self._first[row] == self._first[row + 1]:
            raise KeyError(row)
        entries = range(self._first[row], self._first[row + 1])
        turns = [self._turn(self._calls[self._call[at]], self._place[at]) for at in entries]
        return tuple(sorted(turns, key=lambda turn: turn.index))

    def __iter__(self) -> Iterator[int]:
        """The rows that have turns, ascending."""
        first = self._first
        return (row for row in range(len(first) - 1) if first[row] < first[row + 1])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def counts(self) -> Iterator[int]:
        """How many turns each row has, of those that have any; makes none of them."""
        return (count for a, b in pairwise(self._first) if (count := b - a))

    @staticmethod
    def _turn(call: EngineCall, place: int) -> Turn:
        return Turn(
            index=call.turns[place],
            prompt_tokens=call.prompt_tokens[place],
            response_tokens=call.response_tokens[place],
            cached_tokens=None if call.cached_tokens is None else call.cached_tokens[place],
            start_ns=call.start_ns,
            end_ns=call.end_ns,
        )
