"""Reward functions and reward models: their own time and values, apart from the wait for ranks.

A user's reward function is replaced in the trainer's list for as long as TRL computes rewards, and
put back afterwards: the list is the user's, who may read it, share it or change it at any time.
A reward model stays the module it is; TRL's own profiling says when it runs.
"""

from __future__ import annotations

from typing import Any

from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.model.names import REWARD_FN, REWARDS, WAIT
from rlvr_probe_trl.reading import is_module, number, reward_values, size
from rlvr_probe_trl.session import reward_names
from rlvr_probe_trl.training import BATCH, Batch, training_of

__all__ = ["read_place", "restore_functions", "rewards_begin", "rewards_end"]


class _Swapped(list[tuple[list[Any], int, Any, Any]]):
    """List, index, function of the user and its wrapper, for one computation of rewards."""


_IN_PLACE: list[_Swapped] = []


def read_place(call: Call) -> tuple[Any, ...]:
    """Session, step and mode of the batch in work."""
    trainer = call.args[0]
    training = training_of(call.probe, trainer)
    return training.batch.where if training.batch is not None else training.where(trainer)


def rewards_begin(call: Call) -> None:
    """Before ``_calculate_rewards``: put wrappers around the user's functions."""
    trainer = call.args[0]
    call.state = swapped = _Swapped()
    _IN_PLACE.append(swapped)
    functions = trainer.reward_funcs
    batch = training_of(call.probe, trainer).batch
    if batch is None or not isinstance(functions, list):
        return
    batch.names = reward_names(trainer)
    for index, function in enumerate(functions):
        if is_module(function):
            # As `trl.extras.profiling.profiling_context` spells it.
            timed_as = f"{type(trainer).__name__}.{trainer.reward_func_names[index]}"
            batch.models[timed_as] = index
            continue
        wrapper = call.probe.wrap(function, index, _FUNCTION)
        if wrapper is not None:
            swapped.append((functions, index, function, wrapper))
            functions[index] = wrapper
    if batch.models:
        from trl.extras.profiling import ProfilingContext

        call.probe.instrument(ProfilingContext.__new__(ProfilingContext), _MODEL)


def rewards_end(call: Call) -> None:
    """After ``_calculate_rewards``: put the functions back, record the wait for other ranks."""
    trainer = call.args[0]
    _put_back(call.state)
    batch = training_of(call.probe, trainer).batch
    if batch is None or call.error is not None:
        return
    batch.rewards_end_ns = call.end_ns
    _model_values(call, batch)
    if batch.function_end_ns and (number(trainer, "accelerator", "num_processes") or 1) > 1:
        session, step, mode = batch.where
        values = {"session": session, "step": step, "mode": mode, "on": "reward_gather"}
        call.probe.record(WAIT, batch.function_end_ns, call.end_ns, values, parent=call.span)


def restore_functions() -> None:
    """Put back every wrapped function: for a detach while rewards are computed."""
    for swapped in list(_IN_PLACE):
        _put_back(swapped)


def _put_back(swapped: _Swapped) -> None:
    while swapped:
        functions, index, function, wrapper = swapped.pop()
        if index < len(functions) and functions[index] is wrapper:
            functions[index] = function
    _IN_PLACE[:] = [other for other in _IN_PLACE if other is not swapped]


def _function_name(call: Call) -> str | None:
    batch, index = BATCH.get(), call.state["index"]
    names = [] if batch is None else batch.names
    return names[index] if index < len(names) else None


def _function_samples(call: Call) -> int | None:
    return size(call.kwargs.get("completions"))


def _function_detail(call: Call) -> str:
    return _function_name(call) or ""


def _read_function(call: Call) -> tuple[Any, ...]:
    batch = BATCH.get()
    return (batch.span if batch else None, _function_name(call), _function_samples(call))


def _function_done(call: Call) -> None:
    batch = BATCH.get()
    if batch is None or call.error is not None:
        return
    batch.function_end_ns = max(batch.function_end_ns, call.end_ns)
    values = {
        "batch": batch.span,
        "function": _function_name(call),
        "index": call.state["index"],
        "values": reward_values(call.result),
    }
    call.probe.emit(REWARDS, values, parent=call.span)


_FUNCTION = HookPoint(
    "reward_function",
    REWARD_FN,
    ("batch", "function", "samples"),
    read=_read_function,
    detail=_function_detail,
    after=_function_done,
)


def _is_model(call: Call) -> bool:
    batch = BATCH.get()
    return batch is not None and getattr(call.args[0], "name", None) in batch.models


def _model_begin(call: Call) -> None:
    batch = BATCH.get()
    if batch is not None:
        name = call.args[0].name
        batch.model_spans[name] = call.probe.begin(REWARD_FN, detail=_model_name(batch, name))


def _model_end(call: Call) -> None:
    batch = BATCH.get()
    if batch is None:
        return
    name = call.args[0].name
    span = batch.model_spans.pop(name, 0)
    kind = call.args[1] if len(call.args) > 1 else None
    error = kind.__name__ if isinstance(kind, type) else None
    call.probe.end(span, {"batch": batch.span, "function": _model_name(batch, name)}, error)
    batch.function_end_ns = max(batch.function_end_ns, call.end_ns)


def _model_name(batch: Batch, name: str) -> str:
    return f"reward_model_{batch.models[name]}"


def _model_values(call: Call, batch: Batch) -> None:
    """Values of reward models, from the matrix of all ranks if it lies in host memory."""
    result = call.result
    if not batch.models or getattr(getattr(result, "device", None), "type", None) != "cpu":
        return
    prompts = call.kwargs.get("prompts", call.args[2] if len(call.args) > 2 else None)
    rows, rank = size(prompts), number(batch.trainer, "accelerator", "process_index")
    if not rows or rank is None:
        return
    for name, index in batch.models.items():
        values = {
            "batch": batch.span,
            "function": _model_name(batch, name),
            "index": index,
            "values": reward_values(result[rank * rows : (rank + 1) * rows, index]),
        }
        call.probe.emit(REWARDS, values, parent=call.span)


# TRL >= 0.28 times each reward model by this context manager; the name is that of the model. Hooked
# once there is a reward model: TRL times much else by it, and each of those would cost a little.
_MODEL = (
    HookPoint("__enter__", after=_model_begin, when=_is_model),
    HookPoint("__exit__", before=_model_end, when=_is_model),
)
