"""Starts and ends the record of a call: the hot path of every hook.

Runs inside the user's calls, guarded; the user's own callable is never inside these functions.
"""

from __future__ import annotations

import inspect
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from time import monotonic_ns
from types import FrameType
from typing import Any

from rlvr_probe import guard
from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.probe.recorder import CURRENT, OFF, STAGES, Account, Recorder
from rlvr_probe.probe.recorder.owntime import LONG_NS, SAMPLE, before

__all__ = [
    "REBUILD",
    "Hook",
    "Keywords",
    "LiveCall",
    "activate",
    "enter",
    "forget",
    "keywords",
    "leave",
    "rebuilt",
    "recorder",
]

_KIT = "rlvr_probe.adapter."
_WRAPPING = "rlvr_probe.probe.hooks.wrapping"
_NOTHING = object()

_recorder: Recorder | None = None
_probe: Probe | None = None
_running: ContextVar[tuple[tuple[str, int], ...]] = ContextVar("rlvr_probe_running", default=())


def activate(recorder: Recorder | None, probe: Probe | None = None) -> None:
    """Make every wrapper of this process record to ``recorder``; None makes all of them inert."""
    global _recorder, _probe
    _recorder, _probe = recorder, probe


def recorder() -> Recorder | None:
    """The recorder in use, or None."""
    return _recorder


REBUILD = "(exec(source, values), values['found'])[1]"
"""Expression by which a pickle rebuilds an object where this package may not be.

A class that goes to another node by value takes its wrappers along. A Python there without this
package, or with another release of it, has to load the class all the same. ``source`` are
statements that leave the object in ``found`` and raise nothing, ``values`` names of theirs."""

_LOADED = """
try:
    from rlvr_probe.probe.hooks.calls import rebuilt
    found = rebuilt(data)
except Exception:
    found = None
"""


def rebuilt(data: bytes) -> Hook:
    """The hook of what :meth:`Hook.__reduce__` has packed."""
    return Hook(*pickle.loads(data))  # noqa: S301 - part of a pickle itself


class Hook:
    """A hook point in effect: what a wrapper's closure holds. Can be pickled with the wrapper.

    Attributes:
        point: What to record.
        method: A call reached again on the same object through ``super()`` passes unrecorded.
        begin: What ``call.state`` starts as: the position in a container that it was replaced in,
            or what the call that returned the callable left; None for nothing.
        constant: Values of the first attributes, known beforehand and recorded even after an error.
        alone: No other hook point relies on what happens at this one.
        account: What its point has cost in this process; None before the first call.
    """

    __slots__ = ("account", "alone", "begin", "constant", "definition", "method", "point")

    def __init__(
        self,
        point: HookPoint,
        method: bool = False,
        begin: Mapping[str, Any] | None = None,
        constant: tuple[Any, ...] = (),
    ) -> None:
        self.point = point
        self.method = method
        others = (point.before, point.after, point.arguments, point.returned)
        self.alone = all(other is None for other in others)
        self.begin = begin
        self.constant = constant
        self.definition: int | None = None
        self.account: Account | None = None

    @property
    def place(self) -> str:
        """Name of the account: the target, with the adapter's module where that says too little."""
        point = self.point
        functions = (point.read, point.after, point.before, point.detail, point.arguments)
        # Of a partial, what it calls.
        modules = [
            getattr(getattr(function, "func", function), "__module__", "")
            for function in functions
            if function is not None
        ]
        # What adapters share says no more than the target does.
        own = [module for module in modules if not module.startswith(_KIT)]
        module = next(iter(own or modules), "")
        return point.target if ":" in point.target or not module else f"{module}:{point.target}"

    def open_account(self, recorder: Recorder) -> Account:
        """Its account; points that are made anew for each call share one by their name."""
        self.account = recorder.account(self.place)
        return self.account

    # An error of ours must not fail a user's pickling: the copy is then none, and records nothing.
    @guard.fail_open("hooks.pickle", (type(None), ()))
    def __reduce__(self) -> tuple[Any, ...]:
        given = (self.point, self.method, self.begin, self.constant)
        values = {"data": pickle.dumps(given)}
        return (eval, (REBUILD, {"source": _LOADED, "values": values}))


class LiveCall(Call):
    """A call while it runs, with what only the core needs."""

    __slots__ = ("account", "key", "parent", "same_context", "switch")

    account: Account
    parent: int
    switch: bool
    same_context: bool
    key: tuple[str, int] | None

    def is_nested(self) -> bool:
        """Whether it was reached from a call of the same method on the same object."""
        key = self.key
        if key is None:
            return False
        if self.same_context:
            return key in _running.get()
        # A generator shares its context with its consumer, and calls of it nest in no order: only
        # what runs at this moment, and is not suspended, may have reached this one.
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_name == "wrapper" and frame.f_globals.get("__name__") == _WRAPPING:
                local = frame.f_locals
                other = local.get("call")
                if type(other) is LiveCall and other.key == key:
                    return True
            frame = frame.f_back
        return False


