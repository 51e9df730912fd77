"""What an adapter can ask of the core, guarded: the implementation of ``adapter.Probe``."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from time import monotonic_ns
from typing import Any

from rlvr_probe import guard
from rlvr_probe.adapter import HookPoint
from rlvr_probe.model.names import Name
from rlvr_probe.probe.hooks.calls import Hook
from rlvr_probe.probe.hooks.monkeypatches import Patches
from rlvr_probe.probe.hooks.wrapping import wrap
from rlvr_probe.probe.recorder import CURRENT, OFF, STAGES, Recorder
from rlvr_probe.probe.recorder.owntime import LONG_NS, SAMPLE, before

__all__ = ["HookProbe"]


class HookProbe:
    """The probe of this process. One per recorder."""

    def __init__(self, recorder: Recorder, patches: Patches) -> None:
        """Record to ``recorder`` and keep every change in ``patches``."""
        self._recorder = recorder
        self._patches = patches
        self._states: weakref.WeakKeyDictionary[object, dict[str, Any]] = (
            weakref.WeakKeyDictionary()
        )
        # Spans started by hand: what is needed to end them. Survives a fork harmlessly.
        self._begun: dict[int, tuple[Name, int, bool]] = {}

    @guard.fail_open("probe.instrument", 0)
    def instrument(self, instance: object, points: Sequence[HookPoint]) -> int:
        """See ``adapter.Probe.instrument``."""
        return sum(self._patches.method(instance, point) for point in points)

    @guard.fail_open("probe.replace")
    def replace(self, container: MutableSequence[Any], index: int, point: HookPoint) -> None:
        """See ``adapter.Probe.replace``."""
        self._patches.item(container, index, point)

    def wrap(self, function: Any, index: int, point: HookPoint) -> Any:
        """See ``adapter.Probe.wrap``."""
        wrapped = self._wrap(function, index, point)
        return wrapped if callable(wrapped) else function

    @guard.fail_open("probe.wrap")
    def _wrap(self, function: Any, index: int, point: HookPoint) -> Any:
        return wrap(function, Hook(point, begin={"index": index}))

    def guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """See ``adapter.Probe.guarded``."""
        recorder = self._recorder
        place = guard.place(function)
        account = recorder.account(place)
        account.mutable = False  # it may keep what others rely on

        @guard.fail_open(place)
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> None:
            if recorder.level == OFF:
                return
            timed = account.watched or account.tick() % SAMPLE == 0
            began = before(account) if timed else None
            entered = monotonic_ns()
            try:
                function(*args, **kwargs)
            finally:
                spent = monotonic_ns() - entered
                if timed or spent > LONG_NS:
                    recorder.own_ns += account.charge(spent, began)

        return run

    @guard.fail_open("probe.begin", 0)
    def begin(
        self,
        name: Name,
        *,
        detail: str = "",
        step: int | None = None,
        parent: int | None = None,
        activate: bool = False,
    ) -> int:
        """See ``adapter.Probe.begin``."""
        recorder = self._recorder
        if recorder.level == OFF or (recorder.level == STAGES and not name.coarse):
            return 0
        now = monotonic_ns()
        outer = CURRENT.get()
        definition = recorder.define(name, ())
        above = outer if parent is None else parent
        span = recorder.next_id()
        try:
            recorder.begin(span, name, definition, now, above, detail, step)
            self._begun[span] = (name, outer, activate)
            if activate:
                CURRENT.set(span)
        except BaseException:
            if CURRENT.get() == span:
                CURRENT.set(outer)
            self._begun.pop(span, None)
            recorder.drop(span)
            raise
        return span

    @guard.fail_open("probe.end")
    def end(
        self, span: int, values: Mapping[str, Any] | None = None, error: str | None = None
    ) -> None:
        """See ``adapter.Probe.end``."""
        now = monotonic_ns()
        begun = self._begun.get(span)
        if begun is None:
            return
        name, outer, activated = begun
        recorder = self._recorder
        try:
            if activated and CURRENT.get() == span:
                CURRENT.set(outer)
            given = {} if values is None else values
            definition = recorder.define(name, tuple(given))
            recorder.end(span, definition, now, error, tuple(given.values()))
        finally:
            self._begun.pop(span, None)
            recorder.drop(span)

    @guard.fail_open("probe.drop")
    def drop(self, span: int) -> None:
        """See ``adapter.Probe.drop``."""
        begun = self._begun.pop(span, None)
        if begun is None:
            return
        _, outer, activated = begun
        if activated and CURRENT.get() == span:
            CURRENT.set(outer)
        self._recorder.drop(span)

    @guard.fail_open("probe.record", 0)
    def record(
        self,
        name: Name,
        start_ns: int,
        end_ns: int,
        values: Mapping[str, Any],
        parent: int | None = None,
    ) -> int:
        """See ``adapter.Probe.record``."""
        recorder = self._recorder
        if recorder.level == OFF or (recorder.level == STAGES and not name.coarse):
            return 0
        definition = recorder.define(name, tuple(values))
        outer = CURRENT.get() if parent is None else parent
        return recorder.span_row(definition, start_ns, end_ns, outer, tuple(values.values()))

    @guard.fail_open("probe.emit")
    def emit(self, name: Name, values: Mapping[str, Any], parent: int | None = None) -> None:
        """See ``adapter.Probe.emit``."""
        recorder = self._recorder
        if recorder.level == OFF:
            return
        definition = recorder.define(name, tuple(values))
        outer = CURRENT.get() if parent is None else parent
        recorder.event_row(definition, outer, tuple(values.values()))

    def current(self) -> int:
        """See ``adapter.Probe.current``."""
        return CURRENT.get()

    def state(self, owner: object) -> dict[str, Any]:
        """See ``adapter.Probe.state``."""
        state = self._state(owner)
        return {} if state is None else state

    @guard.fail_open("probe.state")
    def _state(self, owner: object) -> dict[str, Any] | None:
        state = self._states.get(owner)
        if state is None:
            state = self._states.setdefault(owner, {})
        return state

    def on_detach(self, undo: Callable[[], None]) -> None:
        """See ``adapter.Probe.on_detach``."""
        self._patches.add(undo)
