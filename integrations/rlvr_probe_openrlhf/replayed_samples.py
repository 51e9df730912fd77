"""The executor of a replay: samples with the prompts, lengths, turns and rewards of the plan.

It calls OpenRLHF's own executors. Prompts, and what an environment answers, are token ids in place
of what the tokenizer makes of a text; each request asks the engine for as many tokens as planned.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import count
from types import ModuleType
from typing import Any

from rlvr_probe.exceptions import SteeringError
from rlvr_probe.steering import Plan, PlannedGroup, PlannedSample, drawn_tokens, row_waits
from rlvr_probe_openrlhf import recorded_rewards
from rlvr_probe_openrlhf.recorded_rewards import PlannedLabel

__all__ = ["PlannedExecutor", "answers"]


def _waits(plan: Plan) -> Iterator[list[float]]:
    """Seconds that reward functions take for each sample, by group of the plan."""
    for batch in plan.batches:
        seconds, rows = row_waits(batch), count()
        for group in batch.groups:
            yield [seconds.get(next(rows), 0.0) for _ in group.samples]


class PlannedExecutor:
    """Stands for an ``AgentExecutor`` in the actor that has an engine.

    Args:
        plan: Of the replay.
        agents: ``openrlhf.trainer.ray.vllm_engine`` or another module that has executors.
        own: The executor of the command. Evaluations are its, and rewards if none are planned.
    """

    def __init__(self, plan: Plan, agents: ModuleType, own: Any) -> None:
        self._plan, self._agents, self._own = plan, agents, own
        self._groups, self._waits = list(plan.groups), list(_waits(plan))
        self._started = Counter[int]()
        self._usable = list[int]()
        self._single = own
        if plan.functions:
            self._single = agents.SingleTurnAgentExecutor([recorded_rewards.__file__])

    async def execute(
        self,
        prompt: Any,
        label: Any,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        **more: Any,
    ) -> dict[str, Any]:
        """One sample, as OpenRLHF has it.

        Raises:
            SteeringError: It is not the planned one.
        """
        given = {"prompt": prompt, "max_length": max_length, **more}
        if not isinstance(label, PlannedLabel):  # an evaluation
            engine = {"hf_tokenizer": hf_tokenizer, "llm_engine": llm_engine}
            evaluated: dict[str, Any] = await self._own.execute(
                label=label, sampling_params=sampling_params, **given, **engine
            )
            return evaluated
        # OpenRLHF starts the samples of a prompt in their order.
        group, number = self._groups[label.group], self._started[label.group]
        self._started[label.group] += 1
        number %= len(group.samples)
        sample = group.samples[number]
        own, planned = label.own, bool(self._plan.functions)
        seconds = self._waits[label.group][number]
        label = PlannedLabel.of(label.group, own, seconds, sample.reward)
        executor = self._single
        if sample.turns:
            executor = self._agents.MultiTurnAgentExecutor(_environment(self._agents, sample))
        made: dict[str, Any] = await executor.execute(
            label=label if planned else own,
            # Agents change it, and the samples of a prompt have the same one.
            sampling_params=deepcopy(sampling_params),
            hf_tokenizer=_Texts(hf_tokenizer, self._ids(hf_tokenizer, label.group, group, sample)),
            llm_engine=_Engine(llm_engine, _requests(sample), hf_tokenizer.eos_token_id),
            **given,
        )
        if planned and made["reward"] is None:
            raise SteeringError("OpenRLHF has no reward of a sample; its log says why")
        made["label"] = label
        return made

    def _ids(
        self, tokenizer: Any, index: int, group: PlannedGroup, sample: PlannedSample
    ) -> Iterator[list[int]]:
        """Token ids of the prompt, then of what each turn is answered."""
        if not self._usable:
            # Once: Ray makes a tokenizer anew for each call, and its vocabulary is large.
            special = set(tokenizer.all_special_ids)
            self._usable = [token for token in range(tokenizer.vocab_size) if token not in special]
        for turn, tokens in enumerate([group.prompt_tokens, *answers(group, sample)]):
            yield drawn_tokens(self._plan, index, self._usable, count=tokens, turn=turn)


def answers(group: PlannedGroup, sample: PlannedSample) -> list[int]:
    """Tokens that are added after each turn; negative where the context became shorter."""
    if not sample.turns:
        return []
    starts = [turn.prompt_tokens for turn in sample.turns[1:]]
    starts.append(group.prompt_tokens + sample.response_tokens)
    return [
        start - turn.prompt_tokens - turn.response_tokens
        for turn, start in zip(sample.turns, starts, strict=True)
    ]


def _requests(sample: PlannedSample) -> Iterator[tuple[int, bool]]:
    """Tokens that each request gives, and whether it is cut."""
    for turn in sample.turns[:-1]:
        yield turn.response_tokens, False
    yield (sample.turns[-1] if sample.turns else sample).response_tokens, sample.cut


class _Texts:
    """A tokenizer that has token ids for the texts of a sample, and is the user's otherwise."""

    def __init__(self, own: Any, ids: Iterator[list[int]]) -> None:
        self._own, self._next = own, ids

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __call__(self, text: str, **options: Any) -> Mapping[str, Any]:
        import torch

        return {"input_ids": torch.tensor([next(self._next)], dtype=torch.long)}


class _Engine:
    """An engine whose requests give as many tokens as planned."""

    def __init__(self, own: Any, requests: Iterator[tuple[int, bool]], end: int) -> None:
        self._own, self._requests, self._end = own, requests, end

    async def generate(
        self, prompt_token_ids: Sequence[int], sampling_params: Any, **more: Any
    ) -> Any:
        """What the engine answers. The last token is the one that ends a response, unless cut.

        Raises:
            SteeringError: It has another length.
        """
        tokens, cut = next(self._requests)
        sampling_params = deepcopy(sampling_params)
        # vLLM gives no token that ends a response before the least number is there.
        sampling_params.max_tokens = sampling_params.min_tokens = tokens
        made = await self._own.generate(prompt_token_ids, sampling_params, **more)
        [output] = made.outputs
        if len(output.token_ids) != tokens:
            raise SteeringError(
                f"the engine gave {len(output.token_ids)} tokens; expected {tokens}, which"
                " min_tokens and max_tokens of the request are"
            )
        if cut:
            output.finish_reason = "length"
            return made
        last = output.token_ids[-1]
        output.token_ids = [*output.token_ids[:-1], self._end]
        output.finish_reason = "stop"
        if output.logprobs and last != self._end:
            output.logprobs[-1] = {**output.logprobs[-1], self._end: output.logprobs[-1][last]}
        return made


def _environment(agents: ModuleType, sample: PlannedSample) -> type[Any]:
    """The environment of one sample: its tools wait, and its last step gives the reward."""

    class PlannedEnvironment(agents.AgentInstanceBase):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            self.turn = 0

        async def step(self, state_dict: dict[str, Any], **_: Any) -> dict[str, Any]:
            import torch

            label = state_dict["label"]
            own = [tool.seconds for tool in sample.tools if tool.turn == self.turn]
            self.turn += 1
            done = self.turn == len(sample.turns)
            await asyncio.sleep(sum(own) + (label.seconds if done else 0.0))
            reward = torch.tensor(label.reward if done else 0.0)
            return {
                "rewards": reward,
                "scores": reward,
                "environment_feedback": "",
                "done": done,
                "extra_logs": {},
            }

    return PlannedEnvironment