@guard.fail_open("hooks.enter")
def enter(
    hook: Hook,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    switch: bool,
    same_context: bool = True,
) -> LiveCall | None:
    """Start a recorded call; None if it is to pass untouched.

    Args:
        hook: The hook point.
        args: Positional arguments of the user's call.
        kwargs: Keyword arguments of the user's call.
        switch: Make the span the parent of what starts inside (not for bare generators, whose
            body shares its context with the consumer).
        same_context: The end comes in the same context as the start.
    """
    recorder = _recorder
    if recorder is None or recorder.level == OFF:
        return None
    point = hook.point
    name = point.name
    if recorder.level == STAGES and name is not None and not name.coarse:
        return None
    account = hook.account
    if account is None or account.owner is not recorder:
        account = hook.open_account(recorder)
    muted = account.muted
    if muted and hook.alone:
        return None
    timed = account.watched or account.tick() % SAMPLE == 0
    began = before(account) if timed else None
    entered = monotonic_ns()
    call = LiveCall()
    call.account = account
    call.same_context = same_context
    call.probe = _probe  # type: ignore[assignment]
    call.args = args
    call.kwargs = kwargs
    call.result = call.error = None
    call.state = None if hook.begin is None else dict(hook.begin)
    call.span = call.end_ns = call.start_ns = 0
    if point.when is not None and not guard.attempt(point.when, call, False):
        spent = monotonic_ns() - entered
        if timed or spent > LONG_NS:
            recorder.own_ns += account.charge(spent, began)
        return None
    call.key = (point.target, id(args[0])) if hook.method and args else None
    if call.key is not None and call.is_nested():
        return None
    call.parent = CURRENT.get()
    call.switch = switch and name is not None
    try:
        if name is not None:
            if hook.definition is None:
                hook.definition = recorder.define(name, point.attributes)
            detail = "" if muted or point.detail is None else guard.attempt(point.detail, call, "")
            if type(detail) is not str:
                guard.misfit(point.detail)  # type: ignore[arg-type]
                detail = ""
            step = None if muted or point.step is None else guard.attempt(point.step, call, None)
            if step is not None and not (type(step) is int and 0 <= step < 1 << 63):
                guard.misfit(point.step)  # type: ignore[arg-type]
                step = None
            call.span = recorder.next_id()
            recorder.begin(call.span, name, hook.definition, entered, call.parent, detail, step)
        if call.key is not None and same_context:
            _running.set((*_running.get(), call.key))
        if call.switch:
            CURRENT.set(call.span)
        if point.before is not None:
            guard.attempt(point.before, call, None)
        call.start_ns = monotonic_ns()
        spent = call.start_ns - entered
        if timed or spent > LONG_NS:
            recorder.own_ns += account.charge(spent, began)
    except BaseException:
        # An error of ours, or the user's own ^C or alarm: the call is not recorded.
        _leave_context(call)
        recorder.drop(call.span)
        raise
    return call


class Keywords(dict[str, Any]):
    """Keyword arguments that a call is made with instead of the caller's."""


@guard.fail_open("hooks.keywords")
def keywords(hook: Hook, call: LiveCall, original: Callable[..., Any]) -> Keywords | None:
    """What ``HookPoint.arguments`` makes of the caller's; None to leave those as they are."""
    asked = hook.point.arguments
    if asked is None:
        return None
    given = guard.attempt(asked, call, _NOTHING)
    if given is _NOTHING:
        return None
    if not isinstance(given, Mapping) or not all(type(name) is str for name in given):
        guard.misfit(asked)
        return None
    changed = Keywords(call.kwargs)
    changed.update(given)
    try:
        inspect.signature(original).bind(*call.args, **changed)
    except TypeError:
        guard.misfit(asked)
        return None
    except ValueError:  # written in C, without a signature
        pass
    return changed


@guard.fail_open("hooks.forget")
def forget(call: LiveCall) -> None:
    """Drop a call whose end was interrupted, by the user's own alarm or for want of stack."""
    _leave_context(call)
    call.account.owner.drop(call.span)


def _leave_context(call: LiveCall) -> None:
    if call.key is not None and call.same_context:
        _running.set(tuple(key for key in _running.get() if key != call.key))
    # A context manager may end in another context than it started in: leave that one alone.
    if call.switch and (call.same_context or CURRENT.get() == call.span):
        CURRENT.set(call.parent)


@guard.fail_open("hooks.leave")
def leave(hook: Hook, call: LiveCall, result: Any, error: BaseException | None) -> None:
    """End a recorded call. Runs after the user's function, with its result or exception."""
    call.end_ns = monotonic_ns()
    account = call.account
    recorder: Recorder = account.owner
    timed = account.watched or account.tick() % SAMPLE == 0
    began = before(account) if timed else None
    _leave_context(call)
    point = hook.point
    call.result = result
    call.error = error
    try:
        values = hook.constant
        if error is None and point.read is not None and not account.muted:
            given = guard.attempt(point.read, call, _NOTHING)
            if type(given) is tuple and len(values) + len(given) == len(point.attributes):
                values = (*values, *given)
            elif given is not _NOTHING:
                guard.misfit(point.read)
        if call.span and hook.definition is not None:
            kind = None if error is None else type(error).__name__
            recorder.end(call.span, hook.definition, call.end_ns, kind, values)
    except BaseException:
        recorder.drop(call.span)
        raise
    finally:
        if point.after is not None:
            guard.attempt(point.after, call, None)
        # The exception holds the frames that hold this call: a cycle would keep tensors alive.
        call.result = call.error = None
        spent = monotonic_ns() - call.end_ns
        if timed or spent > LONG_NS:
            recorder.own_ns += account.charge(spent, began)


def _after_fork() -> None:
    if _started_over() is not True:
        # What it has belongs to the parent.
        activate(None)


@guard.fail_open("hooks.after_fork")
def _started_over() -> bool:
    if _recorder is not None:
        _recorder.after_fork()
    return True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
