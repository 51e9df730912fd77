"""Values of a recording as they may stand in a page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

__all__ = ["clean", "cleaned", "drawn", "embedded"]

_LONGEST: Final = 20_000
"""Characters of one text; the longest that is meant is a query."""

_UNSEEN: Final = "\ufffd"


def clean(text: object) -> str:
    """``text`` without what nobody sees: control characters, marks that turn text around."""
    shown = "".join(
        one if one.isprintable() or one == "\n" else _UNSEEN for one in str(text)[: _LONGEST + 1]
    )
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def cleaned(value: Any) -> Any:
    """``value`` as JSON may hold it, every text in it clean.

    Raises:
        TypeError: It is nothing that JSON has.
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, (float, Decimal)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(key): cleaned(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(one) for one in value]
    raise TypeError(f"{value!r} cannot be in a page; expected what JSON has")


def drawn(value: Any) -> Any:
    """A number of a chart: six digits are more than anybody sees."""
    value = cleaned(value)
    if isinstance(value, list):
        return [drawn(one) for one in value]
    if not isinstance(value, float):
        return value
    value = float(f"{value:.6g}")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def embedded(text: str) -> str:
    """JSON as it may stand in an element of a page: nothing in it ends the element."""
    for one in "<>&\u2028\u2029":
        text = text.replace(one, f"\\u{ord(one):04x}")
    return text
