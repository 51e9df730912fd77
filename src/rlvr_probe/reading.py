"""Reading what a framework passes around: pure functions that never touch an accelerator.

For integrations. A value of an unexpected shape is unknown: None, never 0 and never an exception.
Nothing here returns text of a prompt or a response, a token id, or anything made of one but its
count.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from rlvr_probe.adapter import Call

__all__ = [
    "argument",
    "attribute",
    "digest",
    "error_of",
    "foreign_ids",
    "mask_runs",
    "number",
    "on_host",
    "option",
    "reward",
    "rewards",
    "scalar",
    "size",
    "tool_status",
    "word",
]

_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def attribute(owner: object, *path: str) -> Any:
    """``owner.a.b`` for the path ``a, b``; None where one of them is missing."""
    for name in path:
        owner = getattr(owner, name, None)
    return owner


def number(owner: object, *path: str) -> int | None:
    """The integer at ``path``, ``owner`` itself without one; None if there is none."""
    value = attribute(owner, *path)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def word(value: object) -> str | None:
    """A name: a string, or that of a member of an enum; None if it is neither."""
    value = getattr(value, "value", value)
    return value if isinstance(value, str) and value else None


def option(config: Any, *paths: str) -> Any:
    """``config.a.b`` for the path ``"a.b"``, of a mapping, of OmegaConf or of an object.

    Args:
        config: Settings.
        paths: Of several, the first that is set counts: names change with releases.
    """
    for path in paths:
        value = config
        for name in path.split("."):
            get = getattr(value, "get", None)
            value = get(name, None) if callable(get) else getattr(value, name, None)
        if value is not None:
            return value
    return None


def size(value: object) -> int | None:
    """Number of entries of a list or a tuple; None for anything else."""
    return len(value) if isinstance(value, (list, tuple)) else None


def on_host(value: object) -> bool:
    """Whether a value lies in host memory, as what has no device does."""
    device = getattr(value, "device", None)  # a str with NumPy 2, an object with torch
    return getattr(device, "type", device) in (None, "cpu")


def scalar(value: Any) -> float | None:
    """A number in host memory as a plain float, a tensor of one value included; else None."""
    if isinstance(value, bool) or not hasattr(value, "__float__") or not on_host(value):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # several values, or too large
        return None


def digest(name: object) -> str:
    """What stands for a name: 16 hex digits, the same in every process.

    A reader who guesses the name can verify it; without the name the digest is unreadable.
    """
    return hashlib.blake2b(str(name).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def reward(value: float | None) -> tuple[float | None, int | None]:
    """The attributes ``value`` and ``not_finite`` of a verification that gave ``value``."""
    return (value, None) if value is None or isfinite(value) else (None, 1)


def rewards(values: Sequence[float | None] | None) -> dict[str, Any]:
    """The attributes of an event ``rewards`` that say what a function gave.

    Args:
        values: By row, None where it gave none; None if it is not known.
    """
    if values is None:
        return {"values": None, "not_finite": None}
    odd = [row for row, value in enumerate(values) if value is not None and not isfinite(value)]
    known = [None if value is None or not isfinite(value) else value for value in values]
    return {"values": known if odd else values, "not_finite": odd or None}


def argument(call: Call, index: int, name: str) -> Any:
    """An argument of a call by position (self is 0) or name; None if it was not given."""
    return call.args[index] if len(call.args) > index else call.kwargs.get(name)


def error_of(call: Call) -> str | None:
    """Type of the exception that ended a call; None if none did."""
    return None if call.error is None else type(call.error).__name__


def tool_status(error: str | None) -> str:
    """What ``status`` of a tool call is by how it ended: ok, cancelled or error.

    Args:
        error: Type of the exception that ended it, None if none did.
    """
    if error is None:
        return "ok"
    return "cancelled" if error == "CancelledError" else "error"


def mask_runs(mask: object, length: int | None) -> list[int] | None:
    """Runs of a mask in turn, those of ones first; None if it is not a mask of ``length`` tokens.

    Args:
        mask: A list: 1 for a token of the model, 0 for one of a tool or an environment.
        length: How many tokens it must have; None if that is not known.
    """
    if length is None or not isinstance(mask, (list, tuple)) or len(mask) != length:
        return None
    try:
        data = bytes(mask)
    except (TypeError, ValueError):
        return None
    if data.count(0) + data.count(1) != length:
        return None
    runs, at, inside = list[int](), 0, 1
    while at < length:
        end = data.find(1 - inside, at)
        end = length if end < 0 else end
        runs.append(end - at)
        at, inside = end, 1 - inside
    return runs


def foreign_ids(modules: Mapping[str, Any]) -> dict[str, str] | None:
    """Ids of the W&B and MLflow runs that are active, for ``ids`` of a session; None for none.

    Args:
        modules: ``sys.modules``: asked are only those that are already loaded.
    """
    found = {"wandb_run_id": attribute(modules.get("wandb"), "run", "id")}
    # `mlflow` itself loads its parts lazily; where this one is loaded, asking starts nothing.
    tracking = modules.get("mlflow.tracking.fluent")
    if tracking is not None:
        found["mlflow_run_id"] = attribute(tracking.active_run(), "info", "run_id")
    ids = {
        name: value
        for name, value in found.items()
        if isinstance(value, str) and _ID.fullmatch(value)
    }
    return ids or None
