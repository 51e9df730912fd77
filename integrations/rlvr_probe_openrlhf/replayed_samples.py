"""The executor of a replay: samples with the prompts, lengths, turns and rewards of the plan.

It calls OpenRLHF's own executors. Prompts, and what an environment answers, are token ids in place
of what the tokenizer makes of a text; each request asks the engine for as many tokens as planned,
and for its end.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

from rlvr_probe.exceptions import SteeringError
from rlvr_probe.steering import Plan, PlannedGroup, PlannedSample, drawn_tokens, row_waits
from rlvr_probe_openrlhf import recorded_rewards
from rlvr_probe_openrlhf.recorded_rewards import PlannedLabel

__all__ = ["answers", "make_executor"]


def _waits(plan: Plan) -> Iterator[list[float]]:
    """Seconds that reward functions take for each sample, by group of the plan."""
    for batch in plan.batches:
        seconds, rows = row_waits(batch), count()
        for group in batch.groups:
            yield [seconds.get(next(rows), 0.0) for _ in group.samples]


def make_executor(plan: Plan, agents: ModuleType, own: Any, endpoints: Any = None) -> Any:
    """An executor of the plan, for an actor that has an engine.

    It is one of OpenRLHF's own, so that it is recorded as those are.

    Args:
        plan: Of the replay.
        agents: ``openrlhf.utils.agent``.
        own: The executor of the command, which evaluates.
        endpoints: Reward functions of the command, in case that none are planned.
    """
    if plan.functions:
        endpoints = [recorded_rewards.__file__]

    class PlannedExecutor(agents.SingleTurnAgentExecutor):  # type: ignore[name-defined,misc]
        agent_instance_cls = _environment(agents)

        def __init__(self) -> None:
            super().__init__(endpoints)
            self.samples = _Samples(plan)
            self.turns = agents.MultiTurnAgentExecutor(self.agent_instance_cls)

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
            given = {"prompt": prompt, "max_length": max_length, **more}
            if not isinstance(label, PlannedLabel):  # an evaluation
                given |= {"hf_tokenizer": hf_tokenizer, "llm_engine": llm_engine}
                evaluated: dict[str, Any] = await own.execute(
                    label=label, sampling_params=sampling_params, **given
                )
                return evaluated
            number, sample, label = self.samples.next_of(label)
            execute = self.turns.execute if sample.turns else super().execute
            engine: Any = _Engine(llm_engine, _requests(sample), hf_tokenizer.eos_token_id)
            if plan.half == "training":
                drawn = self.samples.drawn(hf_tokenizer, label.group, number, sample)
                engine = _Injected(drawn)
            made: dict[str, Any] = await execute(
                label=label if plan.functions else label.own,
                # Agents change it, and the samples of a prompt have the same one.
                sampling_params=deepcopy(sampling_params),
                hf_tokenizer=_Texts(
                    hf_tokenizer, self.samples.ids(hf_tokenizer, label.group, sample)
                ),
                llm_engine=engine,
                **given,
            )
            if plan.functions and made["reward"] is None:
                raise SteeringError("OpenRLHF has no reward of a sample; its log says why")
            made["label"] = label
            return made

    return PlannedExecutor()


class _Samples:
    """The samples of the plan, as an executor starts them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._groups, self._waits = list(plan.groups), list(_waits(plan))
        self._started = Counter[int]()
        self._usable = list[int]()

    def next_of(self, label: PlannedLabel) -> tuple[int, PlannedSample, PlannedLabel]:
        """Position and plan of the next sample of a prompt, and its own label.

        OpenRLHF starts them in their order.
        """
        group = self._groups[label.group]
        number = self._started[label.group] % len(group.samples)
        self._started[label.group] += 1
        sample = group.samples[number]
        waits = [0.0] * max(1, len(sample.turns))
        for tool in sample.tools:
            waits[tool.turn] += tool.seconds
        waits[-1] += self._waits[label.group][number]
        own = PlannedLabel.of(label.group, label.own, tuple(waits), sample.reward)
        return number, sample, own

    def ids(self, tokenizer: Any, group: int, sample: PlannedSample) -> Iterator[list[int]]:
        """Token ids of the prompt, then of what each turn is answered."""
        counts = [self._groups[group].prompt_tokens, *answers(self._groups[group], sample)]
        usable = self._usable_ids(tokenizer)
        for turn, tokens in enumerate(counts):
            yield drawn_tokens(self._plan, group, usable, count=tokens, turn=turn)

    def drawn(
        self, tokenizer: Any, group: int, number: int, sample: PlannedSample
    ) -> Iterator[tuple[list[int], str, float]]:
        """Token ids of each request, what ends it, and the log-probability of a drawn one."""
        usable = self._usable_ids(tokenizer)
        for turn, (tokens, cut) in enumerate(_requests(sample)):
            ids = drawn_tokens(self._plan, group, usable, count=tokens, turn=turn, sample=number)
            if not cut:
                ids[-1] = tokenizer.eos_token_id
            yield ids, "length" if cut else "stop", -math.log(len(usable))

    def _usable_ids(self, tokenizer: Any) -> list[int]:
        if not self._usable:
            # Once: Ray makes a tokenizer anew for each call, and its vocabulary is large.
            special = set(tokenizer.all_special_ids)
            self._usable = [token for token in range(tokenizer.vocab_size) if token not in special]
        return self._usable


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
        """What the engine answers.

        Raises:
            SteeringError: It has another length, or end.
        """
        tokens, cut = next(self._requests)
        params = deepcopy(sampling_params)
        params.max_tokens = params.min_tokens = tokens
        if not cut:
            # vLLM bans the end before the least number of tokens is there; then it is forced.
            params.min_tokens = tokens - 1
            params.stop_token_ids, params.logit_bias = [self._end], {self._end: 100.0}
        made = await self._own.generate(prompt_token_ids, params, **more)
        [output] = made.outputs
        found = len(output.token_ids), output.finish_reason
        if found != (expected := (tokens, "length" if cut else "stop")):
            raise SteeringError(
                f"the engine gave {found[0]} tokens and ended by {found[1]}; expected {expected[0]}"
                f" and {expected[1]}, by min_tokens, max_tokens and logit_bias of the request"
            )
        return made


class _Injected:
    """Stands for an engine, which is not asked: what it would answer is drawn."""

    def __init__(self, drawn: Iterator[tuple[list[int], str, float]]) -> None:
        self._drawn = drawn

    async def generate(self, _: Sequence[int], sampling_params: Any, **__: Any) -> Any:
        """What executors read of an answer."""
        ids, finish, logprob = next(self._drawn)
        known = None
        if sampling_params.logprobs is not None:
            known = [{token: SimpleNamespace(logprob=logprob)} for token in ids]
        output = SimpleNamespace(token_ids=ids, text="", finish_reason=finish, logprobs=known)
        return SimpleNamespace(outputs=[output])


def _environment(agents: ModuleType) -> type[Any]:
    """The environment of a replay: steps wait for tools, and the last one gives the reward."""

    class PlannedEnvironment(agents.AgentInstanceBase):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            self.turn = 0

        async def step(self, state_dict: dict[str, Any], **_: Any) -> dict[str, Any]:
            import torch

            label = state_dict["label"]
            await asyncio.sleep(label.waits[self.turn])
            self.turn += 1
            done = self.turn == len(label.waits)
            reward = torch.tensor(label.reward if done else 0.0)
            return {
                "rewards": reward,
                "scores": reward,
                "environment_feedback": "",
                "done": done,
                "extra_logs": {},
            }

    return PlannedEnvironment
