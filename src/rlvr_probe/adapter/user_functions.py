"""Functions of the user's that a framework holds: reward functions, tools. Wrapped for one call.

The list or dict is the user's, who may read it, share it or change it at any time: what was put
into it is taken out again at the end of the call, or at a detach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_probe.adapter.batch_events import emit_rewards
from rlvr_probe.adapter.contract import Call, HookPoint
from rlvr_probe.model.names import REWARD_FN

__all__ = ["Scoring", "Swapped", "put_all_back"]


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


@dataclass(slots=True)
class Scoring:
    """One computation of the rewards of a batch, by functions that are called one after the other.

    Attributes:
        batch: Span that joins lengths and rewards.
        names: Names of the functions, in the order of the list.
        samples: How many trajectories a function is called for, from its call.
        values: The rewards in what a function returned, by row; None if they cannot be read.
        end_ns: When the last of them returned; 0 before.
    """

    batch: int
    names: Sequence[str]
    samples: Callable[[Call], int | None]
    values: Callable[[Any], Sequence[float | None] | None]
    end_ns: int = 0

    def point(self) -> HookPoint:
        """What to record of each function, for :meth:`rlvr_probe.adapter.Probe.wrap`."""
        return HookPoint(
            "reward_function",
            REWARD_FN,
            ("batch", "function", "samples"),
            self._read,
            self._detail,
            after=self._done,
        )

    def _name(self, call: Call) -> str | None:
        index: int = call.state["index"]
        return self.names[index] if index < len(self.names) else None

    def _detail(self, call: Call) -> str:
        return self._name(call) or ""

    def _read(self, call: Call) -> tuple[Any, ...]:
        return self.batch, self._name(call), self.samples(call)

    def _done(self, call: Call) -> None:
        if call.error is None:
            self.end_ns = max(self.end_ns, call.end_ns)
            values, index = self.values(call.result), call.state["index"]
            emit_rewards(
                call.probe, self.batch, self._name(call), values, index=index, parent=call.span
            )
