"""Turns and tool calls of trajectories, kept in columns: a run can have millions."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import eq

from rlvr_probe.model.columns import LazyColumn, RowIndex, SparseColumn
from rlvr_probe.model.requests import Request

__all__ = [
    "LooseCall", "LooseCallColumns", "ToolCall", "ToolColumns", "Turn", "TurnColumns",
    "cached_tokens", "turn_counts", "turn_ends", "turn_seconds",
]  # fmt: skip


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
    request: Request | None = None
    """What its engine did for it, where that is known and it was one request."""


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
class LooseCall:
    """One call of the inference engine that belongs to no known turn.

    It sums up many trajectories, or its trajectory never finished or was never recorded.
    """

    process: int
    start_ns: int
    end_ns: int
    samples: int | None
    """Trajectories in it."""
    response_tokens: int | None
    """Tokens that they generated in it."""


class LooseCallColumns(LazyColumn[LooseCall]):
    """Such calls; one is made when it is asked for."""

    def __init__(self, calls: Iterable[LooseCall] = ()) -> None:
        """Take ``calls``."""
        self._process = array("I")
        self._start, self._end = array("q"), array("q")
        self._samples, self._tokens = SparseColumn(), SparseColumn()
        for call in calls:
            self.append(call)

    def append(self, call: LooseCall) -> None:
        """Take a call."""
        self._process.append(call.process)
        self._start.append(call.start_ns)
        self._end.append(call.end_ns)
        self._samples.append(call.samples)
        self._tokens.append(call.response_tokens)

    def _value(self, at: int) -> LooseCall:
        columns = self._process, self._start, self._end, self._samples, self._tokens
        return LooseCall(*(column[at] for column in columns))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self._start)

    def __eq__(self, other: object) -> bool:
        """Whether they hold the same calls in the same order."""
        if not isinstance(other, LooseCallColumns):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))


class TurnColumns(Mapping[int, tuple[Turn, ...]]):
    """The turns of a shard by row, one entry per trajectory and engine call.

    Rows and turns in an order of their own: engine calls overlap where trajectories go their own
    way. A turn is made when it is asked for.
    """

    def __init__(
        self,
        requests: Sequence[Request] = (),
        *,
        rows: array[int],
        turns: array[int],
        prompt_tokens: array[int],
        response_tokens: array[int],
        cached_tokens: array[int],
        start_ns: array[int],
        end_ns: array[int],
        request: array[int],
    ) -> None:
        """Take entries in columns; -1 is unknown, and ``request`` holds places in ``requests``."""
        self._requests, self._request = requests, SparseColumn.of(request)
        self._rows, self._turns = rows, turns
        self._prompt, self._response = prompt_tokens, response_tokens
        self._cached = SparseColumn.of(cached_tokens)
        self._start, self._end = start_ns, end_ns
        self._index: RowIndex | None = None

    def __getitem__(self, row: int) -> tuple[Turn, ...]:
        """The turns of one row, in order.

        Raises:
            KeyError: It has none.
        """
        places = self._by_row().places(row)
        if not places:
            raise KeyError(row)
        turns = (self._turn(place) for place in places)
        return tuple(sorted(turns, key=lambda turn: (turn.index, turn.start_ns)))

    def __iter__(self) -> Iterator[int]:
        """The rows that have turns, ascending."""
        return iter(self._by_row())

    def __len__(self) -> int:
        return len(set(self._rows))

    def counts(self) -> Mapping[int, int]:
        """How many turns each row has, of those that have any, in no order; makes none of them."""
        return Counter(self._rows)

    def ends(self, size: int) -> list[int | None]:
        """End of the last turn of each of ``size`` rows, ns; None where it has none."""
        ends: list[int | None] = [None] * size
        last: list[tuple[int, int] | None] = [None] * size
        for row, turn, start_ns, end_ns in zip(
            self._rows, self._turns, self._start, self._end, strict=True
        ):
            place, before = (turn, start_ns), last[row]
            if before is None or place >= before:
                last[row], ends[row] = place, end_ns
        return ends

    def cached(self, size: int) -> list[int | None]:
        """Cached prompt tokens of all turns of each of ``size`` rows, where all are known."""
        if self._cached.unknown() == len(self._cached):
            return [None] * size
        sums: list[int | None] = [None] * size
        unknown = set[int]()
        for row, tokens in zip(self._rows, self._cached, strict=True):
            if tokens is None:
                unknown.add(row)
            else:
                sums[row] = (sums[row] or 0) + tokens
        for row in unknown:
            sums[row] = None
        return sums

    def seconds(self) -> Iterator[float]:
        """How long each turn took, s, in the order in which they were recorded."""
        times = zip(self._start, self._end, strict=True)
        return ((end_ns - start_ns) / 1e9 for start_ns, end_ns in times)

    def _by_row(self) -> RowIndex:
        if self._index is None:
            self._index = RowIndex(self._rows)
        return self._index

    def _turn(self, place: int) -> Turn:
        request = self._request[place]
        return Turn(
            index=self._turns[place],
            prompt_tokens=self._prompt[place],
            response_tokens=self._response[place],
            cached_tokens=self._cached[place],
            start_ns=self._start[place],
            end_ns=self._end[place],
            request=None if request is None else self._requests[request],
        )


def turn_counts(turns: Mapping[int, tuple[Turn, ...]]) -> Mapping[int, int]:
    """How many turns each row has, of those that have any, in no order."""
    if isinstance(turns, TurnColumns):
        return turns.counts()
    return {row: len(recorded) for row, recorded in turns.items()}


def turn_ends(turns: Mapping[int, tuple[Turn, ...]], size: int) -> list[int | None]:
    """End of the last turn of each of ``size`` rows, ns; None where it is unknown, or none is."""
    if isinstance(turns, TurnColumns):
        return turns.ends(size)
    every = (turns.get(row) for row in range(size))
    return [recorded[-1].end_ns if recorded else None for recorded in every]


def cached_tokens(turns: Mapping[int, tuple[Turn, ...]], size: int) -> list[int | None]:
    """Prompt tokens of all turns of each of ``size`` rows that an engine's cache held.

    None where it has no turn, or one of which that is unknown.
    """
    if isinstance(turns, TurnColumns):
        return turns.cached(size)
    sums = list[int | None]()
    for row in range(size):
        counts = [turn.cached_tokens for turn in turns.get(row, ())]
        known = [count for count in counts if count is not None]
        sums.append(sum(known) if known and len(known) == len(counts) else None)
    return sums


def turn_seconds(turns: Mapping[int, tuple[Turn, ...]]) -> Iterator[float]:
    """How long each turn took whose times are known, s."""
    if isinstance(turns, TurnColumns):
        return turns.seconds()
    return (
        (turn.end_ns - turn.start_ns) / 1e9
        for told in turns.values()
        for turn in told
        if turn.start_ns is not None and turn.end_ns is not None
    )


class ToolColumns(Mapping[int, tuple[ToolCall, ...]]):
    """The tool calls of a shard by row; one is made when it is asked for."""

    def __init__(self) -> None:
        """Hold none."""
        self._rows = array("I")
        self._turns = SparseColumn()
        self._words = array("I")
        self._start, self._end = array("q"), array("q")
        self._numbers = dict[tuple[str | None, str | None, str | None], int]()
        self._known = list[tuple[str | None, str | None, str | None]]()
        self._index: RowIndex | None = None

    def add(self, row: int, call: ToolCall) -> None:
        """Take one call of ``row``."""
        self._index = None
        self._rows.append(row)
        self._turns.append(call.turn)
        words = (call.tool, call.status, call.error)
        number = self._numbers.setdefault(words, len(self._known))
        if number == len(self._known):
            self._known.append(words)
        self._words.append(number)
        self._start.append(call.start_ns)
        self._end.append(call.end_ns)

    def __getitem__(self, row: int) -> tuple[ToolCall, ...]:
        """The calls of one row, by start.

        Raises:
            KeyError: It has none.
        """
        if self._index is None:
            self._index = RowIndex(self._rows)
        places = self._index.places(row)
        if not places:
            raise KeyError(row)
        calls = (
            ToolCall(
                self._turns[place],
                *self._known[self._words[place]],
                self._start[place],
                self._end[place],
            )
            for place in places
        )
        return tuple(sorted(calls, key=lambda call: call.start_ns))

    def __iter__(self) -> Iterator[int]:
        """The rows that have calls, ascending."""
        return iter(sorted(set(self._rows)))

    def __len__(self) -> int:
        return len(set(self._rows))
