"""Proxies of users' callable objects."""

from __future__ import annotations

import operator
from typing import Any

__all__ = ["AsyncCallableProxy", "CallableProxy"]

_OWN = frozenset({"_rlvr_probe_original", "_rlvr_probe_call", "__call__", "__reduce_ex__"})


class CallableProxy:
    """Its call is recorded; everything else goes to the user's object."""

    __slots__ = ("__weakref__", "_rlvr_probe_call", "_rlvr_probe_original")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the user's object."""
        return object.__getattribute__(self, "_rlvr_probe_call")(*args, **kwargs)

    def __getattribute__(self, name: str) -> Any:
        if name in _OWN:
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_rlvr_probe_original"), name)

    def __delattr__(self, name: str) -> None:
        delattr(object.__getattribute__(self, "_rlvr_probe_original"), name)

    def __eq__(self, other: object) -> bool:
        return bool(object.__getattribute__(self, "_rlvr_probe_original") == other)

    def __hash__(self) -> int:
        return hash(object.__getattribute__(self, "_rlvr_probe_original"))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_rlvr_probe_original"), name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A copy in another process is the user's own object.
        return (operator.getitem, ((object.__getattribute__(self, "_rlvr_probe_original"),), 0))


class AsyncCallableProxy(CallableProxy):
    """One whose call is a coroutine."""

    __slots__ = ()

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the user's object."""
        return await object.__getattribute__(self, "_rlvr_probe_call")(*args, **kwargs)
