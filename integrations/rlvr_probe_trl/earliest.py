"""TRL 0.17 and 0.18: one method generates, computes rewards and makes the experience.

Its parts are told apart by functions that it calls. Rewards begin at the first of them that TRL
times, and end when those of all ranks are gathered. TRL hands its own lists of token ids to nobody
(0.17 makes none); the tokenizer gets each completion as a list, padded, to make a text of it.
"""

from __future__ import annotations

from dataclasses import replace

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.reading import argument, error_of
from rlvr_probe_trl.earlier import (
    EXPERIENCE_WITH_ROLLOUT,
    begin_reward,
    begin_with_rollout,
    end_reward,
    end_with_rollout,
    stops_of,
    tell_once,
)
from rlvr_probe_trl.rewards import (
    TIMED_GRPO,
    begin_model,
    end_rewards,
    put_back,
    swap_functions,
    timing,
    timing_end,
)
from rlvr_probe_trl.training import BATCH, Batch, training_of

__all__ = ["DECODE", "EXPERIENCE_WITH_REWARDS", "GATHER", "TIMED_REWARDS"]


def _begin(call: Call) -> None:
    begin_with_rollout(call)
    batch = training_of(call.probe, call.args[0]).batch
    if batch is not None:
        swap_functions(call.probe, batch)


def _end(call: Call) -> None:
    batch = training_of(call.probe, call.args[0]).batch
    if batch is not None:
        put_back(batch.swapped)
        _tell_decoded(call.probe, batch)
        end_reward(call.probe, batch, error_of(call))
    end_with_rollout(call)


EXPERIENCE_WITH_REWARDS = replace(EXPERIENCE_WITH_ROLLOUT, before=_begin, after=_end)
"""Contains rollout and rewards."""


# ---------------------------------------------------------------- lengths


def _completions_due(call: Call) -> bool:
    batch = BATCH.get()
    return (
        batch is not None
        and not batch.told
        and len(batch.decoded) < (batch.samples or 0)
        and call.args[0] is batch.trainer.processing_class
    )


def _completion_decoded(call: Call) -> None:
    batch, ids = BATCH.get(), argument(call, 1, "token_ids")
    if batch is None or not isinstance(ids, list):
        return
    for end in stops_of(call, batch):
        ended = end in ids
        batch.decoded.append((ids.index(end) + 1 if ended else len(ids), int(not ended)))


def _tell_decoded(probe: Probe, batch: Batch) -> None:
    if len(batch.decoded) == batch.samples:
        responses, cut = zip(*batch.decoded, strict=True)
        tell_once(probe, batch, list(responses), list(cut))


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
        begin_reward(call.probe, batch)
        _tell_decoded(call.probe, batch)
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
    put_back(batch.swapped)
    end_rewards(call.probe, batch, call.end_ns, call.result, batch.samples)
    end_reward(call.probe, batch, None)


GATHER = HookPoint("trl.trainer.grpo_trainer:gather", after=_gathered, when=_gathering)
"""The rewards of all ranks come together."""
