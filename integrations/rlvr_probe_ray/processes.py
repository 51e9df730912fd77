"""What this process is in its Ray job, and which actors it asked for."""

from __future__ import annotations

import sys
from typing import Any

from rlvr_probe.adapter import Call, Probe
from rlvr_probe.model import names
from rlvr_probe.reading import argument
from rlvr_probe_ray.propagation import worker_of_process

__all__ = [
    "actor_begins",
    "actor_started",
    "begins_late",
    "driver_begins",
    "driver_leaves",
    "task_begins",
]

_DRIVER = "driver"
_CLIENT_SERVER = "client_server"
_TASK = "task"
_EXITING_S = 0.5
"""Ray waits as long before it disconnects a driver that exits, for what its workers printed."""


def driver_begins(call: Call) -> None:
    """Before a driver connects: what it starts is to know whose it is."""
    config = call.kwargs.get("job_config")
    if config is not None:
        _record_role(call.probe, _CLIENT_SERVER if config._client_job else _DRIVER)


def begins_late(call: Call) -> None:
    """Before a driver that was not seen to connect starts something."""
    worker = worker_of_process()
    if worker.connected and worker.mode == sys.modules["ray"].SCRIPT_MODE:
        _record_role(call.probe, _DRIVER)


def driver_leaves(call: Call) -> None:
    """Before a driver disconnects, upon which Ray ends the processes of its job."""
    worker = worker_of_process()
    if worker.connected and worker.mode == sys.modules["ray"].SCRIPT_MODE:
        since_s = _EXITING_S if argument(call, 0, "exiting_interpreter") is True else 0.0
        call.probe.emit(names.LEFT, {"since_s": since_s})


def actor_begins(call: Call) -> None:
    """After a worker has loaded the class of the actor that it becomes."""
    worker = worker_of_process()
    actor = worker.core_worker.get_actor_id()
    if not actor.is_nil():
        _record_role(call.probe, _class_name(call.args[2]), actor.hex())


def task_begins(call: Call) -> None:
    """Before a worker looks up what it is to run: a task, unless it is a method."""
    if not call.args[2].class_name:
        _record_role(call.probe, _TASK)


def actor_started(call: Call) -> None:
    """After an actor was asked for."""
    handle = call.result
    if call.error is not None or call.kwargs.get("get_if_exists"):
        return  # of the latter, the call inside this one creates it
    # Through a Ray Client, its server asks for the actor; an actor in Java never records itself.
    if type(handle) is not sys.modules["ray.actor"].ActorHandle or handle._ray_is_cross_language:
        return
    name = _class_name(handle._ray_actor_creation_function_descriptor)
    call.probe.emit(names.STARTED, {"actor": handle._ray_actor_id.hex(), "role": name})


def _record_role(probe: Probe, role: str, actor: str | None = None) -> None:
    """Once for each thing that this process is: a worker that ran tasks may become an actor."""
    worker = worker_of_process()
    recorded = probe.state(worker).setdefault("recorded", set())
    # An actor that is sent the handle of another one loads the class of that one, too.
    if recorded and (role in (_DRIVER, _TASK) or actor in recorded):
        return
    values: dict[str, Any] = {"role": role}
    if actor is not None:
        values["actor"] = actor
    if worker.connected:
        values["node"] = worker.core_worker.get_current_node_id().hex()
    if actor is not None:
        values["accelerators"] = _accelerators() or None
    probe.emit(names.PROCESS, values)
    recorded.add(actor)


def _accelerators() -> list[str]:
    """What Ray gave this actor of the accelerators of its node; parts of one are one."""
    by_kind = sys.modules["ray"].get_runtime_context().get_accelerator_ids()
    return sorted(f"{kind} {number}" for kind, numbers in by_kind.items() for number in numbers)


def _class_name(descriptor: Any) -> str:
    """Of the class alone: one that was made in a function is known by it."""
    return str(descriptor.class_name).rpartition(".")[2]
