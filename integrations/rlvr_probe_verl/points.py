"""Every hook point, and the releases of verl that have it."""

from __future__ import annotations

from dataclasses import replace

from rlvr_probe.adapter import HookPoint
from rlvr_probe.releases import Dated, Release, points_of
from rlvr_probe_verl import (
    filtering,
    loops,
    queue,
    requests,
    rewards,
    rollouts,
    rpc,
    session,
    stages,
    tools,
    verify,
)

__all__ = ["DATED", "METHODS", "looked_up", "points"]

_OLDEST = "0.4.1"
"""First release that is known."""

DATED = (
    Dated(rewards.TRAINER, _OLDEST),
    Dated(rewards.WORKERS, _OLDEST),
    Dated(session.ONE_STEP_OFF, "0.8"),
    Dated(session.SYNC_V1, "0.8", "0.9"),
    Dated(session.TRAINER_V1, "0.9"),
    Dated(stages.SIMPLE_TIMER_0_4, _OLDEST, "0.5"),
    Dated(stages.SIMPLE_TIMER, "0.5"),
    Dated(stages.TIMER_0_4, _OLDEST, "0.5"),
    Dated(stages.NVTX_TIMER_0_4, _OLDEST, "0.5"),
    Dated(stages.TIMER, "0.5"),
    Dated(stages.NVTX_TIMER, "0.5"),
    Dated(stages.MSTX_TIMER, "0.5"),
    Dated(stages.VALIDATE, _OLDEST),
    Dated(stages.VALIDATE_SYNC_V1, "0.8", "0.9"),
    Dated(stages.VALIDATE_V1, "0.9"),
    Dated(rpc.CALLER, _OLDEST),
    Dated(rpc.WORKER, _OLDEST),
    Dated(rollouts.MANAGER, "0.5"),
    Dated(rollouts.PADDING, _OLDEST),
    Dated(filtering.REORDER, _OLDEST),
    Dated(filtering.SELECT, _OLDEST),
    Dated(filtering.ADVANTAGES, _OLDEST),
    *loops.LOOPS,
    *requests.REQUESTS,
    *tools.TOOLS,
    *verify.VERIFICATION,
    *queue.QUEUE,
)
"""Hooked when their module is imported."""

_LOOPS = "verl.experimental.agent_loop"
_MANAGER = f"{_LOOPS}.agent_loop:AsyncLLMServerManager"
_CLIENT = "verl.workers.rollout.llm_server:LLMServerClient"
_TOOL_LOOP = f"{_LOOPS}.tool_agent_loop:ToolAgentLoop"
_BUFFER = "verl.trainer.ppo.v1.replay_buffer:ReplayBuffer"


def _method(owner: str, point: HookPoint, since: str, until: str | None = None) -> Dated:
    return Dated(replace(point, target=f"{owner}.{point.target}"), since, until)


METHODS = (
    _method(f"{_LOOPS}.single_turn_agent_loop:SingleTurnAgentLoop", loops.RUN, "0.5"),
    _method(_TOOL_LOOP, loops.RUN, "0.5"),
    _method(_TOOL_LOOP, tools.USE, "0.5"),
    _method(_TOOL_LOOP, tools.INTERACT, "0.6", "0.8"),
    _method("verl.tools.base_tool:BaseTool", tools.CREATE, "0.5"),
    _method("verl.tools.base_tool:BaseTool", tools.EXECUTE, "0.5"),
    _method("verl.tools.function_tool:FunctionTool", tools.FUNCTION, "0.8"),
    _method(_MANAGER, requests.GENERATE, "0.5", "0.8"),
    _method(_MANAGER, requests.CHOOSE, "0.5", "0.7.1"),
    _method(_MANAGER, requests.ACQUIRE, "0.7.1", "0.8"),
    _method(_CLIENT, requests.GENERATE, "0.8"),
    _method(_CLIENT, requests.ACQUIRE, "0.8"),
    _method(_CLIENT, requests.NAME, "0.9"),
    *(_method(_BUFFER, point, "0.9") for point in queue.BUFFER),
)
"""Hooked on the classes of agent loops, of their clients and tools, and of the replay buffer: these
are often users' own. Named here on those of verl."""


def points(at: Release) -> tuple[HookPoint, ...]:
    """Hook points of release ``at``; each is set when its module is imported."""
    return points_of(DATED, at)


def looked_up(at: Release) -> tuple[HookPoint, ...]:
    """The methods of release ``at``, named on verl's own classes."""
    return points_of(METHODS, at)
