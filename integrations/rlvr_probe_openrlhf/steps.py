"""Steps and their stages, on the controller.

The loop itself is an actor's own method, which cannot be hooked before Ray takes it; what it calls
can. A step starts with what it generates, or with the wait for what another process generated, and
ends when it is logged.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.adapter.batch_events import emit_rewards
from rlvr_probe.adapter.controller import named
from rlvr_probe.adapter.spans import end_span, open_stage, start_stage
from rlvr_probe.model import names
from rlvr_probe.reading import argument, attribute, error_of, number, option
from rlvr_probe_openrlhf.controller import Controller, reward_function
from rlvr_probe_openrlhf.reading import scores_of
from rlvr_probe_openrlhf.rollouts import EVALUATION

__all__ = ["BEGIN", "METHODS", "STAGES", "TAKE", "TRAINER"]

_MAKER = "openrlhf.trainer.ppo_utils.experience_maker:RemoteExperienceMaker"


# ---------------------------------------------------------------- a step of the run


def _train_begin(call: Call) -> None:
    """Before a batch is trained on."""
    controller = Controller.of(call.probe)
    done = number(argument(call, 2, "global_step"))
    if done is not None:
        controller.done = done
    controller.begin_session(call.probe)
    controller.begin_step(call.probe)
    if attribute(Controller.trainer(), "samples_generator") is not None:  # it generates itself
        return
    _, step, _ = controller.where()
    values = {"session": controller.session, "step": step, "groups": [controller.taken]}
    controller.taken += 1
    call.probe.emit(names.TRAINED, values, parent=controller.step_span)


def _train_end(call: Call) -> None:
    if call.error is not None:
        Controller.of(call.probe).finish_step(call.probe, error_of(call))


def _logged_end(call: Call) -> None:
    """After a step was logged, and its checkpoint written."""
    controller = Controller.of(call.probe)
    _end_checkpoint(call)
    if controller.step_span:
        controller.finish_step(call.probe, error_of(call))
    controller.finish_session(call.probe)


def _end_checkpoint(call: Call) -> None:
    controller = Controller.of(call.probe)
    span, controller.checkpoint = controller.checkpoint, 0
    if span:
        call.probe.end(span, named(controller.where()), error_of(call))


def _best_end(call: Call) -> None:
    """After a checkpoint of the best evaluation was written, if this was one."""
    _end_checkpoint(call)
    # It may be the last thing that a run does.
    Controller.of(call.probe).finish_session(call.probe)


# ---------------------------------------------------------------- stages


def _experience_begin(call: Call) -> None:
    controller = Controller.of(call.probe)
    controller.maker = open_stage(call.probe, names.OLD_LOGPROB, controller.where())


def _advantage_begin(call: Call) -> None:
    controller = Controller.of(call.probe)
    if controller.maker is not None:
        _maker_end(call.probe, controller, None)
        controller.maker = open_stage(call.probe, names.ADVANTAGE, controller.where())


def _experience_end(call: Call) -> None:
    _maker_end(call.probe, Controller.of(call.probe), error_of(call))


def _maker_end(probe: Probe, controller: Controller, error: str | None) -> None:
    """End the stage that the maker of experience is in: forward passes, or advantages."""
    stage, controller.maker = controller.maker, None
    if stage is not None:
        probe.end(*stage, error)


def _forward_end(call: Call) -> None:
    """After the forward passes, of a reward model too."""
    controller = Controller.of(call.probe)
    rows, controller.rows = controller.rows, 0
    if call.error is None and rows:
        scores = scores_of(call.result, rows)
        if scores is None:
            raise LookupError("rewards of a model that are not known of every row")
        function = reward_function(attribute(Controller.trainer(), "args"))
        emit_rewards(call.probe, controller.batch, function, scores)


def _update_begin(call: Call) -> None:
    actor = attribute(call.args[0], "actor_model_group") is not None
    name = names.UPDATE_ACTOR if actor else names.UPDATE_CRITIC
    start_stage(call, name, Controller.of(call.probe).where())


def _sync_begin(call: Call) -> None:
    start_stage(call, names.WEIGHT_SYNC, Controller.of(call.probe).where())


def _sync_end(call: Call) -> None:
    controller = Controller.of(call.probe)
    if call.state is not None and call.error is None:
        controller.synced += 1
    # The step that the weights know of is done but for this.
    end_span(call, weight_version=controller.synced)


_of_maker = partial(HookPoint, when=Controller.is_here)

STAGES = (
    _of_maker(
        f"{_MAKER}.make_experience_batch",
        before=_experience_begin,
        after=_experience_end,
        parameters=("rollout_samples",),
    ),
    _of_maker(f"{_MAKER}.make_experience", after=_forward_end, parameters=("samples_list",)),
    _of_maker(
        f"{_MAKER}.compute_advantages_and_returns",
        before=_advantage_begin,
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
    HookPoint("ppo_train", before=_update_begin, after=end_span, parameters=("global_steps",)),
    HookPoint("broadcast_to_vllm", before=_sync_begin, after=_sync_end),
)
"""Methods of a trainer, hooked on its class."""


# ---------------------------------------------------------------- the queue

# Between a process that generates and the trainer. A step starts with the wait for it, as OpenRLHF
# times it. It also carries evaluations, and the word that there is no more: what was started then
# turns out to be none.


def _is_taken(call: Call) -> bool:
    return attribute(Controller.trainer(), "rollout_queue") is call.args[0]


def _take_begin(call: Call) -> None:
    controller = Controller.of(call.probe)
    controller.begin_step(call.probe)
    call.state = call.probe.begin(names.WAIT, step=controller.where()[1], activate=True)


def _take_end(call: Call) -> None:
    if call.state is None:
        return
    if call.error is None and not _is_batch(call.result):
        controller = Controller.of(call.probe)
        call.probe.drop(call.state)
        controller.drop_step(call.probe)
        if call.result == "done":
            controller.episodes = 0
            controller.finish_session(call.probe)
        return
    # The step itself says which one it is: after a checkpoint that is unknown until then.
    call.probe.end(call.state, {"on": "rollout_queue"}, error_of(call))


def _is_batch(payload: Any) -> bool:
    """Whether this is a batch: samples come first in it, the word for an evaluation in that."""
    return isinstance(payload, tuple) and bool(payload) and isinstance(payload[0], list)


TAKE = HookPoint("get", before=_take_begin, after=_take_end, when=_is_taken)
"""Hooked on the class of the queue, which is Ray's."""


# ---------------------------------------------------------------- a trainer as it is made


def _begun(call: Call) -> None:
    """After a trainer that generates itself looked for what it goes on from: steps are counted."""
    states = call.result
    if call.error is None and isinstance(states, dict):
        controller = Controller.of(call.probe)
        controller.done = number(states.get("global_step")) or 0
        args = attribute(Controller.trainer(), "args")
        episodes = number(option(args, "train.num_episodes", "num_episodes"))
        episode = number(states.get("episode"))
        controller.episodes = None if episodes is None or episode is None else episodes - episode
        controller.begin_session(call.probe)


BEGIN = HookPoint("init_checkpoint_states", after=_begun)


def _made(call: Call) -> None:
    Controller.learn(call)
    if call.error is None:
        call.probe.instrument(call.args[0], (BEGIN, *METHODS, EVALUATION))
        queue = attribute(sys.modules.get("ray.util.queue"), "Queue")
        if queue is not None:
            call.probe.instrument(queue, (TAKE,))


TRAINER = HookPoint("openrlhf.trainer.ppo_trainer:BasePPOTrainer.__init__", after=_made)
"""What the class of every trainer calls. Its methods are hooked on that class: Ray took them."""
