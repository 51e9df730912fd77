"""A real training in which every reader of the integration is slow in turn: `train.py` otherwise.

Each sleeps 50 ms at every call, from when the one before it was muted until it is itself. At last a
callback sleeps, which cannot be muted, until nothing is recorded any more. Then the training ends.
Written to ``slow.json``: place, calls that slept, and for how long it
went on, in the order in which they slept.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import rlvr_probe_trl.adapter
from rlvr_probe_trl import rewards
from rlvr_probe_trl.steps import Steps
from rlvr_probe_trl.tests import train

from rlvr_probe.adapter import HookPoint
from rlvr_probe.adapter.user_functions import Scoring
from rlvr_probe.probe import hooks
from rlvr_probe.probe.hooks import Hook
from rlvr_probe.probe.recorder import OFF
from rlvr_probe.releases import Dated, points_of

SLEEP_S = 0.05


@dataclass
class Victim:
    """A place that sleeps in its turn."""

    place: str
    calls: int = 0
    first_ns: int = 0
    last_ns: int = 0


class Turns:
    """Who sleeps; what a hook does first is what is slow."""

    def __init__(self) -> None:
        self.victims: dict[str, Victim] = {}
        self.order: list[str] = []

    @property
    def current(self) -> Victim | None:
        recorder = hooks.recorder()
        while self.order and recorder is not None:
            account = recorder.accounts.get(self.order[0])
            if recorder.level != OFF and (account is None or not account.muted):
                return self.victims[self.order[0]]
            self.victims[self.order.pop(0)].last_ns = time.monotonic_ns()
        return None

    def slow(self, place: str, function: Callable[..., Any]) -> Callable[..., Any]:
        victim = self.victims[place] = Victim(place)
        self.order.append(place)

        @functools.wraps(function)
        def slowed(*args: Any, **kwargs: Any) -> Any:
            if self.current is victim:
                victim.first_ns = victim.first_ns or time.monotonic_ns()
                victim.calls += 1
                time.sleep(SLEEP_S)
            return function(*args, **kwargs)

        return slowed

    def point(self, point: HookPoint) -> HookPoint:
        assert point.read is not None
        return replace(point, read=self.slow(Hook(point).place, point.read))


def slow_down(turns: Turns) -> None:
    """Every reader that a training without tools and vLLM visits, inner first, and a callback."""
    adapter: Any = rlvr_probe_trl.adapter
    scoring: Any = Scoring
    scoring._read = turns.slow(f"{rewards.__name__}:reward_function", scoring._read)
    inner = [
        "_generate_single_turn",
        "_generate",
        "_calculate_rewards",
        "get_batch_samples",
        "evaluate",
        "_save_checkpoint",
        "_generate_and_score_completions",
    ]
    dated = (*adapter.METHODS, *adapter._GRPO_METHODS)
    by_name = {point.target: point for point in points_of(dated, adapter.installed())}
    reading = {name for name, point in by_name.items() if point.read is not None}
    assert reading - set(inner) <= {"_tool_call_loop"}, "every reader has its turn"
    slowed = {name: turns.point(by_name[name]) for name in inner}
    points = (slowed.get(name, point) for name, point in by_name.items())
    adapter.METHODS = tuple(Dated(point, "0.0") for point in points)
    adapter._GRPO_METHODS = ()
    method = Steps._begin_step
    Steps._begin_step = turns.slow(f"{Steps.__module__}.Steps._begin_step", method)  # type: ignore[method-assign]


def main() -> None:
    turns = Turns()
    slow_down(turns)
    build = train.build

    def build_and_stop(chosen: Any, *args: Any) -> Any:
        from transformers import TrainerCallback

        class Stop(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                control.should_training_stop = turns.current is None

        trainer = build(chosen, *args)
        trainer.add_callback(Stop())
        return trainer

    train.build = build_and_stop  # type: ignore[assignment]
    out = train.options().out
    train.main()
    result = [
        [victim.place, victim.calls, (victim.last_ns - victim.first_ns) / 1e9]
        for victim in turns.victims.values()
    ]
    (out / "slow.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
