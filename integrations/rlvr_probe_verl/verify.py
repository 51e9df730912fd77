"""Verification: as the trajectory waits for it, and as the reward workers do it.

A worker asks one of the reward loop workers, another process, for the reward of each trajectory.
What it waits includes the queue there; what a reward function takes is seen where it is called.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any

from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.model.names import REWARD_FN, VERIFY
from rlvr_probe.reading import argument, attribute, reward, scalar
from rlvr_probe.releases import Dated
from rlvr_probe_verl.controller import Controller, reward_function
from rlvr_probe_verl.conversation import CURRENT

__all__ = ["VERIFICATION"]


def _scored(call: Call) -> Any:
    """The output whose reward is asked for: of several the last (0.8 and later), or the one."""
    output = argument(call, 1, "outputs")
    output = argument(call, 1, "output") if output is None else output
    if isinstance(output, list):
        return output[-1] if output else None
    return output


def _asks(call: Call) -> bool:
    """Whether a reward worker will be asked: not for a reward that the agent loop gave itself."""
    if CURRENT.get() is None or attribute(call.args[0], "reward_loop_worker_handles") is None:
        return False
    output = _scored(call)
    return output is not None and attribute(output, "reward_score") is None


def _read(call: Call) -> tuple[Any, ...]:
    conversation, worker = CURRENT.get(), call.args[0]
    state = call.probe.state(worker)
    if "reward_function" not in state:
        state["reward_function"] = reward_function(attribute(worker, "config"))
    batch = None if conversation is None else conversation.verified
    score = attribute(_scored(call), "reward_score")
    # Without a reward of the last output, the others of the session keep theirs.
    shared = None if conversation is None or score is None else conversation.sharing or None
    return batch, state["reward_function"], *reward(scalar(score)), shared


_INSIDE: ContextVar[bool] = ContextVar("rlvr_probe_verl_reward", default=False)
"""Whether a reward function runs in this context: what it calls is part of it."""


def _is_outermost(call: Call) -> bool:
    # Before 0.7 the trainer itself calls it, sample by sample: there the batch is recorded.
    return not _INSIDE.get() and not Controller.is_here(call)


def _function_begin(_: Call) -> None:
    _INSIDE.set(True)


def _function_end(_: Call) -> None:
    _INSIDE.set(False)


def _function_loaded(call: Call) -> None:
    """After verl loaded the user's reward function and bound its options to it."""
    function = call.result
    raw = function.args[0] if isinstance(function, partial) and function.args else function
    call.state = getattr(raw, "__name__", None)


def _read_function(call: Call) -> tuple[Any, ...]:
    return call.state["made"], 1


def _read_default(_: Call) -> tuple[Any, ...]:
    return "default_compute_score", 1


def _read_model(_: Call) -> tuple[Any, ...]:
    return "reward_model", 1


_FUNCTION = HookPoint(
    "reward_function",
    REWARD_FN,
    ("function", "samples"),
    _read_function,
    before=_function_begin,
    after=_function_end,
    when=_is_outermost,
)
_DEFAULT = "verl.utils.reward_score:default_compute_score"
_MODEL = "verl.experimental.reward_loop.reward_loop:RewardLoopWorker.compute_score_disrm"
_SCORE = HookPoint(
    "verl.experimental.agent_loop.agent_loop:AgentLoopWorker._compute_score",
    VERIFY,
    ("batch", "function", "value", "not_finite", "shared"),
    _read,
    when=_asks,
)
_LOADED = HookPoint(
    "verl.trainer.ppo.reward:get_custom_reward_fn",
    after=_function_loaded,
    returned=_FUNCTION,
    parameters=("config",),
)

VERIFICATION = (
    Dated(_SCORE, "0.7"),
    Dated(_LOADED, "0.6"),
    Dated(replace(_FUNCTION, target=_DEFAULT, read=_read_default), "0.6"),
    Dated(replace(_FUNCTION, target=_MODEL, read=_read_model), "0.7"),
)
"""Hooked in the workers when their modules are imported."""
