"""Calls of reward functions, kept in columns: a run can have millions."""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import sub

from rlvr_probe.model.columns import LazyColumn, SparseColumn

__all__ = ["RewardCall", "RewardCallColumns"]


@dataclass(frozen=True, slots=True)
class RewardCall:
    """One call of one reward function in one process."""

    process: int
    function: str
    start_ns: int
    end_ns: int
    samples: int | None
    row: int | None = None
    """Row in the shard, where it verified one trajectory."""
    attempts: int | None = None
    """Requests that it took, where it asked a service."""
    timeouts: int | None = None
    """Of those, that were not answered in time."""


class RewardCallColumns(LazyColumn[RewardCall]):
    """Calls of reward functions; one is made when it is asked for."""

    def __init__(self) -> None:
        """Hold none."""
        self._process, self._words = array("I"), array("I")
        self._samples, self._rows = SparseColumn(), SparseColumn()
        self._attempts, self._timeouts = SparseColumn(), SparseColumn()
        self._start, self._end = array("q"), array("q")
        self._numbers = dict[str, int]()
        self._names = list[str]()

    @classmethod
    def of(
        cls,
        functions: Sequence[str],
        *,
        process: array[int],
        start_ns: array[int],
        end_ns: array[int],
        samples: array[int],
        rows: array[int],
        attempts: array[int],
        timeouts: array[int],
    ) -> RewardCallColumns:
        """Calls in columns; -1 is unknown."""
        found = cls()
        found._names = list(dict.fromkeys(functions))
        found._numbers = {name: number for number, name in enumerate(found._names)}
        found._process = array("I", process)
        found._words = array("I", map(found._numbers.__getitem__, functions))
        found._start, found._end = start_ns, end_ns
        found._samples, found._rows = SparseColumn.of(samples), SparseColumn.of(rows)
        found._attempts, found._timeouts = SparseColumn.of(attempts), SparseColumn.of(timeouts)
        return found

    def seconds(self) -> dict[str, list[float]]:
        """Length of each call by function, s."""
        lengths = [ns / 1e9 for ns in map(sub, self._end, self._start)]
        numbers = dict.fromkeys(self._words)
        if len(numbers) == 1:
            return {self._names[number]: lengths for number in numbers}
        return {
            self._names[number]: list(compress(lengths, map(number.__eq__, self._words)))
            for number in numbers
        }

    def intervals(self) -> Iterator[tuple[int, int | None, int | None, int, int]]:
        """Process, row, samples, start and end, ns, of each call; makes none of them."""
        return zip(self._process, self._rows, self._samples, self._start, self._end, strict=True)

    def of_rows(self, rows: Container[int | None]) -> Iterator[RewardCall]:
        """The calls that each verified one of ``rows``; makes none of the others."""
        return (self[at] for at, row in enumerate(self._rows) if row is not None and row in rows)

    def append(self, call: RewardCall) -> None:
        """Take a call."""
        number = self._numbers.setdefault(call.function, len(self._names))
        if number == len(self._names):
            self._names.append(call.function)
        self._process.append(call.process)
        self._words.append(number)
        self._samples.append(call.samples)
        self._rows.append(call.row)
        self._attempts.append(call.attempts)
        self._timeouts.append(call.timeouts)
        self._start.append(call.start_ns)
        self._end.append(call.end_ns)

    def by_start(self) -> RewardCallColumns:
        """The same calls in the order of their start."""
        if self._start == array("q", sorted(self._start)):
            return self
        order = sorted(range(len(self)), key=self._start.__getitem__)
        found = RewardCallColumns()
        found._names, found._numbers = self._names, self._numbers
        for name in ("_process", "_words", "_start", "_end"):
            column = getattr(self, name)
            setattr(found, name, array(column.typecode, map(column.__getitem__, order)))
        for name in ("_samples", "_rows", "_attempts", "_timeouts"):
            setattr(found, name, SparseColumn(map(getattr(self, name).__getitem__, order)))
        return found

    def _value(self, at: int) -> RewardCall:
        times = self._start[at], self._end[at]
        counts = self._samples, self._rows, self._attempts, self._timeouts
        function = self._names[self._words[at]]
        return RewardCall(self._process[at], function, *times, *(column[at] for column in counts))

    def __len__(self) -> int:
        return len(self._start)
