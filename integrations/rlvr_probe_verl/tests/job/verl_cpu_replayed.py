"""Run the plug-ins of a replay without a job, with an engine that writes down what it is asked for.

python verl_cpu_replayed.py MODEL [HALF]

The model is that of ``verl_cpu_assets``. Prints a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

from hydra import compose, initialize_config_module
from rlvr_probe_verl.recorded_samples import GROUP, NUMBER, ROW, compute_score
from rlvr_probe_verl.replay import VerlReplay
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
from verl.utils.dataset.rl_dataset import get_dataset_class
from verl.workers.rollout.replica import TokenOutput

from rlvr_probe.steering import (
    Plan,
    PlannedBatch,
    PlannedCall,
    PlannedGroup,
    PlannedSample,
    PlannedTool,
    PlannedTurn,
    Steering,
)

ONE = PlannedSample(4, False, (0.5,))
TURNS = PlannedSample(
    11, False, (0.25,),
    # Tools add 4 tokens; the agent drops 6, and what it is told then is 1.
    turns=(PlannedTurn(5, 3), PlannedTurn(12, 2), PlannedTurn(8, 1)),
    tools=(PlannedTool(0, 0.2), PlannedTool(0, 0.3), PlannedTool(1, 0.1)),
)  # fmt: skip
CALLS = (PlannedCall(0, 0, 0.15, row=0),)
PLAN = Plan(
    "made", "verl", (PlannedBatch(1, (PlannedGroup(5, (ONE, TURNS)),), CALLS, 1),), ("a",), 2, 16
)


class Engine:
    """Gives as many tokens as it is asked for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        """One request."""
        count = sampling_params["max_tokens"]
        line = {
            "request": request_id,
            "prompt": prompt_ids,
            **sampling_params,
            "at": time.monotonic(),
        }
        self.asked.append(line)
        return TokenOutput(token_ids=[7] * count, log_probs=[-1.0] * count, extra_fields={})


def main() -> None:
    reported: list[tuple[int, ...]] = []
    said: list[str] = []
    half: Any = sys.argv[2] if len(sys.argv) > 2 else None
    plan = replace(PLAN, half=half)
    steering = Steering(plan, said.append, lambda *values: reported.append(values))
    replay = VerlReplay()
    settings = ModuleType("verl.utils.config")
    settings.validate_config = lambda config: config  # type: ignore[attr-defined]
    replay.steer(settings, steering)
    replay.steer(ModuleType("verl.experimental.agent_loop.single_turn_agent_loop"), steering)
    overrides = [f"++{name}={value}" for name, value in replay.settings(PLAN).items()]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(
            "ppo_trainer", overrides=[*overrides, "actor_rollout_ref.rollout.name=vllm"]
        )
    settings.validate_config(config)
    config = settings.validate_config(config)  # once more, as verl 0.9 does
    given = {"tokenizer": None, "processor": None, "config": config.data}
    dataset = get_dataset_class(config.data)(data_files=config.data.train_files, **given)
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    outputs, engine = [], Engine()
    for row in range(2):
        loop = loop_of(config, tokenizer, engine)
        output = asyncio.run(run(loop, {**dataset[0], ROW: row}))
        number = output.extra_fields[NUMBER]
        start = time.monotonic()
        reward = asyncio.run(compute_score("", "", "", {NUMBER: number}))
        outputs.append(
            {
                "prompt": output.prompt_ids,
                "response": output.response_ids,
                "mask": output.response_mask,
                "log_probs": output.response_logprobs,
                "tools": output.metrics.tool_calls,
                "reward": reward,
                "seconds": time.monotonic() - start,
            }
        )
    result = {
        "end": tokenizer.eos_token_id,
        "rows": len(dataset),
        "group": dataset[0][GROUP],
        "shuffle": config.data.shuffle,
        "said": said,
        "reported": reported,
        "asked": engine.asked,
        "outputs": outputs,
    }
    print(json.dumps(result))


def loop_of(config: Any, tokenizer: Any, engine: Engine) -> Any:
    """The agent loop that is registered, made as verl makes it."""
    from hydra.utils import get_class

    wrapped = {name: SimpleNamespace(config=own) for name, own in (
        ("trainer_config", config), ("data_config", config.data), ("dataset_config", config.data),
    )}  # fmt: skip
    made = get_class(_agent_loop_registry["rlvr_probe_replay"]["_target_"])
    given = {"processor": None, "dataset_cls": get_dataset_class(config.data)}
    return lambda: made(server_manager=engine, tokenizer=tokenizer, **given, **wrapped)


async def run(make: Any, row: dict[str, Any]) -> Any:
    return await make().run({"temperature": 1.0, "logprobs": True}, **row)


if __name__ == "__main__":
    main()
