"""The TRL adapter: every hook point, and the releases of TRL that have it."""

from __future__ import annotations

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.adapter.user_functions import put_all_back
from rlvr_probe.reading import attribute
from rlvr_probe.releases import Dated, DatedAdapter, points_of, within
from rlvr_probe_trl import async_grpo, async_rollouts, rewards, rollouts, stages
from rlvr_probe_trl import trl_below_0_24 as older
from rlvr_probe_trl.async_grpo import ASYNC_METHODS, is_async
from rlvr_probe_trl.stages import is_online
from rlvr_probe_trl.steps import add_callback, add_optimizer_hooks
from rlvr_probe_trl.tools import TOOL_LOOP
from rlvr_probe_trl.trainer import installed

__all__ = ["METHODS", "TrlAdapter", "built"]

_OLDEST = "0.17"
"""First release that is known."""

_ready: list[Probe] = []
"""The probe that the hooks which are set once per process report to; empty after a detach."""


def built(call: Call) -> None:
    """After ``Trainer.__init__``: hook the methods of a trainer that generates while it trains.

    TRL's own constructor goes on after this one, so nothing of the trainer is read here.
    """
    trainer, probe = call.args[0], call.probe
    apart = is_async(trainer)
    if call.error is not None or not (apart or is_online(trainer)):
        return
    if not any(ready is probe for ready in _ready):
        # First what may fail: it is tried again with the next trainer then.
        add_optimizer_hooks(probe)
        _ready.append(probe)
        probe.on_detach(_ready.clear)
        probe.on_detach(put_all_back)
    at = installed()
    if apart:
        if probe.instrument(trainer, ASYNC_METHODS):
            add_callback(probe, trainer)
    elif probe.instrument(trainer, points_of((*METHODS, *_GRPO_METHODS), at)):
        probe.instrument(attribute(trainer, "processing_class"), points_of(_TOKENIZER, at))
        add_callback(probe, trainer)


# Only the trainer that is built says which classes define the methods: users subclass, and
# Unsloth compiles TRL's source anew.
_CONSTRUCTOR = HookPoint("transformers.trainer:Trainer.__init__", after=built)

METHODS = (
    Dated(stages.TRAIN, _OLDEST),
    Dated(stages.FETCH, _OLDEST),
    Dated(stages.MICRO_STEP, _OLDEST),
    Dated(stages.INPUTS, _OLDEST),
    Dated(older.EXPERIENCE_WITH_REWARDS, _OLDEST, "0.19"),
    Dated(older.EXPERIENCE_WITH_ROLLOUT, "0.19", "0.24"),
    Dated(stages.MAKE_EXPERIENCE, "0.24"),
    Dated(rollouts.GENERATE, "0.24"),
    Dated(rollouts.TURN_OF_PROMPTS, "0.24", "0.29.1"),
    Dated(rollouts.TURN_OF_IDS, "0.29.1"),
    Dated(older.MOVE_WEIGHTS, _OLDEST, "0.28"),
    Dated(older.CALCULATE_LISTS, "0.19", "0.24"),
    Dated(rewards.CALCULATE, "0.24"),
    Dated(stages.LOGPROBS_WITHOUT_ENTROPIES, _OLDEST, "0.20"),
    Dated(stages.LOGPROBS, "0.20"),
    Dated(stages.EVALUATE, _OLDEST),
    Dated(stages.SAVE, _OLDEST),
)
"""Hooked on the class of each trainer that generates while it trains."""

_GRPO_METHODS = (Dated(TOOL_LOOP, "0.26"),)
"""Hooked in the same way; RLOO has none of them."""

_TOKENIZER = (Dated(older.DECODE, _OLDEST, "0.19"),)
"""Hooked on the class of such a trainer's tokenizer."""

_GRPO = "trl.trainer.grpo_trainer:GRPOTrainer."
_RLOO = "trl.trainer.rloo_trainer:RLOOTrainer."
_ASYNC = "trl.experimental.async_grpo.async_grpo_trainer:AsyncGRPOTrainer."
_FAST_TOKENIZER = "transformers.tokenization_utils_fast:PreTrainedTokenizerFast."
_SLOW_TOKENIZER = "transformers.tokenization_utils:PreTrainedTokenizer."


class TrlAdapter(DatedAdapter):
    """TRL's online trainers: GRPO, RLOO, their subclasses and what Unsloth makes of them."""

    name = "trl"
    distribution = "trl"
    tested = ">=0.17,<1.17"
    imported = (
        # What all trainers share; their methods are hooked once one is built.
        Dated(_CONSTRUCTOR, "0.0"),
        Dated(older.PROMPTS, _OLDEST, "0.24"),
        Dated(older.TIMED_REWARDS, _OLDEST, "0.19"),
        Dated(rewards.TIMED_GRPO, "0.19", "0.27"),
        Dated(rewards.TIMED_RLOO, "0.22", "0.27"),
        Dated(older.GATHER, _OLDEST, "0.19"),
        Dated(stages.SYNC_WEIGHTS, "0.28"),
        # Groups in the queue have numbers since then.
        Dated(async_grpo.PACK_POINT, "1.9"),
        *(Dated(point, "1.9") for point in async_rollouts.ROLLOUT_POINTS),
    )
    methods = (
        *within(_GRPO, (*METHODS, *_GRPO_METHODS)),
        *within(_RLOO, METHODS, "0.22"),  # before, another algorithm of this name
        *within(_ASYNC, ASYNC_METHODS, "1.0"),
        *within("trl.extras.profiling:ProfilingContext.", rewards.MODEL, "0.27"),
        *within(_FAST_TOKENIZER, _TOKENIZER),
        *within(_SLOW_TOKENIZER, _TOKENIZER),
    )
