"""Runs and steps, by a callback; optimizer steps, by torch's global hooks."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from rlvr_probe.adapter import Probe
from rlvr_probe.adapter.controller import named, state_of
from rlvr_probe.model.names import OPTIMIZER_STEP, UPDATE_ACTOR
from rlvr_probe_trl.async_grpo import async_facts
from rlvr_probe_trl.callbacks import follow_callbacks
from rlvr_probe_trl.trainer import Training, begin_step, facts, stepping

__all__ = ["Steps", "add_callback", "add_optimizer_hooks"]


class Steps:
    """Callback of one trainer. A copy of it, pickled or deep, is one that does nothing."""

    def __init__(self, probe: Probe | None = None, trainer: object = None) -> None:
        self._probe = probe
        self._trainer = None if trainer is None else weakref.ref(trainer)
        nothing: Callable[..., None] = _nothing
        guarded = (lambda _: nothing) if probe is None else probe.guarded
        self._train_begin = guarded(self._begin_training)
        self._step_begin = guarded(self._begin_step)
        self._step_end = guarded(self._end_step)
        self._train_end = guarded(self._end_training)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_idle, ())

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by transformers."""
        self._train_begin(state)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by transformers."""
        self._step_begin(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by transformers."""
        self._step_end(state)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by transformers; not after an exception."""
        self._train_end(state)

    def _begin_training(self, state: Any) -> None:
        probe, trainer, training = self._known()
        training.finish(probe)
        training.stops = None
        known = {**facts(trainer), **async_facts(trainer)}
        training.start_session(probe, known, state.global_step)
        # All are there now, also those that were added to the trainer once it was built.
        follow_callbacks(probe, trainer, self)

    def _begin_step(self, state: Any) -> None:
        probe, _, training = self._known()
        training.finish(probe)
        training.open_step(probe, state.global_step + 1)
        begin_step(training)

    def _end_step(self, state: Any) -> None:
        probe, _, training = self._known()
        training.finish(probe, None)

    def _end_training(self, state: Any) -> None:
        probe, _, training = self._known()
        training.finish(probe)
        training.end_session(probe, state.global_step)

    def _known(self) -> tuple[Probe, Any, Training]:
        trainer = None if self._trainer is None else self._trainer()
        if self._probe is None or trainer is None:
            raise LookupError("the trainer of this callback is gone")
        return self._probe, trainer, state_of(self._probe, trainer, Training)


def _nothing(*_: Any) -> None:
    pass


def _idle() -> Any:
    return _callback_class()()


@cache
def _callback_class() -> type[Any]:
    from transformers.trainer_callback import TrainerCallback

    return type("Steps", (Steps, TrainerCallback), {"__module__": __name__})


def add_callback(probe: Probe, trainer: Any) -> None:
    """Follow the steps of ``trainer``, until a detach."""
    callback = _callback_class()(probe, trainer)
    trainer.add_callback(callback)
    probe.on_detach(partial(_remove_callback, weakref.ref(trainer), weakref.ref(callback)))


def _remove_callback(trainer: Callable[[], Any], callback: Callable[[], Any]) -> None:
    alive, added = trainer(), callback()
    if alive is not None and added in alive.callback_handler.callbacks:
        alive.remove_callback(added)


# ---------------------------------------------------------------- optimizer


def add_optimizer_hooks(probe: Probe) -> None:
    """Follow every optimizer step that a hooked trainer makes, until a detach."""
    # Never by wrapping `step`: learning-rate schedulers rebind it and unwrap what is around it.
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    before = probe.guarded(partial(_optimizer_begin, probe))
    after = probe.guarded(partial(_optimizer_end, probe))
    probe.on_detach(register_optimizer_step_pre_hook(before).remove)
    probe.on_detach(register_optimizer_step_post_hook(after).remove)


def _optimizer_begin(probe: Probe, *_: Any) -> None:
    training = stepping()
    if training is None or _other_work(training):
        return
    training.optimizer_depth += 1
    if training.optimizer_depth > 1:  # one optimizer inside another: the outer one counts
        return
    spans: tuple[int, ...] = ()
    if not training.update_span:  # after the last micro step; with DeepSpeed inside of it
        spans = (probe.begin(UPDATE_ACTOR, step=training.step, activate=True),)
    inner = probe.begin(OPTIMIZER_STEP, step=training.step, activate=True)
    training.optimizer_spans = (*spans, inner)


def _optimizer_end(probe: Probe, *_: Any) -> None:
    training = stepping()
    if training is None or not training.optimizer_depth or _other_work(training):
        return
    training.optimizer_depth -= 1
    if training.optimizer_depth:
        return
    *outer, inner = training.optimizer_spans
    training.optimizer_spans = ()
    probe.end(inner, training.at())
    for span in outer:
        probe.end(span, named((training.session or 0, training.step, "train")))


def _other_work(training: Training) -> bool:
    """Whether an optimizer that runs now is not the policy's: a reward function may train, too."""
    preparing = training.in_training_step and not training.update_span
    return training.batch is not None or training.evaluating or preparing
