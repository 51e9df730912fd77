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
from rlvr_probe.reading import argument, attribute, reward
from rlvr_probe.releases import Dated
from rlvr_probe_verl.controller import is_controller
from rlvr_probe_verl.conversation import CURRENT
from rlvr_probe_verl.session import reward_function

__all__ = ["VERIFICATION"]


def _scored(call: Call) -> Any:
    """The output whose reward is asked for: of several the last (0.8 and later), or the one."""
    given = call.args[1] if len(call.args) > 1 else None
    given = argument(call, 1, "outputs") if given is None else given
    if isinstance(given, list):
        return given[-1] if given else None
    return argument(call, 1, "output") if given is None else given


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
    given = attribute(_scored(call), "reward_score")
    # Without a reward of the last output, the others of the session keep theirs.
    shared = None if conversation is None or given is None else conversation.sharing or None
    return batch, state["reward_function"], *reward(reward_of(given)), shared


def reward_of(value: Any) -> float | None:
    """A reward in host memory as a plain float; None if there is none."""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        return None
    if attribute(value, "device", "type") not in (None, "cpu"):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):  # several values, or too large a one
        return None


_INSIDE: ContextVar[bool] = ContextVar("rlvr_probe_verl_reward", default=False)
"""Whether a reward function runs in this context: what it calls is part of it."""


def _is_outermost(call: Call) -> bool:
    # Before 0.7 the trainer itself calls it, sample by sample: there the batch is recorded.
    return not _INSIDE.get() and not is_controller(call)


def _function_begin(_: Call) -> None:
    _INSIDE.set(True)


def _function_end(_: Call) -> None:
    _INSIDE.set(False)


def _function_loaded(call: Call) -> None:
    """After verl loaded the user's reward function and bound its options to it."""
    given = call.result
    raw = given.args[0] if isinstance(given, partial) and given.args else given
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

VERIFICATION = (
    Dated(
        HookPoint(
            "verl.experimental.agent_loop.agent_loop:AgentLoopWorker._compute_score",
            VERIFY,
            ("batch", "function", "value", "not_finite", "shared"),
            _read,
            when=_asks,
        ),
        since="0.7",
    ),
    Dated(
        HookPoint(
            "verl.trainer.ppo.reward:get_custom_reward_fn",
            after=_function_loaded,
            returned=_FUNCTION,
            parameters=("config",),
        ),
        since="0.6",
    ),
    Dated(
        replace(
            _FUNCTION,
            target="verl.utils.reward_score:default_compute_score",
            read=_read_default,
        ),
        since="0.6",
    ),
    Dated(
        replace(
            _FUNCTION,
            target="verl.experimental.reward_loop.reward_loop:RewardLoopWorker.compute_score_disrm",
            read=_read_model,
        ),
        since="0.7",
    ),
)
"""Hooked in the workers when their modules are imported."""
