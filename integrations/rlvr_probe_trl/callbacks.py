"""Callbacks of a trainer, by class and event: what most of the time between stages goes into.

Those that come with the trainer itself are left alone; they do nothing that takes time. What
callbacks do with a saved checkpoint, as to upload it, belongs to the checkpoint.
"""

from __future__ import annotations

import weakref
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.adapter.controller import WHERE, Where, state_of
from rlvr_probe.adapter.named_calls import named_call
from rlvr_probe.model import names
from rlvr_probe.reading import attribute
from rlvr_probe_trl.trainer import Training, place_done

__all__ = ["follow_callbacks"]

_OWN = "transformers.trainer_callback"
"""Module of the callbacks that every trainer has, and of what all others derive from."""

_trainers = weakref.WeakKeyDictionary[Any, Any]()
"""The trainer of each callback handler, weakly."""


def follow_callbacks(probe: Probe, trainer: Any, own: object) -> None:
    """Record each callback of ``trainer`` that its user or an integration wrote.

    Args:
        probe: What records them.
        trainer: Whose; it starts to train.
        own: The callback of the probe, which is left alone.
    """
    handler = attribute(trainer, "callback_handler")
    for callback in attribute(handler, "callbacks") or ():
        events = [event for event in _POINTS if _has(type(callback), event)]
        if events and callback is not own:
            probe.instrument(callback, [_POINTS[event] for event in events])
    if handler is not None:
        _trainers[handler] = weakref.ref(trainer)
        probe.instrument(handler, (_ON_SAVE,))


def _has(kind: type, event: str) -> bool:
    """Whether callbacks of this class do something of their own then."""
    definer = next((base for base in kind.__mro__ if event in vars(base)), None)
    return definer is not None and definer.__module__ != _OWN


def _any_saves(call: Call) -> bool:
    callbacks = attribute(call.args[0], "callbacks") or ()
    return any(_has(type(callback), "on_save") for callback in callbacks)


def _read_saved(call: Call) -> Where:
    trainer = _trainers[call.args[0]]()
    return place_done(state_of(call.probe, trainer, Training), trainer)


def _step_saved(call: Call) -> int | None:
    return _read_saved(call)[1]


_ON_SAVE = HookPoint(
    "on_save", names.CHECKPOINT, WHERE, _read_saved, step=_step_saved, when=_any_saves
)
"""Of the handler, which calls those of all callbacks."""

_POINTS = {
    event: named_call(event)
    for event in (
        "on_epoch_begin", "on_step_begin", "on_step_end", "on_log", "on_evaluate", "on_save",
        "on_epoch_end", "on_train_end",
    )
}  # fmt: skip
"""Of each callback, by event. Those within an update or an evaluation belong to these."""
