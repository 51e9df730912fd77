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

__all__ = [
    "attempt",
    "fail_open",
    "faults",
    "foreign",
    "misfit",
    "note",
    "place",
    "reset",
    "set_strict",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_log = logging.getLogger("rlvr_probe")
_counts: dict[tuple[str, str], int] = {}
_uncounted = 0
"""Errors that could not even be looked at: out of stack, or of memory."""

_strict = False


def set_strict(strict: bool) -> None:
    """Raise errors of the probe instead of swallowing them: for tests of the probe only."""
    global _strict
    _strict = strict


def faults() -> dict[tuple[str, str], int]:
    """How often each (place, exception type name) failed in this process."""
    found = dict(_counts)
    if _uncounted:
        found["guard", "Uncounted"] = _uncounted
    return found


def reset() -> None:
    """Forget every count: a forked child starts its own."""
    global _uncounted
    _counts.clear()
    _uncounted = 0


def note(where: str, error: BaseException, *, log: bool = True) -> None:
    """Count an error that was kept from the user; log the first one of a place, or say nothing."""
    kind = type(error).__name__
    key = (where, kind)
    seen = _counts.get(key, 0)
    _counts[key] = seen + 1
    if seen or not log:
        return
    try:
        _log.warning("%s failed with %s; the run goes on, this is counted", where, kind)
    except Exception:  # noqa: BLE001, S110 - a handler of the user's, or no stack left to log with
        pass


class Misfit(TypeError):
    """What a function returned is not what its contract allows."""


def misfit(function: Callable[..., Any] | str) -> None:
    """Count that ``function`` returned what its contract does not allow: its value is absent.

    A name stands for a function of the framework.
    """
    global _uncounted
    try:
        note(function if isinstance(function, str) else place(function), Misfit())
    except Exception:  # noqa: BLE001 - as in attempt
        _uncounted += 1
    if _strict:
        raise Misfit(function if isinstance(function, str) else place(function))


def foreign(error: BaseException) -> bool:
    """Whether a signal handler of the user raised it while our line happened to run.

    A verifier's alarm is meant for the verifier's caller: it must get through.
    """
    handlers = {
        getattr(form, "__code__", None)
        for handler in map(signal.getsignal, signal.valid_signals())
        for form in (
            handler,
            getattr(handler, "__func__", None),  # a method
            getattr(handler, "func", None),  # a partial
            getattr(type(handler), "__call__", None),  # noqa: B004 - an object
        )
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
    global _uncounted
    try:
        return function(argument)
    except Exception as error:
        try:
            passes = _passes(None, function, error)
        except Exception:  # noqa: BLE001 - no stack or memory is left to look into it with
            _uncounted += 1
            passes = False
        if passes is True:
            raise
        return default


def place(function: Callable[..., Any]) -> str:
    """Name under which errors of ``function`` are counted; of a partial, what it calls."""
    function = getattr(function, "func", function)
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', '?')}"


def fail_open(
    where: str, default: Any = None, contract: tuple[type[Exception], ...] = ()
) -> Callable[[_F], _F]:
    """Make a function return ``default`` instead of raising.

    Args:
        where: Where it is, for the count: ``hooks.enter``.
        default: What the caller gets after an error.
        contract: Errors that the function is documented to raise: these do reach the caller.
    """

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            global _uncounted
            try:
                return function(*args, **kwargs)
            except contract:
                raise
            except Exception as error:
                try:
                    passes = _passes(where, function, error)
                except Exception:  # noqa: BLE001 - as above
                    _uncounted += 1
                    passes = False
                if passes is True:
                    raise
                return default

        return cast("_F", guarded)

    return decorate


def _passes(where: str | None, function: Callable[..., Any], error: Exception) -> bool:
    """Whether an error is to reach the caller; counted if not."""
    if foreign(error) is True:
        return True
    note(place(function) if where is None else where, error)
    return _strict
