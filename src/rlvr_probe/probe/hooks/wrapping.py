"""Wrapping functions of a framework so that calls are recorded and nothing else changes.

Wrappers are plain closures: Ray silently drops wrapt proxies of classes pickled by value, and a
closure that carries only a :class:`Hook` travels. The recorder is found at call time, through
:mod:`rlvr_probe.probe.hooks.calls`, never through a cell. All that a wrapper uses of this package
it reaches through :data:`CALLS`, so that it can also be loaded where there is none. Each kind of
callable keeps its kind: sync, async, generator, async generator, context manager; signature,
result, exception and laziness pass through.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import types
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

from rlvr_probe import guard
from rlvr_probe.adapter import HookPoint
from rlvr_probe.probe.hooks.calls import (
    REBUILD,
    Hook,
    Keywords,
    LiveCall,
    enter,
    forget,
    keywords,
    leave,
)
from rlvr_probe.probe.hooks.proxies import AsyncCallableProxy, CallableProxy

__all__ = ["CALLS", "find_hook", "has_hook", "wrap"]

Function = Callable[..., Any]


@contextlib.contextmanager
def _example() -> Generator[None, None, None]:
    yield


@contextlib.asynccontextmanager
async def _async_example() -> AsyncGenerator[None, None]:
    yield


_CM_CODE = _example.__code__
_ASYNC_CM_CODE = _async_example.__code__
_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    functools.partial,
)


_EXHAUSTED = (MemoryError, RecursionError)
"""What calling a function of ours can raise outside of its guard: the call is not recorded then."""


def wrap(original: Any, hook: Hook) -> Any:
    """A callable of the same kind as ``original`` that records its calls.

    Args:
        original: Function, method, partial or any callable object.
        hook: What to record.

    Raises:
        TypeError: No callable can be put in its place.
    """
    wrapped = _wrapped(original, hook)
    _require_callable(wrapped)
    return wrapped


def _require_callable(value: object) -> None:
    if not callable(value):
        raise TypeError(f"{type(value).__name__} is not a wrapper")


def _wrapped(original: Any, hook: Hook) -> Any:
    code = getattr(original, "__code__", None)
    if code is _CM_CODE:
        inner = _generator(original.__wrapped__, hook, switch=True)
        _require_callable(inner)
        return functools.wraps(original)(contextlib.contextmanager(inner))
    if code is _ASYNC_CM_CODE:
        async_inner = _async_generator(original.__wrapped__, hook, switch=True)
        _require_callable(async_inner)
        manager = functools.wraps(original)(contextlib.asynccontextmanager(async_inner))
        return manager
    if inspect.isasyncgenfunction(original):
        return _async_generator(original, hook, switch=False)
    if inspect.isgeneratorfunction(original):
        return _generator(original, hook, switch=False)
    if inspect.iscoroutinefunction(original):
        return _coroutine(original, hook)
    if isinstance(original, types.FunctionType) and inspect.iscoroutinefunction(
        getattr(original, "__wrapped__", None)
    ):
        return _either(original, hook)
    if isinstance(original, _FUNCTIONS):
        return _function(original, hook)
    return _object(original, hook)


def _function(original: Function, hook: Hook) -> Function:
    changes, makes = hook.point.arguments is not None, hook.point.returned is not None

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            call = CALLS.enter(hook, args, kwargs, True)
        except _EXHAUSTED:
            call = None
        if call is None:
            return original(*args, **kwargs)
        try:
            try:
                if changes:
                    given = CALLS.keywords(hook, call, original)
                    kwargs = given if type(given) is CALLS.Keywords else kwargs
                result = original(*args, **kwargs)
            except BaseException as error:
                CALLS.leave(hook, call, None, error)
                raise
            CALLS.leave(hook, call, result, None)
            if makes:
                made = CALLS.made(hook, call, result)
                result = made.function if type(made) is CALLS.Made else result
        except BaseException:
            CALLS.forget(call)
            raise
        return result

    return wrapper


def _coroutine(original: Function, hook: Hook) -> Function:
    changes, makes = hook.point.arguments is not None, hook.point.returned is not None

    @functools.wraps(original)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            call = CALLS.enter(hook, args, kwargs, True)
        except _EXHAUSTED:
            call = None
        if call is None:
            return await original(*args, **kwargs)
        try:
            try:
                if changes:
                    given = CALLS.keywords(hook, call, original)
                    kwargs = given if type(given) is CALLS.Keywords else kwargs
                result = await original(*args, **kwargs)
            except BaseException as error:
                CALLS.leave(hook, call, None, error)
                raise
            CALLS.leave(hook, call, result, None)
            if makes:
                made = CALLS.made(hook, call, result)
                result = made.function if type(made) is CALLS.Made else result
        except BaseException:
            CALLS.forget(call)
            raise
        return result

    return wrapper


def _either(original: Function, hook: Hook) -> Function:
    """A function that gives a coroutine to coroutines, and waits for its end elsewhere.

    It looks at the frame that calls it, so a coroutine must find one of a coroutine there. What it
    then returns is a coroutine, or it is left alone.
    """
    called = _function(original, hook)
    _require_callable(called)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not sys._getframe(1).f_code.co_flags & inspect.CO_COROUTINE:
            return called(*args, **kwargs)

        async def caller() -> Any:
            return original(*args, **kwargs)

        result = None
        try:
            caller().send(None)  # awaits nothing, so it ends
        except StopIteration as end:
            result = end.value
        if not inspect.iscoroutine(result):
            return result
        recorded = CALLS.recorded(result, hook, args, kwargs)
        return recorded if inspect.iscoroutine(recorded) else result

    return wrapper


@guard.fail_open("hooks.recorded")
def _recorded(result: Any, hook: Hook, args: Any, kwargs: Any) -> Any:
    """A coroutine that awaits ``result`` and records that as a call with these arguments."""

    async def awaited(*_: Any, **__: Any) -> Any:
        return await result

    return _coroutine(awaited, hook)(*args, **kwargs)


class _Made:
    """Holds a wrapper, so that nothing else passes for one."""

    __slots__ = ("function",)

    def __init__(self, function: Function) -> None:
        self.function = function


@guard.fail_open("hooks.made")
def _made(hook: Hook, call: LiveCall, result: Any) -> _Made | None:
    """A wrapper of the callable that a call returned; None to leave it as it is."""
    point = hook.point.returned
    if point is None or result is None or has_hook(result, point):
        return None
    binds = hasattr(type(result), "__get__") and not isinstance(result, _FUNCTIONS)
    if not callable(result) or isinstance(result, type) or binds:
        guard.misfit(hook.place)
        return None
    state = call.state
    if not _plain(state):
        guard.misfit(hook.place)
        state = None
    wrapper = wrap(result, Hook(point, begin={"made": state}))
    _require_callable(wrapper)
    return _Made(wrapper)


_THERE = """
try:
    from rlvr_probe.probe.hooks.wrapping import CALLS as found
