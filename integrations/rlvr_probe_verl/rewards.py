"""Rewards that a controller computes itself, and what of a batch is trained on.

Below 0.7 a reward manager scores the whole batch, which has been put in another order by then so
that ranks have equal work. Since then agent loops have their trajectories scored
(:mod:`rlvr_probe_verl.rollouts`).
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.adapter.batch_events import emit_rewards
from rlvr_probe.model.names import REWARD_FN
from rlvr_probe.reading import argument, attribute, option
from rlvr_probe_verl.controller import Controller, config_of, reward_function, verifier
from rlvr_probe_verl.generations import Generation, find
from rlvr_probe_verl.reading import row_sums, tensor

__all__ = ["TRAINER", "WORKERS", "record_scores", "rows_of"]


def rows_of(controller: Controller, data: Any) -> tuple[Generation, list[int]] | None:
    """The generation that a batch holds, and which of its rows each row is; None if none is."""
    mode = "eval" if controller.evaluation else "train"
    candidates = reversed(controller.generated_for(mode))
    return find(candidates, data, controller.order_of(data))


def _record(
    probe: Probe,
    scored: tuple[Generation, list[int]],
    scores: Sequence[float | None] | None,
    function: str | None,
) -> None:
    generation, rows = scored
    if scores is None or len(scores) != len(rows) or generation.rewarded:
        return
    generation.rewarded = True
    column: list[float | None] = [None] * len(rows)
    for row, value in zip(rows, scores, strict=True):
        column[row] = value
    emit_rewards(probe, generation.span, function, column)


# ---------------------------------------------------------------- reward managers


def _learn(call: Call) -> None:
    Controller.learn(call)
    for name in ("reward_fn", "val_reward_fn"):
        manager = attribute(call.args[0], name)
        # The class of a function cannot be hooked.
        if manager is not None and not inspect.isroutine(manager):
            verifies = [_VERIFY] if callable(attribute(manager, "verify")) else []
            call.probe.instrument(manager, [_MANAGER, *verifies])


def _is_unknown(call: Call) -> bool:
    return Controller.trainer() is not call.args[0]


def _scores(call: Call) -> bool:
    # What has been scored already, the manager only hands out.
    return Controller.is_here(call) and tensor(argument(call, 1, "data"), "rm_scores") is None


def _verifies(call: Call) -> bool:
    # Managers call it themselves.
    return _scores(call) and not Controller.of(call.probe).scoring


def _score_begin(call: Call) -> None:
    controller = Controller.of(call.probe)
    data = argument(call, 1, "data")
    call.state = None if controller.baseline else rows_of(controller, data)
    controller.scoring = True


def _read_score(call: Call) -> tuple[Any, ...]:
    return _batch(call), reward_function(config_of()), len(argument(call, 1, "data"))


def _read_verified(call: Call) -> tuple[Any, ...]:
    return _batch(call), verifier(config_of()), len(argument(call, 1, "data"))


def _batch(call: Call) -> int | None:
    return None if call.state is None else call.state[0].span


def _score_end(call: Call) -> None:
    if _ended_scoring(call):
        result = call.result
        values = option(result, "reward_tensor") if isinstance(result, dict) else result
        _record(call.probe, call.state, row_sums(values), reward_function(config_of()))


def _verified(call: Call) -> None:
    if _ended_scoring(call):
        # One that is more than a number says so by its name.
        values = [value if isinstance(value, float | int) else None for value in call.result]
        _record(call.probe, call.state, values, verifier(config_of()))


def _ended_scoring(call: Call) -> bool:
    """Note that no manager is at work; whether the call scored a batch that is known."""
    controller = Controller.of(call.probe)
    controller.scoring = False
    if call.error is not None or controller.baseline or not controller.generations:
        return False
    if call.state is None:
        raise LookupError("rewards of a batch that no generation is known to be")
    return True


_MANAGER = HookPoint(
    "__call__",
    REWARD_FN,
    ("batch", "function", "samples"),
    _read_score,
    before=_score_begin,
    after=_score_end,
    when=_scores,
    parameters=("data",),
)

_VERIFY = replace(_MANAGER, target="verify", read=_read_verified, after=_verified, when=_verifies)
"""What the recipe PRIME has its batch scored by."""

TRAINER = HookPoint("verl.trainer.ppo.ray_trainer:RayPPOTrainer.__init__", after=_learn)
"""Below 0.7 a trainer is made with its reward managers, the user's own among them."""

WORKERS = HookPoint(
    "verl.trainer.ppo.ray_trainer:RayPPOTrainer.init_workers",
    before=_learn,
    when=_is_unknown,
)
"""Of a trainer that does not call the constructor of its base: the recipe SPPO."""


# ---------------------------------------------------------------- advantages


def record_scores(probe: Probe, controller: Controller, data: Any) -> None:
    """Record the rewards of a batch that is trained on, if nothing did before.

    A reward model, or another process, computed them.
    """
    if all(generation.rewarded for generation in controller.generations):
        return
    scored = rows_of(controller, data)
    if scored is not None:
        scores = row_sums(tensor(data, "token_level_scores"))
        _record(probe, scored, scores, reward_function(config_of()))
