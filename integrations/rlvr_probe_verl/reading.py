"""Reading names and counts out of verl's values: pure functions that never touch an accelerator.

A value of an unexpected shape is unknown: None, never 0 and never an exception. Nothing here
returns text, a token id or anything derived from one but its count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from rlvr_probe.adapter import Call

__all__ = ["argument", "attribute", "digest", "error_of", "number", "option", "size", "word"]


def attribute(owner: object, *path: str) -> Any:
    """``owner.a.b`` for the path ``a, b``; None where one of them is missing."""
    for name in path:
        owner = getattr(owner, name, None)
    return owner


def option(config: Any, path: str) -> Any:
    """``config.a.b`` for the path ``"a.b"``, of a mapping or of OmegaConf; None if missing."""
    for name in path.split("."):
        get = getattr(config, "get", None)
        config = get(name, None) if callable(get) else getattr(config, name, None)
    return config


def number(value: object) -> int | None:
    """An integer, or None if it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def word(value: object) -> str | None:
    """A name: a string, or that of a member of an enum; None if it is neither."""
    value = getattr(value, "value", value)
    return value if isinstance(value, str) and value else None


def argument(call: Call, index: int, name: str) -> Any:
    """An argument of a call by position (self is 0) or name; None if it was not given."""
    return call.args[index] if len(call.args) > index else call.kwargs.get(name)


def error_of(call: Call) -> str | None:
    """Type of the exception that ended a call; None if none did."""
    return None if call.error is None else type(call.error).__name__


def digest(uid: object) -> str:
    """What stands for a uid: the same in every process, and nothing that can be read."""
    return hashlib.blake2b(str(uid).encode(), digest_size=8).hexdigest()


_BATCHES = frozenset({"DataProto", "TensorDict", "KVBatchMeta", "BatchMeta"})


def size(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
    """Rows of the first batch among the arguments of a call; None if there is none."""
    for value in (*args, *kwargs.values()):
        if any(kind.__name__ in _BATCHES for kind in type(value).__mro__):
            # Of a KVBatchMeta, which holds keys and no rows, neither `len` nor `size` is certain.
            keys = getattr(value, "keys", None)
            return len(keys) if isinstance(keys, list) else len(value)
    return None
