"""Verification of a trajectory: by the user's function, or by a service that is asked over HTTP.

OpenRLHF asks a service up to five times, and sleeps in between; what it catches on the way is seen
where the request is made, below the line that catches.
"""

from __future__ import annotations

import asyncio
import weakref
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.adapter.spans import end_span
from rlvr_probe.model.names import REWARD_FN, VERIFY
from rlvr_probe.reading import attribute, reward
from rlvr_probe_openrlhf.agents import CURRENT, EXECUTE, in_conversation
from rlvr_probe_openrlhf.reading import reward_of

__all__ = ["BODY", "EXECUTORS", "FUNCTION", "REQUEST", "VERIFICATION", "watch"]


_ASKED: ContextVar[dict[str, int] | None] = ContextVar("rlvr_probe_openrlhf_asked", default=None)
"""Requests of the verification of this context, of tasks that it started too: how many were made,
and how many of those were not answered in time."""


# By hand: what was asked is recorded of a verification that failed, too.


def _begin(call: Call) -> None:
    call.state = (call.probe.begin(VERIFY, activate=True), {"function": "reward_func"})


def _begin_service(call: Call) -> None:
    asked, before = {"attempts": 0, "timeouts": 0}, _ASKED.get()
    span = call.probe.begin(VERIFY, activate=True)
    call.state = (span, {"function": "reward_service"}, asked, before)
    _ASKED.set(asked)


def _end(call: Call) -> None:
    if call.state is None:
        return
    conversation = CURRENT.get()
    value, not_finite = reward(_value(call.result))
    batch = None if conversation is None else conversation.span
    end_span(call, batch=batch, value=value, not_finite=not_finite)


def _end_service(call: Call) -> None:
    if call.state is None:
        return
    _, known, asked, before = call.state
    _ASKED.set(before)
    known |= asked
    _end(call)


def _value(result: Any) -> float | None:
    """The reward of the one trajectory that was asked for."""
    if not isinstance(result, list) or len(result) != 1 or not isinstance(result[0], dict):
        return None
    return reward_of(result[0].get("rewards"))


_EXECUTOR = "openrlhf.utils.agent:SingleTurnAgentExecutor"
_FUNCTION = HookPoint(
    f"{_EXECUTOR}._fetch_rewards_via_func",
    before=_begin,
    after=_end,
    when=in_conversation,
    parameters=("queries_list", "prompts_list", "labels_list"),
)
_SERVICE = replace(
    _FUNCTION,
    target=f"{_EXECUTOR}._fetch_rewards_via_http",
    before=_begin_service,
    after=_end_service,
)

VERIFICATION = (_FUNCTION, _SERVICE)
"""What a trajectory waits for: the queue of threads, retries and pauses included."""


# ---------------------------------------------------------------- requests


def _asks(call: Call) -> bool:
    return _ASKED.get() is not None


def _request_begin(call: Call) -> None:
    asked = _ASKED.get()
    if asked is not None:
        asked["attempts"] += 1


def _request_end(call: Call) -> None:
    asked = _ASKED.get()
    # aiohttp's own are subclasses of asyncio's, which is another class before Python 3.11.
    if asked is not None and isinstance(call.error, (TimeoutError, asyncio.TimeoutError)):
        asked["timeouts"] += 1


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


def _watch_rewards(probe: Probe, executor: Any) -> None:
    """Put a wrapper in the place of the user's function that an executor calls."""
    function = attribute(executor, "reward_func")
    state = probe.state(executor)
    if not callable(function) or "reward_func" in state:
        return
    wrapper = probe.wrap(function, 0, FUNCTION)
    state["reward_func"] = wrapper
    executor.reward_func = wrapper

    known = weakref.ref(executor)  # an executor for each sample must be able to go

    def put_back() -> None:
        alive = known()
        if alive is None:
            return
        ours = probe.state(alive).get("reward_func")
        if ours is not None and alive.reward_func is ours:
            alive.reward_func = ours.__wrapped__

    probe.on_detach(put_back)


# ---------------------------------------------------------------- executors


def _made(call: Call) -> None:
    """After an executor was made."""
    if call.error is None:
        watch(call.probe, call.args[0])


def _loaded(call: Call) -> None:
    """After the user's executor was made: it need not call the constructor of its base."""
    if call.error is None and call.result is not None:
        watch(call.probe, call.result)


def watch(probe: Probe, executor: Any) -> None:
    """Hook the methods of an executor."""
    probe.instrument(executor, (EXECUTE,))
    _watch_rewards(probe, executor)


EXECUTORS = (
    HookPoint(f"{_EXECUTOR}.__init__", after=_made),
    HookPoint(
        "openrlhf.trainer.ray.vllm_engine:_load_agent_executor",
        after=_loaded,
        parameters=("agent_func_path",),
    ),
)
"""Where executors are made, in the actor that has the engine."""
