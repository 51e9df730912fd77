"""What is recorded of :mod:`tests.bench.rank_training`, as of any framework."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, controller
from rlvr_probe.adapter.batch_events import emit_rewards, emit_trajectories
from rlvr_probe.adapter.controller import WHERE, named, state_of
from rlvr_probe.model import names
from rlvr_probe.releases import DatedAdapter, within

__all__ = ["RankAdapter", "install"]


@dataclass(slots=True)
class _Controller(controller.Controller):
    """Attributes:
    batch: Span of the last rollout.
    """

    batch: int = 0


def _state(call: Call) -> _Controller:
    return state_of(call.probe, call.args[0], _Controller)


def _fit_begins(call: Call) -> None:
    trainer = call.args[0]
    facts = {
        "framework": "rank_training",
        "algorithm": "grpo",
        "rank": trainer.rank,
        "world_size": trainer.world_size,
        "reward_functions": ["even"],
    }
    _state(call).start_session(call.probe, facts, resumed_step=0)


def _fit_ends(call: Call) -> None:
    _state(call).end_session(call.probe, call.args[0].step)


def _step(call: Call) -> int:
    return int(call.args[0].step)


def _read_step(call: Call) -> tuple[Any, ...]:
    return (_state(call).session, _step(call))


def _read_stage(call: Call) -> tuple[Any, ...]:
    return (*_read_step(call), "train")


def _read_turn(call: Call) -> tuple[Any, ...]:
    prompts = list(call.args[1])
    return (call.probe.current(), len(prompts), 0, prompts, call.result)


def _generated(call: Call) -> None:
    trainer, state, lengths = call.args[0], _state(call), call.result
    state.batch = call.span
    where = (state.session or 0, trainer.step, "train")
    values = {
        **named(where),
        "batch": state.batch,
        "ordinal": state.ordinal(where),
        "policy_version": trainer.step - 1,
        "offset": trainer.rank * len(lengths),
        "total": trainer.world_size * len(lengths),
        "group_size": len(lengths),
        "prompt_tokens": list(call.args[1]),
        "response_tokens": list(lengths),
    }
    emit_trajectories(call.probe, call.span, values)


def _scored(call: Call) -> None:
    emit_rewards(call.probe, _state(call).batch, "even", call.result)


_stage = partial(HookPoint, attributes=WHERE, read=_read_stage, step=_step)

_POINTS = (
    HookPoint("fit", before=_fit_begins, after=_fit_ends),
    HookPoint("train_step", names.STEP, ("session", "step"), _read_step, step=_step),
    _stage("generate", names.ROLLOUT, after=_generated),
    HookPoint(
        "decode",
        names.TURN,
        ("batch", "samples", "turn", "prompt_tokens", "response_tokens"),
        _read_turn,
    ),
    _stage("score", names.REWARD, after=_scored),
    _stage("log_probs", names.OLD_LOGPROB),
    _stage("update", names.UPDATE_ACTOR),
    _stage("sync_weights", names.WEIGHT_SYNC),
)


class RankAdapter(DatedAdapter):
    """The trainer of :mod:`tests.bench.rank_training`."""

    name = "rank_training"
    distribution = "rank_training"
    tested = ">=1,<2"
    imported = within("tests.bench.rank_training:Trainer.", _POINTS, since="1")


def install(folder: Path) -> None:
    """Put the metadata of the training and of its integration into ``folder``, as pip does."""
    points = "[rlvr_probe.integrations]\nrank_training = tests.bench.rank_adapter:RankAdapter\n"
    info = folder / "rank_training-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rank_training\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)
