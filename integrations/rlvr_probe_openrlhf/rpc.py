"""Calls of actor groups: as the controller makes them, and as each rank does them.

Nothing is added to a call on its way. The k-th call of a method of a group is the k-th execution of
that method on each of the group's ranks, so both sides count. A group is named by the class of its
actors: OpenRLHF has one group of each.

Ray puts a method of its own in the place of every method of an actor's class, inherited ones too,
before anything can be hooked. So the rank's side is hooked on that class, in the driver, before
Ray sends it to the ranks.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.model.names import CHECKPOINT, PROCESS, RPC
from rlvr_probe.reading import argument, attribute, error_of, number, word
from rlvr_probe_openrlhf.controller import controller_of, is_controller, named

__all__ = ["CALLER", "CALLER_BATCH", "GROUP", "SEEN", "WORK", "class_of"]

_BATCH = "execute_batch"
"""What does the calls for every row of a batch, by the name of the method for one."""

_OWN = (
    *("fit", "broadcast_to_vllm", "save_checkpoint", "empty_cache"),
    *("reload_states", "offload_states"),
)
SEEN = frozenset({*_OWN, "forward", "append"})
"""Methods that are recorded where they are called and where they are done."""

_calls: Counter[tuple[str, str, str]] = Counter()
"""Calls so far, by side, group and method."""


def _count(side: str, group: str, method: str) -> int:
    """Calls of this method before this one."""
    key = (side, group, method)
    _calls[key] += 1
    return _calls[key] - 1


def class_of(actor: Any) -> Any:
    """The class that Ray makes actors of; None for what is no actor's."""
    return attribute(actor, "__ray_metadata__", "modified_class")


def _end(call: Call) -> None:
    if call.state is not None:
        span, values = call.state
        call.probe.end(span, values, error_of(call))


# ---------------------------------------------------------------- the controller's side


def _is_seen(call: Call) -> bool:
    return is_controller(call) and argument(call, 1, "method_name") in SEEN


def _call_begin(call: Call) -> None:
    group, method = call.args[0], argument(call, 1, "method_name")
    name = word(attribute(class_of(attribute(group, "ray_actor_type")), "__name__"))
    if name is None:
        raise LookupError("a group of actors without a class")
    actors = attribute(group, "_actor_handlers")
    controller = controller_of(call.probe)
    where = controller.where()
    if method == "save_checkpoint" and not controller.checkpoint:
        # What decides whether one is due also waits for it, and ends this.
        controller.checkpoint = call.probe.begin(CHECKPOINT, step=where[1], activate=True)
    values = {
        **named(where),
        "side": "caller",
        "group": name,
        "method": method,
        "call": _count("caller", name, method),
        "ranks": len(actors) if isinstance(actors, list) else None,
        # OpenRLHF waits for the results elsewhere, and for several groups at once.
        "waits": 0,
    }
    call.state = (call.probe.begin(RPC, detail=method, step=where[1]), values)


CALLER = HookPoint(
    "openrlhf.trainer.ray.launcher:RayActorGroup.async_run_method",
    before=_call_begin,
    after=_end,
    when=_is_seen,
    parameters=("method_name",),
)
CALLER_BATCH = HookPoint(
    "openrlhf.trainer.ray.launcher:RayActorGroup.async_run_method_batch",
    before=_call_begin,
    after=_end,
    when=_is_seen,
    parameters=("method_name",),
)
"""Calls a method for every row of a batch, of which each rank gets a part."""


# ---------------------------------------------------------------- a rank's side


def _work_begin(method: str, call: Call) -> None:
    actor = call.args[0]
    if method == _BATCH:
        method = argument(call, 1, "method_name")
        if method not in SEEN:
            return
    _tell_model(call.probe, actor)
    group = type(actor).__name__
    values = {
        "side": "worker",
        "group": group,
        "method": method,
        "call": _count("worker", group, method),
        "rank": number(actor, "_rank"),
        "ranks": number(actor, "_world_size"),
    }
    call.state = (call.probe.begin(RPC, detail=method, activate=True), values)


def _tell_model(probe: Probe, actor: Any) -> None:
    """Tell the architecture of the model that an actor of a group trains, once."""
    state = probe.state(actor)
    if "told" in state:
        return
    state["told"] = True
    # The policy's alone: within what DeepSpeed made of it, whose own config is a dict.
    model = word(attribute(actor, "actor", "model", "module", "config", "model_type"))
    if model is not None:
        probe.emit(PROCESS, {"model_type": model})


WORK = tuple(
    HookPoint(name, before=partial(_work_begin, name), after=_end) for name in (_BATCH, *_OWN)
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
