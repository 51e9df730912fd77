"""Plug-ins of verl that a replay has it load: a dataset and an agent loop.

The one module that imports verl as it is imported: verl does it, by the name in its settings.
"""

from __future__ import annotations

import random
from functools import cache, lru_cache
from typing import Any

import torch
from verl.experimental.agent_loop.agent_loop import register
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.utils.dataset.rl_dataset import RLHFDataset, get_dataset_class

from rlvr_probe.exceptions import SteeringError
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
    """verl's own loop of one turn, with the lengths of a planned sample."""

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
        forced = _forced(self.rollout_config.name, sample.response_tokens)
        output = await super().run({**sampling_params, **forced}, **kwargs)
        found = len(output.prompt_ids), len(output.response_ids)
        expected = known.groups[group].prompt_tokens, sample.response_tokens
        if found != expected:
            raise SteeringError(
                f"sample {number} was generated with {found[0]} and {found[1]} tokens, expected a"
                f" prompt of {expected[0]} and a response of {expected[1]}: the engine does not"
                " follow the parameters of a request, or its context is too short"
            )
        end = self.tokenizer.eos_token_id
        if not sample.cut:
            output.response_ids[-1] = end
        elif output.response_ids[-1] == end:
            output.response_ids[-1] = self._prompt[0]
        output.extra_fields[NUMBER] = number
        known.report(number)
        return output

    async def ct_build_initial_tokens(self, *_: Any, **__: Any) -> list[int]:
        """Token ids of the prompt, since verl 0.9."""
        return list(self._prompt)

    async def apply_chat_template(self, *_: Any, **__: Any) -> list[int]:
        """The same, before."""
        return list(self._prompt)


def _forced(engine: str, tokens: int) -> dict[str, Any]:
    """Parameters of a request that give exactly so many tokens, none of which ends it."""
    if engine == "sglang":
        return {"max_new_tokens": tokens, "min_new_tokens": tokens, "ignore_eos": True}
    return {"max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True}


@lru_cache(maxsize=1024)
def _drawn_prompt(tokenizer: Any, group: int) -> tuple[int, ...]:
    """Token ids of a prompt: drawn, the same in all processes and for the whole group."""
    known = samples()
    draw = random.Random(f"{known.steering.plan.source} {group}")
    return tuple(draw.choices(_safe(tokenizer), k=known.groups[group].prompt_tokens))


@cache
def _safe(tokenizer: Any) -> list[int]:
    special = set(tokenizer.all_special_ids)
    return [token for token in range(len(tokenizer)) if token not in special]
