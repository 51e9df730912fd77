"""Reward functions and reward models: their own time and values, apart from the wait for ranks.

A user's reward function is replaced in the trainer's list for as long as TRL computes rewards, and
put back afterwards: the list is the user's, who may read it, share it or change it at any time.
A reward model stays the module it is; TRL's own profiling says when it runs.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.adapter.batch_events import emit_rewards
from rlvr_probe.adapter.controller import WHERE, named
from rlvr_probe.adapter.user_functions import Scoring, Swapped, put_all_back
from rlvr_probe.model.names import REWARD, REWARD_FN, WAIT
from rlvr_probe.reading import argument, attribute, error_of, number, size
from rlvr_probe_trl.reading import is_module, reward_values
from rlvr_probe_trl.rollouts import end_rollout
from rlvr_probe_trl.trainer import BATCH, Batch, read_place, reward_names, step_now, training_of

__all__ = ["CALCULATE", "MODEL", "TIMED_GRPO", "TIMED_RLOO"]
__all__ += ["begin_model", "calculated", "end_rewards", "swap", "swap_functions", "timing"]
__all__ += ["timing_end"]


def swap_functions(probe: Probe, batch: Batch) -> None:
    """Put wrappers around the user's functions."""
    trainer = batch.trainer
    functions = trainer.reward_funcs
    if not isinstance(functions, list):
        return
    for index, function in enumerate(functions):
        if is_module(function):
            batch.models[_timed_as(trainer, trainer.reward_func_names[index])] = index
    batch.scoring = swap(probe, functions, reward_names(trainer), batch.span, batch.swapped)


def swap(
    probe: Probe, functions: list[Any], names: list[str], span: int, swapped: Swapped
) -> Scoring:
    """Put wrappers around the functions of a list, modules left alone.

    Args:
        probe: To record with.
        functions: The user's list.
        names: Their names.
        span: What joins lengths and rewards.
        swapped: Gets what was put there.
    """
    put_all_back(functions)
    scoring = Scoring(span, names, _samples, reward_values)
    point = replace(scoring.point(), before=_function_begin)
    for index, function in enumerate(functions):
        wrapper = None if is_module(function) else probe.wrap(function, index, point)
        if wrapper is not None:
            swapped.put(functions, index, wrapper)
    return scoring


def _samples(call: Call) -> int | None:
    return size(call.kwargs.get("completions"))


def _function_begin(call: Call) -> None:
    end_rollout(call.probe, BATCH.get())


def end_rewards(probe: Probe, batch: Batch, end_ns: int, result: Any, rows: int | None) -> None:
    """Record what is known once the rewards of all ranks are there.

    Args:
        probe: To record with.
        batch: Whose rewards.
        end_ns: When they were there.
        result: Rewards (rows of all ranks x functions), or what TRL returned instead.
        rows: Rows of this rank.
    """
    batch.rewards_end_ns = end_ns
    _model_values(probe, batch, result, rows)
    returned = max(batch.function_end_ns, batch.scoring.end_ns if batch.scoring else 0)
    if returned and (number(batch.trainer, "accelerator", "num_processes") or 1) > 1:
        values = {**named(batch.where), "on": "reward_gather"}
        probe.record(WAIT, returned, end_ns, values, parent=batch.reward)


def calculated(call: Call, batch: Batch) -> None:
    """After ``_calculate_rewards``: the functions are the user's own again, their results known."""
    batch.swapped.put_back()
    if call.error is None:
        rows = size(argument(call, 2, "prompts"))
        end_rewards(call.probe, batch, call.end_ns, call.result, rows)


def _calculate_begin(call: Call) -> None:
    batch = training_of(call).batch
    if batch is None:
        return
    batch.reward = call.span
    swap_functions(call.probe, batch)
    timer = attribute(sys.modules.get("trl.extras.profiling"), "ProfilingContext")
    if batch.models and isinstance(timer, type):
        call.probe.instrument(timer, MODEL)


