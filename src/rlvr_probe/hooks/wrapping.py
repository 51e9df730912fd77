"""Wrapping functions of a framework so that calls are recorded and nothing else changes.

Wrappers are plain closures: Ray silently drops wrapt proxies of classes pickled by value, and a
closure that carries only a :class:`Hook` travels. The recorder is found through this module at call
time, never through a cell. Each kind of callable keeps its kind: sync, async, generator, async
generator, context manager; signature, result, exception and laziness pass through.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import ContextVar
from typing import Any, cast

from rlvr_probe import guard
from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.clock import monotonic_ns
from rlvr_probe.recorder import CURRENT, OFF, STAGES, Recorder

__all__ = ["Hook", "activate", "recorder", "wrap"]

Function = Callable[..., Any]

_recorder: Recorder | None = None
_probe: Probe | None = None
_running: ContextVar[tuple[tuple[str, int], ...]] = ContextVar("rlvr_probe_running", default=())


@contextlib.contextmanager
def _example() -> Generator[None, None, None]:
    yield


@contextlib.asynccontextmanager
async def _async_example() -> AsyncGenerator[None, None]:
    yield


_CM_CODE = _example.__code__
_ASYNC_CM_CODE = _async_example.__code__


def activate(recorder: Recorder | None, probe: Probe | None = None) -> None:
    """Make every wrapper of this process record to ``recorder``; None makes all of them inert."""
    global _recorder, _probe
    _recorder, _probe = recorder, probe


def recorder() -> Recorder | None:
    """The recorder in use, or None."""
    return _recorder


class Hook:
    """A hook point in effect: what a wrapper's closure holds. Can be pickled with the wrapper.

    Attributes:
        point: What to record.
        method: A call reached again on the same object through ``super()`` passes unrecorded.
        index: Position in the container it was replaced in, for ``Probe.replace``.
        constant: Values of the first attributes, known beforehand and recorded even after an error.
    """

    __slots__ = ("constant", "definition", "index", "method", "point")

    def __init__(
        self,
        point: HookPoint,
        method: bool = False,
        index: int | None = None,
        constant: tuple[Any, ...] = (),
    ) -> None:
        self.point = point
        self.method = method
        self.index = index
        self.constant = constant
        self.definition: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (Hook, (self.point, self.method, self.index, self.constant))


class _Live(Call):
    """A call while it runs, with what only the core needs."""

    __slots__ = ("entered_ns", "nested", "parent", "switch")

    parent: int
    entered_ns: int
    switch: bool
    nested: tuple[tuple[str, int], ...] | None


@guard.fail_open("hooks.enter")
def enter(hook: Hook, args: tuple[Any, ...], kwargs: dict[str, Any], switch: bool) -> _Live | None:
    """Begin a recorded call; None if this one is to pass untouched.

    Args:
        hook: The hook point.
        args: Positional arguments of the user's call.
        kwargs: Keyword arguments of the user's call.
        switch: Make the span the parent of what begins inside (not for bare generators, whose
            body shares its context with the consumer).
    """
    recorder = _recorder
    if recorder is None or recorder.level == OFF:
        return None
    point = hook.point
    name = point.name
    if recorder.level == STAGES and name is not None and not name.coarse:
        return None
    entered = monotonic_ns()
    call = _Live()
    call.probe = _probe  # type: ignore[assignment]
    call.args = args
    call.kwargs = kwargs
    call.result = call.error = None
    call.state = None if hook.index is None else {"index": hook.index}
    call.span = call.end_ns = call.start_ns = 0
    call.entered_ns = entered
    call.nested = None
    if point.when is not None and not guard.attempt(point.when, call, False):
        return None
    nested = _running.get()
    key = (point.target, id(args[0])) if hook.method else None
    if key in nested:
        return None
    call.parent = CURRENT.get()
    call.switch = switch and name is not None
    if name is not None:
        definition = hook.definition
        if definition is None:
            definition = hook.definition = recorder.define(name, point.attributes)
        detail = "" if point.detail is None else guard.attempt(point.detail, call, "")
        step = None if point.step is None else guard.attempt(point.step, call, None)
        call.span = recorder.begin(name, definition, entered, call.parent, detail, step)
    # From here on nothing may fail before ``return``: the context is changed.
    if key is not None:
        call.nested = nested
        _running.set((*nested, key))
    if call.switch:
        CURRENT.set(call.span)
    if point.before is not None:
        guard.attempt(point.before, call, None)
    call.start_ns = monotonic_ns()
    recorder.own_ns += call.start_ns - entered
    return call


@guard.fail_open("hooks.leave")
def leave(hook: Hook, call: _Live, result: Any, error: BaseException | None) -> None:
    """End a recorded call. Runs after the user's function, with its result or exception."""
    call.end_ns = end = monotonic_ns()
    if call.nested is not None:
        _running.set(call.nested)
    if call.switch:
        CURRENT.set(call.parent)
    recorder = _recorder
    if recorder is None:
        return
    point = hook.point
    call.result = result
    call.error = error
    try:
        values = hook.constant
        if error is None and point.read is not None:
            values = (*values, *guard.attempt(point.read, call, ()))
        if call.span and hook.definition is not None:
            kind = None if error is None else type(error).__name__
            recorder.end(call.span, hook.definition, end, kind, values)
    finally:
        if point.after is not None:
            guard.attempt(point.after, call, None)
        # The exception holds the frames that hold this call: a cycle would keep tensors alive.
        call.result = call.error = None
        recorder.own_ns += monotonic_ns() - end


