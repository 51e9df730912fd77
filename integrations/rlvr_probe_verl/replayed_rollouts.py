"""Plug-ins of verl that a replay has it load: a dataset and an agent loop.

The one module that imports verl as it is imported: verl does it, by the name in its settings.
"""

# pyright: reportMissingImports=false
# verl is in no environment that types are checked in.

from __future__ import annotations

import asyncio
import math
import random
from functools import cache, lru_cache
from typing import Any
from uuid import uuid4

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, register
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.utils.dataset.rl_dataset import RLHFDataset, get_dataset_class
from verl.utils.profiler import simple_timer
from verl.workers.rollout.replica import TokenOutput

from rlvr_probe.exceptions import SteeringError
from rlvr_probe.steering import PlannedSample, drawn_tokens
from rlvr_probe_verl.recorded_samples import FILES, GROUP, LOOP, NUMBER, ROW, samples

__all__ = ["PlannedDataset", "PlannedLoop"]


class PlannedDataset(RLHFDataset):  # type: ignore[misc]  # verl is not followed
    """The groups of the plan, in their order; other files are the user's, in the user's class."""

    def __new__(cls, data_files: Any, config: Any, **given: Any) -> Any:
        """The dataset of ``data_files``."""
        if data_files == FILES:
            return super().__new__(cls)
        return get_dataset_class(config.rlvr_probe)(data_files=data_files, config=config, **given)

    def __init__(self, data_files: Any, config: Any, **given: Any) -> None:
        self.serialize_dataset = True  # of the base: nothing is read again from files
        self._own = None
        if not samples().steering.plan.functions:
            files = config.rlvr_probe.train_files
            self._own = PlannedDataset(files, config, **given)

    def __len__(self) -> int:
        return len(samples().groups)

    def __getitem__(self, item: int) -> dict[str, Any]:
        """Row of a group; with what the user's reward function expects, if that is used."""
        row = self._own[item % len(self._own)] if self._own is not None else _drawn_row(item)
        return {**row, "agent_name": LOOP, GROUP: item}


def _drawn_row(group: int) -> dict[str, Any]:
    return {
        "raw_prompt": [{"role": "user", "content": f"rlvr-probe group {group}"}],
        "data_source": "rlvr_probe",
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {"index": group},
        "index": group,
        "tools_kwargs": {},
        "interaction_kwargs": {},
        "dummy_tensor": torch.tensor([0], dtype=torch.uint8),
    }


