"""The Ray adapter: what to hook when Ray is imported."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_probe.adapter import HookPoint
from rlvr_probe_ray.processes import (
    actor_begins,
    actor_started,
    begins_late,
    driver_begins,
    driver_leaves,
    task_begins,
)
from rlvr_probe_ray.propagation import (
    actor_arguments,
    is_late,
    job_arguments,
    task_arguments,
)

__all__ = ["RayAdapter"]

# Not `ray.init`: other names of it cannot be reached, and Ray merges what it is given with the
# environment of the submitted job, refusing what is in both. All of it ends in one of these two.
_JOB = HookPoint(
    "ray._private.worker:connect",
    before=driver_begins,
    arguments=job_arguments,
    parameters=("node", "session_name", "mode"),
)
_LEAVE = HookPoint(
    "ray._private.worker:disconnect", before=driver_leaves, parameters=("exiting_interpreter",)
)
_CLIENT = HookPoint(
    "ray.util.client_connect:connect",
    before=driver_begins,
    arguments=job_arguments,
    parameters=("conn_str",),
)
_ACTOR = HookPoint(
    "ray.actor:ActorClass._remote",
    before=begins_late,
    after=actor_started,
    arguments=actor_arguments,
    parameters=("args", "kwargs"),
)
_TASK = HookPoint(
    "ray.remote_function:RemoteFunction._remote",
    when=is_late,
    before=begins_late,
    arguments=task_arguments,
    parameters=("args", "kwargs", "serialized_runtime_env_info"),
)
_ACTOR_CLASS = HookPoint(
    "ray._private.function_manager:FunctionActorManager.load_actor_class",
    after=actor_begins,
    parameters=("job_id", "actor_creation_function_descriptor"),
)
_FUNCTION = HookPoint(
    "ray._private.function_manager:FunctionActorManager.get_execution_info",
    before=task_begins,
    parameters=("job_id", "function_descriptor"),
)


class RayAdapter:
    """Ray's drivers, actors and tasks, whatever runs in them."""

    name = "ray"
    distribution = "ray"
    tested = ">=2.40,<2.61"

    def hook_points(self, version: str) -> Sequence[HookPoint]:
        """The same functions in every release that is known."""
        return (_JOB, _LEAVE, _CLIENT, _ACTOR, _TASK, _ACTOR_CLASS, _FUNCTION)

    def expected(self, version: str) -> Sequence[HookPoint]:
        """The same: all of them are functions of Ray's own modules."""
        return self.hook_points(version)
