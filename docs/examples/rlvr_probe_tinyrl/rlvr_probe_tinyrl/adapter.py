"""What to hook in tinyrl, and what to read there. Importing this does not import tinyrl."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, controller
from rlvr_probe.adapter.batch_events import emit_trajectories
from rlvr_probe.adapter.controller import WHERE, named, state_of
from rlvr_probe.adapter.user_functions import Scoring, Swapped, put_all_back
from rlvr_probe.model import names
from rlvr_probe.reading import argument, size
from rlvr_probe.releases import DatedAdapter, version_of, within

__all__ = ["TinyRLAdapter"]

# ---------------------------------------------------------------- what is remembered


@dataclass(slots=True)
class _Controller(controller.Controller):
    """State of one trainer. It lives as long as the trainer, and does not hold it.

    Attributes:
        batch: Span of the last rollout: it joins lengths and rewards.
        swapped: The verifiers in whose place wrappers are.
    """

    batch: int = 0
    swapped: Swapped = field(default_factory=Swapped)


def _state(call: Call) -> _Controller:
    return state_of(call.probe, call.args[0], _Controller)


# ---------------------------------------------------------------- the run


def _verifiers(trainer: Any) -> list[str]:
    return [verifier.__name__ for verifier in trainer.verifiers]


def _fit_begins(call: Call) -> None:
    trainer = call.args[0]
    facts = {
        "framework": "tinyrl",
        "framework_version": version_of("tinyrl"),
        "algorithm": "grpo",
        "rank": 0,
        "world_size": 1,
        "group_size": trainer.group_size,
        "max_response_tokens": trainer.max_tokens,
        "steps_per_generation": 1,
        "iterations": 1,
        "accumulation": 1,
        "reward_functions": _verifiers(trainer),
    }
    _state(call).start_session(call.probe, facts, resumed_step=0)
    call.probe.on_detach(put_all_back)


def _fit_ends(call: Call) -> None:
    if call.error is None:
        _state(call).end_session(call.probe, call.args[0].step)


# ---------------------------------------------------------------- steps and stages


def _step(call: Call) -> int:
    return int(call.args[0].step)


def _read_step(call: Call) -> tuple[Any, ...]:
    return (_state(call).session, _step(call))


def _read_stage(call: Call) -> tuple[Any, ...]:
    return (*_read_step(call), "train")


def _generated(call: Call) -> None:
    if call.error is not None:
        return
    trainer, state = call.args[0], _state(call)
    state.batch = call.span
    where = (state.session or 0, trainer.step, "train")
    prompts, responses = call.args[1], call.result
    values = {
        **named(where),
        "batch": state.batch,
        "ordinal": state.ordinal(where),
        "policy_version": trainer.step - 1,
        "offset": 0,
        "total": len(responses),
        "group_size": trainer.group_size,
        "prompt_tokens": [len(prompt) for prompt in prompts],
        "response_tokens": [len(response) for response in responses],
        # Cut off, not ended: its last token is not STOP.
        "truncated": [int(not response or response[-1] != 0) for response in responses],
    }
    emit_trajectories(call.probe, call.span, values)


# ---------------------------------------------------------------- verifiers


def _rows(call: Call) -> int | None:
    return size(argument(call, 0, "prompts"))


def _verify_begins(call: Call) -> None:
    trainer, state = call.args[0], _state(call)
    point = Scoring(state.batch, _verifiers(trainer), _rows, list).point()
    for index, verifier in enumerate(trainer.verifiers):
        state.swapped.put(trainer.verifiers, index, call.probe.wrap(verifier, index, point))


def _verify_ends(call: Call) -> None:
    _state(call).swapped.put_back()


# ---------------------------------------------------------------- what is declared

_stage = partial(HookPoint, attributes=WHERE, read=_read_stage, step=_step)

_POINTS = (
    HookPoint("fit", before=_fit_begins, after=_fit_ends),
    HookPoint("train_step", names.STEP, ("session", "step"), _read_step, step=_step),
    _stage("generate", names.ROLLOUT, after=_generated, parameters=("prompts",)),
    _stage("verify", names.REWARD, before=_verify_begins, after=_verify_ends),
    _stage("update", names.UPDATE_ACTOR),
)


class TinyRLAdapter(DatedAdapter):
    """The trainer of tinyrl."""

    name = "tinyrl"
    distribution = "tinyrl"
    tested = ">=1.2,<2"
    imported = within("tinyrl.trainer:Trainer.", _POINTS, since="1.2")
