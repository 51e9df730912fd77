"""Steers OpenRLHF's PPO trainer: a recorded workload, generated and trained on.

The trainer's process gets the prompts of the plan in place of its dataset; the actors that have an
engine get an executor in place of the command's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from importlib import import_module
from itertools import chain, repeat
from statistics import fmean
from types import ModuleType
from typing import Any

from rlvr_probe.exceptions import SteeringError
from rlvr_probe.reading import attribute
from rlvr_probe.steering import Plan, PlannedBatch, PlannedSample, Steering
from rlvr_probe_openrlhf.recorded_rewards import PlannedLabel
from rlvr_probe_openrlhf.replayed_samples import answers, make_executor

__all__ = ["OpenrlhfReplay", "PlannedPrompts", "find_misfits"]

_TRAINER = "openrlhf.trainer.ppo_trainer"
_GENERATOR = "openrlhf.trainer.ppo_utils.samples_generator"
_ENGINE = "openrlhf.trainer.ray.vllm_engine"


class OpenrlhfReplay:
    """``openrlhf.cli.train_ppo_ray``, synchronous or not, since 0.10.2."""

    name = "openrlhf"
    modules = (_TRAINER, _GENERATOR, _ENGINE)

    def refusal(self, plan: Plan) -> str | None:
        """See :class:`~rlvr_probe.steering.Replay`."""
        members = {len(group.samples) for group in plan.groups}
        trained = {_trained(batch) for batch in plan.batches}
        if len(members) > 1:
            found = ", ".join(map(str, sorted(members)))
            return f"groups have {found} samples; OpenRLHF needs the same number in each"
        if len(trained) > 1:
            found = ", ".join(map(str, sorted(trained)))
            return f"batches have {found} prompts; choose steps of one size with --steps"
        if any(call.row is None for batch in plan.batches for call in batch.calls):
            return (
                "reward functions of the workload take a whole batch, and OpenRLHF calls them for"
                " each sample; --rewards real takes those of the command instead"
            )
        if plan.functions and any(not _is_rewarded(sample) for sample in plan.samples):
            return "some samples have no reward; --rewards real takes those of the command instead"
        if any(
            min(answers(group, own), default=0) < 0
            for group in plan.groups
            for own in group.samples
        ):
            return "some turns have a shorter context than the turn before has in the end"
        if not plan.functions and any(sample.turns for sample in plan.samples):
            return "turns and tool calls need an environment of the plan, so --rewards sleep"
        if not plan.functions and any(not group.trained for group in plan.groups):
            return "which groups a filter drops follows from their rewards, so --rewards sleep"
        return None

    def settings(self, plan: Plan) -> Mapping[str, object]:
        """See :class:`~rlvr_probe.steering.Replay`."""
        wanted: dict[str, object] = {
            "rollout.batch_size": _trained(plan.batches[0]),
            "rollout.n_samples_per_prompt": plan.group_size,
            "rollout.max_new_tokens": plan.cap,
            "data.max_len": _context(plan),
            "train.num_episodes": 1,
        }
        if any(not group.trained for group in plan.groups):
            wanted["algo.dynamic_filtering_enable"] = True
        return wanted

    def losses(self, plan: Plan) -> Sequence[str]:
        """See :class:`~rlvr_probe.steering.Replay`."""
        lost = [
            "texts are drawn: what depends on them, as routing to experts, is not as recorded",
            "a workload has no evaluations: those of the command run as they are",
            "the token that ends a response is forced, and not sampled",
        ]
        if len(plan.functions) > 1:
            lost.append(f"{len(plan.functions)} reward functions are one, which gives their sum")
        return lost

    def steer(self, module: ModuleType, steering: Steering) -> None:
        """See :class:`~rlvr_probe.steering.Replay`."""
        if module.__name__ == _TRAINER:
            trainer: Any = module
            trainer.prepare_datasets = _preparing(trainer.prepare_datasets, steering)
        elif module.__name__ == _GENERATOR:
            generator = module.SamplesGenerator
            generator.generate_samples = _checking(generator.generate_samples, steering)
        else:
            _replace_executors(module, steering.plan)


def _trained(batch: PlannedBatch) -> int:
    """Prompts of a batch that are trained on."""
    return sum(group.trained for group in batch.groups)


def _is_rewarded(sample: PlannedSample) -> bool:
    return any(reward is not None for reward in sample.rewards)


def _longest(plan: Plan) -> int:
    """Tokens of the longest prompt with its response."""
    return max(
        group.prompt_tokens + own.response_tokens for group in plan.groups for own in group.samples
    )


def _context(plan: Plan) -> int:
    """Tokens that a prompt with its response may have: OpenRLHF keeps room for the cap."""
    return max(_longest(plan), plan.cap + max(group.prompt_tokens for group in plan.groups))


# ---------------------------------------------------------------- engines


def _replace_executors(module: Any, plan: Plan) -> None:
    """Let the actor that has an engine run the executor of the plan."""
    agents = import_module("openrlhf.utils.agent")
    load = module._load_agent_executor

    def single_turn(remote_rm_url: Any = None) -> Any:
        own = agents.SingleTurnAgentExecutor(remote_rm_url)
        return make_executor(plan, agents, own, remote_rm_url)

    @wraps(load)
    def loaded(agent_func_path: str) -> Any:
        if not plan.functions:
            raise SteeringError(
                "an agent may ask for other turns than those of the plan, so --rewards real needs a"
                " reward function; set no train.agent_func_path"
            )
        return make_executor(plan, agents, load(agent_func_path))

    module.SingleTurnAgentExecutor = single_turn
    module._load_agent_executor = loaded


# ---------------------------------------------------------------- the trainer


def _preparing(prepare: Callable[..., Any], steering: Steering) -> Callable[..., Any]:
    """``prepare_datasets`` with the prompts of the plan."""

    @wraps(prepare)
    def prepared(strategy: Any, tokenizer: Any) -> Any:
        plan, args = steering.plan, strategy.args
        if wrong := list(find_misfits(plan, args)):
            raise SteeringError(f"the training does not fit the workload; set {'; '.join(wrong)}")
        prompts, *others, _ = prepare(strategy, tokenizer)
        if not len(prompts):
            raise SteeringError("the training has no prompt; expected one of any kind at least")
        samples = sum(_trained(batch) for batch in plan.batches) * plan.group_size
        steps = samples // args.train.batch_size * args.train.max_epochs
        if plan.half == "rollout":
            # Until then OpenRLHF trains its critic alone, and there is none.
            args.critic.freezing_steps = len(plan.batches)
        _introduce(steering, args)
        return (PlannedPrompts(plan, prompts), *others, steps)

    return prepared


def _introduce(steering: Steering, args: Any) -> None:
    say, plan = steering.say, steering.plan
    say("prompts: token ids, by a data loader of its own (rung 1 of 5, a plug-in point)")
    if plan.half == "training":
        say(
            "half: training; an agent executor answers with drawn tokens in place of the engine,"
            " which gets weights all the same (rung 1 of 5, a plug-in point); nothing waits"
        )
    else:
        say(
            "lengths and ends: an agent executor that sets min_tokens, max_tokens and logit_bias of"
            " each request (rung 2 of 5, parameters per request)"
        )
    if plan.half == "rollout":
        say(
            "half: rollout, by critic.freezing_steps (rung 1 of 5, a setting): log-probabilities"
            " are computed and weights moved; actors keep their batches until the end"
        )
    if not plan.functions:
        say("rewards: the reward function of the command, with drawn texts")
    elif any(sample.turns for sample in plan.samples):
        say("rewards and tools: an environment of the plan (rung 1 of 5, a plug-in point)")
    else:
        say("rewards: a reward file of the plan (rung 1 of 5, a plug-in point)")
    ranks = args.actor.num_nodes * args.actor.num_gpus_per_node
    if plan.ranks is not None and plan.ranks != ranks:
        say(f"recorded on {plan.ranks} GPUs; the policy is trained on {ranks} here")
    for lost in OpenrlhfReplay().losses(plan):
        say(f"not reproduced: {lost}")


def find_misfits(plan: Plan, args: Any) -> Iterator[str]:
    """Settings that do not fit the sizes of the plan, as they should be."""
    if attribute(args, "rollout", "batch_size") is None:
        yield "up OpenRLHF 0.10.2 or newer: this release cannot be steered"
        return
    prompts, generated = _trained(plan.batches[0]), args.rollout.vllm_generate_batch_size
    if attribute(args, "train", "partial_rollout_enable"):
        yield "no train.partial_rollout_enable"
    if plan.half == "rollout" and args.algo.advantage.estimator == "gae":
        yield "another algo.advantage.estimator than gae, whose critic --half rollout would train"
    if args.rollout.batch_size != prompts:
        yield f"rollout.batch_size={prompts} (found {args.rollout.batch_size})"
    elif generated not in (None, prompts):
        yield f"rollout.vllm_generate_batch_size={prompts} (found {generated})"
    if args.rollout.n_samples_per_prompt != plan.group_size:
        found = args.rollout.n_samples_per_prompt
        yield f"rollout.n_samples_per_prompt={plan.group_size} (found {found})"
    if args.train.num_episodes != 1:
        yield f"train.num_episodes=1 (found {args.train.num_episodes})"
    yield from _misfitting_lengths(plan, args.rollout.max_new_tokens, args.data.max_len)
    yield from _misfitting_filter(plan, args.algo)


def _misfitting_lengths(plan: Plan, cap: int | None, context: int) -> Iterator[str]:
    """OpenRLHF cuts a prompt that leaves no room for the longest response."""
    responses = [own for own in plan.samples if not own.turns]
    longest = max((own.response_tokens for own in responses), default=1)
    prompt = max(group.prompt_tokens for group in plan.groups)
    if cap is not None and cap < longest:
        yield f"rollout.max_new_tokens={plan.cap} (found {cap})"
    elif cap is not None and prompt + cap > context:
        yield f"data.max_len={prompt + cap} (found {context}), or a smaller rollout.max_new_tokens"
    elif _longest(plan) > context:
        yield f"data.max_len={_context(plan)} (found {context})"


def _misfitting_filter(plan: Plan, algo: Any) -> Iterator[str]:
    dropping = any(not group.trained for group in plan.groups)
    if dropping != bool(algo.dynamic_filtering_enable):
        yield "algo.dynamic_filtering_enable" if dropping else "no algo.dynamic_filtering_enable"
    elif dropping:
        low, high = algo.dynamic_filtering_range
        kept = [low < fmean(own.reward for own in group.samples) < high for group in plan.groups]
        if wrong := sum(k != group.trained for k, group in zip(kept, plan.groups, strict=True)):
            yield (
                f"an algo.dynamic_filtering_range that selects the groups as recorded (found {low}"
                f" to {high}, by which {wrong} of {len(kept)} differ)"
            )


class PlannedPrompts:
    """A data loader with the prompts of the plan, in the order in which they were started."""

    def __init__(self, plan: Plan, own: Any) -> None:
        self.dataset = attribute(own, "dataset")
        self._plan, self._own = plan, own

    def __len__(self) -> int:
        return sum(1 for _ in self._plan.groups)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        rows = chain.from_iterable(repeat(self._own))
        for index, row in zip(_order(self._plan), rows, strict=False):
            sources, prompts, [label], *images = row
            # The user's prompts and labels, in case that a reward function of the command is asked.
            yield (sources, prompts, [PlannedLabel.of(index, label)], *([None] for _ in images))

    def state_dict(self) -> dict[str, Any]:
        """Nothing: a replay is not resumed."""
        return {}

    def load_state_dict(self, state: object) -> None:
        """Refuse to go on from a checkpoint.

        Raises:
            SteeringError: Always.
        """
        raise SteeringError("a replay starts with its first step; set no ckpt.load_enable")


def _order(plan: Plan) -> Iterator[int]:
    """Groups of the plan, those of each batch in the order of their first sample."""
    before = 0
    for batch in plan.batches:
        places = range(before, before + len(batch.groups))
        starts = [group.start_s for group in batch.groups]
        if None in starts:
            yield from places
        else:
            yield from sorted(places, key=lambda at: (starts[at - before], at))
        before += len(batch.groups)


# ---------------------------------------------------------------- what was generated


def _checking(generate: Callable[..., Any], steering: Steering) -> Callable[..., Any]:
    """``generate_samples`` that reports each batch that is as planned."""
    plan = steering.plan
    places = [
        (number, at) for number, batch in enumerate(plan.batches) for at in range(len(batch.groups))
    ]

    @wraps(generate)
    def checked(self: Any, **options: Any) -> Any:
        made = generate(self, **options)
        rows = made[0]
        if rows:
            number = places[rows[0].labels[0].group][0]
            first = places.index((number, 0))
            _check(plan.batches[number], first, rows)
            steering.report(number, 0, 1)
        return made

    return checked


def _check(batch: PlannedBatch, first: int, rows: Sequence[Any]) -> None:
    """Compare the rows of a batch with the plan.

    Args:
        batch: Its plan.
        first: Position of its first group in the plan.
        rows: ``Experience`` of each sample; those of a group in their order.

    Raises:
        SteeringError: They differ.
    """
    found = dict[int, list[tuple[int, bool]]]()
    for row in rows:
        lengths = found.setdefault(row.labels[0].group - first, [])
        lengths.append((int(row.total_length), bool(row.truncated)))
    expected = {
        at: [(group.prompt_tokens + own.response_tokens, own.cut) for own in group.samples]
        for at, group in enumerate(batch.groups)
        if group.trained
    }
    if found != expected:
        wrong = sorted(at for at in {*found, *expected} if found.get(at) != expected.get(at))
        raise SteeringError(
            f"OpenRLHF made other samples than those of recorded step {batch.step}: of group"
            f" {wrong[0]} it has {found.get(wrong[0])}, and the plan {expected.get(wrong[0])}, each"
            " with tokens of prompt and response and whether it was cut"
        )
