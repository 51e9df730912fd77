"""Steers TRL's trainers: a recorded workload, generated and trained on by GRPO or RLOO.

What TRL offers as arguments is used: a dataset, whose rows say which group of the plan they are,
and reward functions. Prompts are token ids, in place of what the tokenizer would make of a row; the
length of each sample is forced by parameters of its request to vLLM, or by a logits processor of
``transformers.generate``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from inspect import signature
from itertools import cycle, islice
from types import ModuleType
from typing import Any

from rlvr_probe.exceptions import SteeringError
from rlvr_probe.reading import attribute
from rlvr_probe.steering import Plan, PlannedBatch, PlannedSample, Steering, drawn_tokens
from rlvr_probe_trl.forced_lengths import generate_forced
from rlvr_probe_trl.forced_requests import engine_of, request_forced
from rlvr_probe_trl.halves import inject_responses, skip_updates
from rlvr_probe_trl.planned_prompts import PlannedPrompts, replaced
from rlvr_probe_trl.recorded_rewards import make_rewards

__all__ = ["TrlReplay"]

_COLUMN = "rlvr_probe_group"
"""Of the dataset: position of a row's group among all groups of the plan."""
_PROMPT = "rlvr-probe group {}"
_TRAINERS = {
    "trl.trainer.grpo_trainer": "GRPOTrainer",
    "trl.trainer.rloo_trainer": "RLOOTrainer",
}


class TrlReplay:
    """TRL's online trainers, since 0.24, that generate in their own processes."""

    name = "trl"
    modules = tuple(_TRAINERS)

    def refusal(self, plan: Plan) -> str | None:
        """See :class:`~rlvr_probe.steering.Replay`."""
        sizes = {len(batch.groups) for batch in plan.batches}
        members = {len(group.samples) for group in plan.groups}
        if any(sample.turns for sample in plan.samples):
            return "turns and tool calls cannot be steered in TRL"
        if len(members) > 1 or max(members) < 2:
            found = ", ".join(map(str, sorted(members)))
            return f"groups have {found} samples; TRL needs the same number in each, and 2 of them"
        if len(sizes) > 1:
            found = ", ".join(map(str, sorted(sizes)))
            return f"batches have {found} prompts; choose steps of one size with --steps"
        return None

    def settings(self, plan: Plan) -> Mapping[str, object]:
        """See :class:`~rlvr_probe.steering.Replay`. For as many ranks as were recorded."""
        ranks, per_batch, iterations, accumulation = (
            plan.ranks or 1,
            plan.steps_per_generation or 1,
            plan.iterations or 1,
            plan.accumulation or plan.steps_per_generation or 1,
        )
        if plan.framework != self.name or _rows(plan) % (ranks * per_batch):
            ranks, per_batch, iterations, accumulation = 1, 1, 1, 1
        return {
            "ranks": ranks,
            "max_steps": len(plan.batches) * per_batch * iterations // accumulation,
            "per_device_train_batch_size": _rows(plan) // (ranks * per_batch),
            "steps_per_generation": per_batch,
            "num_iterations": iterations,
            "gradient_accumulation_steps": accumulation,
            "num_generations": plan.group_size,
            "max_completion_length": plan.cap,
        }

    def losses(self, plan: Plan) -> Sequence[str]:
        """See :class:`~rlvr_probe.steering.Replay`."""
        lost = [
            "texts are drawn: what depends on them, as routing to experts, is not as recorded",
            "a workload has no evaluations: those of the command run as they are",
        ]
        early = sum(sample.cut and sample.response_tokens < plan.cap for sample in plan.samples)
        if early:
            lost.append(f"{early:,} samples that were cut before the cap end with an end token")
        dropped = sum(not group.trained for group in plan.groups)
        if dropped:
            lost.append(f"{dropped:,} groups that a filter dropped are trained on: TRL has none")
        return lost

    def steer(self, module: ModuleType, steering: Steering) -> None:
        """See :class:`~rlvr_probe.steering.Replay`."""
        trainer = getattr(module, _TRAINERS[module.__name__])
        construct = trainer.__init__

        @wraps(construct)
        def steered(self: Any, *args: Any, **kwargs: Any) -> None:
            given = signature(construct).bind(self, *args, **kwargs)
            training = _Training(steering, with_async=hasattr(module, "asyncio"))
            training.replace_arguments(given.arguments)
            construct(*given.args, **given.kwargs)
            training.take_over(self)

        trainer.__init__ = steered


