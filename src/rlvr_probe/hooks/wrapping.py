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
import time
import types
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import ContextVar
from typing import Any

from rlvr_probe import guard
from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.clock import monotonic_ns
from rlvr_probe.recorder import CURRENT, OFF, STAGES, Recorder

__all__ = ["Hook", "activate", "find_hook", "recorder", "wrap"]

Function = Callable[..., Any]

_SAMPLE = 31
"""One call in so many is timed, by CPU time: waiting for the interpreter lock is not our own."""

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

    __slots__ = ("key", "parent", "recorder", "same_context", "switch")

    recorder: Recorder
    parent: int
    switch: bool
    same_context: bool
    key: tuple[str, int] | None


@guard.fail_open("hooks.enter")
def enter(
    hook: Hook,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    switch: bool,
    same_context: bool = True,
) -> _Live | None:
    """Begin a recorded call; None if this one is to pass untouched.

    Args:
        hook: The hook point.
        args: Positional arguments of the user's call.
        kwargs: Keyword arguments of the user's call.
        switch: Make the span the parent of what begins inside (not for bare generators, whose
            body shares its context with the consumer).
        same_context: The end comes in the same context as the begin.
    """
    recorder = _recorder
    if recorder is None or recorder.level == OFF:
        return None
    point = hook.point
    name = point.name
    if recorder.level == STAGES and name is not None and not name.coarse:
        return None
    sampled = recorder.tick() % _SAMPLE == 0
    cpu = time.thread_time_ns() if sampled else 0
    entered = monotonic_ns()
    call = _Live()
    call.recorder = recorder
    call.same_context = same_context
    call.key = None
    call.probe = _probe  # type: ignore[assignment]
    call.args = args
    call.kwargs = kwargs
    call.result = call.error = None
    call.state = None if hook.index is None else {"index": hook.index}
    call.span = call.end_ns = call.start_ns = 0
    if point.when is not None and not guard.attempt(point.when, call, False):
        return None
    # A generator shares its context with its consumer: calls of it nest in no order.
    key = (point.target, id(args[0])) if hook.method and args and switch else None
    if key is not None and key in _running.get():
        return None
    call.parent = CURRENT.get()
    call.switch = switch and name is not None
    try:
        if name is not None:
            if hook.definition is None:
                hook.definition = recorder.define(name, point.attributes)
            detail = "" if point.detail is None else guard.attempt(point.detail, call, "")
            step = None if point.step is None else guard.attempt(point.step, call, None)
            call.span = recorder.begin(
                name,
                hook.definition,
                entered,
                call.parent,
                detail if isinstance(detail, str) else "",
                step if type(step) is int and 0 <= step < 1 << 63 else None,
            )
        if key is not None:
            call.key = key
            _running.set((*_running.get(), key))
        if call.switch:
            CURRENT.set(call.span)
        if point.before is not None:
            guard.attempt(point.before, call, None)
        call.start_ns = monotonic_ns()
    except BaseException:
        # An error of ours, or the user's own ^C or alarm: the call is not recorded.
        _leave_context(call)
        recorder.drop(call.span)
        raise
    if sampled:
        recorder.own_ns += _SAMPLE * (time.thread_time_ns() - cpu)
    return call


def _leave_context(call: _Live) -> None:
    if call.key is not None:
        _running.set(tuple(key for key in _running.get() if key != call.key))
    # A context manager may end in another context than it began in: leave that one alone.
    if call.switch and (call.same_context or CURRENT.get() == call.span):
        CURRENT.set(call.parent)


@guard.fail_open("hooks.leave")
def leave(hook: Hook, call: _Live, result: Any, error: BaseException | None) -> None:
    """End a recorded call. Runs after the user's function, with its result or exception."""
    call.end_ns = monotonic_ns()
    recorder = call.recorder
    sampled = recorder.tick() % _SAMPLE == 0
    cpu = time.thread_time_ns() if sampled else 0
    _leave_context(call)
    point = hook.point
    call.result = result
    call.error = error
    try:
        values = hook.constant
        if error is None and point.read is not None:
            given = guard.attempt(point.read, call, ())
            values = (*values, *given) if isinstance(given, tuple) else values
        if call.span and hook.definition is not None:
            kind = None if error is None else type(error).__name__
            recorder.end(call.span, hook.definition, call.end_ns, kind, values)
    finally:
        if point.after is not None:
            guard.attempt(point.after, call, None)
        # The exception holds the frames that hold this call: a cycle would keep tensors alive.
        call.result = call.error = None
        if sampled:
            recorder.own_ns += _SAMPLE * (time.thread_time_ns() - cpu)


_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    functools.partial,
)


def wrap(original: Any, hook: Hook) -> Any:
    """A callable of the same kind as ``original`` that records its calls.

    Args:
        original: Function, method, partial or any callable object.
        hook: What to record.
    """
    code = getattr(original, "__code__", None)
    if code is _CM_CODE:
        inner = _generator(original.__wrapped__, hook, switch=True)
        return functools.wraps(original)(contextlib.contextmanager(inner))
    if code is _ASYNC_CM_CODE:
        async_inner = _async_generator(original.__wrapped__, hook, switch=True)
        manager = functools.wraps(original)(contextlib.asynccontextmanager(async_inner))
        return manager
    if inspect.isasyncgenfunction(original):
        return _async_generator(original, hook, switch=False)
    if inspect.isgeneratorfunction(original):
        return _generator(original, hook, switch=False)
    if inspect.iscoroutinefunction(original):
        return _coroutine(original, hook)
    if isinstance(original, _FUNCTIONS):
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

    return wrapper


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

    return wrapper


def _generator(original: Function, hook: Hook, switch: bool) -> Function:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        call = enter(hook, args, kwargs, switch, False)
        if call is None:
            return (yield from original(*args, **kwargs))
        try:
            result = yield from original(*args, **kwargs)
        except BaseException as error:
            leave(hook, call, None, None if isinstance(error, GeneratorExit) else error)
            raise
        leave(hook, call, result, None)
        return result

    return wrapper


def _async_generator(original: Function, hook: Hook, switch: bool) -> Function:
    @functools.wraps(original)
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        call = enter(hook, args, kwargs, switch, False)
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

    return wrapper


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
        return (_same, (object.__getattribute__(self, "_rlvr_probe_original"),))


class _AsyncStandIn(_StandIn):
    __slots__ = ()

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return await object.__getattribute__(self, "_rlvr_probe_call")(*args, **kwargs)


def _same(value: Any) -> Any:
    return value


def find_hook(function: Any) -> tuple[Hook, Any] | None:
    """The hook of one of our wrappers and what it wraps; None for anything else.

    Looks into the closure: an attribute would be copied by ``functools.wraps`` onto functions of
    others, and a wrapper that came by value from another process has its closure, too.
    """
    if type(function) in (_StandIn, _AsyncStandIn):
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


@guard.fail_open("hooks.after_fork")
def _after_fork() -> None:
    if _recorder is not None:
        _recorder.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
