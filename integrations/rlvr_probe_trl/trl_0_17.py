"""TRL 0.17 and 0.18: one method generates, computes rewards and makes the experience.

Its parts are separated by functions that it calls. Rewards start at the first of them that TRL
times, and end when those of all ranks are gathered. TRL keeps its own lists of token ids
(0.17 makes none); the tokenizer gets each completion as a list, padded, to make a text of it.
"""

from __future__ import annotations

from dataclasses import replace

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.reading import argument, error_of
from rlvr_probe_trl import trl_0_19_to_0_23 as later
from rlvr_probe_trl.rewards import (
    TIMED_GRPO,
    begin_model,
    end_rewards,
    swap_functions,
    timing,
    timing_end,
)
from rlvr_probe_trl.training import BATCH, Batch, training_of

__all__ = ["DECODE", "EXPERIENCE_WITH_REWARDS", "GATHER", "TIMED_REWARDS"]


def _begin(call: Call) -> None:
    later.begin_with_rollout(call)
    batch = training_of(call).batch
    if batch is not None:
        swap_functions(call.probe, batch)


def _end(call: Call) -> None:
    batch = training_of(call).batch
    if batch is not None:
        batch.swapped.put_back()
        _record_decoded(call.probe, batch)
        later.end_reward(call.probe, batch, error_of(call))
    later.end_with_rollout(call)


EXPERIENCE_WITH_REWARDS = replace(later.EXPERIENCE_WITH_ROLLOUT, before=_begin, after=_end)
"""Contains rollout and rewards."""


# ---------------------------------------------------------------- lengths


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
    for end in later.stops_of(call, batch):
        ended = end in ids
        batch.decoded.append((ids.index(end) + 1 if ended else len(ids), int(not ended)))


def _record_decoded(probe: Probe, batch: Batch) -> None:
    if len(batch.decoded) == batch.samples:
        responses, cut = zip(*batch.decoded, strict=True)
        later.record_once(probe, batch, list(responses), list(cut))


DECODE = HookPoint(
    "_decode", before=_completion_decoded, when=_completions_due, parameters=("token_ids",)
)
"""Hooked on the class of the trainer's tokenizer: one completion, as a padded list of ids."""


# ---------------------------------------------------------------- rewards


def _timing_begin(call: Call) -> None:
    batch, key = BATCH.get(), timing(call)
    if batch is None or key is None:
        return
    if not batch.reward and argument(call, 1, "name") in batch.trainer.reward_func_names:
        later.begin_reward(call.probe, batch)
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
    later.end_reward(call.probe, batch, None)


GATHER = HookPoint("trl.trainer.grpo_trainer:gather", after=_gathered, when=_gathering)
"""The rewards of all ranks come together."""
