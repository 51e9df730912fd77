"""Rollouts: lengths of every trajectory, turns, and when generating ends.

TRL returns the token lists of a batch from a method of its own since 0.24. What is done below that
is in :mod:`rlvr_probe_trl.trl_below_0_24`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.adapter.batch_events import emit_trajectories
from rlvr_probe.adapter.controller import WHERE, named
from rlvr_probe.model.names import ROLLOUT, TURN
from rlvr_probe.reading import argument, number, size
from rlvr_probe_trl.reading import lengths, loss_runs, stop_ids, truncated
from rlvr_probe_trl.tools import turn_columns
from rlvr_probe_trl.trainer import Batch, Training, read_place, step_now, training_of

__all__ = ["GENERATE", "TURN_OF_IDS", "TURN_OF_PROMPTS", "end_rollout", "record_lengths"]


def record_lengths(
    probe: Probe,
    trainer: Any,
    training: Training,
    parent: int,
    ordinal: int | None,
    prompt_tokens: list[int],
    response_tokens: list[int],
    **columns: Any,
) -> None:
    """Record the trajectories of one generation.

    Args:
        probe: To record with.
        trainer: Who generated.
        training: Its state.
        parent: The rollout span.
        ordinal: Position among the generations of its place, drawn when it started: on every rank,
            also where this is not reached. None if it was not.
        prompt_tokens: Length of each prompt.
        response_tokens: Length of each completion.
        columns: What else is known of each completion, None for what is unknown.
    """
    where = training.place(trainer)
    rows = len(response_tokens)
    rank = number(trainer, "accelerator", "process_index")
    ranks = number(trainer, "accelerator", "num_processes")
    group_size = number(trainer, "num_generations")
    if where[2] == "eval":  # TRL < 0.26 has the same number for both
        group_size = number(trainer, "num_generations_eval") or group_size
    batch = training.batch
    sources = None if batch is None or batch.samples != rows else batch.sources
    values = {
        **named(where),
        "batch": None if batch is None else batch.span,
        "sources": sources,
        "ordinal": training.ordinal(where) if ordinal is None else ordinal,
        "policy_version": number(trainer, "state", "global_step"),
        "offset": None if rank is None else rank * rows,
        "total": None if ranks is None else ranks * rows,
        "group_size": group_size,
        "prompt_tokens": prompt_tokens,
        "response_tokens": response_tokens,
        **columns,
    }
    emit_trajectories(probe, parent, values)


def end_rollout(probe: Probe, batch: Batch | None, error: str | None = None) -> None:
    """End a rollout that has no method of its own, at what follows it. Not twice."""
    if batch is None or not batch.rollout_open:
        return
    batch.rollout_open = False
    done = number(batch.trainer, "state", "global_step")
    values = {**named(batch.where), "policy_version": done, "samples": batch.samples}
    probe.end(batch.rollout, values, error)


# ---------------------------------------------------------------- TRL 0.24 and later


def _read_rollout(call: Call) -> tuple[Any, ...]:
    done = number(call.args[0], "state", "global_step")
    return (*read_place(call), done, size(_generated(call.result, 1)))


def _rollout_begin(call: Call) -> None:
    training = training_of(call)
    call.state = training.ordinal(training.place(call.args[0]))


def _rollout_end(call: Call) -> None:
    trainer, training = call.args[0], training_of(call)
    prompts, responses, masks = (_generated(call.result, index) for index in range(3))
    sent, generated = lengths(prompts), lengths(responses)
    if call.error is not None or sent is None or generated is None:
        return
    if training.stops is None:
        training.stops = stop_ids(trainer)
    columns = {
        "truncated": truncated(responses, training.stops),
        "loss_runs": loss_runs(masks, generated),
    }
    record_lengths(call.probe, trainer, training, call.span, call.state, sent, generated, **columns)


def _generated(result: object, index: int) -> Any:
    # Prompt ids and completion ids come first in every TRL since 0.24. What follows changed in each
    # release (a 0-d tensor in 0.24, masks since 0.26) and is left alone.
    return result[index] if isinstance(result, tuple) and len(result) > index else None


def _read_turn_of_ids(call: Call) -> tuple[Any, ...]:
    # GRPO returns (completion ids, log-probabilities), RLOO the completion ids alone.
    responses = call.result[0] if isinstance(call.result, tuple) and call.result else call.result
    return _turn(call, argument(call, 1, "prompt_ids"), responses)


def _read_turn_of_prompts(call: Call) -> tuple[Any, ...]:
    # The prompts that are passed are texts or messages, whose lengths are not those of tokens.
    return _turn(call, _generated(call.result, 0), _generated(call.result, 1))


def _turn(call: Call, prompts: Any, responses: Any) -> tuple[Any, ...]:
    batch = training_of(call).batch
    span = None if batch is None else batch.span
    columns = None if not span else turn_columns(call, span, prompts, responses)
    if columns is not None:
        rows, turn, sent, generated = columns
        return span, size(generated), rows, turn, sent, generated
    sent, generated = lengths(prompts), lengths(responses)
    total = (None if tokens is None else sum(tokens) for tokens in (sent, generated))
    return (span, size(generated), None, None, *total)


GENERATE = HookPoint(
    "_generate",
    ROLLOUT,
    (*WHERE, "policy_version", "samples"),
    _read_rollout,
    step=step_now,
    before=_rollout_begin,
    after=_rollout_end,
)
"""All generation of one batch, tools included. TRL >= 0.24."""

TURN_OF_IDS = HookPoint(
    "_generate_single_turn",
    TURN,
    ("batch", "samples", "rows", "turn", "prompt_tokens", "response_tokens"),
    _read_turn_of_ids,
    optional=True,
    parameters=("prompt_ids",),
)
"""One call of the engine. TRL >= 0.29.1: takes token ids."""

TURN_OF_PROMPTS = replace(TURN_OF_IDS, read=_read_turn_of_prompts, parameters=("prompts",))
"""One call of the engine. TRL 0.24 to 0.29.0: takes texts, and returns token ids of both."""
