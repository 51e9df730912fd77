"""Act when a module has been imported, now or later."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

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

    @fail_open(f"import of {module}")
    def fire(loaded: ModuleType) -> None:
        # Popped first: two threads, or a module imported again after it failed, act once.
        try:
            first = armed.pop()
        except IndexError:
            return
        first(loaded)

    wrapt.register_post_import_hook(fire, module)
    # wrapt has no way to take a hook back; an empty one costs nothing.
    return armed.clear
