"""Three-turn agent of a job (``--train.agent_func_path``), which keeps a book of its steps."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import torch
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor
from openrlhf_cpu_books import write
from planted_sleep import sleep_if_planted_async

TURNS = 3


class AgentInstance(AgentInstanceBase):
    def __init__(self, *_: Any, **__: Any) -> None:
        self.turn = 0

    async def reset(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {"observation": states["observation"]}

    async def step(self, state_dict: dict[str, Any], **_: Any) -> dict[str, Any]:
        start = time.monotonic_ns()
        await asyncio.sleep(0.02)  # stands for an environment
        self.turn += 1
        done = self.turn >= TURNS
        if not done:  # the last step is what verifies
            await sleep_if_planted_async("tool", AgentInstance.step.__name__)
        value = 0.25 * self.turn
        write("step", turn=self.turn - 1, value=value, start=start, end=time.monotonic_ns())
        return {
            "rewards": torch.tensor(value),
            "scores": torch.tensor(float(done)),
            "environment_feedback": "" if done else " what is 1 plus 2 ?",
            "done": done,
            "sampling_params": state_dict.get("sampling_params"),
            "extra_logs": {"turns": torch.tensor(self.turn)},
        }


class AgentExecutor(MultiTurnAgentExecutor):
    def __init__(self) -> None:
        super().__init__(AgentInstance)
