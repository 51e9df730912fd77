"""Every hook point, and the releases of TRL that have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlvr_probe.adapter import HookPoint
from rlvr_probe.releases import Dated, Release, points_of, release
from rlvr_probe_trl import async_grpo, async_rollouts, earlier, earliest, rewards, rollouts, stages
from rlvr_probe_trl.tools import TOOL_LOOP

__all__ = ["declared", "imported", "looked_up", "methods", "tokenizer_methods"]

_OLDEST = "0.17"
"""First release that is known."""

_IMPORTED = (
    Dated(earlier.PROMPTS, _OLDEST, "0.24"),
    Dated(earliest.TIMED_REWARDS, _OLDEST, "0.19"),
    Dated(rewards.TIMED_GRPO, "0.19", "0.27"),
    Dated(rewards.TIMED_RLOO, "0.22", "0.27"),
    Dated(earliest.GATHER, _OLDEST, "0.19"),
    Dated(stages.SYNC_WEIGHTS, "0.28"),
    # Groups in the queue have numbers since then.
    Dated(async_grpo.PACK_POINT, "1.9"),
    *(Dated(point, "1.9") for point in async_rollouts.ROLLOUT_POINTS),
)
"""Hooked when their module is imported."""

_METHODS = (
    Dated(stages.TRAIN, _OLDEST),
    Dated(stages.FETCH, _OLDEST),
    Dated(stages.MICRO_STEP, _OLDEST),
    Dated(stages.INPUTS, _OLDEST),
    Dated(earliest.EXPERIENCE_WITH_REWARDS, _OLDEST, "0.19"),
    Dated(earlier.EXPERIENCE_WITH_ROLLOUT, "0.19", "0.24"),
    Dated(stages.MAKE_EXPERIENCE, "0.24"),
    Dated(rollouts.GENERATE, "0.24"),
    Dated(rollouts.TURN_OF_PROMPTS, "0.24", "0.29.1"),
    Dated(rollouts.TURN_OF_IDS, "0.29.1"),
    Dated(earlier.MOVE_WEIGHTS, _OLDEST, "0.28"),
    Dated(earlier.CALCULATE_LISTS, "0.19", "0.24"),
    Dated(rewards.CALCULATE, "0.24"),
    Dated(replace(stages.LOGPROBS, target="_get_per_token_logps"), _OLDEST, "0.20"),
    Dated(stages.LOGPROBS, "0.20"),
    Dated(stages.EVALUATE, _OLDEST),
    Dated(stages.SAVE, _OLDEST),
)
"""Hooked on the class of each trainer that generates while it trains."""

_GRPO_METHODS = (Dated(TOOL_LOOP, "0.26"),)
"""Hooked in the same way; RLOO has none of them."""

_ASYNC_METHODS = tuple(Dated(point, "1.0") for point in async_grpo.ASYNC_METHODS)
"""Hooked on the class of a trainer that trains on what another process generates."""

_TOKENIZER = (Dated(earliest.DECODE, _OLDEST, "0.19"),)
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
    return points_of(_IMPORTED, at)


def methods(at: Release) -> tuple[HookPoint, ...]:
    """Methods of a trainer, hooked once one is built."""
    return points_of((*_METHODS, *_GRPO_METHODS), at)


def tokenizer_methods(at: Release) -> tuple[HookPoint, ...]:
    """Methods of a trainer's tokenizer, hooked once one is built."""
    return points_of(_TOKENIZER, at)


def declared() -> tuple[HookPoint, ...]:
    """Methods of trainers, of whatever release."""
    return tuple(dated.point for dated in (*_METHODS, *_GRPO_METHODS))


def looked_up(at: Release) -> tuple[HookPoint, ...]:
    """The methods of release ``at``, named on the classes of TRL and transformers."""
    trainers = [_GRPO, *(_RLOO[:1] if at >= release(_RLOO[1]) else ())]
    timer = points_of([Dated(point, "0.27") for point in rewards.MODEL], at)
    return (
        *_on(trainers, points_of(_METHODS, at)),
        *_on([_GRPO], points_of(_GRPO_METHODS, at)),
        *_on([_ASYNC], points_of(_ASYNC_METHODS, at)),
        *_on(_TOKENIZERS, tokenizer_methods(at)),
        *_on([_TIMER], timer),
    )


def _on(owners: Sequence[str], points: Sequence[HookPoint]) -> list[HookPoint]:
    return [
        replace(point, target=f"{owner}.{point.target}") for owner in owners for point in points
    ]
