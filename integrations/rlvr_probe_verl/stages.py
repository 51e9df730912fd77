"""Steps, stages and evaluations, by the timers that verl puts around them.

Every trainer times its stages by ``marked_timer``, and recipes by that or by ``simple_timer``; none
of them is recorded by hooking ``fit``, which recipes rewrite. ``marked_timer`` is imported by name
from a module that has chosen one of three, so each of the three is hooked where it is defined.
"""

from __future__ import annotations

from dataclasses import replace

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.adapter.controller import named
from rlvr_probe.adapter.spans import Open, end_span, open_stage, start_stage
from rlvr_probe.model import names
from rlvr_probe.model.names import Name
from rlvr_probe.reading import argument, error_of
from rlvr_probe.releases import within
from rlvr_probe_verl.controller import OLDEST, Controller, steps_begun

__all__ = ["STAGES", "TIMERS"]

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
_TRAINING = (names.ADVANTAGE, names.UPDATE_ACTOR, names.UPDATE_CRITIC)


def _is_timed(call: Call) -> bool:
    return Controller.is_here(call) and argument(call, 0, "name") not in _IGNORED


def _timer_begin(call: Call) -> None:
    probe, label = call.probe, argument(call, 0, "name")
    controller = Controller.of(probe)
    timer = (label, id(argument(call, 1, "timing_raw")))
    # One timer may be made of another, and what it times is timed once.
    if controller.timers and controller.timers[-1] == timer:
        return
    controller.timers.append(timer)
    name = STAGES.get(label, names.OTHER)
    if label == _STEP:
        _step_begin(probe, controller)
        call.state = (0, {}, timer)
    elif name is names.EVAL:
        call.state = (*_evaluation_begin(probe, controller), timer)
    else:
        span, values = open_stage(probe, name, controller.where())
        if name is names.ROLLOUT:
            controller.rollout, controller.samples = span, None
        controller.trained = controller.trained or name in _TRAINING
        controller.baseline = controller.baseline or label == _BASELINE
        call.state = (span, values, timer)


def _timer_end(call: Call) -> None:
    if call.state is None:
        return
    timer, label = call.state[2], call.state[2][0]
    probe, controller, error = call.probe, Controller.of(call.probe), error_of(call)
    controller.timers.remove(timer)
    name = STAGES.get(label, names.OTHER)
    if label == _STEP:
        _step_end(probe, controller, error)
        return
    if name is names.EVAL:
        _evaluation_end(call, controller)
        return
    more = {}
    if name is names.ROLLOUT:
        more = {"samples": controller.samples}
        controller.rollout = 0
    if label == _BASELINE:
        controller.baseline = False
    end_span(call, **more)
    # SPPO times the generation alone as a step: what follows goes on with it, to the update.
    stepping = any(label == _STEP for label, _ in controller.timers)
    if name is names.UPDATE_ACTOR and controller.step_span and not stepping:
        _step_end(probe, controller, error)


# ---------------------------------------------------------------- steps


def _step_begin(probe: Probe, controller: Controller) -> None:
    step = controller.where()[1]
    controller.begin_session(probe, max(0, step - 1))
    if controller.step_span:
        if controller.step == step:  # the step goes on with another generation
            return
        controller.close_step(probe, "Abandoned")
    controller.trained = False
    controller.kept, controller.discarded, controller.chosen = None, set(), False
    controller.forget("train")
    controller.open_step(probe, step)


def _step_end(probe: Probe, controller: Controller, error: str | None) -> None:
    # A recipe that filters generates until enough is left, and times each round as a step: only
    # the last one computes advantages. Before `critic_warmup` steps no model may be updated.
    if controller.trained or error is not None:
        controller.close_step(probe, error)
        if error is None:
            controller.finish_session(probe, controller.step)


# ---------------------------------------------------------------- evaluation


def _evaluation_begin(probe: Probe, controller: Controller) -> Open:
    if controller.evaluation:
        return 0, {}
    controller.begin_session(probe, controller.where()[1])
    # PRIME counts a step before it evaluates behind the last one.
    step = controller.step if controller.counted else controller.where()[1]
    controller.evaluation = probe.begin(names.EVAL, step=step, activate=True)
    return controller.evaluation, named(controller.where())


def _evaluation_end(call: Call, controller: Controller) -> None:
    if call.state[0]:
        controller.evaluation = 0
        controller.forget("eval")
        end_span(call)
        if call.error is None and controller.counted:
            controller.finish_session(call.probe, steps_begun())


def _validate_begin(call: Call) -> None:
    call.state = _evaluation_begin(call.probe, Controller.of(call.probe))


def _validate_end(call: Call) -> None:
    _evaluation_end(call, Controller.of(call.probe))


def _fetch_begin(call: Call) -> None:
    probe = call.probe
    controller = Controller.of(probe)
    step = steps_begun()
    # Inside another stage, as an evaluation, it is a part of that; out of a run it is of no step.
    inside = controller.evaluation or any(label != _STEP for label, _ in controller.timers)
    if step and not inside and not controller.ended:
        controller.begin_session(probe, step - 1)
        start_stage(call, names.DATA, controller.where())


def _fetch_end(call: Call) -> None:
    if call.state is not None:
        span, known = call.state
        # An epoch ends by StopIteration.
        ended = isinstance(call.error, StopIteration)
        call.probe.end(span, known, None if ended else error_of(call))


_TIMER = HookPoint(
    "marked_timer",
    before=_timer_begin,
    after=_timer_end,
    when=_is_timed,
    parameters=("name", "timing_raw"),
)
_SIMPLE_TIMER = replace(_TIMER, target="simple_timer")
"""The timer of the recipes PRIME, SPPO and entropy."""

_VALIDATE = HookPoint(
    "_validate", before=_validate_begin, after=_validate_end, when=Controller.is_here
)
"""An evaluation; the one before the first step has no timer."""

_FETCH = HookPoint(
    "_StatefulBaseDataLoaderIter.__next__",
    before=_fetch_begin,
    after=_fetch_end,
    when=Controller.is_here,
    optional=True,
)
"""The prompts of a step, which no trainer times: each takes them in its loop, from torchdata."""

_BOTH = (_TIMER, _SIMPLE_TIMER)

TIMERS = (
    *within("verl.utils.debug.performance:", _BOTH, OLDEST, "0.5"),
    *within("verl.utils.debug.nvtx_profile:", (_TIMER,), OLDEST, "0.5"),
    *within("verl.utils.profiler.performance:", _BOTH, "0.5"),  # without a hardware profiler
    *within("verl.utils.profiler.nvtx_profile:", (_TIMER,), "0.5"),  # where NVTX is installed
    *within("verl.utils.profiler.mstx_profile:", (_TIMER,), "0.5"),  # on Ascend NPUs
    *within("verl.trainer.ppo.ray_trainer:RayPPOTrainer.", (_VALIDATE,), OLDEST),
    *within("verl.trainer.main_ppo_sync:PPOTrainer.", (_VALIDATE,), "0.8", "0.9"),
    *within("verl.trainer.ppo.v1.trainer_base:PPOTrainer.", (_VALIDATE,), "0.9"),
    *within("torchdata.stateful_dataloader.stateful_dataloader:", (_FETCH,), OLDEST),
)
"""Hooked in the controller when their modules are imported."""