def _rows(plan: Plan) -> int:
    """Samples of a batch over all ranks."""
    return sum(1 for _ in plan.batches[0].samples)


@dataclass(slots=True)
class _Rows:
    """What one rank generates of a batch.

    Attributes:
        number: Of the batch, in the plan.
        batch: It.
        share: Rank.
        shares: Ranks.
        samples: In the order of the rows.
    """

    number: int
    batch: PlannedBatch
    share: int
    shares: int
    samples: Sequence[PlannedSample]


class _Training:
    """One trainer that is steered."""

    def __init__(self, steering: Steering, *, with_async: bool) -> None:
        self._steering = steering
        self._with_async = with_async
        self._plan = steering.plan
        self._groups = list(self._plan.groups)
        self._now: _Rows | None = None

    # ---------------------------------------------------------------- what TRL is given

    def replace_arguments(self, given: dict[str, Any]) -> None:
        """Put dataset and reward functions of the plan in place of the user's.

        Raises:
            SteeringError: The trainer is set in a way that does not fit the plan.
        """
        args = given.get("args")
        if args is None:
            raise SteeringError("the trainer has no args; expected its configuration")
        wrong = [*_unsteered(args, given), *self._misfits(args)]
        if self._plan.half == "rollout" and attribute(args, "fp16"):
            wrong.append("fp16=False: its loss scaling needs gradients")
        if self._plan.half == "training" and attribute(args, "use_vllm"):
            wrong.append("use_vllm=False: --half training asks no engine")
        if wrong:
            raise SteeringError(f"the training does not fit the workload; set {'; '.join(wrong)}")
        from datasets import Dataset  # type: ignore[import-untyped]

        # The order of the plan is that of the steps.
        args.shuffle_dataset = False
        rows = self._rows_of(given.get("train_dataset"))
        given["train_dataset"] = Dataset.from_list(rows)
        if self._plan.functions:
            functions = make_rewards(self._plan, lambda: self._now, with_async=self._with_async)
            given["reward_funcs"] = functions
            given.pop("reward_processing_classes", None)
            if attribute(args, "reward_weights") and len(args.reward_weights) != len(functions):
                args.reward_weights = None

    def _rows_of(self, dataset: Any) -> list[dict[str, Any]]:
        """One row for each group; the user's reward functions find the columns they expect."""
        own: list[dict[str, Any]] = [{}] * len(self._groups)
        if dataset is not None and not self._plan.functions:
            own = list(islice(cycle(map(dict, islice(dataset, len(own)))), len(own)))
        return [
            {**row, "prompt": _PROMPT.format(index), _COLUMN: index}
            for index, row in enumerate(own)
        ]

    def _misfits(self, args: Any) -> Iterator[str]:
        """Settings that do not fit the sizes of the plan, as they should be."""
        plan = self._plan
        wanted, ranks = _rows(plan), int(args.world_size)
        micro, per_batch = args.per_device_train_batch_size, args.steps_per_generation
        if micro * per_batch * ranks != wanted:
            if wanted % (per_batch * ranks):
                fit = f"a steps_per_generation and a number of ranks that divide {wanted} samples"
            else:
                fit = f"per_device_train_batch_size={wanted // (per_batch * ranks)}"
            yield f"{fit} (found {micro}, on {ranks} ranks, with steps_per_generation={per_batch})"
        if args.num_generations != plan.group_size:
            yield f"num_generations={plan.group_size} (found {args.num_generations})"
        cap = args.max_completion_length
        longest = max(sample.response_tokens for sample in plan.samples)
        if any(_at_cap(sample, plan.cap) for sample in plan.samples) and cap != plan.cap:
            yield f"max_completion_length={plan.cap} (found {cap}), where samples were cut"
        elif cap < longest:
            yield f"max_completion_length={plan.cap} (found {cap})"
        micro_steps = len(plan.batches) * per_batch * args.num_iterations
        steps, rest = divmod(micro_steps, args.gradient_accumulation_steps)
        if rest:
            yield (
                f"a gradient_accumulation_steps that divides {micro_steps} micro steps (found"
                f" {args.gradient_accumulation_steps})"
            )
        elif args.max_steps != steps and (args.max_steps > 0 or args.num_train_epochs != 1):
            yield f"max_steps={steps} (found {args.max_steps})"

    def take_over(self, trainer: Any) -> None:
        """Steer what the trainer generates.

        Raises:
            SteeringError: Its model is too small for the lengths of the plan.
        """
        longest = max(
            group.prompt_tokens + sample.response_tokens
            for group in self._groups
            for sample in group.samples
        )
        room = attribute(trainer.model, "config", "max_position_embeddings")
        if isinstance(room, int) and longest > room:
            raise SteeringError(
                f"a prompt and its response have {longest:,} tokens, and the model has room for"
                f" {room:,}; take another model, or --scale-lengths"
            )
        own = trainer._generate_and_score_completions

        @wraps(own)
        def generate_and_score(inputs: Any) -> Any:
            groups = [row.get(_COLUMN) for row in inputs]
            if groups == [None] * len(groups):  # an evaluation
                return own(inputs)
            rows = self._rows_at(trainer, groups)
            prompts = PlannedPrompts(trainer, self._ids)
            generator, generate = self._generator(trainer, rows, prompts)
            self._now = rows
            with (
                replaced(trainer, "processing_class", prompts),
                replaced(generator, "generate", generate),
            ):
                made = own(inputs)
            self._now = None
            self._steering.report(rows.number, rows.share, rows.shares)
            return made

        trainer._generate_and_score_completions = generate_and_score
        if self._plan.half == "rollout":
            skip_updates(trainer)
        if trainer.accelerator.is_main_process:
            self._introduce(trainer)

    def _generator(
        self, trainer: Any, rows: _Rows, prompts: PlannedPrompts
    ) -> tuple[Any, Callable[..., Any]]:
        """What generates a batch, and what stands for its ``generate``."""
        engine, cap, samples = engine_of(trainer), self._plan.cap, rows.samples
        if engine is None:
            targets, model = _targets(samples, cap), trainer.model
            if self._plan.half == "training":
                draw = partial(self._drawn, rows)
                return model, partial(inject_responses, trainer, targets, prompts.usable, draw)
            return model, partial(generate_forced, model.generate, trainer, targets)
        # Ranks that share an engine ask it for the samples of all of them.
        ranks = attribute(trainer, "args", "vllm_tensor_parallel_size") or 1
        count, first = len(samples) * ranks, rows.share // ranks * ranks * len(samples)
        targets = _targets(list(rows.batch.samples)[first : first + count], cap)
        return engine, partial(request_forced, engine.generate, prompts, targets, prompts.ids)

    def _introduce(self, trainer: Any) -> None:
        say, plan, ranks = self._steering.say, self._plan, trainer.accelerator.num_processes
        say("prompts: token ids, by a dataset of its own (rung 1 of 5, a plug-in point)")
        if plan.half == "training":
            say(
                "half: training, in place of transformers.generate drawn tokens of the planned"
                " lengths (rung 5 of 5): rollout_func would replace more of TRL; nothing waits"
            )
        elif engine_of(trainer) is not None:
            say(
                "lengths: min_tokens, max_tokens and logit_bias of each request (rung 2 of 5,"
                " parameters per request): rollout_func would replace TRL's own generation"
            )
        else:
            say(
                "lengths: a logits processor of transformers.generate (rung 5 of 5): rollout_func"
                " would replace TRL's own generation, and parameters per request, engine trace"
                " replay and tickets in prompts need an engine"
            )
        if plan.half == "rollout":
            say(
                "half: rollout, without forward, backward and gradients of the update (rung 5 of"
                " 5), so that weights stay as they are; log-probabilities are computed"
            )
        if plan.functions:
            say("rewards: reward_funcs of the plan (rung 1 of 5, a plug-in point)")
        else:
            say("rewards: the reward functions of the command, with drawn texts")
        shares = plan.batches[0].shares
        if (plan.ranks or shares) != ranks:
            say(f"recorded on {plan.ranks or shares} ranks, replayed on {ranks}")
        if plan.functions and shares != ranks and plan.half != "training":
            say(f"reward functions take as long as for the slowest of {shares} recorded processes")
        for lost in TrlReplay().losses(plan):
            say(f"not reproduced: {lost}")

    # ---------------------------------------------------------------- a batch

    def _rows_at(self, trainer: Any, groups: Sequence[int]) -> _Rows:
        """What this rank generates, by the groups of its rows.

        Raises:
            SteeringError: They are not those that the recorded trainer had there.
        """
        share, shares = trainer.accelerator.process_index, trainer.accelerator.num_processes
        per_batch, size = len(self._plan.batches[0].groups), self._plan.group_size
        number = groups[0] // per_batch
        rows = range(share * len(groups), (share + 1) * len(groups))
        expected = [number * per_batch + row // size for row in rows]
        if groups != expected:
            raise SteeringError(
                f"TRL took groups {groups} of the plan for a batch; expected {expected}, in the"
                " order of the dataset"
            )
        batch = self._plan.batches[number]
        samples = list(batch.samples)
        return _Rows(number, batch, share, shares, [samples[row] for row in rows])

    def _drawn(self, rows: _Rows, usable: Sequence[int]) -> Iterator[list[int]]:
        """Token ids of each response."""
        size = self._plan.group_size
        first = rows.number * len(rows.batch.groups) * size + rows.share * len(rows.samples)
        for row, own in enumerate(rows.samples, first):
            yield drawn_tokens(
                self._plan, row // size, usable, count=own.response_tokens,
                sample=row % size,
            )  # fmt: skip

    def _ids(self, prompt: str, safe: Sequence[int]) -> list[int]:
        """Token ids of a prompt: drawn, the same in all processes and for the whole group."""
        index = int(prompt.rpartition(" ")[2])
        count = self._groups[index].prompt_tokens
        return drawn_tokens(self._plan, index, safe, count=count)


def _targets(samples: Sequence[PlannedSample], cap: int) -> list[tuple[int, bool]]:
    """Of each sample its tokens, and whether the last of them is an end token."""
    return [(sample.response_tokens, not _at_cap(sample, cap)) for sample in samples]


def _at_cap(sample: PlannedSample, cap: int) -> bool:
    """Whether it ends as TRL cuts: at the cap, and nowhere else."""
    return sample.cut and sample.response_tokens == cap


def _unsteered(args: Any, given: Mapping[str, Any]) -> Iterator[str]:
    """Settings by which TRL generates in another way than the one that is steered."""
    for name in ("use_transformers_continuous_batching", "use_transformers_paged"):
        if attribute(args, name):
            yield f"{name}=False"
    if attribute(args, "use_vllm") and attribute(args, "vllm_mode") != "colocate":
        # It is asked for all samples of a prompt at once, with one length.
        yield 'vllm_mode="colocate"'
    for name in ("rollout_func", "tools", "environment_factory"):
        if given.get(name):
            yield f"no {name}"
