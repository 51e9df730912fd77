"""What to hook in tinyrl, and what to read there. Importing this does not import tinyrl."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.model import names
from rlvr_probe.reading import rewards

__all__ = ["TinyRLAdapter"]

# ---------------------------------------------------------------- what is remembered

_sessions = itertools.count()
"""Trainings of this process."""


@dataclass(slots=True)
class _Training:
    """One training. It lives as long as its trainer, and does not hold it."""

    session: int
    verifiers: list[str]
    batch: int = 0
    """Span of the last rollout: it joins lengths and rewards."""


_VERIFYING: ContextVar[_Training | None] = ContextVar("rlvr_probe_tinyrl", default=None)
"""The training whose verifiers run: a verifier is a function that knows no trainer."""


def _training(call: Call) -> _Training:
    training: _Training = call.probe.state(call.args[0])["training"]
    return training


# ---------------------------------------------------------------- the training


def _fit_begins(call: Call) -> None:
    trainer = call.args[0]
    verifiers = [verifier.__name__ for verifier in trainer.verifiers]
    training = _Training(next(_sessions), verifiers)
    call.probe.state(trainer)["training"] = training
    for index in range(len(verifiers)):
        call.probe.replace(trainer.verifiers, index, _VERIFIER)
    facts = {
        "session": training.session,
        "framework": "tinyrl",
        "framework_version": metadata.version("tinyrl"),
        "algorithm": "grpo",
        "resumed_step": 0,
        "rank": 0,
        "world_size": 1,
        "group_size": trainer.group_size,
        "max_response_tokens": trainer.max_tokens,
        "steps_per_generation": 1,
        "iterations": 1,
        "accumulation": 1,
        "reward_functions": verifiers,
    }
    call.probe.emit(names.SESSION, facts)


def _fit_ends(call: Call) -> None:
    if call.error is None:
        place = {"session": _training(call).session, "step": call.args[0].step}
        call.probe.emit(names.SESSION_END, place)


# ---------------------------------------------------------------- steps and stages


def _step(call: Call) -> int:
    return int(call.args[0].step)


def _read_step(call: Call) -> tuple[Any, ...]:
    return (_training(call).session, _step(call))


def _read_stage(call: Call) -> tuple[Any, ...]:
    return (_training(call).session, _step(call), "train")


def _generated(call: Call) -> None:
    if call.error is not None:
        return
    trainer, training = call.args[0], _training(call)
    training.batch = call.span
    prompts, responses = call.args[1], call.result
    lengths = [len(response) for response in responses]
    values = {
        "session": training.session,
        "step": trainer.step,
        "mode": "train",
        "batch": training.batch,
        "ordinal": 0,
        "policy_version": trainer.step - 1,
        "offset": 0,
        "total": len(responses),
        "group_size": trainer.group_size,
        "prompt_tokens": [len(prompt) for prompt in prompts],
        "response_tokens": lengths,
        # Cut off, not ended: its last token is not STOP.
        "truncated": [int(not response or response[-1] != 0) for response in responses],
    }
    call.probe.emit(names.TRAJECTORIES, values, parent=call.span)


# ---------------------------------------------------------------- verifiers


def _verify_begins(call: Call) -> None:
    call.state = _VERIFYING.set(_training(call))


def _verify_ends(call: Call) -> None:
    _VERIFYING.reset(call.state)


def _is_ours(call: Call) -> bool:
    # A verifier is the user's function: it may also be called from elsewhere.
    return _VERIFYING.get() is not None


def _verifier(call: Call) -> tuple[_Training, int]:
    training = _VERIFYING.get()
    if training is None:
        raise LookupError("no training verifies")
    return training, call.state["index"]


def _verifier_name(call: Call) -> str:
    training, index = _verifier(call)
    return training.verifiers[index]


def _read_verifier(call: Call) -> tuple[Any, ...]:
    return (_verifier(call)[0].batch, _verifier_name(call), len(call.result))


def _verified(call: Call) -> None:
    if call.error is not None:
        return
    training, index = _verifier(call)
    values = {
        "batch": training.batch,
        "function": training.verifiers[index],
        "index": index,
        **rewards(list(call.result)),
    }
    call.probe.emit(names.REWARDS, values, parent=call.span)


_VERIFIER = HookPoint(
    "verifier",
    names.REWARD_FN,
    ("batch", "function", "samples"),
    read=_read_verifier,
    detail=_verifier_name,
    after=_verified,
    when=_is_ours,
)

# ---------------------------------------------------------------- what is declared

_STAGE = ("session", "step", "mode")
_TRAINER = "tinyrl.trainer:Trainer"
_POINTS = (
    HookPoint(f"{_TRAINER}.fit", before=_fit_begins, after=_fit_ends),
    HookPoint(
        f"{_TRAINER}.train_step", names.STEP, ("session", "step"), read=_read_step, step=_step
    ),
    HookPoint(
        f"{_TRAINER}.generate",
        names.ROLLOUT,
        _STAGE,
        read=_read_stage,
        step=_step,
        after=_generated,
        parameters=("prompts",),
    ),
    HookPoint(
        f"{_TRAINER}.verify",
        names.REWARD,
        _STAGE,
        read=_read_stage,
        step=_step,
        before=_verify_begins,
        after=_verify_ends,
    ),
    HookPoint(f"{_TRAINER}.update", names.UPDATE_ACTOR, _STAGE, read=_read_stage, step=_step),
)


class TinyRLAdapter:
    """The trainer of tinyrl."""

    name = "tinyrl"
    distribution = "tinyrl"
    tested = ">=1.2,<2"

    def hook_points(self, version: str) -> Sequence[HookPoint]:
        """The same in every release that was tested."""
        return _POINTS

    def expected(self, version: str) -> Sequence[HookPoint]:
        """No more than those: verifiers are functions of the user, in no release."""
        return self.hook_points(version)