except Exception:
    from types import SimpleNamespace
    found = SimpleNamespace(enter=lambda *_: None, recorded=lambda coroutine, *_: coroutine)
"""


class _Calls:
    """What wrappers use of this package. Loaded by a Python without it, it records nothing."""

    __slots__ = ()

    enter = staticmethod(enter)
    leave = staticmethod(leave)
    forget = staticmethod(forget)
    keywords = staticmethod(keywords)
    recorded = staticmethod(_recorded)
    made = staticmethod(_made)
    Keywords = Keywords
    Made = _Made

    # Nothing that could fail a user's pickling.
    def __reduce__(self) -> tuple[Any, ...]:
        return (eval, (REBUILD, {"source": _THERE, "values": {}}))


CALLS = _Calls()


def _plain(value: Any, depth: int = 4) -> bool:
    """Whether any process can read ``value`` from a pickle."""
    if isinstance(value, (tuple, list, dict)) and depth:
        items = [*value, *value.values()] if isinstance(value, dict) else value
        return type(value) in (tuple, list, dict) and all(_plain(item, depth - 1) for item in items)
    return value is None or type(value) in (str, int, float, bool)


def _generator(original: Function, hook: Hook, switch: bool) -> Function:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        try:
            call = CALLS.enter(hook, args, kwargs, switch, False)
        except _EXHAUSTED:
            call = None
        if call is None:
            return (yield from original(*args, **kwargs))
        try:
            try:
                result = yield from original(*args, **kwargs)
            except BaseException as error:
                CALLS.leave(hook, call, None, None if isinstance(error, GeneratorExit) else error)
                raise
            CALLS.leave(hook, call, result, None)
        except BaseException:
            CALLS.forget(call)
            raise
        return result

    return wrapper


def _async_generator(original: Function, hook: Hook, switch: bool) -> Function:
    @functools.wraps(original)
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        try:
            call = CALLS.enter(hook, args, kwargs, switch, False)
        except _EXHAUSTED:
            call = None
        stream = original(*args, **kwargs)
        try:
            step = stream.__anext__()
            while True:
                try:
                    item = await step
                except StopAsyncIteration:
                    break
                try:
                    sent = yield item
                except GeneratorExit:
                    await stream.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - handed to the user's generator
                    step = stream.athrow(error)
                else:
                    step = stream.asend(sent)
        except BaseException as error:
            if call is not None:
                try:
                    CALLS.leave(
                        hook, call, None, None if isinstance(error, GeneratorExit) else error
                    )
                except BaseException:
                    CALLS.forget(call)
                    raise
            raise
        if call is not None:
            try:
                CALLS.leave(hook, call, None, None)
            except BaseException:
                CALLS.forget(call)
                raise

    return wrapper


def _object(original: Any, hook: Hook) -> Any:
    """A proxy of a callable object; everything but the call goes to the original."""
    waits = inspect.iscoroutinefunction(type(original).__call__)
    call = (_coroutine if waits else _function)(original.__call__, hook)
    _require_callable(call)
    proxy = object.__new__(AsyncCallableProxy if waits else CallableProxy)
    object.__setattr__(proxy, "_rlvr_probe_call", call)
    object.__setattr__(proxy, "_rlvr_probe_original", original)
    return proxy


def find_hook(function: Any) -> tuple[Hook, Any] | None:
    """The hook of one of our wrappers and what it wraps; None for anything else.

    Looks into the closure: an attribute would be copied by ``functools.wraps`` onto functions of
    others, and a wrapper that came by value from another process has its closure, too.
    """
    if type(function) in (CallableProxy, AsyncCallableProxy):
        function = object.__getattribute__(function, "_rlvr_probe_call")
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    cells = dict(zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=False))
    if code in (_CM_CODE, _ASYNC_CM_CODE) and "func" in cells:
        return find_hook(cells["func"].cell_contents)
    if "hook" in cells and "original" in cells:
        hook = cells["hook"].cell_contents
        if type(hook) is Hook:
            return hook, cells["original"].cell_contents
    return None


def has_hook(function: Any, point: HookPoint) -> bool:
    """Whether ``function`` is, or wraps, a wrapper of this very hook point."""
    found = find_hook(function)
    while found is not None:
        hook, function = found
        if hook.point == point:
            return True
        found = find_hook(function)
    return False
