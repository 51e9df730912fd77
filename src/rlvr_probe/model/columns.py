"""Sequences that a run can have millions of, kept in arrays of numbers."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from math import isfinite, isnan
from operator import lt, ne
from typing import TypeVar, overload

__all__ = [
    "LazyColumn", "MeasureColumn", "PairColumn", "RaggedColumn", "RowIndex", "SparseColumn",
    "TextColumn", "finite_of", "lengths_of", "unknown_in",
]  # fmt: skip


_Value = TypeVar("_Value")


class LazyColumn(Sequence[_Value]):
    """Values that are made when they are asked for."""

    @abstractmethod
    def _value(self, at: int) -> _Value:
        """The value at ``at``, which counts from the end where it is below 0."""

    @overload
    def __getitem__(self, at: int) -> _Value: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[_Value]: ...
    def __getitem__(self, at: int | slice) -> _Value | Sequence[_Value]:
        """The value at ``at``, or those of a slice."""
        if isinstance(at, slice):
            return [self._value(place) for place in range(*at.indices(len(self)))]
        return self._value(at)


class RaggedColumn(LazyColumn[Sequence[int]]):
    """Lists of numbers of unequal length, end to end; one is made when it is asked for."""

    def __init__(self, lists: Iterable[Sequence[int]] = ()) -> None:
        """Take the numbers of ``lists``, each below 2^32.

        Raises:
            OverflowError, TypeError: A value is not such a number.
        """
        self._ends = array("Q")
        self._values = array("I")
        for values in lists:
            self.append(values)

    @classmethod
    def of(cls, values: array[int], ends: array[int]) -> RaggedColumn:
        """Lists that end at ``ends`` in ``values``; takes both over."""
        column = cls()
        column._values, column._ends = values, ends
        return column

    def append(self, values: Sequence[int]) -> None:
        """Add a list at the end; all of it or, with an error, nothing."""
        self._values.extend(array("I", values))
        self._ends.append(len(self._values))

    def _value(self, at: int) -> Sequence[int]:
        number = range(len(self._ends))[at]
        return self._values[self._ends[number - 1] if number else 0 : self._ends[number]]

    def __iter__(self) -> Iterator[Sequence[int]]:
        begin = 0
        for end in self._ends:
            yield self._values[begin:end]
            begin = end

    def __len__(self) -> int:
        return len(self._ends)

    def alternate_sums(self) -> Sequence[int]:
        """Sum of the first, third, fifth and so on number of each list."""
        if len(self._values) == len(self._ends) and all(
            map(lt, chain((0,), self._ends), self._ends)
        ):
            return self._values
        return [sum(values[::2]) for values in self]


class SparseColumn(LazyColumn["int | None"]):
    """Numbers from 0 of which some are unknown."""

    def __init__(self, values: Iterable[int | None] = ()) -> None:
        """Take ``values``, each below 2^63."""
        self._values = array("q", (-1 if value is None else value for value in values))

    @classmethod
    def of(cls, values: array[int]) -> SparseColumn:
        """A column of ``values``, of which -1 is unknown; takes them over."""
        column = cls()
        column._values = values
        return column

    def append(self, value: int | None) -> None:
        """Add a value at the end."""
        self._values.append(-1 if value is None else value)

    def _value(self, at: int) -> int | None:
        value = self._values[at]
        return None if value < 0 else value

    def __iter__(self) -> Iterator[int | None]:
        return (None if value < 0 else value for value in self._values)

    def __len__(self) -> int:
        return len(self._values)

    def unknown(self) -> int:
        """How many are unknown."""
        return self._values.count(-1)


class TextColumn(LazyColumn[str]):
    """Short texts, end to end: one by itself takes 50 bytes more than its letters."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        """Take ``texts``."""
        self._ends = array("I", accumulate(map(len, texts)))
        self._text = "".join(texts)

    def _value(self, at: int) -> str:
        number = range(len(self._ends))[at]
        return self._text[self._ends[number - 1] if number else 0 : self._ends[number]]

    def __iter__(self) -> Iterator[str]:
        for begin, end in pairwise(chain((0,), self._ends)):
            yield self._text[begin:end]

    def __len__(self) -> int:
        return len(self._ends)


class MeasureColumn(LazyColumn["float | None"]):
    """Values of which some are unknown, and some no number."""

    def __init__(self, values: array[float], odd: Iterable[int] = ()) -> None:
        """Take over ``values``, NaN where they are unknown but for the places ``odd``."""
        self._values, self._odd = values, set(odd)

    def _value(self, at: int) -> float | None:
        value = self._values[at]
        return None if isnan(value) and at % len(self._values) not in self._odd else value

    def __iter__(self) -> Iterator[float | None]:
        if self._odd:
            return (self[at] for at in range(len(self._values)))
        return (None if isnan(value) else value for value in self._values)

    def __len__(self) -> int:
        return len(self._values)

    def unknown(self) -> int:
        """How many are unknown."""
        nans: int = sum(map(ne, self._values, self._values))
        return nans - len(self._odd)

    def finite(self) -> Sequence[float]:
        """Those that are known, and numbers, in their order."""
        # NaN and infinity show in the sum.
        if isfinite(sum(self._values)):
            return self._values
        return array("d", filter(isfinite, self._values))


class PairColumn(LazyColumn["tuple[int, int] | None"]):
    """Pairs of numbers in order, the first at most the second, of which some are unknown."""

    def __init__(self, first: array[int], second: array[int]) -> None:
        """Take over these pairs, unknown where the second is below the first."""
        self._first, self._second = first, second

    def _value(self, at: int) -> tuple[int, int] | None:
        first, second = self._first[at], self._second[at]
        return None if second < first else (first, second)

    def __iter__(self) -> Iterator[tuple[int, int] | None]:
        pairs = zip(self._first, self._second, strict=True)
        return (None if second < first else (first, second) for first, second in pairs)

    def lengths(self) -> list[int | None]:
        """The second number less the first, of each pair."""
        pairs = zip(self._first, self._second, strict=True)
        return [None if second < first else second - first for first, second in pairs]

    def __len__(self) -> int:
        return len(self._first)

    def unknown(self) -> int:
        """How many are unknown."""
        return sum(map(lt, self._second, self._first))


def unknown_in(column: Sequence[object]) -> int:
    """How many of its values are None."""
    if isinstance(column, (SparseColumn, MeasureColumn, PairColumn)):
        return column.unknown()
    return sum(value is None for value in column)


def lengths_of(pairs: Sequence[tuple[int, int] | None]) -> list[int | None]:
    """From the first to the second number of each pair, None where it is unknown."""
    if isinstance(pairs, PairColumn):
        return pairs.lengths()
    return [None if pair is None else pair[1] - pair[0] for pair in pairs]


def finite_of(values: Sequence[float | None]) -> Sequence[float]:
    """Those that are known, and numbers, in their order."""
    if isinstance(values, MeasureColumn):
        return values.finite()
    return [value for value in values if value is not None and isfinite(value)]


class RowIndex:
    """Where the entries of each row are, in an order by row that keeps theirs.

    Attributes:
        order: Places of the entries, those of row 0 first.
    """

    def __init__(self, rows: Sequence[int]) -> None:
        """Note where the entries are; ``rows`` holds the row of each."""
        counts = array("I", [0]) * (1 + max(rows, default=-1))
        for row in rows:
            counts[row] += 1
        self._first = array("Q", [0])
        for count in counts:
            self._first.append(self._first[-1] + count)
        free = array("Q", self._first)
        self.order = array("Q", [0]) * len(rows)
        for place, row in enumerate(rows):
            self.order[free[row]] = place
            free[row] += 1

    def places(self, row: int) -> Sequence[int]:
        """Places of the entries of ``row``; none if it has none."""
        if not 0 <= row < len(self._first) - 1:
            return ()
        return self.order[self._first[row] : self._first[row + 1]]

    def __iter__(self) -> Iterator[int]:
        """The rows that have entries, ascending."""
        first = self._first
        return (row for row in range(len(first) - 1) if first[row] < first[row + 1])
