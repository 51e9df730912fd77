"""Steps and their stages, on the controller.

The loop itself is an actor's own method, which cannot be hooked before Ray takes it; what it calls
can. A step begins with what it generates, or with the wait for what another process generated, and
ends when it is logged.
"""

from __future__ import annotations

from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.model import names
from rlvr_probe.model.names import Name
from rlvr_probe.reading import argument, attribute, error_of, number
from rlvr_probe_openrlhf.controller import (
    Controller,
    controller_of,
    generates_itself,
    is_controller,
    named,
    trainer,
)
from rlvr_probe_openrlhf.rewards import scores_of, tell_rewards
from rlvr_probe_openrlhf.session import begin_session, end_session

__all__ = ["METHODS", "STAGES", "begin_step", "drop_step"]

_MAKER = "openrlhf.trainer.ppo_utils.experience_maker:RemoteExperienceMaker"


def begin_step(probe: Probe, controller: Controller) -> None:
    """Begin the next step, unless one is open."""
    if not controller.step_span:
        controller.step_span = probe.begin(names.STEP, step=controller.done + 1, activate=True)


def drop_step(probe: Probe, controller: Controller) -> None:
    """Forget the step that is open: it turned out to be none."""
    span, controller.step_span = controller.step_span, 0
    probe.drop(span)


def _end_step(probe: Probe, controller: Controller, error: str | None) -> None:
    span, controller.step_span = controller.step_span, 0
    values = {"session": controller.session, "step": controller.done + 1}
    if error is None:
        controller.done += 1
    probe.end(span, values, error)


# ---------------------------------------------------------------- a step of the training


def _train_begin(call: Call) -> None:
    """Before a batch is trained on."""
    controller = controller_of(call.probe)
    done = number(argument(call, 2, "global_step"))
    if done is not None:
        controller.done = done
    begin_session(call.probe, controller)
    begin_step(call.probe, controller)
    if generates_itself():
        return
    _, step, _ = controller.where()
    values = {"session": controller.session, "step": step, "groups": [controller.taken]}
    controller.taken += 1
    call.probe.emit(names.TRAINED, values, parent=controller.step_span)


def _train_end(call: Call) -> None:
    if call.error is not None:
        _end_step(call.probe, controller_of(call.probe), error_of(call))


def _logged_end(call: Call) -> None:
    """After a step was logged, and its checkpoint written."""
    controller = controller_of(call.probe)
    _end_checkpoint(call)
    if controller.step_span:
        _end_step(call.probe, controller, error_of(call))
    end_session(call.probe, controller)


def _end_checkpoint(call: Call) -> None:
    controller = controller_of(call.probe)
    span, controller.checkpoint = controller.checkpoint, 0
    if span:
        call.probe.end(span, named(controller.where()), error_of(call))


def _best_end(call: Call) -> None:
    """After a checkpoint of the best evaluation was written, if this was one."""
    _end_checkpoint(call)
    # It may be the last thing that a training does.
    end_session(call.probe, controller_of(call.probe))


# ---------------------------------------------------------------- stages


def _begun(call: Call, name: Name) -> tuple[int, dict[str, Any]]:
    where = controller_of(call.probe).where()
    return call.probe.begin(name, step=where[1], activate=True), named(where)


def _stage_begin(call: Call, name: Name) -> None:
    call.state = _begun(call, name)


def _stage_end(call: Call) -> None:
    if call.state is not None:
        span, values = call.state
        call.probe.end(span, values, error_of(call))


def _experience_begin(call: Call) -> None:
    controller_of(call.probe).maker = _begun(call, names.OLD_LOGPROB)


def _advantage_begin(call: Call) -> None:
    controller = controller_of(call.probe)
    if controller.maker is not None:
        _maker_end(call, None)
        controller.maker = _begun(call, names.ADVANTAGE)


def _experience_end(call: Call) -> None:
    _maker_end(call, error_of(call))


def _maker_end(call: Call, error: str | None) -> None:
    """End the stage that the maker of experience is in: forward passes, or advantages."""
    controller = controller_of(call.probe)
    begun, controller.maker = controller.maker, None
    if begun is not None:
        span, values = begun
        call.probe.end(span, values, error)


def _forward_end(call: Call) -> None:
    """After the forward passes, of a reward model too."""
    controller = controller_of(call.probe)
    rows, controller.rows = controller.rows, 0
    if call.error is None and rows:
        scores = scores_of(call.result, rows)
        if scores is None:
            raise LookupError("rewards of a model that are not known of every row")
        tell_rewards(call.probe, trainer(), controller.batch, scores)


def _update_begin(call: Call) -> None:
    owner = call.args[0]
    actor = attribute(owner, "actor_model_group") is not None
    _stage_begin(call, names.UPDATE_ACTOR if actor else names.UPDATE_CRITIC)


def _sync_begin(call: Call) -> None:
    _stage_begin(call, names.WEIGHT_SYNC)


def _sync_end(call: Call) -> None:
    if call.state is None:
        return
    controller = controller_of(call.probe)
    span, values = call.state
    if call.error is None:
        controller.synced += 1
    # The step that the weights know of is done but for this.
    call.probe.end(span, {**values, "weight_version": controller.synced}, error_of(call))


STAGES = (
    HookPoint(
        f"{_MAKER}.make_experience_batch",
        before=_experience_begin,
        after=_experience_end,
        when=is_controller,
        parameters=("rollout_samples",),
    ),
    HookPoint(
        f"{_MAKER}.make_experience",
        after=_forward_end,
        when=is_controller,
        parameters=("samples_list",),
    ),
    HookPoint(
        f"{_MAKER}.compute_advantages_and_returns",
        before=_advantage_begin,
        when=is_controller,
        parameters=("experiences",),
    ),
)
"""Of the maker of experience."""

METHODS = (
    HookPoint(
        "train_step",
        before=_train_begin,
        after=_train_end,
        parameters=("rollout_samples", "global_step"),
    ),
    HookPoint("save_logs_and_checkpoints", after=_logged_end, parameters=("global_step",)),
    HookPoint("save_best_checkpoint", after=_best_end, optional=True),
    HookPoint("ppo_train", before=_update_begin, after=_stage_end, parameters=("global_steps",)),
    HookPoint("broadcast_to_vllm", before=_sync_begin, after=_sync_end),
)
"""Methods of a trainer, hooked on its class."""
