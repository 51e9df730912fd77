"""TRL below 0.24: stages have no method of their own, and nothing returns lengths.

A rollout is what lies between the start of the experience and what follows it, log-probabilities or
rewards. Lengths come from values that TRL itself has in host memory, so that nothing is read from
an accelerator:

* prompts: the attention mask that the tokenizer made, before TRL moves it, cut as TRL cuts it;
* completions, 0.19 to 0.23: the token lists that TRL makes for reward functions. They are made
  before ``mask_truncated_completions`` empties rows of the mask, whose sums would be 0 there;
* completions, 0.17 and 0.18: TRL keeps its own lists of token ids (0.17 makes none); the tokenizer
  gets each completion as a list, padded, to make a text of it.
"""

from __future__ import annotations

import time
from dataclasses import replace

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.adapter.controller import named, state_of
from rlvr_probe.adapter.spans import end_span
from rlvr_probe.model.names import REWARD, ROLLOUT, WEIGHT_SYNC
from rlvr_probe.reading import argument, error_of, number
from rlvr_probe_trl.reading import end_id, lengths, row_sums, truncated
from rlvr_probe_trl.rewards import (
    TIMED_GRPO,
    begin_model,
    calculated,
    end_rewards,
    swap_functions,
    timing,
    timing_end,
)
from rlvr_probe_trl.rollouts import end_rollout, record_lengths
from rlvr_probe_trl.stages import MAKE_EXPERIENCE, experience_begin, experience_end
from rlvr_probe_trl.trainer import BATCH, Batch, Training, training_of

__all__ = ["CALCULATE_LISTS", "DECODE", "EXPERIENCE_WITH_REWARDS", "EXPERIENCE_WITH_ROLLOUT"]
__all__ += ["GATHER", "MOVE_WEIGHTS", "PROMPTS", "TIMED_REWARDS"]


def _record_once(probe: Probe, batch: Batch, responses: list[int], cut: list[int] | None) -> None:
    """Record the lengths of a batch, if those of its prompts are known."""
    prompts = batch.prompt_tokens
    if batch.recorded or prompts is None or len(prompts) != len(responses):
        return
    batch.recorded = True
    trainer, parent = batch.trainer, batch.rollout
    training = state_of(probe, trainer, Training)
    record_lengths(
        probe, trainer, training, parent, batch.ordinal, prompts, responses, truncated=cut
    )


def _stops_of(call: Call, batch: Batch) -> frozenset[int]:
    """The token that ends a completion."""
    training = state_of(call.probe, batch.trainer, Training)
    if training.stops is None:
        training.stops = end_id(batch.trainer)
    return training.stops


# ---------------------------------------------------------------- experience


def _begin_with_rollout(call: Call) -> None:
    """Before ``_generate_and_score_completions``."""
    experience_begin(call)
    training = training_of(call)
    batch = training.batch
    if batch is not None:
        # Not the current span: the stages after it are not its children.
        batch.rollout = call.probe.begin(ROLLOUT, step=batch.where[1])
        batch.rollout_open = True
        batch.ordinal = training.ordinal(batch.where)


def _end_with_rollout(call: Call) -> None:
    """After ``_generate_and_score_completions``."""
    end_rollout(call.probe, training_of(call).batch, error_of(call))
    experience_end(call)


EXPERIENCE_WITH_ROLLOUT = replace(
    MAKE_EXPERIENCE, before=_begin_with_rollout, after=_end_with_rollout
)
"""Contains the rollout. TRL 0.19 to 0.23."""


def _prompts_unknown(call: Call) -> bool:
    batch = BATCH.get()
    if batch is None or batch.prompts_seen or not batch.rollout_open:
        return False
    return batch.trainer is call.args[0]


def _prompts_made(call: Call) -> None:
    batch = BATCH.get()
    if batch is None:
        return
    # The next ones are inputs of a reward model, whether these can be read or not.
    batch.prompts_seen = True
    get = getattr(argument(call, 1, "inputs"), "get", None)
    sums = None if get is None else row_sums(get("attention_mask"))
    if sums is None:
        return
    # Prompts are padded on the left and cut there, images excepted, to so many tokens in all.
    cap = number(batch.trainer, "max_prompt_length")
    batch.prompt_tokens = sums if cap is None else [min(count, cap) for count in sums]


PROMPTS = HookPoint(
    "transformers.trainer:Trainer._prepare_inputs",
    before=_prompts_made,
    when=_prompts_unknown,
    parameters=("inputs",),
)
"""Where the tokenized prompts of a batch pass on their way to the accelerator."""


# ---------------------------------------------------------------- rewards, 0.19 to 0.23


def _calculate_begin(call: Call) -> None:
    batch = training_of(call).batch
    if batch is None:
        return
    end_rollout(call.probe, batch)
    rows = argument(call, 4, "completion_ids_list")
    responses = lengths(rows)
    if responses is not None:
        _record_once(call.probe, batch, responses, truncated(rows, _stops_of(call, batch)))
    _begin_reward(call.probe, batch)
    swap_functions(call.probe, batch)


