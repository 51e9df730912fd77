"""Lines of a journal, decoded by the definitions among them, whole chunks at a time in C.

Types of rows are made of definitions. Numbers, texts and lists of fine rows are checked as they are
decoded; attributes of all other rows are taken as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Any, Final, Literal, Union

import msgspec
from msgspec import Meta

from rlvr_probe.model import names

__all__ = [
    "COUNT_MAX", "FINE", "UNSOUND", "Count", "Definition", "Id", "Number", "RowDecoder", "Time",
    "attributes_of",
]  # fmt: skip

COUNT_MAX: Final = (1 << 32) - 1
"""Tokens of one trajectory."""

UNSOUND: Final = (
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    RecursionError,  # lists in lists, some thousand deep
    msgspec.DecodeError,  # not a ValueError before 0.21
)
"""What decoding a line raises where the line is not a row of ours."""

_decode: Final = msgspec.json.Decoder().decode
"""Decodes one line without a type."""

Time = Annotated[int, Meta(gt=-(1 << 62), lt=1 << 62)]
Number = Annotated[int, Meta(ge=0, lt=1 << 62)]
Id = Annotated[int, Meta(ge=1, lt=1 << 62)]
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
_Seconds = Annotated[float, Meta(ge=0)]
_Digest = Annotated[str, Meta(min_length=16, max_length=16)]
_Counts = Number | list[Count]
_Flag = Literal[0, 1] | bool

_DEFINITION = tuple[
    str, Number, Literal["span", "event"], str, Annotated[list[str], Meta(max_length=256)]
]
"""A ``def`` row; no row of ours has half as many attributes."""

_SPAN: Final = (
    ("start", Time), ("duration", Number), ("span", Id), ("parent", Number),
    ("error", str | None),
)  # fmt: skip
_EVENT: Final = (("time", Time), ("parent", Number))

_SERVED: Final[Mapping[str, Any]] = {
    "cached_tokens": Count,
    "queue_s": _Seconds,
    "prefill_s": _Seconds,
    "decode_s": _Seconds,
    "preemptions": Count,
    "finish": Literal[names.FINISHES],
}

FINE: Final[Mapping[str, Mapping[str, Any]]] = {
    names.TRAJECTORY.name: {
        "key": str,
        "engine": Number,
        "policy_version_min": Number,
        "policy_version_max": Number,
        "prompt_tokens": Count,
        "response_tokens": Count,
        "loss_runs": Count | list[Count],
        "truncated": _Flag,
    },
    names.TURN.name: {
        **_SERVED,
        "batch": Number,
        "rows": _Counts,
        "turn": _Counts,
        "prompt_tokens": _Counts,
        "response_tokens": _Counts,
        "cached_tokens": _Counts,
        "request": _Digest,
    },
    names.TOOL_CALL.name: {
        "batch": Number,
        "row": Number,
        "turn": Number,
        "tool": str,
        "status": Literal[names.TOOL_STATUSES],
    },
    names.VERIFY.name: {
        "batch": Number,
        "function": str,
        "value": float,
        "not_finite": Literal[0, 1],
        "attempts": Number,
        "timeouts": Number,
        "shared": list[Id],
    },
    names.REQUEST.name: {
        **_SERVED,
        "told_by": Literal[names.TELLERS],
        "key": _Digest,
        "request": _Digest,
        "prompt_tokens": Count,
        "response_tokens": Count,
    },
}
"""Spans of which there can be millions, and what their attributes are where they are known."""


_TOGETHER: Final = 1_024
"""Definitions whose rows are decoded together; no journal of ours has a tenth of that."""


class Definition:
    """What rows of one number are."""

    def __init__(self, number: int, kind: str, name: str, attributes: Sequence[str]) -> None:
        """Take the four parts of a ``def`` row; ``event`` is whether it is an event, not a span."""
        self.number = number
        self.event = kind == "event"
        self.name = name
        self.attributes = tuple(attributes)

    @cached_property
    def row_type(self) -> type[msgspec.Struct]:
        """What spans, or events, have, then their attributes as ``a0``, ``a1`` and so on."""
        known = {} if self.event else FINE.get(self.name, {})
        return self._made(
            (f"a{at}", known[attribute] | None if attribute in known else Any)
            for at, attribute in enumerate(self.attributes)
        )

    @cached_property
    def bare(self) -> type[msgspec.Struct]:
        """A row without its attributes: the reading of a hook failed."""
        return self._made(())

    def _made(self, own: Iterable[tuple[str, Any]]) -> type[msgspec.Struct]:
        return msgspec.defstruct(
            "Row", [*(_EVENT if self.event else _SPAN), *own], array_like=True, tag=self.number,
            gc=False, forbid_unknown_fields=True,
        )  # fmt: skip

    def value(self, row: Any, attribute: str) -> Any:
        """An attribute of a row; None where it is unknown."""
        if attribute not in self.attributes:
            return None
        return getattr(row, f"a{self.attributes.index(attribute)}")

    def whole(self, bare: Any) -> Any:
        """A row whose attributes are all unknown."""
        return self.row_type(*msgspec.structs.astuple(bare), *(None for _ in self.attributes))


_definition = lru_cache(maxsize=4_096)(Definition)
"""Processes of a run have the same ones: to make one takes a third of a millisecond."""


@lru_cache(maxsize=1_024)
def _decoder_of(types: tuple[type[msgspec.Struct], ...]) -> msgspec.json.Decoder[Any]:
    """A decoder of rows of ``types``."""
    return msgspec.json.Decoder(Union[types])  # noqa: UP007 - of a tuple


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
        """Take a row that starts with a text, a definition included.

        Raises:
            UNSOUND: It is not such a row.
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
            self._typed = _decoder_of(tuple(known.row_type for known in every))
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
            row = _decode(line)
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
        """Take the row that defines the rows of a number.

        Raises:
            UNSOUND: It is not a definition.
        """
        _, number, kind, name, attributes = msgspec.convert(row, _DEFINITION)
        known = _definition(number, kind, name, tuple(attributes))
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
        msgspec.DecodeError: It is not a row of this definition.
    """
    try:
        return _decoder_of((known.row_type,)).decode(line)
    except msgspec.ValidationError:
        return known.whole(_decoder_of((known.bare,)).decode(line))
