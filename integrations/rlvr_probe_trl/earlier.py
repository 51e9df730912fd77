"""Releases below 0.24, where stages have no method of their own and nothing returns lengths.

A rollout is what lies between the begin of the experience and what follows it, log-probabilities or
rewards. Lengths come from values that TRL itself has in host memory, so that nothing is read from
an accelerator:

* prompts: the attention mask that the tokenizer made, before TRL moves it, cut as TRL cuts it;
* completions, 0.19 to 0.23: the token lists that TRL makes for reward functions. They are made
  before ``mask_truncated_completions`` empties rows of the mask, whose sums would be 0 there;
* completions, 0.17 and 0.18: see :mod:`rlvr_probe_trl.earliest`.
"""

from __future__ import annotations

import time

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.model.names import EXPERIENCE, REWARD, ROLLOUT, WEIGHT_SYNC
from rlvr_probe.reading import argument, error_of, number
from rlvr_probe_trl.reading import end_id, lengths, row_sums, truncated
from rlvr_probe_trl.rewards import calculated, swap_functions
from rlvr_probe_trl.rollouts import end_rollout, tell_lengths
from rlvr_probe_trl.stages import MAKE_EXPERIENCE, experience_begin, experience_end
from rlvr_probe_trl.training import BATCH, WHERE, Batch, named, read_place, step_now, training_of

__all__ = [
    "CALCULATE_LISTS",
    "EXPERIENCE_WITH_ROLLOUT",
    "MOVE_WEIGHTS",
    "PROMPTS",
    "begin_reward",
    "begin_with_rollout",
    "end_reward",
    "end_with_rollout",
    "stops_of",
    "tell_once",
]


def tell_once(probe: Probe, batch: Batch, responses: list[int], cut: list[int] | None) -> None:
    """Record the lengths of a batch, if those of its prompts are known."""
    training = training_of(probe, batch.trainer)
    prompts = batch.prompt_tokens
    if batch.told or prompts is None or len(prompts) != len(responses):
        return
    batch.told = True
    tell_lengths(
        probe, batch.trainer, training, prompts, responses, cut, batch.rollout, batch.ordinal
    )


def stops_of(call: Call, batch: Batch) -> frozenset[int]:
    """The token that ends a completion."""
    training = training_of(call.probe, batch.trainer)
    if training.stops is None:
        training.stops = end_id(batch.trainer)
    return training.stops


# ---------------------------------------------------------------- experience


def begin_with_rollout(call: Call) -> None:
    """Before ``_generate_and_score_completions``."""
    experience_begin(call)
    batch = training_of(call.probe, call.args[0]).batch
    if batch is not None:
        # Not the current span: the stages after it are no part of it.
        batch.rollout = call.probe.begin(ROLLOUT, step=batch.where[1])
        batch.rollout_open = True
        batch.ordinal = training_of(call.probe, call.args[0]).ordinal(batch.where)


def end_with_rollout(call: Call) -> None:
    """After ``_generate_and_score_completions``."""
    end_rollout(call.probe, training_of(call.probe, call.args[0]).batch, error_of(call))
    experience_end(call)


EXPERIENCE_WITH_ROLLOUT = HookPoint(
    MAKE_EXPERIENCE.target,
    EXPERIENCE,
    WHERE,
    read_place,
    step=step_now,
    before=begin_with_rollout,
    after=end_with_rollout,
    parameters=("inputs",),
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
    batch = training_of(call.probe, call.args[0]).batch
    if batch is None:
        return
    end_rollout(call.probe, batch)
    rows = argument(call, 4, "completion_ids_list")
    responses = lengths(rows)
    if responses is not None:
        tell_once(call.probe, batch, responses, truncated(rows, stops_of(call, batch)))
    begin_reward(call.probe, batch)
    swap_functions(call.probe, batch)


def _calculate_end(call: Call) -> None:
    batch = training_of(call.probe, call.args[0]).batch
    if batch is None:
        return
    calculated(call, batch)
    end_reward(call.probe, batch, error_of(call))


def begin_reward(probe: Probe, batch: Batch) -> None:
    """Begin the reward span by hand, after what was in front of it."""
    end_rollout(probe, batch)
    batch.reward = probe.begin(REWARD, step=batch.where[1], activate=True)
    batch.reward_open = True


def end_reward(probe: Probe, batch: Batch, error: str | None) -> None:
    """End the reward span that was begun by hand. Not twice."""
    if not batch.reward_open:
        return
    batch.reward_open = False
    probe.end(batch.reward, named(batch.where), error)
    if batch.rewards_end_ns:
        batch.rewards_end_ns = time.monotonic_ns()  # what follows begins after this span


CALCULATE_LISTS = HookPoint(
    "_calculate_rewards",
    before=_calculate_begin,
    after=_calculate_end,
    parameters=("inputs", "prompts", "completions", "completion_ids_list"),
)
"""All rewards of one batch. TRL 0.19 to 0.23: nothing in front of it says that the rollout ended,
so its span is begun by hand, after the end of that one."""


# ---------------------------------------------------------------- weights


def _move_begin(call: Call) -> None:
    batch = BATCH.get()
    if batch is not None and batch.trainer is call.args[0]:
        # A parent of 0 would be none at all.
        call.state = call.probe.begin(
            WEIGHT_SYNC, step=batch.where[1], parent=batch.rollout or None, activate=True
        )


def _move_end(call: Call) -> None:
    batch = BATCH.get()
    if batch is not None and call.state:
        call.probe.end(call.state, named(batch.where), error_of(call))


MOVE_WEIGHTS = HookPoint("_move_model_to_vllm", before=_move_begin, after=_move_end, optional=True)
"""Weights to vLLM, inside the rollout. TRL below 0.28."""
