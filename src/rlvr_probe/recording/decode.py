"""Lines of one process's journal, decoded by the definitions among them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from rlvr_probe.recording.types import (
    DEFINITION,
    UNSOUND,
    Definition,
    decode_row,
    decoder_of,
    definition,
)

__all__ = ["RowDecoder", "attributes_of"]

_TOGETHER: Final = 1_024
"""Definitions whose rows are decoded together; no journal of ours has a tenth of that."""


class RowDecoder(ABC):
    """Hands on each row; definitions outlive segments.

    A subclass says who takes rows of a definition (:meth:`taker`), and takes the other rows
    (:meth:`service`).

    Attributes:
        refused: Lines that could not be used, by reason.
    """

    def __init__(self) -> None:
        """Know no definition."""
        self.definitions: dict[int, Definition] = {}
        self.refused = Counter[str]()
        self._takers: dict[type[msgspec.Struct], Callable[[Any], object]] = {}
        self._typed: msgspec.json.Decoder[Any] | None = None

    @abstractmethod
    def taker(self, known: Definition) -> Callable[[Any], object]:
        """What to call with each row of a definition; what it raises ends the reading."""

    @abstractmethod
    def service(self, row: list[Any]) -> None:
        """Take a row that a text begins, a definition included.

        Raises:
            UNSOUND: It is none.
        """

    def guarded(
        self, take: Callable[[Definition, Any], object], known: Definition
    ) -> Callable[[Any], object]:
        """A taker of rows of ``known`` that may raise what is in ``UNSOUND``: it is refused."""

        def guard(row: Any) -> None:
            try:
                take(known, row)
            except UNSOUND:
                self.refused["bad_row"] += 1

        return guard

    def rows(self, lines: bytes) -> None:
        """Decode whole lines."""
        if self._decoded(lines):
            return
        begin = 0
        while begin < len(lines):
            service = lines.startswith(b'["', begin)
            end = lines.find(b"\n" if service else b'\n["', begin) + 1 or len(lines)
            some = lines[begin:end]
            if service or not self._decoded(some):
                for line in some.removesuffix(b"\n").split(b"\n"):
                    self._line(line)
            begin = end

    def _decoded(self, lines: bytes) -> bool:
        """Decode rows of spans and events by their definitions, if all of these are sound."""
        if self._typed is None and 0 < len(self.definitions) <= _TOGETHER:
            every = [known for _, known in sorted(self.definitions.items())]
            self._takers |= {known.row_type: self._taker_of(known) for known in every}
            self._typed = decoder_of(tuple(known.row_type for known in every))
        if self._typed is None or lines.startswith(b'["') or b"\n\n" in lines:
            return False
        try:
            rows = self._typed.decode_lines(lines)
        except UNSOUND:
            return False
        takers = self._takers
        for row in rows:
            takers[type(row)](row)
        return True

    def _line(self, line: bytes) -> None:
        """One line by itself."""
        try:
            row = decode_row(line)
            tag = row[0] if type(row) is list and row else None
        except UNSOUND:
            tag = row = None
        if row is None or tag is None:
            self.refused["bad_line"] += 1
        elif type(tag) is not str and (type(tag) is not int or tag not in self.definitions):
            self.refused["unknown_definition"] += 1
        else:
            try:
                if type(tag) is str:
                    self.service(row)
                else:
                    known = self.definitions[int(tag)]
                    self._taker_of(known)(_row_of(known, line))
            except UNSOUND:
                self.refused["bad_row"] += 1

    def define(self, row: list[Any]) -> Definition:
        """Take a row that tells what rows of a number are.

        Raises:
            UNSOUND: It is none.
        """
        _, number, kind, name, attributes = msgspec.convert(row, DEFINITION)
        known = definition(number, kind, name, tuple(attributes))
        self.definitions[number] = known
        self._typed = None
        return known

    def _taker_of(self, known: Definition) -> Callable[[Any], object]:
        take = self._takers.get(known.row_type)
        if take is None:
            take = self._takers[known.row_type] = self.taker(known)
        return take


def attributes_of(known: Definition, values: Sequence[Any]) -> dict[str, Any]:
    """Attributes that are known, by name."""
    pairs = zip(known.attributes, values, strict=True)
    return {name: value for name, value in pairs if value is not None}


def _row_of(known: Definition, line: bytes) -> Any:
    """The row in a line; its attributes may be missing, all of them.

    Raises:
        msgspec.DecodeError: It is no row of this definition.
    """
    try:
        return decoder_of((known.row_type,)).decode(line)
    except msgspec.ValidationError:
        return known.whole(decoder_of((known.bare,)).decode(line))
