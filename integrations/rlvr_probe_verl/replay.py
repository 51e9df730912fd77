"""Steers verl: a recorded workload, generated and trained on by its synchronous trainers.

What verl offers as plug-ins is used: a dataset, whose rows say which group of the plan they are, an
agent loop, which they name, and a reward function. They get into verl's settings where it validates
these; lengths are parameters of each request.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, wraps
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from rlvr_probe.exceptions import SteeringError
from rlvr_probe.reading import option
from rlvr_probe.releases import release, version_of
from rlvr_probe.steering import Plan, Steering
from rlvr_probe_verl import recorded_samples
from rlvr_probe_verl.recorded_samples import (
    FILES,
    GROUP,
    ROW,
    has_filter,
    samples,
    trained_groups,
)

__all__ = ["VerlReplay", "misfits"]

_SETTINGS = "verl.utils.config"
_MANAGER = "verl.experimental.agent_loop.agent_loop"
_LOOPS = "verl.experimental.agent_loop.single_turn_agent_loop"
_BUFFER = "verl.trainer.ppo.v1.replay_buffer"
_ROLLOUT = "actor_rollout_ref.rollout"
_FILTER = "algorithm.filter_groups.enable"
_SAMPLER = "trainer.v1.sampler"


class VerlReplay:
    """verl's synchronous trainers, V0 and V1, that generate by agent loops: since 0.7."""

    name = "verl"
    # The first is imported by all processes of verl: there the plan is learnt.
    modules = ("verl.protocol", _SETTINGS, _MANAGER, _LOOPS, _BUFFER)

    def refusal(self, plan: Plan) -> str | None:
        """See :class:`~rlvr_probe.steering.Replay`."""
        sizes = sorted({len(batch.groups) for batch in plan.batches})
        if has_filter(plan):
            sizes = [trained_groups(plan)]
        members = sorted({len(group.samples) for group in plan.groups})
        if len(members) > 1:
            found = ", ".join(map(str, members))
            return f"groups have {found} samples; verl needs the same number in each"
        if len(sizes) > 1:
            found = ", ".join(map(str, sizes))
            return f"batches have {found} prompts; choose steps of one size with --steps"
        return None

    def settings(self, plan: Plan) -> Mapping[str, object]:
        """See :class:`~rlvr_probe.steering.Replay`."""
        filtered = {"trainer.use_v1": True, _FILTER: True} if has_filter(plan) else {}
        return {
            "data.train_batch_size": trained_groups(plan),
            f"{_ROLLOUT}.n": len(plan.batches[0].groups[0].samples),
            "data.max_prompt_length": max(group.prompt_tokens for group in plan.groups),
            "data.max_response_length": plan.cap,
            "trainer.total_training_steps": len(plan.batches),
            **filtered,
        }

    def losses(self, plan: Plan) -> Sequence[str]:
        """See :class:`~rlvr_probe.steering.Replay`."""
        lost = [
            "texts are drawn: what depends on them, as routing to experts, is not as recorded",
            "a workload has no evaluations: those of the command run as they are, and get reward 0",
            "an end token takes the place of the last token generated, and has its probability",
        ]
        if any(sample.turns for sample in plan.samples):
            lost += [
                "tools are waits, at the same time those of a turn: a recording shows no tool calls"
            ]
        if len(plan.functions) > 1:
            lost.append(f"verl has one reward function: it gives the sum of {len(plan.functions)}")
        if unknown := sum(None in sample.rewards for sample in plan.samples):
            lost.append(f"{unknown:,} samples for which a reward function gave nothing get 0 of it")
        if has_filter(plan):
            lost.append("groups that take the place of dropped ones start with the others")
        elif dropped := sum(not group.trained for group in plan.groups):
            lost.append(f"{dropped:,} groups that a filter dropped are trained on")
        return lost

    def steer(self, module: ModuleType, steering: Steering) -> None:
        """See :class:`~rlvr_probe.steering.Replay`."""
        recorded_samples.use(steering)
        if module.__name__ == _SETTINGS:
            _steer_settings(module, steering)
        elif module.__name__ == _MANAGER:
            _number_rows(module.AgentLoopManager)
        elif module.__name__ == _BUFFER:
            _count_samples(module.ReplayBuffer)
        elif module.__name__ == _LOOPS and _is_supported():
            from rlvr_probe_verl import replayed_rollouts  # noqa: F401 - registers the agent loop


