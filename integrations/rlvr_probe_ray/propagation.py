"""How children get the probe: the variables of this process, in their runtime environment.

A runtime environment is inherited by what an actor or a task starts in turn, one with an
environment of its own included, on every node. The start-up hook reads the variables before
anything is imported. Nothing of the user's is changed: a variable that is there stays.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from rlvr_probe.adapter import Call

__all__ = ["actor_arguments", "is_late", "job_arguments", "task_arguments", "worker_of_process"]

_PREFIX = "RLVR_PROBE"
_REMEMBERED = 64
"""Runtime environments of tasks whose changed form is kept."""


def job_arguments(call: Call) -> Mapping[str, Any]:
    """Of the function that connects a driver: the job's configuration, with our variables."""
    config = call.kwargs.get("job_config")
    if config is None:  # a worker, which has its environment already
        return {}
    changed = _with_ours(config.runtime_env)
    if changed is None:
        return {}
    config = copy.copy(config)  # the user may connect with the same one again
    config.set_runtime_env(changed)
    return {"job_config": config}


def actor_arguments(call: Call) -> Mapping[str, Any]:
    """Of the function that creates an actor: its runtime environment, where the job's is late."""
    changed = _with_ours(call.kwargs.get("runtime_env")) if is_late(call) else None
    return {} if changed is None else {"runtime_env": _runtime_env(changed)}


def task_arguments(call: Call) -> Mapping[str, Any]:
    """The same of the function that submits a task, which has it in its final form."""
    serialized = call.kwargs.get("serialized_runtime_env_info") or ""
    known = call.probe.state(worker_of_process()).setdefault("tasks", {})
    if serialized not in known:
        changed = _with_ours(call.kwargs.get("runtime_env"))
        if changed is None:
            return {}
        if len(known) >= _REMEMBERED:
            known.clear()
        known[serialized] = sys.modules["ray._private.utils"].get_runtime_env_info(
            _runtime_env(changed), is_job_runtime_env=False, serialize=True
        )
    return {"serialized_runtime_env_info": known[serialized]}


def is_late(call: Call) -> bool:
    """Whether Ray was initialised before the probe was there: its job does not have it."""
    worker = worker_of_process()
    if worker is None or not worker.connected:
        return False
    state = call.probe.state(worker)
    job = worker.current_cluster_and_job
    if state.get("job") != job:
        environment = json.loads(worker.runtime_env or "{}")
        state["late"] = _PREFIX not in (environment.get("env_vars") or {})
        state["job"] = job
    return bool(state["late"])


def worker_of_process() -> Any:
    """What Ray calls the worker of this process, a driver's included; None without Ray."""
    return getattr(sys.modules.get("ray._private.worker"), "global_worker", None)


def _with_ours(environment: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A runtime environment with our variables; None if there is nothing to add."""
    runtime_env = dict(environment or {})
    theirs = dict(runtime_env.get("env_vars") or {})
    ours = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_PREFIX) and value and name not in theirs
    }
    return {**runtime_env, "env_vars": {**ours, **theirs}} if ours else None


def _runtime_env(environment: dict[str, Any]) -> Any:
    return sys.modules["ray.runtime_env"].RuntimeEnv(**environment)
