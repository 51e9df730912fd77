"""Objects of the user's in whose place wrappers are, for as long as a call lasts.

The list or dict is the user's, who may read it, share it or change it at any time: what was put
into it is taken out again at the end of the call, or at a detach.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Swapped", "put_all_back"]


class Swapped:
    """What was put into lists and dicts for one call."""

    def __init__(self) -> None:
        self._kept: list[tuple[Any, Any, Any, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._kept)

    def put(self, container: Any, key: Any, wrapper: Any) -> None:
        """Put ``wrapper`` at ``key``, an index of a list or a key of a dict."""
        if self not in _in_place:
            _in_place.append(self)
        self._kept.append((container, key, container[key], wrapper))
        container[key] = wrapper

    def put_back(self) -> None:
        """Put back what was there before, unless something else is there by now."""
        while self._kept:
            container, key, original, wrapper = self._kept.pop()
            try:
                if container[key] is wrapper:
                    container[key] = original
            except LookupError:  # the container has become shorter
                pass
        if self in _in_place:
            _in_place.remove(self)

    def holds(self, container: Any) -> bool:
        """Whether anything was put into ``container``."""
        return any(held is container for held, *_ in self._kept)


_in_place: list[Swapped] = []


def put_all_back(container: Any = None) -> None:
    """Put back everything that was put into ``container``, or into any.

    At a detach; and at the start of a call, since an alarm of the user's, between an earlier start
    and its call, has left that without an end.
    """
    for swapped in list(_in_place):
        if container is None or swapped.holds(container):
            swapped.put_back()