def _is_supported() -> bool:
    """Whether agent loops have their rewards computed, and datasets a class of their own."""
    return find_spec("verl.experimental.reward_loop") is not None


# ---------------------------------------------------------------- settings


def _steer_settings(module: Any, steering: Steering) -> None:
    """Fit the settings of every training that verl validates: in its driver, or its controller."""
    validate = module.validate_config

    @wraps(validate)
    def steered(config: Any, *args: Any, **kwargs: Any) -> Any:
        # verl 0.9 validates twice, in two processes.
        if "rlvr_probe" not in config.data:
            if not _is_supported():
                raise SteeringError("this verl cannot be steered; expected 0.7 or newer")
            if wrong := list(misfits(config, steering.plan)):
                raise SteeringError(
                    f"the training does not fit the workload; set {'; '.join(wrong)}"
                )
            _put_plugins(config, steering.plan)
            _introduce(config, steering)
        return validate(config, *args, **kwargs)

    module.validate_config = steered


def misfits(config: Any, plan: Plan) -> Iterator[str]:
    """Settings of verl that do not fit the plan, as they should be."""
    found = partial(option, config)
    wanted = dict(VerlReplay().settings(plan))
    longest = max(sample.response_tokens for sample in plan.samples)
    if not any(sample.cut and sample.response_tokens == plan.cap for sample in plan.samples):
        wanted["data.max_response_length"] = longest
    steps = "trainer.total_training_steps"
    for name, value in wanted.items():
        own, at_least = found(name), name == "data.max_prompt_length"
        at_least |= name == "data.max_response_length" and value != plan.cap
        epochs = None if has_filter(plan) else found("trainer.total_epochs")  # of all prompts
        if name == steps and own is None and epochs == 1:
            continue
        if own is None or (own < value if at_least else own != value):
            yield f"{name}={value} (found {own})"
    fixed: dict[str, tuple[object, ...]] = {"data.sampler.class_path": (None,)}
    if has_filter(plan):
        fixed |= {"data.gen_batch_size": (None, 1), f"{_SAMPLER}.custom_sampler.path": (None,)}
        if found(f"{_SAMPLER}.sync_refill_failed_groups") is None:
            yield "verl 0.9 or newer, whose trainer V1 can drop the groups that were dropped"
    else:
        fixed["data.gen_batch_size"] = (None, wanted["data.train_batch_size"])
        fixed[_FILTER] = (False, None)
    if found("trainer.use_v1"):
        fixed["trainer.v1.trainer_mode"] = ("sync",)
    if plan.functions:
        fixed["reward.reward_model.enable"] = (False, None)
    if plan.half == "rollout":  # it would be trained
        fixed["critic.enable"] = (False, None)
        if found("critic.enable") is None and found("algorithm.adv_estimator") == "gae":
            yield "critic.enable=False, or another algorithm.adv_estimator than gae"
        # Its engines sleep until an update wakes them.
        sleeping = f"{_ROLLOUT}.free_cache_engine"
        if release(version_of("verl")) < (0, 8) and found(sleeping) is not False:
            yield f"{sleeping}=False (found {found(sleeping)}), or verl 0.8"
    for name, values in fixed.items():
        if found(name) not in values:
            yield f"{name}={'null' if values[0] is None else values[0]} (found {found(name)})"
    if found("algorithm.adv_estimator") == "remax":
        yield "another algorithm.adv_estimator than remax, which generates answers of its own"
    if found(f"{_ROLLOUT}.name") == "trtllm":
        yield f"another {_ROLLOUT}.name than trtllm, which does not let a request have its length"
    room, most = found(f"{_ROLLOUT}.max_model_len"), _longest_context(plan)
    if room is not None and room < most:
        yield f"{_ROLLOUT}.max_model_len={most} (found {room})"