def _calculate_end(call: Call) -> None:
    batch = training_of(call).batch
    if batch is not None:
        calculated(call, batch)
        _end_reward(call.probe, batch, error_of(call))


def _begin_reward(probe: Probe, batch: Batch) -> None:
    """Start the reward span by hand, after what was in front of it."""
    end_rollout(probe, batch)
    batch.reward = probe.begin(REWARD, step=batch.where[1], activate=True)
    batch.reward_open = True


def _end_reward(probe: Probe, batch: Batch, error: str | None) -> None:
    """End the reward span that was started by hand. Not twice."""
    if not batch.reward_open:
        return
    batch.reward_open = False
    probe.end(batch.reward, named(batch.where), error)
    if batch.rewards_end_ns:
        batch.rewards_end_ns = time.monotonic_ns()  # what follows starts after this span


CALCULATE_LISTS = HookPoint(
    "_calculate_rewards",
    before=_calculate_begin,
    after=_calculate_end,
    parameters=("inputs", "prompts", "completions", "completion_ids_list"),
)
"""All rewards of one batch. TRL 0.19 to 0.23: nothing in front of it says that the rollout ended,
so its span is started by hand, after the end of that one."""


# ---------------------------------------------------------------- weights


def _move_begin(call: Call) -> None:
    batch = BATCH.get()
    if batch is not None and batch.trainer is call.args[0]:
        # A parent of 0 would be none at all.
        parent = batch.rollout or None
        span = call.probe.begin(WEIGHT_SYNC, step=batch.where[1], parent=parent, activate=True)
        call.state = (span, named(batch.where))


MOVE_WEIGHTS = HookPoint("_move_model_to_vllm", before=_move_begin, after=end_span, optional=True)
"""Weights to vLLM, inside the rollout. TRL below 0.28."""


# ---------------------------------------------------------------- 0.17 and 0.18

# One method generates, computes rewards and makes the experience. Its parts are separated by
# functions that it calls: rewards start at the first of them that TRL times, and end when those of
# all ranks are gathered.


def _begin_with_rewards(call: Call) -> None:
    _begin_with_rollout(call)
    batch = training_of(call).batch
    if batch is not None:
        swap_functions(call.probe, batch)


def _end_with_rewards(call: Call) -> None:
    batch = training_of(call).batch
    if batch is not None:
        batch.swapped.put_back()
        _record_decoded(call.probe, batch)
        _end_reward(call.probe, batch, error_of(call))
    _end_with_rollout(call)


EXPERIENCE_WITH_REWARDS = replace(
    EXPERIENCE_WITH_ROLLOUT, before=_begin_with_rewards, after=_end_with_rewards
)
"""Contains rollout and rewards. TRL below 0.19."""


def _completions_due(call: Call) -> bool:
    batch = BATCH.get()
    return (
        batch is not None
        and not batch.recorded
        and len(batch.decoded) < (batch.samples or 0)
        and call.args[0] is batch.trainer.processing_class
    )


def _completion_decoded(call: Call) -> None:
    batch, ids = BATCH.get(), argument(call, 1, "token_ids")
    if batch is None or not isinstance(ids, list):
        return
    for end in _stops_of(call, batch):
        ended = end in ids
        batch.decoded.append((ids.index(end) + 1 if ended else len(ids), int(not ended)))


def _record_decoded(probe: Probe, batch: Batch) -> None:
    if len(batch.decoded) == batch.samples:
        responses, cut = zip(*batch.decoded, strict=True)
        _record_once(probe, batch, list(responses), list(cut))


DECODE = HookPoint(
    "_decode", before=_completion_decoded, when=_completions_due, parameters=("token_ids",)
)
"""Hooked on the class of the trainer's tokenizer: one completion, as a padded list of ids."""


def _timing_begin(call: Call) -> None:
    batch, key = BATCH.get(), timing(call)
    if batch is None or key is None:
        return
    if not batch.reward and argument(call, 1, "name") in batch.trainer.reward_func_names:
        _begin_reward(call.probe, batch)
        _record_decoded(call.probe, batch)
    begin_model(call.probe, batch, key)


TIMED_REWARDS = replace(TIMED_GRPO, before=_timing_begin, after=timing_end)
"""TRL times each reward function and model."""


def _gathering(call: Call) -> bool:
    batch = BATCH.get()
    return batch is not None and bool(batch.reward) and not batch.rewards_end_ns


def _gathered(call: Call) -> None:
    batch = BATCH.get()
    if batch is None or call.error is not None:
        return
    batch.swapped.put_back()
    end_rewards(call.probe, batch, call.end_ns, call.result, batch.samples)
    _end_reward(call.probe, batch, None)


GATHER = HookPoint("trl.trainer.grpo_trainer:gather", after=_gathered, when=_gathering)
"""The rewards of all ranks come together."""
