"""Telling of a request: what both sides do alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from typing import Any

from rlvr_probe.adapter import Call
from rlvr_probe.model import names

__all__ = ["finish_of", "keep_to", "known", "seconds", "stash"]

_KEPT = 4_096
"""Requests that are remembered before any is looked for that has gone another way."""


def stash(call: Call, name: str) -> dict[str, Any]:
    """What is remembered of the requests of the object whose method is called, by their id."""
    found: dict[str, Any] = call.probe.state(call.args[0]).setdefault(name, {})
    return found


def keep_to(remembered: MutableMapping[str, Any], living: object) -> None:
    """Forget the requests that are not among the ``living``: not every end of one is seen."""
    if len(remembered) <= _KEPT:
        return
    if not isinstance(living, Mapping):
        remembered.clear()
    elif len(remembered) > 2 * len(living):
        for gone in [key for key in remembered if key not in living]:
            del remembered[gone]


def finish_of(reason: object) -> str | None:
    """Why a request ended, by vLLM's member of an enum; None if it is none that is known."""
    told = str(reason)
    return told if told in names.FINISHES else None


def seconds(begin: object, end: object) -> float | None:
    """Time between two readings of one clock, s; None if one is missing, which vLLM writes as 0."""
    if not isinstance(begin, float) or not isinstance(end, float) or begin <= 0:
        return None
    return end - begin if begin <= end < math.inf else None


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``values`` that are known."""
    return {name: value for name, value in values.items() if value is not None}
