"""Calls of actor groups: as the controller makes them, and as each rank does them.

Nothing is added to a call on its way. The k-th call of a method of a group is the k-th execution of
that method on each of the group's ranks, so both sides count. A group is named by the class of its
actors: OpenRLHF has one group of each.

Ray puts a method of its own in the place of every method of an actor's class, inherited ones too,
before anything can be hooked. So the rank's side is hooked on that class, in the driver, before
Ray sends it to the ranks.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.adapter.ray_actors import class_of
from rlvr_probe.adapter.spans import end_span, start_call
from rlvr_probe.model.names import CHECKPOINT, OPTIMIZER_STEP, PROCESS
from rlvr_probe.reading import argument, attribute, number, size, word
from rlvr_probe_openrlhf.controller import Controller

__all__ = ["CALLER", "CALLER_BATCH", "GROUP", "OPTIMIZER", "SEEN", "WORK"]

_BATCH = "execute_batch"
"""What does the calls for every row of a batch, by the name of the method for one."""

_OWN = (
    *("fit", "broadcast_to_vllm", "save_checkpoint", "empty_cache"),
    *("reload_states", "offload_states"),
)
SEEN = frozenset({*_OWN, "forward", "append"})
"""Methods that are recorded where they are called and where they are done."""


# ---------------------------------------------------------------- the controller's side


def _is_seen(call: Call) -> bool:
    return Controller.is_here(call) and argument(call, 1, "method_name") in SEEN


def _call_begin(call: Call) -> None:
    group, method = call.args[0], argument(call, 1, "method_name")
    name = word(attribute(class_of(attribute(group, "ray_actor_type")), "__name__"))
    if name is None:
        raise LookupError("a group of actors without a class")
    controller = Controller.of(call.probe)
    where = controller.where()
    if method == "save_checkpoint" and not controller.checkpoint:
        # What decides whether one is due also waits for it, and ends this.
        controller.checkpoint = call.probe.begin(CHECKPOINT, step=where[1], activate=True)
    ranks = size(attribute(group, "_actor_handlers"))
    # OpenRLHF waits for the results elsewhere, and for several groups at once.
    start_call(call, "caller", name, method, where, activate=False, ranks=ranks, waits=0)


CALLER = HookPoint(
    "openrlhf.trainer.ray.launcher:RayActorGroup.async_run_method",
    before=_call_begin,
    after=end_span,
    when=_is_seen,
    parameters=("method_name",),
)
CALLER_BATCH = replace(CALLER, target=f"{CALLER.target}_batch")
"""Calls a method for every row of a batch, of which each rank gets a part."""


# ---------------------------------------------------------------- a rank's side


def _work_begin(method: str, call: Call) -> None:
    actor = call.args[0]
    if method == _BATCH:
        method = argument(call, 1, "method_name")
        if method not in SEEN:
            return
    _record_model(call.probe, actor)
    rank, ranks = number(actor, "_rank"), number(actor, "_world_size")
    start_call(call, "worker", type(actor).__name__, method, rank=rank, ranks=ranks)


def _record_model(probe: Probe, actor: Any) -> None:
    """Record the architecture of the model that an actor of a group trains, once."""
    state = probe.state(actor)
    if "recorded" in state:
        return
    state["recorded"] = True
    # The policy's alone: within what DeepSpeed made of it, whose own config is a dict.
    model = word(attribute(actor, "actor", "model", "module", "config", "model_type"))
    if model is not None:
        probe.emit(PROCESS, {"model_type": model})


WORK = tuple(
    HookPoint(name, before=partial(_work_begin, name), after=end_span) for name in (_BATCH, *_OWN)
)
"""Methods of the actors of a group."""


def _group_begin(call: Call) -> None:
    """Before the actors of a group are made."""
    kind = class_of(argument(call, 3, "ray_actor_type"))
    if kind is not None:
        call.probe.instrument(kind, WORK)


GROUP = HookPoint(
    "openrlhf.trainer.ray.launcher:RayActorGroup.__init__",
    before=_group_begin,
    parameters=("num_nodes", "num_gpus_per_node", "ray_actor_type"),
)


# ---------------------------------------------------------------- inside a rank's call


def _updates(call: Call) -> bool:
    """Whether this is more than one of several micro-batches that are accumulated."""
    model = argument(call, 2, "model")
    for engine in (attribute(model, "model"), model):
        at_boundary = attribute(engine, "is_gradient_accumulation_boundary")
        if callable(at_boundary):
            return bool(at_boundary())
    return True


OPTIMIZER = HookPoint(
    "openrlhf.utils.deepspeed.deepspeed:DeepspeedStrategy.optimizer_step",
    OPTIMIZER_STEP,
    when=_updates,
)
"""Steps of the optimizer: what each rank does inside a call that is recorded by itself."""
