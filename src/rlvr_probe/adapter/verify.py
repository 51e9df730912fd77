"""Reward functions of the user's, in a list that the framework calls one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_probe.adapter.batch_events import emit_rewards
from rlvr_probe.adapter.contract import Call, HookPoint
from rlvr_probe.model.names import REWARD_FN

__all__ = ["Scoring"]


@dataclass(slots=True)
class Scoring:
    """One computation of the rewards of a batch.

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
