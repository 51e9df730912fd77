"""Act when a module has been imported, now or later."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import wrapt

from rlvr_probe.guard import fail_open

__all__ = ["when_imported"]


def when_imported(module: str, action: Callable[[ModuleType], None]) -> Callable[[], None]:
    """Call ``action`` with ``module`` once it is imported: at once if it already is.

    Args:
        module: Dotted name. It is never imported from here.
        action: Runs inside the user's import statement, on the importing thread, once. Whatever it
            raises is caught and counted: it would surface in that import.

    Returns:
        Undoes it: ``action`` will not be called any more. May be called twice.
    """
    armed = [action]
    registering = True

    @fail_open(f"import of {module}")
    def fire(loaded: ModuleType) -> None:
        # wrapt takes a module that another thread is executing, or that we are called from, for
        # one that is there.
        if registering and _when_finished(loaded, again):
            return
        # Popped first: two threads, or a module imported again after it failed, act once.
        try:
            first = armed.pop()
        except IndexError:
            return
        first(loaded)

    @fail_open(f"import of {module}")
    def again() -> None:
        nonlocal registering
        registering = False
        wrapt.register_post_import_hook(fire, module)

    wrapt.register_post_import_hook(fire, module)
    registering = False
    # wrapt has no way to take a hook back; an empty one costs nothing.
    return armed.clear


class _Unfinished(ModuleSpec):
    """What the spec of a module becomes while somebody waits for the end of its import.

    The import system marks that end on the spec, with the lock of the module still held, and
    without a callback: the loader, which could be wrapped before, runs already.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "_initializing" or value:
            super().__setattr__(name, value)
            return
        # Before the mark, as from then on other threads use the module without its lock; and
        # after, for who started to wait in between.
        _act(self)
        super().__setattr__(name, value)
        _act(self)
        _restore(self)


_WAITING = "_rlvr_probe_waiting"


def _when_finished(module: ModuleType, action: Callable[[], None]) -> bool:
    """Call ``action`` at the end of the import of ``module``, failed or not; False if it is over.

    Never waits: the import may be that of our own caller. May call it twice.
    """
    spec = getattr(module, "__spec__", None)
    if spec is None or type(spec) not in (ModuleSpec, _Unfinished):
        return False
    if not getattr(spec, "_initializing", False):
        return False
    vars(spec).setdefault(_WAITING, []).append(action)
    spec.__class__ = _Unfinished
    if not getattr(spec, "_initializing", False):  # it ended meanwhile and may have missed us
        _restore(spec)
        action()
    return True


@fail_open("import.finished")
def _act(spec: ModuleSpec) -> None:
    waiting = vars(spec).get(_WAITING, [])
    while waiting:
        try:
            action = waiting.pop(0)
        except IndexError:  # taken by the other thread
            return
        action()


@fail_open("import.finished")
def _restore(spec: ModuleSpec) -> None:
    vars(spec).pop(_WAITING, None)
    spec.__class__ = ModuleSpec
