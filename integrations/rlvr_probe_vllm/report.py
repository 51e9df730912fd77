"""What the client and the scheduler record of a request in the same way."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from typing import Any

from rlvr_probe.adapter import Call
from rlvr_probe.model import names

__all__ = ["finish_of", "keep_to", "seconds", "stash"]

_KEPT = 4_096
"""Requests that are remembered before those are looked for that ended unseen."""


def stash(call: Call, name: str) -> dict[str, Any]:
    """What is remembered of the requests of the object whose method is called, by their id."""
    requests: dict[str, Any] = call.probe.state(call.args[0]).setdefault(name, {})
    return requests


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
    """Why a request ended, by vLLM's member of an enum; None if that is unknown."""
    finish = str(reason)
    return finish if finish in names.FINISHES else None


def seconds(start: object, end: object) -> float | None:
    """Time between two readings of one clock, s; None if one is missing, which vLLM writes as 0."""
    if not isinstance(start, float) or not isinstance(end, float) or start <= 0:
        return None
    return end - start if start <= end < math.inf else None