def _longest_context(plan: Plan) -> int:
    return max(
        prompt + response
        for group in plan.groups
        for sample in group.samples
        for prompt, response in (
            (group.prompt_tokens, sample.response_tokens),
            *((turn.prompt_tokens, turn.response_tokens) for turn in sample.turns),
        )
    )


def _put_plugins(config: Any, plan: Plan) -> None:
    """Have verl load dataset and reward function of the plan."""
    # verl's settings are made of it, and refuse new names.
    with sys.modules["omegaconf"].open_dict(config):
        data = config.data
        own = {"custom_cls": data.get("custom_cls"), "train_files": data.train_files}
        data.rlvr_probe = own
        data.custom_cls = {
            "path": "pkg://rlvr_probe_verl.replayed_rollouts",
            "name": "PlannedDataset",
        }
        data.train_files = FILES
        # The order of the plan is that of the steps.
        data.shuffle = False
        if plan.half == "rollout":
            config.trainer.critic_warmup = len(plan.batches) + 1
        if has_filter(plan):
            config.trainer.v1.sampler.custom_sampler = {
                "path": "pkg://rlvr_probe_verl.replayed_selection",
                "name": "PlannedBuffer",
            }
        if plan.functions:
            reward = config.reward
            reward.custom_reward_function.path = f"pkg://{recorded_samples.__name__}"
            reward.custom_reward_function.name = recorded_samples.compute_score.__name__
            # Others add to what the function gives.
            reward.reward_manager.source, reward.reward_manager.name = "register", "naive"


def _introduce(config: Any, steering: Steering) -> None:
    say, plan, trainer = steering.say, steering.plan, config.trainer
    say("prompts: token ids, by data.custom_cls (rung 1 of 5, a plug-in point)")
    if plan.half == "training":
        say(
            "half: training; an agent loop answers with drawn tokens in place of the engine, which"
            " gets its weights all the same (rung 1 of 5, a plug-in point); nothing waits"
        )
    else:
        say(
            "lengths: parameters of each request, by an agent loop (rung 2 of 5): without texts, no"
            " plug-in point of verl gives them"
        )
    if plan.half == "rollout":
        say(
            "half: rollout, by trainer.critic_warmup (rung 1 of 5, a setting): log-probabilities"
            " are computed and weights moved"
        )
    if has_filter(plan):
        say("selection of a filter: trainer.v1.sampler.custom_sampler (rung 1 of 5)")
    if plan.functions:
        say("rewards: reward.custom_reward_function of the plan (rung 1 of 5, a plug-in point)")
    else:
        say("rewards: the reward function of the command, with drawn texts")
    ranks = trainer.n_gpus_per_node * trainer.nnodes
    if plan.ranks not in (None, ranks):
        say(f"recorded on {plan.ranks} ranks, replayed on {ranks}")
    for lost in VerlReplay().losses(plan):
        say(f"not reproduced: {lost}")


# ---------------------------------------------------------------- a batch


def _number_rows(manager: Any) -> None:
    """Number the rows of a batch within their groups, as V1 does itself."""
    generate = manager.generate_sequences

    @wraps(generate)
    def steered(self: Any, prompts: Any, *args: Any, **kwargs: Any) -> Any:
        groups = prompts.non_tensor_batch.get(GROUP)
        if groups is not None:
            import numpy as np

            seen, rows = Counter[int](), list[int]()
            for group in groups:
                rows.append(seen[group])
                seen[group] += 1
            prompts.non_tensor_batch[ROW] = np.array(rows, dtype=object)
        return generate(self, prompts, *args, **kwargs)

    manager.generate_sequences = steered


def _count_samples(buffer: Any) -> None:
    """End a run of V1, which goes on without samples that failed."""
    take = buffer.sample

    @wraps(take)
    def steered(self: Any, *args: Any, **kwargs: Any) -> Any:
        taken = take(self, *args, **kwargs)
        batch, expected = taken[0], samples().trained
        if batch.partition_id == "train" and len(batch.keys) != expected:
            raise SteeringError(
                f"verl trains on {len(batch.keys)} of {expected} samples: the others failed, as it"
                " printed"
            )
        return taken

    buffer.sample = steered
