"""``rlvr_probe.span``: stages of the user's own code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from rlvr_probe import guard, hooks
from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.clock import monotonic_ns
from rlvr_probe.hooks import Hook, wrap
from rlvr_probe.model.names import USER
from rlvr_probe.recorder import CURRENT, OFF, Recorder

__all__ = ["span"]

_F = TypeVar("_F", bound=Callable[..., Any])
_Open = tuple[Recorder, int, int]


class span:
    """Record a stage of your own, as a decorator, ``with`` or ``async with``.

    ::

        @rlvr_probe.span("filter")
        def keep(groups): ...

        with rlvr_probe.span("compile", kernels=3):
            ...

    Functions, coroutines and generators are wrapped alike. Costs a few microseconds; without
    ``attach()`` it does nothing. Attribute values are recorded as given: numbers, booleans, and
    text of which you know that it may be in a recording. Other types are left out.
    """

    def __init__(self, name: str, /, **attributes: str | float | bool | None) -> None:
        """Name the stage.

        Args:
            name: A word that stays the same from call to call.
            attributes: Further values of this span.
        """
        self._label = name
        self._attributes = ("label", *attributes)
        self._values = (name, *map(_plain, attributes.values()))
        self._open: dict[int, _Open] = {}

    def __call__(self, function: _F) -> _F:
        """Record every call of ``function``."""
        detail = functools.partial(_detail, self._label)
        point = HookPoint("user", USER, self._attributes, detail=detail)
        wrapped: _F = wrap(function, Hook(point, constant=self._values))
        return wrapped

    def __enter__(self) -> span:
        """Begin the stage."""
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the stage."""
        self._end(kind)

    async def __aenter__(self) -> span:
        """Begin the stage."""
        self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the stage."""
        self._end(kind)

    @guard.fail_open("span.begin")
    def _begin(self) -> None:
        recorder = hooks.recorder()
        if recorder is None or recorder.level == OFF:
            return
        parent = CURRENT.get()
        definition = recorder.define(USER, self._attributes)
        opened = recorder.begin(USER, definition, monotonic_ns(), parent, self._label)
        self._open[opened] = (recorder, parent, definition)
        CURRENT.set(opened)

    @guard.fail_open("span.end")
    def _end(self, kind: type[BaseException] | None) -> None:
        now = monotonic_ns()
        # One object entered twice, by threads or tasks: each ends the one its own context began.
        opened = CURRENT.get()
        found = self._open.pop(opened, None)
        if found is not None:
            recorder, parent, definition = found
            CURRENT.set(parent)
            error = None if kind is None else kind.__name__
            recorder.end(opened, definition, now, error, self._values)


def _detail(label: str, _: Call) -> str:
    return label


def _plain(value: object) -> str | float | bool | None:
    return value if isinstance(value, (str, int, float, bool)) else None
