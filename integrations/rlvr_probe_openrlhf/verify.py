"""Verification of a trajectory: by the user's function, or by a service that is asked over HTTP.

OpenRLHF asks a service up to five times, and sleeps in between; what it catches on the way is seen
where the request is made, below the line that catches.
"""

from __future__ import annotations

import asyncio
import weakref
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.model.names import REWARD_FN, VERIFY
from rlvr_probe.reading import attribute, error_of, reward
from rlvr_probe_openrlhf.conversation import current
from rlvr_probe_openrlhf.reading import reward_of

__all__ = ["BODY", "FUNCTION", "REQUEST", "VERIFICATION", "watch_rewards"]


@dataclass(slots=True)
class Asked:
    """Requests of one verification.

    Attributes:
        attempts: How many were made.
        timeouts: Of those, how many nobody answered in time.
    """

    attempts: int = 0
    timeouts: int = 0


_ASKED: ContextVar[Asked | None] = ContextVar("rlvr_probe_openrlhf_asked", default=None)
"""Requests of the verification of this context, of tasks that it started too."""


def _is_conversation(call: Call) -> bool:
    return current() is not None


def _begin(call: Call) -> None:
    # By hand: what was asked is told of a verification that failed, too.
    call.state = (call.probe.begin(VERIFY, activate=True), None, None)


def _begin_service(call: Call) -> None:
    asked, before = Asked(), _ASKED.get()
    call.state = (call.probe.begin(VERIFY, activate=True), asked, before)
    _ASKED.set(asked)


def _end(call: Call) -> None:
    if call.state is None:
        return
    span, asked, before = call.state
    conversation = current()
    value, not_finite = reward(_value(call.result))
    values: dict[str, Any] = {
        "batch": None if conversation is None else conversation.span,
        "function": "reward_func" if asked is None else "reward_service",
        "value": value,
        "not_finite": not_finite,
    }
    if asked is not None:
        _ASKED.set(before)
        values |= {"attempts": asked.attempts, "timeouts": asked.timeouts}
    call.probe.end(span, values, error_of(call))


def _value(result: Any) -> float | None:
    """The reward of the one trajectory that was asked for."""
    if not isinstance(result, list) or len(result) != 1 or not isinstance(result[0], dict):
        return None
    return reward_of(result[0].get("rewards"))


_EXECUTOR = "openrlhf.utils.agent:SingleTurnAgentExecutor"
_PARAMETERS = ("queries_list", "prompts_list", "labels_list")

VERIFICATION = (
    HookPoint(
        f"{_EXECUTOR}._fetch_rewards_via_func",
        before=_begin,
        after=_end,
        when=_is_conversation,
        parameters=_PARAMETERS,
    ),
    HookPoint(
        f"{_EXECUTOR}._fetch_rewards_via_http",
        before=_begin_service,
        after=_end,
        when=_is_conversation,
        parameters=_PARAMETERS,
    ),
)
"""What a trajectory waits for: the queue of threads, retries and pauses included."""


# ---------------------------------------------------------------- requests


def _asks(call: Call) -> bool:
    return _ASKED.get() is not None


def _request_begin(call: Call) -> None:
    asked = _ASKED.get()
    if asked is not None:
        asked.attempts += 1


def _request_end(call: Call) -> None:
    asked = _ASKED.get()
    # aiohttp's own are subclasses of asyncio's, which is another class before Python 3.11.
    if asked is not None and isinstance(call.error, (TimeoutError, asyncio.TimeoutError)):
        asked.timeouts += 1


REQUEST = HookPoint(
    "aiohttp.client:ClientSession._request",
    before=_request_begin,
    after=_request_end,
    when=_asks,
    optional=True,
)
"""One request, until the head of its answer is there."""

BODY = HookPoint(
    "aiohttp.client_reqrep:ClientResponse.read", after=_request_end, when=_asks, optional=True
)
"""The rest of the answer, which may be late on its own."""


# ---------------------------------------------------------------- the function itself


def _read_call(call: Call) -> tuple[Any, ...]:
    return "reward_func", 1


FUNCTION = HookPoint("reward_func", REWARD_FN, ("function", "samples"), _read_call)
"""The user's function, in the thread that OpenRLHF calls it in."""


def watch_rewards(probe: Probe, executor: Any) -> None:
    """Put a wrapper in the place of the user's function that an executor calls."""
    function = attribute(executor, "reward_func")
    state = probe.state(executor)
    if not callable(function) or "reward_func" in state:
        return
    wrapper = probe.wrap(function, 0, FUNCTION)
    state["reward_func"] = wrapper
    executor.reward_func = wrapper

    held = weakref.ref(executor)  # an executor for each sample must be able to go

    def put_back() -> None:
        there = held()
        if there is None:
            return
        ours = probe.state(there).get("reward_func")
        if ours is not None and there.reward_func is ours:
            there.reward_func = ours.__wrapped__

    probe.on_detach(put_back)
