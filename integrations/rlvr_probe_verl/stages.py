"""Steps, stages and evaluations, by the timers that verl puts around them.

Every trainer times its stages by ``marked_timer``, and recipes by that or by ``simple_timer``; none
of them is recorded by hooking ``fit``, which recipes rewrite. ``marked_timer`` is imported by name
from a module that has chosen one of three, so each of the three is hooked where it is defined.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.model import names
from rlvr_probe.model.names import Name
from rlvr_probe.reading import argument, error_of
from rlvr_probe_verl.controller import (
    Controller,
    controller_of,
    is_controller,
    named,
    steps_begun,
)
from rlvr_probe_verl.session import begin_session, end_session

__all__ = [
    "MSTX_TIMER",
    "NVTX_TIMER",
    "NVTX_TIMER_0_4",
    "SIMPLE_TIMER",
    "SIMPLE_TIMER_0_4",
    "STAGES",
    "TIMER",
    "TIMER_0_4",
    "VALIDATE",
    "VALIDATE_SYNC_V1",
    "VALIDATE_V1",
]

STAGES: dict[str, Name] = {
    "gen": names.ROLLOUT,
    "reward": names.REWARD,
    "verify": names.REWARD,  # the recipe PRIME
    "old_log_prob": names.OLD_LOGPROB,
    "ref": names.REF_LOGPROB,
    "values": names.VALUES,
    "adv": names.ADVANTAGE,
    "update_critic": names.UPDATE_CRITIC,
    "update_actor": names.UPDATE_ACTOR,
    "update_weights": names.WEIGHT_SYNC,
    "sync_rollout_weights": names.WEIGHT_SYNC,
    "testing": names.EVAL,
    "save_checkpoint": names.CHECKPOINT,
}
"""Our name of each of verl's; one that is missing here is an ``other``."""

_STEP = "step"
_BASELINE = "gen_max"
_IGNORED = frozenset({"start_profile", "stop_profile"})
_UPDATES = (names.UPDATE_ACTOR, names.UPDATE_CRITIC)


def _is_timed(call: Call) -> bool:
    return is_controller(call) and argument(call, 0, "name") not in _IGNORED


def _timer_begin(call: Call) -> None:
    probe, label = call.probe, argument(call, 0, "name")
    controller = controller_of(probe)
    timer = (label, id(argument(call, 1, "timing_raw")))
    # One timer may be made of another, and what it times is timed once.
    if controller.timers and controller.timers[-1] == timer:
        return
    controller.timers.append(timer)
    if label == _STEP:
        _step_begin(probe, controller)
        call.state = (timer, 0, None)
        return
    name = STAGES.get(label, names.OTHER)
    if name is names.EVAL:
        call.state = (timer, *_evaluation_begin(probe, controller))
        return
    where = controller.where()
    span = probe.begin(name, step=where[1], activate=True)
    if name is names.ROLLOUT:
        controller.rollout, controller.samples = span, None
    elif name is names.REWARD:
        controller.reward = span
    elif name in _UPDATES:
        controller.updated = True
    controller.baseline = controller.baseline or label == _BASELINE
    call.state = (timer, span, named(where))


def _timer_end(call: Call) -> None:
    if call.state is None:
        return
    timer, span, values = call.state
    probe, label = call.probe, timer[0]
    controller, error = controller_of(probe), error_of(call)
    controller.timers.remove(timer)
    if label == _STEP:
        _step_end(probe, controller, error)
        return
    name = STAGES.get(label, names.OTHER)
    if name is names.EVAL:
        _evaluation_end(probe, controller, span, values, error)
        return
    if name is names.ROLLOUT:
        values = {**values, "samples": controller.samples}
        controller.rollout = 0
    elif name is names.REWARD:
        controller.reward = 0
    if label == _BASELINE:
        controller.baseline = False
    probe.end(span, values, error)
    # SPPO times the generation alone as a step: what follows goes on with it, to the update.
    stepping = any(label == _STEP for label, _ in controller.timers)
    if name is names.UPDATE_ACTOR and controller.step_span and not stepping:
        _step_end(probe, controller, error)


