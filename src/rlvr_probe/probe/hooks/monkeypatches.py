"""Putting wrappers in place of functions, and putting the originals back."""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable, MutableSequence
from types import ModuleType
from typing import Any

from rlvr_probe import guard
from rlvr_probe.adapter import HookPoint
from rlvr_probe.probe.hooks.calls import Hook
from rlvr_probe.probe.hooks.wrapping import has_hook, wrap

__all__ = ["Patches"]

_ABSENT = object()
_METHODS = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


class Patches:
    """Every change made to the frameworks of this process, in order.

    A wrapper that somebody else wrapped in turn cannot be taken out: it stays, and is inert once
    recording is off.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def function(self, module: ModuleType, qualname: str, point: HookPoint) -> bool:
        """Hook ``module.qualname``: a function, or a method of a class defined there.

        Returns:
            Whether it is there and could be replaced.
        """
        owner: Any = module
        *path, name = qualname.split(".")
        for part in path:
            owner = getattr(owner, part, None)
            if owner is None:
                return False
        return self._attribute(owner, name, Hook(point), inherited=True)

    def method(self, instance: object, point: HookPoint) -> bool:
        """Hook a method on the class of ``instance``'s MRO that defines it, once per class.

        ``instance`` may be the class itself. The most derived definition is hooked: a user's
        override is what really runs.
        """
        kind = instance if isinstance(instance, type) else type(instance)
        for owner in kind.__mro__:
            if point.target in vars(owner):
                return self._attribute(owner, point.target, Hook(point, method=True))
        return False

    def item(self, container: MutableSequence[Any], index: int, point: HookPoint) -> bool:
        """Hook ``container[index]``; already hooked by the same point is left as it is."""
        original = container[index]
        if has_hook(original, point):
            return True
        wrapper = wrap(original, Hook(point, begin={"index": index}))
        if not callable(wrapper):
            return False
        container[index] = wrapper

        def restore() -> None:
            for position, item in enumerate(container):
                if item is wrapper:
                    container[position] = original

        self._undo.append(restore)
        return True

    def add(self, undo: Callable[[], None]) -> None:
        """Run ``undo`` when everything is undone."""
        self._undo.append(undo)

    @guard.fail_open("patches.undo")
    def undo(self) -> None:
        """Take everything back, latest first. Each step is guarded on its own."""
        while self._undo:
            guard.attempt(_call, self._undo.pop(), None)

    def _attribute(self, owner: Any, name: str, hook: Hook, inherited: bool = False) -> bool:
        held = vars(owner).get(name, _ABSENT)
        found = held
        if held is _ABSENT and inherited:
            found = inspect.getattr_static(owner, name, _ABSENT)
        if found is _ABSENT:
            return False
        kind = type(found) if isinstance(found, (staticmethod, classmethod)) else None
        original: Any = getattr(found, "__func__", found) if kind is not None else found
        if not callable(original):
            return False
        if has_hook(original, hook.point):
            return True
        if isinstance(owner, type) and kind is None and not isinstance(original, _METHODS):
            original = _bound_late(original)
        wrapper = wrap(original, hook)
        if not callable(wrapper):
            return False
        replacement = wrapper if kind is None else kind(wrapper)
        setattr(owner, name, replacement)
        if isinstance(owner, type) and held is original and isinstance(wrapper, types.FunctionType):
            put_back = functools.partial(_put_back, weakref.ref(owner), name, weakref.ref(wrapper))
            self._undo.append(put_back)
            return True

        def restore() -> None:
            if vars(owner).get(name) is not replacement:
                return
            if held is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, held)

        self._undo.append(restore)
        return True


def _call(undo: Callable[[], None]) -> None:
    undo()


def _put_back(owner: Callable[[], Any], name: str, wrapper: Callable[[], Any]) -> None:
    """Give a class its method back, if both are alive.

    Nothing keeps them: a class that is defined in a function may hold a whole training.
    """
    alive, put = owner(), wrapper()
    if alive is not None and put is not None and vars(alive).get(name) is put:
        setattr(alive, name, put.__wrapped__)


def _bound_late(descriptor: Any) -> Any:
    """A plain function that binds ``descriptor`` at the call, as the class would have done.

    Other instrumentation (wrapt, and what is built on it) puts descriptors in the place of methods,
    which take no self when they are called as they are.
    """

    def late(self: Any, *args: Any, **kwargs: Any) -> Any:
        return descriptor.__get__(self, type(self))(*args, **kwargs)

    async def late_async(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await descriptor.__get__(self, type(self))(*args, **kwargs)

    return functools.wraps(descriptor)(
        late_async if inspect.iscoroutinefunction(descriptor) else late
    )
