"""What a replay was asked to repeat, kept beside the recording that it makes.

It is the input of a replay alone; what came of it stands in the journals.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Final

__all__ = ["NOTE", "ReplayNote", "decode_note", "encode_note", "scaled"]

NOTE: Final = "replay.json"
"""Its name in a run folder."""

_SCHEMA: Final = 1
_KINDS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "source": str, "steps": list, "cap": int, "scale": (str, type(None)), "naive": bool,
    "slept": list,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReplayNote:
    """The plan of a replay, without its lengths.

    Attributes:
        source: Name of the run folder or workload directory.
        steps: Trainer step that each batch of the plan was recorded in, in the order of the replay.
        cap: Longest response allowed, tokens.
        scale: What all lengths were multiplied by, as a fraction; None if by nothing.
        naive: Whether lengths, waits and rewards were the means.
        slept: What slept as long as recorded: ``reward``, ``tool_call``.
    """

    source: str
    steps: tuple[int, ...]
    cap: int
    scale: str | None = None
    naive: bool = False
    slept: tuple[str, ...] = ()


def scaled(tokens: int, factor: Fraction) -> int:
    """A length times ``factor``, rounded to even, and at least 1 token."""
    return max(1, round(tokens * factor))


def encode_note(note: ReplayNote) -> bytes:
    """The content of the file."""
    return json.dumps({"schema": _SCHEMA, **asdict(note)}).encode() + b"\n"


def decode_note(content: bytes) -> ReplayNote:
    """The note in a file.

    Raises:
        ValueError: It is none, or of a later schema.
    """
    fields: Any = json.loads(content)
    if not isinstance(fields, dict) or fields.pop("schema", None) != _SCHEMA:
        raise ValueError(f"expected an object of schema {_SCHEMA}")
    if fields.keys() != _KINDS.keys() or not all(
        isinstance(fields[name], kind) for name, kind in _KINDS.items()
    ):
        raise ValueError(f"expected {', '.join(_KINDS)}")
    if not all(type(step) is int for step in fields["steps"]):
        raise ValueError("expected numbers of steps")
    Fraction(fields["scale"] or 1)
    fields |= {name: tuple(fields[name]) for name in ("steps", "slept")}
    return ReplayNote(**fields)
