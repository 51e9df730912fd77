"""Hook points on the methods of a TRL trainer: the stages of a step.

The methods are found on the trainer that is built (:func:`rlvr_probe_trl.adapter.built`), so that
subclasses, RLOO and trainers that Unsloth writes anew are covered alike. What has no method of its
own lies between two that have: advantages follow the rewards, the policy update follows the inputs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.adapter.batch_events import sources
from rlvr_probe.adapter.controller import WHERE, named
from rlvr_probe.adapter.spans import end_span, start_stage
from rlvr_probe.model import names
from rlvr_probe.reading import argument, attribute, error_of, option, size
from rlvr_probe_trl.rollouts import end_rollout
from rlvr_probe_trl.trainer import (
    BATCH,
    Batch,
    algorithm,
    installed,
    read_done,
    read_place,
    read_step,
    step_done,
    step_next,
    step_now,
    training_of,
)

__all__ = ["EVALUATE", "FETCH", "INPUTS", "LOGPROBS", "LOGPROBS_WITHOUT_ENTROPIES"]
__all__ += ["MAKE_EXPERIENCE", "MICRO_STEP", "SAVE", "SYNC_WEIGHTS", "TRAIN"]
__all__ += ["experience_begin", "experience_end", "is_online", "is_reference"]

_ONLINE = ("_calculate_rewards", "_get_per_token_logps")  # the latter stands for TRL < 0.19


def is_online(trainer: object) -> bool:
    """Whether a trainer generates and scores completions while it trains."""
    kind = type(trainer)
    scores = any(hasattr(kind, name) for name in _ONLINE)
    return scores and hasattr(kind, "_generate_and_score_completions")


def _online(call: Call) -> bool:
    # Some methods belong to transformers.Trainer, which every trainer shares.
    return is_online(call.args[0])


# ---------------------------------------------------------------- evaluation, weights


def _evaluate_begin(call: Call) -> None:
    training_of(call).evaluating = True


def _evaluate_end(call: Call) -> None:
    training_of(call).evaluating = False


def _read_evaluation(call: Call) -> tuple[Any, ...]:
    return training_of(call).where(call.args[0], "eval")


def _read_sync(call: Call) -> tuple[Any, ...]:
    batch = BATCH.get()
    return batch.where if batch is not None else (None, None, None)


# ---------------------------------------------------------------- experience


def experience_begin(call: Call) -> None:
    """Before ``_generate_and_score_completions``."""
    training, trainer = training_of(call), call.args[0]
    rows = argument(call, 1, "inputs")
    batch = Batch(trainer, call.span, training.where(trainer), size(rows))
    batch.sources = sources(lambda name: [option(row, name) for row in rows])
    call.state = BATCH.get()
    training.batch = batch
    BATCH.set(batch)


def experience_end(call: Call) -> None:
    """After ``_generate_and_score_completions``."""
    training = training_of(call)
    batch, training.batch = training.batch, None
    BATCH.set(call.state)
    if batch is not None and batch.rewards_end_ns and call.error is None:
        values = named(batch.where)
        call.probe.record(
            names.ADVANTAGE, batch.rewards_end_ns, call.end_ns, values, parent=call.span
        )


# ---------------------------------------------------------------- log-probabilities


def _in_experience(call: Call) -> bool:
    # The same method computes the policy loss, which is part of the update.
    return training_of(call).batch is not None


def is_reference(trainer: Any, model: object, batch: Batch) -> bool:
    """Whether this pass is of the reference policy; TRL makes it after that of the old one."""
    reference = attribute(trainer, "ref_model")
    if reference is not None:
        return model is reference
    if not attribute(trainer, "beta"):
        return False
    # With PEFT the reference is the same model, its adapter switched off.
    if algorithm(type(trainer)) == "rloo":  # whose advantages need the old policy in any case
        return batch.old_seen
    return batch.old_seen or not _samples_are_old(trainer)


def _samples_are_old(trainer: Any) -> bool:
    """Whether TRL wants the log-probabilities of the policy that sampled."""
    args = trainer.args
    accumulation, iterations = args.gradient_accumulation_steps, trainer.num_iterations
    fed = getattr(args, "steps_per_generation", accumulation)  # TRL 0.17 has no such argument
    if installed() < (0, 20):
        return bool(iterations > 1 or fed > accumulation)
    corrected = attribute(trainer, "use_vllm") and attribute(
        trainer, "vllm_importance_sampling_correction"
    )
    return accumulation % (fed * iterations) != 0 or bool(corrected)


def _logprob_begin(call: Call) -> None:
    trainer, batch = call.args[0], training_of(call).batch
    if batch is None:
        return
    end_rollout(call.probe, batch)
    reference = is_reference(trainer, argument(call, 1, "model"), batch)
    batch.old_seen = batch.old_seen or not reference
    start_stage(call, names.REF_LOGPROB if reference else names.OLD_LOGPROB, batch.where)


# ---------------------------------------------------------------- policy update


def _train_end(call: Call) -> None:
    # There is no callback after an exception, and what this thread trains next is another run.
    training_of(call).finish(call.probe)


def _micro_step_begin(call: Call) -> None:
    training_of(call).in_training_step = True


def _micro_step_end(call: Call) -> None:
    training_of(call).in_training_step = False
    _end_update(call, error_of(call))


def _inputs_begin(call: Call) -> None:
    # A trainer that asks for inputs twice in a micro step generates the second time as well.
    _end_update(call, None)


def _inputs_end(call: Call) -> None:
    training = training_of(call)
    if training.in_training_step and call.error is None:
        training.update_span = call.probe.begin(
            names.UPDATE_ACTOR, step=step_next(call), activate=True
        )


def _end_update(call: Call, error: str | None) -> None:
    training = training_of(call)
    span, training.update_span = training.update_span, 0
    if span:
        call.probe.end(span, named(training.where(call.args[0], "train")), error)


_of_trainer = partial(HookPoint, when=_online)

FETCH = _of_trainer("get_batch_samples", names.DATA, WHERE, read_step, step=step_next)

TRAIN = _of_trainer("_inner_training_loop", after=_train_end)

MICRO_STEP = _of_trainer("training_step", before=_micro_step_begin, after=_micro_step_end)

INPUTS = _of_trainer("_prepare_inputs", before=_inputs_begin, after=_inputs_end)

MAKE_EXPERIENCE = HookPoint(
    "_generate_and_score_completions",
    names.EXPERIENCE,
    WHERE,
    read_place,
    step=step_now,
    before=experience_begin,
    after=experience_end,
    parameters=("inputs",),
)

LOGPROBS = HookPoint(
    "_get_per_token_logps_and_entropies",
    before=_logprob_begin,
    after=end_span,
    when=_in_experience,
    parameters=("model",),
)

LOGPROBS_WITHOUT_ENTROPIES = replace(LOGPROBS, target="_get_per_token_logps")
"""TRL below 0.20."""

EVALUATE = _of_trainer(
    "evaluate",
    names.EVAL,
    WHERE,
    _read_evaluation,
    step=step_done,
    before=_evaluate_begin,
    after=_evaluate_end,
)

SAVE = _of_trainer("_save_checkpoint", names.CHECKPOINT, WHERE, read_done, step=step_done)

SYNC_WEIGHTS = HookPoint(
    "trl.generation.vllm_generation:VLLMGeneration.sync_weights",
    names.WEIGHT_SYNC,
    WHERE,
    _read_sync,
    optional=True,
)
"""Weights to vLLM, colocated or a server; happens inside the rollout. TRL >= 0.28."""
