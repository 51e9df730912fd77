"""The queue between a process that generates and the trainer: what the trainer waits for.

A step begins with that wait, as OpenRLHF times it. The queue also carries evaluations, and the
word that there is no more: what was begun then is no step.
"""

from __future__ import annotations

import sys
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.model.names import WAIT
from rlvr_probe.reading import attribute, error_of
from rlvr_probe_openrlhf.controller import controller_of, trainer
from rlvr_probe_openrlhf.session import end_session
from rlvr_probe_openrlhf.steps import begin_step, drop_step

__all__ = ["TAKE", "watch_queues"]


def watch_queues(probe: Probe) -> None:
    """Hook the class of queues, if there is any."""
    kind = attribute(sys.modules.get("ray.util.queue"), "Queue")
    if kind is not None:
        probe.instrument(kind, (TAKE,))


def _is_taken(call: Call) -> bool:
    owner = trainer()
    return owner is not None and attribute(owner, "rollout_queue") is call.args[0]


def _take_begin(call: Call) -> None:
    controller = controller_of(call.probe)
    begin_step(call.probe, controller)
    call.state = call.probe.begin(WAIT, step=controller.where()[1], activate=True)


def _take_end(call: Call) -> None:
    if call.state is None:
        return
    if call.error is None and not _is_batch(call.result):
        controller = controller_of(call.probe)
        call.probe.drop(call.state)
        drop_step(call.probe, controller)
        if call.result == "done":
            controller.episodes = 0
            end_session(call.probe, controller)
        return
    # Which step it is tells the step itself: after a checkpoint nobody knows it yet.
    call.probe.end(call.state, {"on": "rollout_queue"}, error_of(call))


def _is_batch(payload: Any) -> bool:
    """Whether this is a batch: samples come first in it, the word for an evaluation in that."""
    return isinstance(payload, tuple) and bool(payload) and isinstance(payload[0], list)


TAKE = HookPoint("get", before=_take_begin, after=_take_end, when=_is_taken)
"""Hooked on the class of the queue, which is Ray's."""
