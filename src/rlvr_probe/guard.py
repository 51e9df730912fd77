"""The one place that catches errors of the probe inside a user's process.

Everything rlvr-probe runs there goes through :func:`fail_open`: an error is counted by place and
type, logged once per place without its message (it may hold user data), and the user's run goes on.
The user's own callable is never inside such a block.
"""

from __future__ import annotations

import functools
import logging
import signal
from collections.abc import Callable
from typing import Any, TypeVar, cast

__all__ = ["attempt", "fail_open", "faults", "foreign", "note", "place", "reset", "set_strict"]

_F = TypeVar("_F", bound=Callable[..., Any])
_log = logging.getLogger("rlvr_probe")
_counts: dict[tuple[str, str], int] = {}
_strict = False


def set_strict(strict: bool) -> None:
    """Raise errors of the probe instead of swallowing them: for tests of the probe only."""
    global _strict
    _strict = strict


def faults() -> dict[tuple[str, str], int]:
    """How often each (place, exception type name) failed in this process."""
    return dict(_counts)


def reset() -> None:
    """Forget every count: a forked child starts its own."""
    _counts.clear()


def note(where: str, error: BaseException) -> None:
    """Count an error that was kept from the user; log the first one of a place."""
    try:
        kind = type(error).__name__
        key = (where, kind)
        seen = _counts.get(key, 0)
        _counts[key] = seen + 1
        if not seen:
            _log.warning("%s failed with %s; the run goes on, this is counted", where, kind)
    except Exception:  # noqa: BLE001, S110 - out of memory or stack: counting may fail as well
        pass


def foreign(error: BaseException) -> bool:
    """Whether a signal handler of the user raised it while our line happened to run.

    A verifier's alarm is meant for the verifier's caller: it must get through.
    """
    handlers = {
        getattr(getattr(handler, "__func__", handler), "__code__", None)
        for handler in map(signal.getsignal, signal.valid_signals())
    }
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def attempt(function: Callable[[Any], Any], argument: Any, default: Any) -> Any:
    """``function(argument)``, or ``default`` after an error, counted under the function's name.

    For the functions of adapters, whose place is where they are defined.
    """
    try:
        return function(argument)
    except Exception as error:
        if foreign(error):
            raise
        note(place(function), error)
        if _strict:
            raise
        return default


def place(function: Callable[..., Any]) -> str:
    """Name under which errors of ``function`` are counted; of a partial, what it calls."""
    function = getattr(function, "func", function)
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', '?')}"


def fail_open(where: str, default: Any = None) -> Callable[[_F], _F]:
    """Make a function return ``default`` instead of raising.

    Args:
        where: Where it is, for the count: ``hooks.enter``.
        default: What the caller gets after an error.
    """

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if foreign(error):
                    raise
                note(where, error)
                if _strict:
                    raise
                return default

        return cast("_F", guarded)

    return decorate
