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
from rlvr_probe.model.names import REWARD_FN, REWARDS
from rlvr_probe.reading import argument, attribute, rewards
from rlvr_probe_verl.controller import Controller, controller_of, is_controller, learn, trainer
from rlvr_probe_verl.generations import Generation, find
from rlvr_probe_verl.reading import option, row_sums, tensor
from rlvr_probe_verl.session import reward_function, verifier

__all__ = ["TRAINER", "WORKERS", "rows_of", "tell_scores"]


def rows_of(controller: Controller, data: Any) -> tuple[Generation, list[int]] | None:
    """The generation that a batch holds, and which of its rows each row is; None if none is."""
    mode = "eval" if controller.evaluation else "train"
    mine = (one for one in reversed(controller.generations) if one.mode == mode)
    return find(mine, data, controller.order_of(data))


def _tell(
    probe: Probe,
    generation: Generation,
    rows: Sequence[int],
    sums: Sequence[float | None] | None,
    function: str | None,
) -> None:
    if sums is None or len(sums) != len(rows) or generation.rewarded:
        return
    generation.rewarded = True
    column: list[float | None] = [None] * len(rows)
    for row, value in zip(rows, sums, strict=True):
        column[row] = value
    told = {
        "batch": generation.span,
        "function": function,
        "index": 0,
        **rewards(column),
    }
    probe.emit(REWARDS, told, parent=generation.span)


# ---------------------------------------------------------------- reward managers


def _learn(call: Call) -> None:
    learn(call)
    for name in ("reward_fn", "val_reward_fn"):
        manager = attribute(call.args[0], name)
        # The class of a function cannot be hooked.
        if manager is not None and not inspect.isroutine(manager):
            verifies = [_VERIFY] if callable(attribute(manager, "verify")) else []
            call.probe.instrument(manager, [_MANAGER, *verifies])


def _scores(call: Call) -> bool:
    # What has been scored already, the manager only hands out.
    return is_controller(call) and tensor(argument(call, 1, "data"), "rm_scores") is None


def _verifies(call: Call) -> bool:
    # Managers call it themselves.
    return _scores(call) and not controller_of(call.probe).scoring


def _score_begin(call: Call) -> None:
    controller = controller_of(call.probe)
    data = argument(call, 1, "data")
    call.state = None if controller.baseline else rows_of(controller, data)
    controller.scoring = True


def _read_score(call: Call) -> tuple[Any, ...]:
    function = reward_function(attribute(trainer(), "config"))
    return _batch(call), function, len(argument(call, 1, "data"))


def _read_verified(call: Call) -> tuple[Any, ...]:
    function = verifier(attribute(trainer(), "config"))
    return _batch(call), function, len(argument(call, 1, "data"))


def _batch(call: Call) -> int | None:
    return None if call.state is None else call.state[0].span


def _score_end(call: Call) -> None:
    if _ended_scoring(call):
        result = call.result
        values = option(result, "reward_tensor") if isinstance(result, dict) else result
        generation, rows = call.state
        function = reward_function(attribute(trainer(), "config"))
        _tell(call.probe, generation, rows, row_sums(values), function)


def _verified(call: Call) -> None:
    if _ended_scoring(call):
        # One that is more than a number says so by its name.
        values = [value if isinstance(value, float | int) else None for value in call.result]
        generation, rows = call.state
        function = verifier(attribute(trainer(), "config"))
        _tell(call.probe, generation, rows, values, function)


def _ended_scoring(call: Call) -> bool:
    """Note that no manager is at work; whether the call scored a batch that is known."""
    controller = controller_of(call.probe)
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
    when=lambda call: trainer() is not call.args[0],
)
"""Of a trainer that does not call the constructor of its base: the recipe SPPO."""


# ---------------------------------------------------------------- advantages


def tell_scores(probe: Probe, controller: Controller, data: Any) -> None:
    """Record the rewards of a batch that is trained on, if nothing told them before.

    A reward model, or another process, computed them.
    """
    if all(one.rewarded for one in controller.generations):
        return
    found = rows_of(controller, data)
    if found is not None:
        function = reward_function(attribute(trainer(), "config"))
        generation, rows = found
        scores = row_sums(tensor(data, "token_level_scores"))
        _tell(probe, generation, rows, scores, function)
