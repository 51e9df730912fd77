"""Types of a journal's rows, made of its own definitions, by which whole chunks are decoded in C.

Numbers, texts and lists of fine rows are checked as they are decoded; attributes of all other rows
are taken as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Any, Final, Literal, Union

import msgspec
from msgspec import Meta

from rlvr_probe.model import names

__all__ = [
    "COUNT_MAX",
    "DEFINITION",
    "FINE",
    "UNSOUND",
    "Count",
    "Definition",
    "Id",
    "Number",
    "Time",
    "decode_row",
    "decoder_of",
    "definition",
]

COUNT_MAX: Final = (1 << 32) - 1
"""Tokens of one trajectory."""

UNSOUND: Final = (
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    RecursionError,  # lists in lists, some thousand deep
    msgspec.DecodeError,  # no ValueError before 0.21
)
"""What a line raises that is none of ours."""

decode_row: Final = msgspec.json.Decoder().decode
"""Decodes one line without a type."""

Time = Annotated[int, Meta(gt=-(1 << 62), lt=1 << 62)]
Number = Annotated[int, Meta(ge=0, lt=1 << 62)]
Id = Annotated[int, Meta(ge=1, lt=1 << 62)]
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
_Seconds = Annotated[float, Meta(ge=0)]
_Digest = Annotated[str, Meta(min_length=16, max_length=16)]
_Counts = Number | list[Count]
_Flag = Literal[0, 1] | bool

DEFINITION = tuple[
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


class Definition:
    """What rows of one number are."""

    def __init__(self, number: int, kind: str, name: str, attributes: Sequence[str]) -> None:
        """Take the four parts of a ``def`` row; ``event`` is whether it is no span."""
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


definition = lru_cache(maxsize=4_096)(Definition)
"""Processes of a run have the same ones: to make one takes a third of a millisecond."""


@lru_cache(maxsize=1_024)
def decoder_of(types: tuple[type[msgspec.Struct], ...]) -> msgspec.json.Decoder[Any]:
    """A decoder of rows of ``types``."""
    return msgspec.json.Decoder(Union[types])  # noqa: UP007 - of a tuple