def _calculate_end(call: Call) -> None:
    batch = training_of(call).batch
    if batch is not None:
        calculated(call, batch)


CALCULATE = HookPoint(
    "_calculate_rewards",
    REWARD,
    WHERE,
    read_place,
    step=step_now,
    before=_calculate_begin,
    after=_calculate_end,
    parameters=("inputs", "prompts"),
)
"""All rewards of one batch, the wait for other ranks included."""


# ---------------------------------------------------------------- models


def _timed_as(trainer: Any, name: str) -> str:
    """The name by which TRL times something, as `trl.extras.profiling` spells it."""
    return f"{type(trainer).__name__}.{name}"


def begin_model(probe: Probe, batch: Batch, key: str) -> None:
    """Start the span of a reward model, if TRL times one by this name."""
    if key in batch.models:
        batch.model_spans[key] = probe.begin(REWARD_FN, detail=_model_name(batch, key))


def _end_model(probe: Probe, batch: Batch, key: str, error: str | None) -> None:
    """End the span of a reward model."""
    span = batch.model_spans.pop(key, 0)
    if span:
        values = {"batch": batch.span, "function": _model_name(batch, key)}
        probe.end(span, values, error)
        batch.function_end_ns = time.monotonic_ns()


def _model_name(batch: Batch, key: str) -> str:
    return f"reward_model_{batch.models[key]}"


def _model_values(probe: Probe, batch: Batch, result: Any, rows: int | None) -> None:
    """Values of reward models, from the matrix of all ranks if it lies in host memory."""
    if not batch.models or attribute(result, "device", "type") != "cpu":
        return
    rank = number(batch.trainer, "accelerator", "process_index")
    if not rows or rank is None:
        return
    for key, index in batch.models.items():
        values = reward_values(result[rank * rows : (rank + 1) * rows, index])
        name = _model_name(batch, key)
        emit_rewards(probe, batch.span, name, values, index=index, parent=batch.reward)


def _is_model(call: Call) -> bool:
    batch = BATCH.get()
    return batch is not None and getattr(call.args[0], "name", None) in batch.models


def _context_entered(call: Call) -> None:
    batch = BATCH.get()
    if batch is not None:
        begin_model(call.probe, batch, call.args[0].name)


def _context_left(call: Call) -> None:
    batch = BATCH.get()
    if batch is not None:
        kind = argument(call, 1, "exc_type")
        error = kind.__name__ if isinstance(kind, type) else None
        _end_model(call.probe, batch, call.args[0].name, error)


MODEL = (
    HookPoint("__enter__", after=_context_entered, when=_is_model),
    HookPoint("__exit__", before=_context_left, when=_is_model, parameters=("exc_type",)),
)
"""The context manager by which TRL times each reward model since 0.27.

Hooked once there is a reward model: TRL times much else by it, and each would cost a little."""


# ---------------------------------------------------------------- models, TRL below 0.27


def _timing_begin(call: Call) -> None:
    batch, key = BATCH.get(), timing(call)
    if batch is not None and key is not None:
        begin_model(call.probe, batch, key)


def timing_end(call: Call) -> None:
    """After TRL timed something."""
    batch, key = BATCH.get(), timing(call)
    if batch is not None and key is not None:
        _end_model(call.probe, batch, key, error_of(call))


def timing(call: Call) -> str | None:
    """What a call of ``profiling_context`` times."""
    name = argument(call, 1, "name")
    return _timed_as(argument(call, 0, "trainer"), name) if isinstance(name, str) else None


def _in_batch(call: Call) -> bool:
    return BATCH.get() is not None


TIMED_GRPO = HookPoint(
    "trl.trainer.grpo_trainer:profiling_context",
    before=_timing_begin,
    after=timing_end,
    when=_in_batch,
    parameters=("trainer", "name"),
)
"""What TRL below 0.27 times reward models by: a function that each trainer's module imports."""

TIMED_RLOO = replace(TIMED_GRPO, target="trl.trainer.rloo_trainer:profiling_context")