# ---------------------------------------------------------------- steps


def _step_begin(probe: Probe, controller: Controller) -> None:
    step = controller.where()[1]
    begin_session(probe, controller, max(0, step - 1))
    if controller.step_span:
        if controller.step == step:  # the step goes on with another generation
            return
        _close_step(probe, controller, "Abandoned")
    controller.step, controller.updated = step, False
    controller.kept, controller.discarded, controller.chosen = None, set(), False
    controller.forget("train")
    controller.step_span = probe.begin(names.STEP, step=step, activate=True)


def _step_end(probe: Probe, controller: Controller, error: str | None) -> None:
    # A recipe that filters generates until enough is left, and times each round as a step: only
    # the last one updates a model.
    if controller.updated or error is not None:
        _close_step(probe, controller, error)
        if error is None:
            end_session(probe, controller, controller.step)


def _close_step(probe: Probe, controller: Controller, error: str | None) -> None:
    span, controller.step_span = controller.step_span, 0
    probe.end(span, {"session": controller.session, "step": controller.step}, error)


# ---------------------------------------------------------------- evaluation


def _evaluation_begin(probe: Probe, controller: Controller) -> tuple[int, dict[str, Any] | None]:
    if controller.evaluation:
        return 0, None
    begin_session(probe, controller, controller.where()[1])
    # PRIME counts a step before it evaluates behind the last one.
    step = controller.step if controller.counted else controller.where()[1]
    controller.evaluation = probe.begin(names.EVAL, step=step, activate=True)
    return controller.evaluation, named(controller.where())


def _evaluation_end(
    probe: Probe,
    controller: Controller,
    span: int,
    values: dict[str, Any] | None,
    error: str | None,
) -> None:
    if span:
        controller.evaluation = 0
        controller.forget("eval")
        probe.end(span, values, error)
        if error is None and controller.counted:
            end_session(probe, controller, steps_begun())


def _validate_begin(call: Call) -> None:
    call.state = _evaluation_begin(call.probe, controller_of(call.probe))


def _validate_end(call: Call) -> None:
    span, values = call.state
    _evaluation_end(call.probe, controller_of(call.probe), span, values, error_of(call))


TIMER = HookPoint(
    "verl.utils.profiler.performance:marked_timer",
    before=_timer_begin,
    after=_timer_end,
    when=_is_timed,
    parameters=("name", "timing_raw"),
)
"""Without a hardware profiler. verl >= 0.5."""

NVTX_TIMER = replace(TIMER, target="verl.utils.profiler.nvtx_profile:marked_timer")
"""Where NVTX is installed."""

MSTX_TIMER = replace(TIMER, target="verl.utils.profiler.mstx_profile:marked_timer")
"""On Ascend NPUs."""

SIMPLE_TIMER = replace(TIMER, target="verl.utils.profiler.performance:simple_timer")
"""The timer of the recipes PRIME, SPPO and entropy."""

SIMPLE_TIMER_0_4 = replace(TIMER, target="verl.utils.debug.performance:simple_timer")

TIMER_0_4 = replace(TIMER, target="verl.utils.debug.performance:marked_timer")

NVTX_TIMER_0_4 = replace(TIMER, target="verl.utils.debug.nvtx_profile:marked_timer")

VALIDATE = HookPoint(
    "verl.trainer.ppo.ray_trainer:RayPPOTrainer._validate",
    before=_validate_begin,
    after=_validate_end,
    when=is_controller,
)
"""An evaluation; the one before the training has no timer."""

VALIDATE_SYNC_V1 = replace(VALIDATE, target="verl.trainer.main_ppo_sync:PPOTrainer._validate")

VALIDATE_V1 = replace(VALIDATE, target="verl.trainer.ppo.v1.trainer_base:PPOTrainer._validate")
