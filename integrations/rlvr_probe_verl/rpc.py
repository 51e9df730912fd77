"""Calls of worker groups: as the controller makes them, and as each rank does them.

Nothing is added to a call on its way. The k-th call of a method of a group is the k-th execution of
that method on each of the group's ranks, so both sides count. All roles of a process share one
count by the method's own name: a rank does not know which role it is called as.
"""

from __future__ import annotations

import inspect
import os
from typing import Any

from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.adapter.spans import end_span, start_call
from rlvr_probe.model.names import PROCESS
from rlvr_probe.reading import argument, attribute, number, word
from rlvr_probe_verl.controller import IN_RPC, Controller, facts
from rlvr_probe_verl.filtering import trained_on
from rlvr_probe_verl.reading import batch_rows, tensor
from rlvr_probe_verl.rollouts import engines, generation_begin, generation_end

__all__ = ["CALLER", "WORKER"]


# ---------------------------------------------------------------- the controller's side


def _made(call: Call) -> None:
    group, execute = call.args[0], argument(call, 4, "execute_fn")
    method = str(argument(call, 1, "method_name"))
    alone = attribute(execute, "__name__") == "execute_rank_zero"
    call.state = {
        "group": word(attribute(group, "name_prefix")),
        "method": _own_name(group, method),
        "ranks": 1 if alone else number(group, "world_size"),
        "waits": int(bool(argument(call, 5, "blocking"))),
    }


def _own_name(group: Any, method: str) -> str:
    """Name of a method as its class has it: a process of several roles puts that of one before."""
    bound = attribute(group, "ray_cls_with_init", "cls", method)
    if bound is None:
        return method
    bound = inspect.unwrap(bound)  # Ray puts a function of its own around each
    names: tuple[str, ...] = attribute(bound, "__code__", "co_freevars") or ()
    if "name" not in names or "key" not in names:
        return method
    return str(bound.__closure__[names.index("name")].cell_contents)


def _call_begin(call: Call) -> None:
    made, probe = call.state["made"], call.probe
    where = pending = None
    if Controller.is_here(call) and Controller.of(probe).session is not None:
        where = Controller.of(probe).where()
        if made["method"] == "generate_sequences" and call.args:
            pending = generation_begin(probe, call.args[0])
        elif made["method"] == "update_actor" and call.args:
            trained_on(probe, call.args[0])
    start_call(call, "caller", **made, where=where, samples=batch_rows(call.args, call.kwargs))
    call.state = (*call.state, IN_RPC.set(True), pending)


def _call_end(call: Call) -> None:
    _, values, token, pending = call.state
    IN_RPC.reset(token)
    end_span(call)
    if pending is not None:
        rows = tensor(call.result, "responses")
        engine = None
        if rows is not None and values["ranks"]:
            engine = engines(pending.rows, len(rows), values["ranks"], _tensor_parallel())
        generation_end(call, pending, call.result, engine)


def _tensor_parallel() -> int:
    tp = facts(Controller.trainer())["rollout_tp"]
    return tp if isinstance(tp, int) else 1


_CALL = HookPoint("func_generator.returned", before=_call_begin, after=_call_end)

CALLER = HookPoint(
    "verl.single_controller.ray.base:func_generator",
    after=_made,
    parameters=("self", "method_name", "dispatch_fn", "collect_fn", "execute_fn", "blocking"),
    returned=_CALL,
)
"""What each method of a worker group is made by."""


# ---------------------------------------------------------------- a rank's side


def _registered(call: Call) -> None:
    mode = argument(call, 0, "dispatch_mode")
    call.state = {"direct": attribute(mode, "name") == "DIRECT_ROLLOUT_METHOD"}


def _decorated(call: Call) -> None:
    call.state = {**call.state["made"], "method": word(attribute(call.args[0], "__name__"))}


def _is_call(call: Call) -> bool:
    # A rank's methods call one another, and servers call some directly: neither is an RPC.
    return not IN_RPC.get() and not call.state["made"]["direct"] and "WG_PREFIX" in os.environ


def _work_begin(call: Call) -> None:
    method, group = call.state["made"]["method"], os.environ["WG_PREFIX"]
    rank, ranks = _environment("RANK"), _environment("WORLD_SIZE")
    start_call(call, "worker", group, method, rank=rank, ranks=ranks)
    call.state = (*call.state, IN_RPC.set(True), None)


def _work_end(call: Call) -> None:
    _call_end(call)
    if call.state[1]["method"] == "init_model":
        model = _model_type(call.args[0])
        if model is not None:
            call.probe.emit(PROCESS, {"model_type": model})


def _model_type(worker: Any) -> str | None:
    """Architecture of the model that a worker trains; None if it trains no actor, or unknown."""
    if attribute(worker, "_is_actor") is True:  # a class for each backend
        model = word(attribute(worker, "actor_model_config", "model_type"))
        if model is not None:
            return model
    # Workers around an engine since 0.7.1: what only has a reference has no actor.
    return word(attribute(worker, "actor", "model_config", "hf_config", "model_type"))


def _environment(name: str) -> int | None:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else None


_WORK = HookPoint("register.decorated", before=_work_begin, after=_work_end, when=_is_call)

WORKER = HookPoint(
    "verl.single_controller.base.decorator:register",
    after=_registered,
    parameters=("dispatch_mode", "execute_mode", "blocking"),
    returned=HookPoint("register.returned", after=_decorated, returned=_WORK),
)
"""The decorator of every method that a worker group can call."""
