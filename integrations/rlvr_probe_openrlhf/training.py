"""A trainer as it is made, and the begin of a training: from there on, steps are counted."""

from __future__ import annotations

from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.reading import attribute, number
from rlvr_probe_openrlhf.controller import controller_of, learn, trainer
from rlvr_probe_openrlhf.queue import watch_queues
from rlvr_probe_openrlhf.reading import option
from rlvr_probe_openrlhf.rollouts import EVALUATION
from rlvr_probe_openrlhf.session import begin_session
from rlvr_probe_openrlhf.steps import METHODS

__all__ = ["BEGIN", "TRAINER"]


def _begun(call: Call) -> None:
    """After a trainer that generates itself looked for what it goes on from."""
    states = call.result
    if call.error is None and isinstance(states, dict):
        controller = controller_of(call.probe)
        controller.done = number(states.get("global_step")) or 0
        episodes = number(
            option(attribute(trainer(), "args"), "train.num_episodes", "num_episodes")
        )
        begun = number(states.get("episode"))
        controller.episodes = None if episodes is None or begun is None else episodes - begun
        begin_session(call.probe, controller)


BEGIN = HookPoint("init_checkpoint_states", after=_begun)


def _made(call: Call) -> None:
    learn(call)
    if call.error is None:
        call.probe.instrument(call.args[0], (BEGIN, *METHODS, EVALUATION))
        watch_queues(call.probe)


TRAINER = HookPoint("openrlhf.trainer.ppo_trainer:BasePPOTrainer.__init__", after=_made)
"""What the class of every trainer calls. Its methods are hooked on that class: Ray took them."""
