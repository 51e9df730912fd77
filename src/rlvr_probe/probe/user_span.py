"""``rlvr_probe.span``: stages of the user's own code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from time import monotonic_ns
from types import TracebackType
from typing import Any, TypeVar

from rlvr_probe import guard
from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.model.names import USER
from rlvr_probe.probe import hooks
from rlvr_probe.probe.hooks import Hook, wrap
from rlvr_probe.probe.recorder import CURRENT, OFF, Recorder
from rlvr_probe.probe.recorder.owntime import LONG_NS, SAMPLE, before

__all__ = ["span"]

_F = TypeVar("_F", bound=Callable[..., Any])
_PLACE = f"{__name__}:user"
_Open = tuple[Recorder, int, int]
_entered: ContextVar[tuple[tuple[int, int], ...]] = ContextVar("rlvr_probe_entered", default=())
"""(id of the span object, span id) of what this context is in, outermost first."""


class span:
    """Record a stage of your own, as a decorator, ``with`` or ``async with``.

    ::

        @rlvr_probe.span("filter")
        def keep(groups): ...

        with rlvr_probe.span("compile", kernels=3):
            ...

    Functions, coroutines and generators are wrapped alike. Costs a few microseconds; without
    ``attach()`` it does nothing. Attribute values are recorded as given: numbers, booleans, and
    text of which you know that it may be in a recording. Other types are dropped.
    """

    def __init__(self, name: str, /, **attributes: str | float | bool | None) -> None:
        """Name the stage.

        Args:
            name: A word that stays the same from call to call.
            attributes: Further values of this span.
        """
        if not isinstance(name, str):
            raise TypeError(f"span() takes a name, found {type(name).__name__}: @span('name')")
        self._open: dict[int, _Open] = {}
        self._describe(name, attributes)

    @guard.fail_open("span")
    def _describe(self, name: str, attributes: Mapping[str, object]) -> None:
        self._label = _text(name)
        self._attributes = ("label", *map(_text, attributes))
        self._values = (self._label, *map(_plain, attributes.values()))

    def __call__(self, function: _F) -> _F:
        """Record every call of ``function``."""
        wrapped: _F | None = self._wrap(function)
        return wrapped if callable(wrapped) else function

    @guard.fail_open("span.wrap")
    def _wrap(self, function: Any) -> Any:
        detail = functools.partial(_detail, self._label)
        point = HookPoint("user", USER, self._attributes, detail=detail)
        return wrap(function, Hook(point, constant=self._values))

    def __enter__(self) -> span:
        """Start the stage."""
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the stage."""
        try:
            self._end(kind)
        except BaseException:
            self._forget()
            raise

    async def __aenter__(self) -> span:
        """Start the stage."""
        self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the stage."""
        try:
            self._end(kind)
        except BaseException:
            self._forget()
            raise

    @guard.fail_open("span.begin")
    def _begin(self) -> None:
        recorder = hooks.recorder()
        if recorder is None or recorder.level == OFF:
            return
        account = recorder.account(_PLACE)
        if account.muted:
            return
        timed = account.watched or account.tick() % SAMPLE == 0
        began = before(account) if timed else None
        now = monotonic_ns()
        parent = CURRENT.get()
        definition = recorder.define(USER, self._attributes)
        opened = recorder.next_id()
        outside = _entered.get()
        try:
            recorder.begin(opened, USER, definition, now, parent, self._label)
            self._open[opened] = (recorder, parent, definition)
            _entered.set((*outside, (id(self), opened)))
            CURRENT.set(opened)
            spent = monotonic_ns() - now
            if timed or spent > LONG_NS:
                recorder.own_ns += account.charge(spent, began)
        except BaseException:
            CURRENT.set(parent)
            _entered.set(outside)
            self._open.pop(opened, None)
            recorder.drop(opened)
            raise

    @guard.fail_open("span.end")
    def _end(self, kind: type[BaseException] | None) -> None:
        now = monotonic_ns()
        opened = self._innermost()
        found = self._open.get(opened)
        if found is None:
            return
        recorder, parent, definition = found
        try:
            account = recorder.account(_PLACE)
            timed = account.watched or account.tick() % SAMPLE == 0
            began = before(account) if timed else None
            error = None if kind is None else kind.__name__
            recorder.end(opened, definition, now, error, self._values)
            spent = monotonic_ns() - now
            if timed or spent > LONG_NS:
                recorder.own_ns += account.charge(spent, began)
        finally:
            self._leave(opened, recorder, parent)

    @guard.fail_open("span.forget")
    def _forget(self) -> None:
        """Drop the stage whose end was interrupted by the user's own alarm."""
        opened = self._innermost()
        found = self._open.get(opened)
        if found is not None:
            self._leave(opened, *found[:2])

    def _leave(self, opened: int, recorder: Recorder, parent: int) -> None:
        if recorder.is_inside(CURRENT.get(), opened):
            CURRENT.set(parent)
        recorder.drop(opened)
        _entered.set(tuple(entry for entry in _entered.get() if entry != (id(self), opened)))
        self._open.pop(opened, None)

    def _innermost(self) -> int:
        """The span this context entered last through this object.

        Spans do not always end in order: a generator that is left suspended keeps its own open. If
        this context entered none, the object was handed over from another one.
        """
        for entered, opened in reversed(_entered.get()):
            if entered == id(self):
                return opened
        return next(reversed(self._open), 0)


def _detail(label: str, _: Call) -> str:
    return label


def _plain(value: object) -> str | float | bool | None:
    if isinstance(value, str):
        return _text(value)
    return value if isinstance(value, (int, float, bool)) else None


def _text(text: str) -> str:
    """Without lone surrogates, which no file can hold."""
    return str(text).encode("utf-8", "replace").decode()
