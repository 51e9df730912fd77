"""Every hook point, and the releases of TRL that have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlvr_probe.adapter import HookPoint
from rlvr_probe_trl import async_grpo, async_rollouts, earlier, earliest, rewards, rollouts, stages
from rlvr_probe_trl.releases import Dated, Release, release
from rlvr_probe_trl.tools import TOOL_LOOP

__all__ = ["declared", "imported", "looked_up", "methods", "tokenizer_methods"]

_IMPORTED = (
    Dated(earlier.PROMPTS, until="0.24"),
    Dated(earliest.TIMED_REWARDS, until="0.19"),
    Dated(rewards.TIMED_GRPO, since="0.19", until="0.27"),
    Dated(rewards.TIMED_RLOO, since="0.22", until="0.27"),
    Dated(earliest.GATHER, until="0.19"),
    Dated(stages.SYNC_WEIGHTS, since="0.28"),
    # Groups in the queue have numbers since then.
    Dated(async_grpo.PACK_POINT, since="1.9"),
    *(Dated(point, since="1.9") for point in async_rollouts.ROLLOUT_POINTS),
)
"""Hooked when their module is imported."""

_METHODS = (
    Dated(stages.TRAIN),
    Dated(stages.FETCH),
    Dated(stages.MICRO_STEP),
    Dated(stages.INPUTS),
    Dated(earliest.EXPERIENCE_WITH_REWARDS, until="0.19"),
    Dated(earlier.EXPERIENCE_WITH_ROLLOUT, since="0.19", until="0.24"),
    Dated(stages.MAKE_EXPERIENCE, since="0.24"),
    Dated(rollouts.GENERATE, since="0.24"),
    Dated(rollouts.TURN_OF_PROMPTS, since="0.24", until="0.29.1"),
    Dated(rollouts.TURN_OF_IDS, since="0.29.1"),
    Dated(earlier.MOVE_WEIGHTS, until="0.28"),
    Dated(earlier.CALCULATE_LISTS, since="0.19", until="0.24"),
    Dated(rewards.CALCULATE, since="0.24"),
    Dated(replace(stages.LOGPROBS, target="_get_per_token_logps"), until="0.20"),
    Dated(stages.LOGPROBS, since="0.20"),
    Dated(stages.EVALUATE),
    Dated(stages.SAVE),
)
"""Hooked on the class of each trainer that generates while it trains."""

_GRPO_METHODS = (Dated(TOOL_LOOP, since="0.26"),)
"""Hooked in the same way; RLOO has none of them."""

_ASYNC_METHODS = tuple(Dated(point, since="1.0") for point in async_grpo.ASYNC_METHODS)
"""Hooked on the class of a trainer that trains on what another process generates."""

_TOKENIZER = (Dated(earliest.DECODE, until="0.19"),)
"""Hooked on the class of such a trainer's tokenizer."""

_GRPO = "trl.trainer.grpo_trainer:GRPOTrainer"
_RLOO = ("trl.trainer.rloo_trainer:RLOOTrainer", "0.22")  # before, another algorithm of this name
_ASYNC = "trl.experimental.async_grpo.async_grpo_trainer:AsyncGRPOTrainer"
_TOKENIZERS = (
    "transformers.tokenization_utils_fast:PreTrainedTokenizerFast",
    "transformers.tokenization_utils:PreTrainedTokenizer",
)
_TIMER = "trl.extras.profiling:ProfilingContext"


def imported(at: Release) -> tuple[HookPoint, ...]:
    """Hook points of release ``at`` that are set when their module is imported."""
    return _of(_IMPORTED, at)


def methods(at: Release) -> tuple[HookPoint, ...]:
    """Methods of a trainer, hooked once one is built."""
    return _of((*_METHODS, *_GRPO_METHODS), at)


def tokenizer_methods(at: Release) -> tuple[HookPoint, ...]:
    """Methods of a trainer's tokenizer, hooked once one is built."""
    return _of(_TOKENIZER, at)


def declared() -> tuple[HookPoint, ...]:
    """Methods of trainers, of whatever release."""
    return tuple(dated.point for dated in (*_METHODS, *_GRPO_METHODS))


def looked_up(at: Release) -> tuple[HookPoint, ...]:
    """The methods of release ``at``, named on the classes of TRL and transformers."""
    trainers = [_GRPO, *(_RLOO[:1] if at >= release(_RLOO[1]) else ())]
    timer = _of([Dated(point, since="0.27") for point in rewards.MODEL], at)
    return (
        *_on(trainers, _of(_METHODS, at)),
        *_on([_GRPO], _of(_GRPO_METHODS, at)),
        *_on([_ASYNC], _of(_ASYNC_METHODS, at)),
        *_on(_TOKENIZERS, tokenizer_methods(at)),
        *_on([_TIMER], timer),
    )


def _of(dated: Sequence[Dated], at: Release) -> tuple[HookPoint, ...]:
    return tuple(one.point for one in dated if one.holds(at))


def _on(owners: Sequence[str], points: Sequence[HookPoint]) -> list[HookPoint]:
    return [
        replace(point, target=f"{owner}.{point.target}") for owner in owners for point in points
    ]
