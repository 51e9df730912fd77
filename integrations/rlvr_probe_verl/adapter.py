"""The verl adapter: every hook point, and the releases of verl that have it."""

from __future__ import annotations

from rlvr_probe.adapter.named_calls import named_call
from rlvr_probe.releases import Dated, DatedAdapter, within
from rlvr_probe_verl import filtering, loops, queue, requests, rewards, rollouts, rpc, tools, verify
from rlvr_probe_verl.controller import LEARNED, OLDEST
from rlvr_probe_verl.stages import TIMERS

__all__ = ["VerlAdapter"]

_ALWAYS = (
    *(rewards.TRAINER, rewards.WORKERS),
    *(rpc.CALLER, rpc.WORKER),
    *(rollouts.PADDING, filtering.REORDER, filtering.SELECT, filtering.ADVANTAGES),
)
_LOGGING = named_call("verl.utils.tracking:Tracking.log")
_LOOPS = "verl.experimental.agent_loop"
_MANAGER = f"{_LOOPS}.agent_loop:AsyncLLMServerManager."
_CLIENT = "verl.workers.rollout.llm_server:LLMServerClient."
_TOOL_LOOP = f"{_LOOPS}.tool_agent_loop:ToolAgentLoop."


class VerlAdapter(DatedAdapter):
    """verl's trainers through Ray: RayPPOTrainer and, from 0.9, the V1 trainers."""

    name = "verl"
    distribution = "verl"
    tested = ">=0.4.1,<0.10"
    imported = (
        *(Dated(point, OLDEST) for point in _ALWAYS),
        *LEARNED,
        *TIMERS,
        Dated(rollouts.MANAGER, "0.5"),
        Dated(_LOGGING, OLDEST),
        *loops.LOOPS,
        *requests.REQUESTS,
        *tools.TOOLS,
        *verify.VERIFICATION,
        *queue.QUEUE,
    )
    methods = (
        *within(f"{_LOOPS}.single_turn_agent_loop:SingleTurnAgentLoop.", (loops.RUN,), "0.5"),
        *within(_TOOL_LOOP, (loops.RUN, tools.USE), "0.5"),
        *within(_TOOL_LOOP, (tools.INTERACT,), "0.6", "0.8"),
        *within("verl.tools.base_tool:BaseTool.", (tools.CREATE, tools.EXECUTE), "0.5"),
        *within("verl.tools.function_tool:FunctionTool.", (tools.FUNCTION,), "0.8"),
        *within(_MANAGER, (requests.GENERATE,), "0.5", "0.8"),
        *within(_MANAGER, (requests.CHOOSE,), "0.5", "0.7.1"),
        *within(_MANAGER, (requests.ACQUIRE,), "0.7.1", "0.8"),
        *within(_CLIENT, (requests.GENERATE, requests.ACQUIRE), "0.8"),
        *within(_CLIENT, (requests.NAME,), "0.9"),
        *within("verl.trainer.ppo.v1.replay_buffer:ReplayBuffer.", queue.BUFFER, "0.9"),
    )