@register(LOOP)
class PlannedLoop(SingleTurnAgentLoop):  # type: ignore[misc]  # verl is not followed
    """verl's own loop of one turn, or several, with the lengths of a planned sample."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """See verl.

        Raises:
            SteeringError: The engine gave another length than planned.
        """
        known = samples()
        group = int(kwargs[GROUP])
        number = known.number(group, int(kwargs["session_id" if "session_id" in kwargs else ROW]))
        sample = known.sample(number)
        self._prompt = _drawn_prompt(self.tokenizer, group)
        if known.steering.plan.half == "training":
            self.server_manager = _Injected(self.tokenizer, number, kwargs.get("global_steps"))
        if sample.turns:
            output = await self._converse(sampling_params, sample, number)
        else:
            forced = self._forced(sampling_params, sample.response_tokens)
            output = await super().run(forced, **kwargs)
        found = len(output.prompt_ids), len(output.response_ids)
        expected = known.groups[group].prompt_tokens, sample.response_tokens
        if found != expected:
            raise _inexact(number, found, expected)
        end = self.tokenizer.eos_token_id
        if not sample.cut and output.response_mask[-1]:
            output.response_ids[-1] = end
        elif sample.cut and output.response_ids[-1] == end:
            output.response_ids[-1] = self._prompt[0]
        output.extra_fields[NUMBER] = number
        known.report(number)
        return output

    async def _converse(
        self, sampling_params: dict[str, Any], sample: PlannedSample, number: int
    ) -> Any:
        """Turn by turn, waiting for tools; what these add is drawn."""
        draw, safe = random.Random(number), _safe(self.tokenizer)
        first, context = len(self._prompt), list(self._prompt)
        mask, scores = list[int](), list[float]()
        metrics, fields, request = dict[str, Any](), dict[str, Any](), uuid4().hex
        output = None

        def add(ids: list[int], generated: int, log_probs: list[float] | None) -> None:
            context.extend(ids)
            mask.extend([generated] * len(ids))
            scores.extend(log_probs or [0.0] * len(ids))

        for index, turn in enumerate(sample.turns):
            add(draw.choices(safe, k=max(0, turn.prompt_tokens - len(context))), 0, None)
            with simple_timer("generate_sequences", metrics):
                output = await self.server_manager.generate(
                    request_id=request,
                    # An agent may have dropped a part of its context.
                    prompt_ids=context[: turn.prompt_tokens],
                    sampling_params=self._forced(sampling_params, turn.response_tokens),
                )
            ids = list(output.token_ids)
            if len(ids) != turn.response_tokens:
                sizes = turn.prompt_tokens, len(ids)
                raise _inexact(number, sizes, (turn.prompt_tokens, turn.response_tokens))
            if index < len(sample.turns) - 1:
                ids[-1] = self.tokenizer.eos_token_id
            add(ids, 1, output.log_probs)
            fields = {**output.extra_fields, **fields}
            with simple_timer("tool_calls", metrics):
                waits = [tool.seconds for tool in sample.tools if tool.turn == index]
                await asyncio.gather(*map(asyncio.sleep, waits))
        size = sample.response_tokens
        add(draw.choices(safe, k=max(0, size - len(mask))), 0, None)
        scored = output is not None and output.log_probs
        return AgentLoopOutput(
            prompt_ids=context[:first],
            response_ids=context[first : first + size],
            response_mask=mask[:size],
            response_logprobs=scores[:size] if scored else None,
            num_turns=2 * len(sample.turns),
            metrics=metrics,
            extra_fields={**fields, "turn_scores": [], "tool_rewards": []},
        )

    def _forced(self, sampling_params: dict[str, Any], tokens: int) -> dict[str, Any]:
        """Parameters of a request that give exactly so many tokens, none of which ends it."""
        new = "new_" if self.rollout_config.name == "sglang" else ""
        forced = {f"max_{new}tokens": tokens, f"min_{new}tokens": tokens, "ignore_eos": True}
        return {**sampling_params, **forced}

    async def ct_build_initial_tokens(self, *_: Any, **__: Any) -> list[int]:
        """Token ids of the prompt, since verl 0.9."""
        return list(self._prompt)

    async def apply_chat_template(self, *_: Any, **__: Any) -> list[int]:
        """The same, before."""
        return list(self._prompt)


class _Injected:
    """Stands for the engine, which is not asked: what it would answer is drawn."""

    def __init__(self, tokenizer: Any, number: int, step: int | None) -> None:
        self._safe = _safe(tokenizer)
        self._group, self._row = divmod(number, samples().group_size)
        self._turn = 0
        # V1 wants to know the weights, which are those after the step before.
        names = () if step is None else ("global_steps", "min_global_steps", "max_global_steps")
        self._fields = {name: int(step or 0) - 1 for name in names}

    async def generate(self, *, sampling_params: dict[str, Any], **_: Any) -> Any:
        """As many tokens as are asked for, each as likely as it was drawn."""
        count = sampling_params.get("max_tokens") or sampling_params["max_new_tokens"]
        plan = samples().steering.plan
        ids = drawn_tokens(
            plan, self._group, self._safe, count=count, turn=self._turn, sample=self._row
        )
        self._turn += 1
        scored = sampling_params.get("logprobs")
        return TokenOutput(
            token_ids=ids,
            log_probs=[-math.log(len(self._safe))] * count if scored else None,
            extra_fields=dict(self._fields),
        )


def _inexact(number: int, found: tuple[int, int], expected: tuple[int, int]) -> SteeringError:
    return SteeringError(
        f"sample {number} was generated with {found[0]} and {found[1]} tokens, expected a prompt of"
        f" {expected[0]} and a response of {expected[1]}: the engine does not follow the parameters"
        " of a request, or its context is too short"
    )


@lru_cache(maxsize=1024)
def _drawn_prompt(tokenizer: Any, group: int) -> tuple[int, ...]:
    """Token ids of a prompt: drawn, the same in all processes and for the whole group."""
    known = samples()
    count = known.groups[group].prompt_tokens
    return tuple(drawn_tokens(known.steering.plan, group, _safe(tokenizer), count=count))


@cache
def _safe(tokenizer: Any) -> list[int]:
    special = set(tokenizer.all_special_ids)
    return [token for token in range(len(tokenizer)) if token not in special]
