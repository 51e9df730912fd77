"""A real training in which every hook of the integration is slow in turn: `train.py` otherwise.

Each sleeps 50 ms at every call, from when the one before it was passed over until it is itself. The
training ends when all were. Written to ``slow.json``: place, calls that slept, and for how long it
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
import rlvr_probe_trl.rewards
from rlvr_probe_trl.steps import Steps
from rlvr_probe_trl.tests import train

from rlvr_probe import hooks
from rlvr_probe.adapter import HookPoint
from rlvr_probe.hooks import Hook

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
            if account is None or not account.muted:
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
        role = next(r for r in ("when", "before", "read", "after") if getattr(point, r) is not None)
        slowed = self.slow(Hook(point).place, getattr(point, role))
        return replace(point, **{role: slowed})  # type: ignore[arg-type]


def slow_down(turns: Turns) -> None:
    """Every hook point and callback that a training without tools and vLLM visits, inner first."""
    rewards: Any = rlvr_probe_trl.rewards
    adapter: Any = rlvr_probe_trl.adapter
    rewards._FUNCTION = turns.point(rewards._FUNCTION)
    inner = [
        "_generate_single_turn",
        "_get_per_token_logps_and_entropies",
        "_generate",
        "_calculate_rewards",
        "get_batch_samples",
        "evaluate",
        "_save_checkpoint",
        "_generate_and_score_completions",
        "_prepare_inputs",
        "training_step",
    ]
    by_name = {point.target: point for point in adapter.methods(adapter.installed())}
    assert by_name.keys() - set(inner) == {"_tool_call_loop"}, "every hook point has its turn"
    slowed = {name: turns.point(by_name[name]) for name in inner}
    points = tuple(slowed.get(name, point) for name, point in by_name.items())
    adapter.methods = lambda release: points
    for name in ("_end_step", "_begin_step"):
        method = getattr(Steps, name)
        setattr(Steps, name, turns.slow(f"{Steps.__module__}.Steps.{name}", method))


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
    found = [
        [victim.place, victim.calls, (victim.last_ns - victim.first_ns) / 1e9]
        for victim in turns.victims.values()
    ]
    (out / "slow.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
