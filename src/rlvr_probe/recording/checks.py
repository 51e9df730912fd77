"""Values of a row, checked: what is no number, no text or no column of them is no row of ours."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

__all__ = [
    "BadRow",
    "checked_hex",
    "checked_id",
    "checked_text",
    "column_of",
    "loss_runs_of",
    "name_list",
    "numbers_of",
]

_ID_MAX: Final = 1 << 62
_HEX: Final = frozenset("0123456789abcdef")


class BadRow(ValueError):
    """A row that is JSON, but not a row of the schema."""


def loss_runs_of(given: object, response_tokens: int | None) -> array[int]:
    """Tokens of one response in and out of the loss in turn.

    Raises:
        BadRow, or what a column of other values raises: It breaks the schema.
    """
    runs = column_of(given)
    if response_tokens is None or sum(runs) != response_tokens:
        raise BadRow("loss_runs")
    return runs


def name_list(
    given: object, count: int | None = None, *, known: bool = True
) -> Sequence[str] | None:
    """A list of names; ``count`` of them, of which some may be unknown where not ``known``."""
    if given is None:
        return None
    if type(given) is not list or (count is not None and len(given) != count):
        raise BadRow("names")
    if not set(map(type, given)) <= ({str} if known else {str, type(None)}):
        raise BadRow("names")
    return given


def column_of(values: object) -> array[int]:
    """A column of numbers from 0; of one, if it is given as a number.

    Raises:
        BadRow, or what a column of other values raises: It breaks the schema.
    """
    if type(values) is int:
        return array("I", [values])
    if type(values) is not list:
        raise BadRow("column")
    return array("I", values)


def numbers_of(values: object) -> Sequence[float | None]:
    """A column of measured values, null where they are unknown.

    Raises:
        BadRow, or what a column of other values raises: It breaks the schema.
    """
    if type(values) is not list:
        raise BadRow("column")
    if None in values:
        for value in values:
            if value is not None and type(value) not in (int, float):
                raise BadRow("column")
        return tuple(values)
    return array("d", values)


def checked_id(value: object, least: int = 1) -> int:
    """``value`` if it is a number from ``least``.

    Raises:
        BadRow: It is not.
    """
    if type(value) is not int or not least <= value < _ID_MAX:
        raise BadRow("number")
    return value


def checked_hex(value: object, digits: int) -> str:
    """``value`` if it is a number of so many hex digits that is not 0.

    Raises:
        BadRow: It is not.
    """
    if type(value) is not str or len(value) != digits or not _HEX.issuperset(value):
        raise BadRow("hex")
    if not int(value, 16):
        raise BadRow("hex")
    return value


def checked_text(value: object) -> str:
    """``value`` if it is a text.

    Raises:
        BadRow: It is not.
    """
    if type(value) is not str:
        raise BadRow("text")
    return value
