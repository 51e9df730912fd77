"""Hook points on the methods of a TRL trainer: the stages of a step.

The methods are found on the trainer that is built (:func:`rlvr_probe_trl.adapter.built`), so that
subclasses, RLOO and trainers that Unsloth writes anew are covered alike. What has no method of its
own lies between two that have: advantages follow the rewards, the policy update follows the inputs.
"""

from __future__ import annotations

from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.model.names import (
    ADVANTAGE,
    CHECKPOINT,
    DATA,
    EVAL,
    EXPERIENCE,
    OLD_LOGPROB,
    REF_LOGPROB,
    UPDATE_ACTOR,
    WEIGHT_SYNC,
)
from rlvr_probe.reading import argument, attribute, error_of
from rlvr_probe_trl.reading import size
from rlvr_probe_trl.releases import installed
from rlvr_probe_trl.rollouts import end_rollout
from rlvr_probe_trl.session import algorithm
from rlvr_probe_trl.training import (
    BATCH,
    WHERE,
    Batch,
    Training,
    abandon,
    named,
    read_place,
    step_now,
    training_of,
)

__all__ = [
    "EVALUATE",
    "FETCH",
    "INPUTS",
    "LOGPROBS",
    "MAKE_EXPERIENCE",
    "MICRO_STEP",
    "SAVE",
    "SYNC_WEIGHTS",
    "TRAIN",
    "experience_begin",
    "experience_end",
    "is_online",
    "is_reference",
]

_ONLINE = ("_calculate_rewards", "_get_per_token_logps")  # the latter stands for TRL < 0.19


def is_online(trainer: object) -> bool:
    """Whether a trainer generates and scores completions while it trains."""
    kind = type(trainer)
    scores = any(hasattr(kind, name) for name in _ONLINE)
    return scores and hasattr(kind, "_generate_and_score_completions")


def _online(call: Call) -> bool:
    # Some methods belong to transformers.Trainer, which every trainer shares.
    return is_online(call.args[0])


def _training(call: Call) -> Training:
    return training_of(call.probe, call.args[0])


def _step_next(call: Call) -> int | None:
    return _training(call).where(call.args[0], "train")[1]


def _step_done(call: Call) -> int | None:
    return _training(call).where(call.args[0], "eval")[1]


# ---------------------------------------------------------------- data, evaluation, checkpoint


def _read_data(call: Call) -> tuple[Any, ...]:
    # The model may still be in evaluation mode: `training_step` is what switches it back.
    return _training(call).where(call.args[0], "train")


def _read_checkpoint(call: Call) -> tuple[Any, ...]:
    session, step, _ = _training(call).where(call.args[0], "eval")
    return session, step, "train"


def _evaluate_begin(call: Call) -> None:
    _training(call).evaluating = True


def _evaluate_end(call: Call) -> None:
    _training(call).evaluating = False


def _read_evaluation(call: Call) -> tuple[Any, ...]:
    return _training(call).where(call.args[0], "eval")


def _read_sync(call: Call) -> tuple[Any, ...]:
    batch = BATCH.get()
    return batch.where if batch is not None else (None, None, None)


# ---------------------------------------------------------------- experience


def experience_begin(call: Call) -> None:
    """Before ``_generate_and_score_completions``."""
    training, trainer = _training(call), call.args[0]
    rows = size(argument(call, 1, "inputs"))
    batch = Batch(trainer, call.span, training.where(trainer), rows)
    call.state = BATCH.get()
    training.batch = batch
    BATCH.set(batch)


def experience_end(call: Call) -> None:
    """After ``_generate_and_score_completions``."""
    training = _training(call)
    batch, training.batch = training.batch, None
    BATCH.set(call.state)
    if batch is not None and batch.rewards_end_ns and call.error is None:
        values = named(batch.where)
        call.probe.record(ADVANTAGE, batch.rewards_end_ns, call.end_ns, values, parent=call.span)


# ---------------------------------------------------------------- log-probabilities


def _in_experience(call: Call) -> bool:
    # The same method computes the policy loss, which is part of the update.
    return _training(call).batch is not None


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
    trainer, batch = call.args[0], _training(call).batch
    if batch is None:
        return
    end_rollout(call.probe, batch)
    reference = is_reference(trainer, argument(call, 1, "model"), batch)
    batch.old_seen = batch.old_seen or not reference
    name = REF_LOGPROB if reference else OLD_LOGPROB
    call.state = call.probe.begin(name, step=batch.where[1], activate=True)


def _logprob_end(call: Call) -> None:
    batch = _training(call).batch
    if batch is not None and call.state:
        call.probe.end(call.state, named(batch.where), error_of(call))


# ---------------------------------------------------------------- policy update


def _train_end(call: Call) -> None:
    # Nobody calls back after an exception, and what this thread trains next is not this training.
    abandon(call.probe, _training(call))


def _micro_step_begin(call: Call) -> None:
    _training(call).in_training_step = True


def _micro_step_end(call: Call) -> None:
    training = _training(call)
    training.in_training_step = False
    _end_update(call.probe, training, call.args[0], error_of(call))


def _inputs_begin(call: Call) -> None:
    # A trainer that asks for inputs twice in a micro step generates the second time as well.
    training = _training(call)
    _end_update(call.probe, training, call.args[0], None)


def _inputs_end(call: Call) -> None:
    training = _training(call)
    if training.in_training_step and call.error is None:
        step = training.where(call.args[0], "train")[1]
        training.update_span = call.probe.begin(UPDATE_ACTOR, step=step, activate=True)


def _end_update(probe: Probe, training: Training, trainer: Any, error: str | None) -> None:
    span, training.update_span = training.update_span, 0
    if span:
        probe.end(span, named(training.where(trainer, "train")), error)


FETCH = HookPoint("get_batch_samples", DATA, WHERE, _read_data, step=_step_next, when=_online)

TRAIN = HookPoint("_inner_training_loop", after=_train_end, when=_online)

MICRO_STEP = HookPoint(
    "training_step", before=_micro_step_begin, after=_micro_step_end, when=_online
)

INPUTS = HookPoint("_prepare_inputs", before=_inputs_begin, after=_inputs_end, when=_online)

MAKE_EXPERIENCE = HookPoint(
    "_generate_and_score_completions",
    EXPERIENCE,
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
    after=_logprob_end,
    when=_in_experience,
    parameters=("model",),
)

EVALUATE = HookPoint(
    "evaluate",
    EVAL,
    WHERE,
    _read_evaluation,
    step=_step_done,
    before=_evaluate_begin,
    after=_evaluate_end,
    when=_online,
)

SAVE = HookPoint(
    "_save_checkpoint", CHECKPOINT, WHERE, _read_checkpoint, step=_step_done, when=_online
)

SYNC_WEIGHTS = HookPoint(
    "trl.generation.vllm_generation:VLLMGeneration.sync_weights",
    WEIGHT_SYNC,
    WHERE,
    _read_sync,
    optional=True,
)
"""Weights to vLLM, colocated or a server; happens inside the rollout. TRL >= 0.28."""