def wrap(original: Any, hook: Hook) -> Any:
    """A callable of the same kind as ``original`` that records its calls.

    Args:
        original: Function, method, partial or any callable object.
        hook: What to record.
    """
    code = getattr(original, "__code__", None)
    if code is _CM_CODE:
        inner = _generator(original.__wrapped__, hook, switch=True)
        return _mark(functools.wraps(original)(contextlib.contextmanager(inner)), original, hook)
    if code is _ASYNC_CM_CODE:
        async_inner = _async_generator(original.__wrapped__, hook, switch=True)
        manager = functools.wraps(original)(contextlib.asynccontextmanager(async_inner))
        return _mark(manager, original, hook)
    if inspect.isasyncgenfunction(original):
        return _async_generator(original, hook, switch=False)
    if inspect.isgeneratorfunction(original):
        return _generator(original, hook, switch=False)
    if inspect.iscoroutinefunction(original):
        return _coroutine(original, hook)
    if inspect.isroutine(original) or isinstance(original, functools.partial):
        return _function(original, hook)
    return _object(original, hook)


def _function(original: Function, hook: Hook) -> Function:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = enter(hook, args, kwargs, True)
        if call is None:
            return original(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            leave(hook, call, None, error)
            raise
        leave(hook, call, result, None)
        return result

    return _mark(wrapper, original, hook)


def _coroutine(original: Function, hook: Hook) -> Function:
    @functools.wraps(original)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = enter(hook, args, kwargs, True)
        if call is None:
            return await original(*args, **kwargs)
        try:
            result = await original(*args, **kwargs)
        except BaseException as error:
            leave(hook, call, None, error)
            raise
        leave(hook, call, result, None)
        return result

    return _mark(wrapper, original, hook)


def _generator(original: Function, hook: Hook, switch: bool) -> Function:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        call = enter(hook, args, kwargs, switch)
        if call is None:
            return (yield from original(*args, **kwargs))
        try:
            result = yield from original(*args, **kwargs)
        except BaseException as error:
            leave(hook, call, None, None if isinstance(error, GeneratorExit) else error)
            raise
        leave(hook, call, result, None)
        return result

    return _mark(wrapper, original, hook)


def _async_generator(original: Function, hook: Hook, switch: bool) -> Function:
    @functools.wraps(original)
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        call = enter(hook, args, kwargs, switch)
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
                leave(hook, call, None, None if isinstance(error, GeneratorExit) else error)
            raise
        if call is not None:
            leave(hook, call, None, None)

    return _mark(wrapper, original, hook)


def _object(original: Any, hook: Hook) -> Any:
    """A stand-in for a callable object; everything but the call goes to the original."""
    waits = inspect.iscoroutinefunction(type(original).__call__)
    call = (_coroutine if waits else _function)(original.__call__, hook)
    stand_in = object.__new__(_AsyncStandIn if waits else _StandIn)
    object.__setattr__(stand_in, "_rlvr_probe_call", call)
    object.__setattr__(stand_in, "_rlvr_probe_original", original)
    return stand_in


_OWN = frozenset({"_rlvr_probe_original", "_rlvr_probe_call", "__call__", "__reduce_ex__"})


class _StandIn:
    __slots__ = ("__weakref__", "_rlvr_probe_call", "_rlvr_probe_original")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return object.__getattribute__(self, "_rlvr_probe_call")(*args, **kwargs)

    def __getattribute__(self, name: str) -> Any:
        if name in _OWN:
            return object.__getattribute__(self, name)
        if name == "__rlvr_probe__":
            return object.__getattribute__(self, "_rlvr_probe_call").__rlvr_probe__
        return getattr(object.__getattribute__(self, "_rlvr_probe_original"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_rlvr_probe_original"), name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A copy in another process is the user's own object.
        return (_same, (object.__getattribute__(self, "_rlvr_probe_original"),))


class _AsyncStandIn(_StandIn):
    __slots__ = ()

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return await object.__getattribute__(self, "_rlvr_probe_call")(*args, **kwargs)


def _same(value: Any) -> Any:
    return value


def _mark(wrapper: Any, original: Function, hook: Hook) -> Function:
    wrapper.__rlvr_probe__ = (hook, original)
    return cast("Function", wrapper)


@guard.fail_open("hooks.after_fork")
def _after_fork() -> None:
    if _recorder is not None:
        _recorder.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
