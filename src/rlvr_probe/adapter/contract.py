"""What an adapter and the core say to each other: hook points, calls and the probe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from rlvr_probe.model.names import Name

__all__ = ["Adapter", "Call", "HookPoint", "Probe"]


class Call:
    """One call of a hooked function, as the adapter's functions see it.

    Attributes:
        probe: What can be done with it.
        args, kwargs: Arguments of the user's call, unchanged; ``args[0]`` is self of a method.
        result: What it returned; None before the end, after an exception, and for generators.
        error: The exception it ended by, or None.
        start_ns, end_ns: CLOCK_MONOTONIC; ``end_ns`` is 0 before the end.
        span: Id of its span; 0 if none is recorded.
        state: Free for the adapter, from ``before`` to ``after``.
    """

    __slots__ = (
        "args",
        "end_ns",
        "error",
        "kwargs",
        "probe",
        "result",
        "span",
        "start_ns",
        "state",
    )

    probe: Probe
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any
    error: BaseException | None
    start_ns: int
    end_ns: int
    span: int
    state: Any


@dataclass(frozen=True, slots=True)
class HookPoint:
    """One function of a framework, and what to record around it.

    Attributes:
        target: ``package.module:Class.method`` or ``package.module:function``; for
            :meth:`Probe.instrument` only the method name.
        name: Span to record; None to run only ``before`` and ``after``.
        attributes: Which attributes of ``name`` are filled, in the order ``read`` returns them.
        read: Values for ``attributes``, called on the caller's thread after the function returned
            without an exception; after one, every value is absent.
        detail: A few words for the open-span table, from the call, before it starts.
        step: Trainer step for the open-span table.
        before: Runs before the function.
        after: Runs after it, also when it raised; for generators at their end.
        when: Record only if true. Asked before the call; false leaves it entirely alone.
        optional: True if a release may lack this function without a warning.
        parameters: Names that ``before``, ``read`` or ``after`` expect the function's first
            parameters to have, without self. A release where they differ is one that the adapter
            does not know; nothing is checked at the call.
        arguments: Keyword arguments that the function is called with besides the caller's, and
            instead of those of the same name. The only way in which an adapter alters a call: to
            hand the probe on to a child. Asked after ``before``; ``Call.kwargs`` stays what the
            caller gave. After an error, or where the function does not take them, the caller's own
            are used. For functions, methods and coroutine functions.
        returned: What to record around the callable that the function returns: a method made for
            the caller, or the decorator that a call makes, whose point then has a ``returned`` of
            its own. Kind and attributes of the callable are kept; None, a class, or an object that
            binds itself as a method, is left as it is. ``target`` of that point is only a name.
            ``call.state`` starts as ``{"made": state}`` there, with what ``before`` and ``after``
            of this point left in theirs: plain data, since the callable may be pickled by value.
            For functions, methods and coroutine functions.
    """

    target: str
    name: Name | None = None
    attributes: tuple[str, ...] = ()
    read: Callable[[Call], tuple[Any, ...]] | None = None
    detail: Callable[[Call], str] | None = None
    step: Callable[[Call], int | None] | None = None
    before: Callable[[Call], None] | None = None
    after: Callable[[Call], None] | None = None
    when: Callable[[Call], bool] | None = None
    optional: bool = False
    parameters: tuple[str, ...] = ()
    arguments: Callable[[Call], Mapping[str, Any]] | None = None
    returned: HookPoint | None = None


class Probe(Protocol):
    """What an adapter can ask of the core. Every method is safe: it never raises into the run."""

    def instrument(self, instance: object, points: Sequence[HookPoint]) -> int:
        """Hook methods by name on the class in the MRO of ``instance`` that defines each.

        ``instance`` may also be a class, which need not have an object yet. Once per class:
        later instances of the same class are already hooked. A call that reaches a hooked method
        again through ``super()`` on the same object is not recorded twice.

        Returns:
            How many of ``points`` are in effect for this instance.
        """
        ...

    def replace(self, container: MutableSequence[Any], index: int, point: HookPoint) -> None:
        """Put a wrapper of ``container[index]`` in its place; kind and signature are kept.

        ``before``, ``read`` and ``after`` find the position in ``call.state`` as ``{"index": i}``.
        """
        ...

    def wrap(self, function: Any, index: int, point: HookPoint) -> Any:
        """A wrapper of ``function`` as :meth:`replace` makes it, put nowhere and kept nowhere.

        For a container that the adapter changes and restores within one call: what
        :meth:`replace` keeps until the detach would keep the user's objects alive.
        """
        ...

    def begin(
        self,
        name: Name,
        *,
        detail: str = "",
        step: int | None = None,
        parent: int | None = None,
        activate: bool = False,
    ) -> int:
        """Open a span by hand and return its id (0 if recording is off).

        Args:
            name: What it is.
            detail: For the open-span table.
            step: For the open-span table.
            parent: Parent span; None means the current one of this context.
            activate: Make it the current span of this context until it is ended.
        """
        ...

    def end(
        self, span: int, values: Mapping[str, Any] | None = None, error: str | None = None
    ) -> None:
        """Close a span opened by :meth:`begin`. Unknown ids and 0 are ignored."""
        ...

    def drop(self, span: int) -> None:
        """Forget a span opened by :meth:`begin` that turned out to be nothing; nothing is written.

        What was recorded inside it stays, without anything around it.
        """
        ...

    def record(
        self,
        name: Name,
        start_ns: int,
        end_ns: int,
        values: Mapping[str, Any],
        parent: int | None = None,
    ) -> int:
        """Record a span whose ends are already known (CLOCK_MONOTONIC); its id, 0 for none."""
        ...

    def emit(self, name: Name, values: Mapping[str, Any], parent: int | None = None) -> None:
        """Record an event now. Lists in ``values`` are copied by the caller if they can change."""
        ...

    def current(self) -> int:
        """Id of the current span of this context, 0 for none."""
        ...

    def state(self, owner: object) -> dict[str, Any]:
        """A dict that lives as long as ``owner`` (weakly held), the same at every call."""
        ...

    def on_detach(self, undo: Callable[[], None]) -> None:
        """Run ``undo`` when the probe is detached, latest first."""
        ...

    def guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """``function`` made safe for a framework's own plugin point: a callback, an optimizer hook.

        An error in it is counted and does not reach the run; it does nothing, and returns None,
        while recording is off and after a detach.
        """
        ...


@runtime_checkable
class Adapter(Protocol):
    """A framework.

    Attributes:
        name: What ``attach(frameworks=[...])`` selects, for example ``trl``.
        distribution: Its name on the package index; the version is read from its metadata without
            importing it.
        tested: Version specifier of the releases this adapter is tested with.
    """

    name: str
    distribution: str
    tested: str

    def hook_points(self, version: str) -> Sequence[HookPoint]:
        """Hook points for ``version``, to be set when their modules are imported."""
        ...

    def expected(self, version: str) -> Sequence[HookPoint]:
        """Every hook point for ``version`` with its full target.

        Those of :meth:`hook_points`, and those set later on the classes of instances, named on the
        framework's own classes. Looked up in source, without an import, by ``rlvr-probe doctor``
        and by the checks of releases; hooking itself never asks.
        """
        ...
