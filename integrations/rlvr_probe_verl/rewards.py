"""Rewards that a controller computes itself, and what of a batch is trained on.

Below 0.7 a reward manager scores the whole batch, which has been put in another order by then so
that ranks have equal work. Since then agent loops have their trajectories scored
(:mod:`rlvr_probe_verl.rollouts`).
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.model.names import REWARD_FN, REWARDS
from rlvr_probe.reading import argument, attribute, rewards
from rlvr_probe_verl.controller import Controller, controller_of, is_controller, learn, trainer
from rlvr_probe_verl.generations import Generation, find
from rlvr_probe_verl.reading import option, row_sums, tensor
from rlvr_probe_verl.session import reward_function

__all__ = ["REORDER", "TRAINER", "rows_of", "tell_scores"]


def rows_of(controller: Controller, data: Any) -> tuple[Generation, list[int]] | None:
    """The generation that a batch holds, and which of its rows each row is; None if none is."""
    mode = "eval" if controller.evaluation else "train"
    mine = (one for one in reversed(controller.generations) if one.mode == mode)
    return find(mine, data, controller.order_of(data))


def _tell(probe: Probe, generation: Generation, rows: Sequence[int], values: Any) -> None:
    sums = row_sums(values)
    if sums is None or len(sums) != len(rows) or generation.rewarded:
        return
    generation.rewarded = True
    column: list[float | None] = [None] * len(rows)
    for row, value in zip(rows, sums, strict=True):
        column[row] = value
    told = {
        "batch": generation.span,
        "function": reward_function(attribute(trainer(), "config")),
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
            call.probe.instrument(manager, [_MANAGER])


def _scores(call: Call) -> bool:
    # What has been scored already, the manager only hands out.
    return is_controller(call) and tensor(argument(call, 1, "data"), "rm_scores") is None


def _score_begin(call: Call) -> None:
    controller = controller_of(call.probe)
    data = argument(call, 1, "data")
    call.state = None if controller.baseline else rows_of(controller, data)


def _read_score(call: Call) -> tuple[Any, ...]:
    found = call.state
    batch = None if found is None else found[0].span
    function = reward_function(attribute(trainer(), "config"))
    return batch, function, len(argument(call, 1, "data"))


def _score_end(call: Call) -> None:
    controller, result = controller_of(call.probe), call.result
    if call.error is not None or controller.baseline or not controller.generations:
        return
    if call.state is None:
        raise LookupError("rewards of a batch that no generation is known to be")
    values = option(result, "reward_tensor") if isinstance(result, dict) else result
    generation, rows = call.state
    _tell(call.probe, generation, rows, values)


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

TRAINER = HookPoint("verl.trainer.ppo.ray_trainer:RayPPOTrainer.__init__", after=_learn)
"""Below 0.7 a trainer is made with its reward managers, the user's own among them."""


# ---------------------------------------------------------------- order


def _reordered(call: Call) -> None:
    if call.error is None:
        indices = argument(call, 1, "indices")
        controller_of(call.probe).remember_order(call.args[0], indices.tolist())


REORDER = HookPoint(
    "verl.protocol:DataProto.reorder",
    after=_reordered,
    when=is_controller,
    parameters=("indices",),
)
"""Puts a batch in another order, so that each rank has as many tokens."""


# ---------------------------------------------------------------- advantages


def tell_scores(probe: Probe, controller: Controller, data: Any) -> None:
    """Record the rewards of a batch that is trained on, if nothing told them before.

    A reward model, or another process, computed them.
    """
    if all(one.rewarded for one in controller.generations):
        return
    found = rows_of(controller, data)
    if found is not None:
        _tell(probe, *found, tensor(data, "token_level_scores"))
