"""Hook points on the methods of a TRL trainer: the stages of a step, lengths and turns.

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
    REWARD,
    ROLLOUT,
    TRAJECTORIES,
    TURN,
    UPDATE_ACTOR,
    WEIGHT_SYNC,
)
from rlvr_probe_trl.reading import attribute, lengths, number, size, stop_ids, truncated
from rlvr_probe_trl.rewards import read_place, rewards_begin, rewards_end
from rlvr_probe_trl.tools import TOOL_LOOP, loss_runs, turn_columns
from rlvr_probe_trl.training import BATCH, Batch, Training, Where, training_of

__all__ = ["METHODS", "WEIGHT_SYNC_POINT", "is_online", "is_reference", "named"]

WHERE = ("session", "step", "mode")


def is_online(trainer: object) -> bool:
    """Whether a trainer generates and scores completions while it trains."""
    kind = type(trainer)
    return hasattr(kind, "_generate_and_score_completions") and hasattr(kind, "_calculate_rewards")


def named(where: Where) -> dict[str, Any]:
    """A place as attributes."""
    return dict(zip(WHERE, where, strict=True))


def _online(call: Call) -> bool:
    # Some methods belong to transformers.Trainer, which every trainer shares.
    return is_online(call.args[0])


def _training(call: Call) -> Training:
    return training_of(call.probe, call.args[0])


def _step_now(call: Call) -> int | None:
    return _training(call).where(call.args[0])[1]


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


def _experience_begin(call: Call) -> None:
    training, trainer = _training(call), call.args[0]
    batch = Batch(trainer, call.span, training.where(trainer))
    call.state = BATCH.get()
    training.batch = batch
    BATCH.set(batch)


def _experience_end(call: Call) -> None:
    training = _training(call)
    batch, training.batch = training.batch, None
    BATCH.set(call.state)
    if batch is not None and batch.rewards_end_ns and call.error is None:
        values = named(batch.where)
        call.probe.record(ADVANTAGE, batch.rewards_end_ns, call.end_ns, values, parent=call.span)


def _read_rollout(call: Call) -> tuple[Any, ...]:
    done = number(call.args[0], "state", "global_step")
    return (*read_place(call), done, size(_generated(call.result, 1)))


def _rollout_end(call: Call) -> None:
    trainer, training = call.args[0], _training(call)
    prompts, responses = _generated(call.result, 0), _generated(call.result, 1)
    prompt_tokens, response_tokens = lengths(prompts), lengths(responses)
    if call.error is not None or prompt_tokens is None or response_tokens is None:
        return
    batch = training.batch
    where = batch.where if batch is not None else training.where(trainer)
    rows = len(response_tokens)
    rank = number(trainer, "accelerator", "process_index")
    ranks = number(trainer, "accelerator", "num_processes")
    size_of = "num_generations" if where[2] == "train" else "num_generations_eval"
    if training.stops is None:
        training.stops = stop_ids(trainer)
    values = {
        **named(where),
        "batch": batch.span if batch is not None else None,
        "ordinal": training.ordinal(where),
        "policy_version": number(trainer, "state", "global_step"),
        "offset": None if rank is None else rank * rows,
        "total": None if ranks is None else ranks * rows,
        "group_size": number(trainer, size_of),
        "prompt_tokens": prompt_tokens,
        "response_tokens": response_tokens,
        "truncated": truncated(responses, training.stops),
    }
    runs = loss_runs(_generated(call.result, 2), response_tokens)
    if runs is not None:
        values["loss_runs"] = runs
    call.probe.emit(TRAJECTORIES, values, parent=call.span)


def _generated(result: object, index: int) -> Any:
    # Prompt ids and completion ids come first in every TRL since 0.24. What follows changed in each
    # release (a 0-d tensor in 0.24, masks since 0.26) and is left alone.
    return result[index] if isinstance(result, tuple) and len(result) > index else None


def _read_turn(call: Call) -> tuple[Any, ...]:
    batch = _training(call).batch
    prompts = call.args[1] if len(call.args) > 1 else call.kwargs.get("prompt_ids")
    # GRPO returns (completion ids, log-probabilities), RLOO the completion ids alone.
    responses = call.result[0] if isinstance(call.result, tuple) and call.result else call.result
    if isinstance(call.result, tuple) and len(call.result) == 4:  # TRL < 1.0 takes messages
        prompts, responses = call.result[:2]
    span = None if batch is None else batch.span
    columns = None if not span else turn_columns(call, span, prompts, responses)
    if columns is not None:
        rows, turn, sent, generated = columns
        return span, size(generated), rows, turn, sent, generated
    sent, generated = lengths(prompts), lengths(responses)
    return (
        span,
        size(generated),
        None,
        None,
        None if sent is None else sum(sent),
        None if generated is None else sum(generated),
    )


# ---------------------------------------------------------------- log-probabilities


def _in_experience(call: Call) -> bool:
    # The same method computes the policy loss, which is part of the update.
    return _training(call).batch is not None


def is_reference(trainer: Any, model: object, batch: Batch) -> bool:
    """Whether this pass is of the reference policy; TRL 1.16 makes it after that of the old one."""
    reference = attribute(trainer, "ref_model")
    if reference is not None:
        return model is reference
    if not attribute(trainer, "beta"):
        return False
    # With PEFT the reference is the same model, its adapter switched off.
    args = trainer.args
    every = args.steps_per_generation * trainer.num_iterations
    corrected = attribute(trainer, "use_vllm") and attribute(
        trainer, "vllm_importance_sampling_correction"
    )
    expects_old = args.gradient_accumulation_steps % every != 0 or bool(corrected)
    return batch.old_seen or not expects_old


def _logprob_begin(call: Call) -> None:
    trainer, batch = call.args[0], _training(call).batch
    if batch is None:
        return
    model = call.args[1] if len(call.args) > 1 else call.kwargs.get("model")
    reference = is_reference(trainer, model, batch)
    batch.old_seen = batch.old_seen or not reference
    name = REF_LOGPROB if reference else OLD_LOGPROB
    call.state = call.probe.begin(name, step=batch.where[1], activate=True)


def _logprob_end(call: Call) -> None:
    batch = _training(call).batch
    if batch is not None and call.state:
        call.probe.end(call.state, named(batch.where), _error(call))


# ---------------------------------------------------------------- policy update


def _micro_step_begin(call: Call) -> None:
    _training(call).in_training_step = True


def _micro_step_end(call: Call) -> None:
    training = _training(call)
    training.in_training_step = False
    _end_update(call.probe, training, call.args[0], _error(call))


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


def _error(call: Call) -> str | None:
    return None if call.error is None else type(call.error).__name__


METHODS = (
    HookPoint("get_batch_samples", DATA, WHERE, _read_data, step=_step_next, when=_online),
    HookPoint("training_step", before=_micro_step_begin, after=_micro_step_end, when=_online),
    HookPoint("_prepare_inputs", before=_inputs_begin, after=_inputs_end, when=_online),
    HookPoint(
        "_generate_and_score_completions",
        EXPERIENCE,
        WHERE,
        read_place,
        step=_step_now,
        before=_experience_begin,
        after=_experience_end,
    ),
    HookPoint(
        "_generate",
        ROLLOUT,
        (*WHERE, "policy_version", "samples"),
        _read_rollout,
        step=_step_now,
        after=_rollout_end,
    ),
    HookPoint(
        "_generate_single_turn",
        TURN,
        ("batch", "samples", "rows", "turn", "prompt_tokens", "response_tokens"),
        _read_turn,
        optional=True,
    ),
    TOOL_LOOP,
    HookPoint(
        "_calculate_rewards",
        REWARD,
        WHERE,
        read_place,
        step=_step_now,
        before=rewards_begin,
        after=rewards_end,
    ),
    HookPoint(
        "_get_per_token_logps_and_entropies",
        before=_logprob_begin,
        after=_logprob_end,
        when=_in_experience,
    ),
    HookPoint(
        "evaluate",
        EVAL,
        WHERE,
        _read_evaluation,
        step=_step_done,
        before=_evaluate_begin,
        after=_evaluate_end,
        when=_online,
    ),
    HookPoint(
        "_save_checkpoint", CHECKPOINT, WHERE, _read_checkpoint, step=_step_done, when=_online
    ),
)
"""Methods hooked on the class of each trainer that generates while it trains."""

WEIGHT_SYNC_POINT = HookPoint(
    "trl.generation.vllm_generation:VLLMGeneration.sync_weights",
    WEIGHT_SYNC,
    WHERE,
    _read_sync,
    optional=True,
)
"""Weights to vLLM, colocated or a server; happens inside the rollout."""
