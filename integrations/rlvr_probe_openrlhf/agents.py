"""Trajectories of OpenRLHF's agent executors, in the actor that has the engine.

The controller asks an engine's actor for the samples of a prompt; the actor runs one executor per
sample, all in one event loop. What joins a row of the controller with a trajectory here is a key
that both sides know from Ray itself: the id of the task, and the sample's number in it.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.model.names import FINISHES, TOOL_CALL, TRAJECTORY, TURN, VERIFY
from rlvr_probe.reading import argument, attribute, digest, error_of, number, tool_status
from rlvr_probe_openrlhf.conversation import CURRENT, Conversation, current
from rlvr_probe_openrlhf.reading import lengths_of
from rlvr_probe_openrlhf.verify import watch_rewards
from rlvr_probe_openrlhf.weights import WEIGHTS

__all__ = ["EXECUTE", "EXECUTORS", "GENERATE", "STEP"]


_samples = OrderedDict[str, int]()
"""Samples that began, by task."""

_MOST_TASKS = 4096


def _key() -> str | None:
    """Name of the next sample of this task: OpenRLHF begins them in the order of its answer."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    task = ray.get_runtime_context().get_task_id()
    if task is None:
        return None
    before = _samples.pop(task, 0)
    _samples[task] = before + 1
    while len(_samples) > _MOST_TASKS:
        _samples.popitem(last=False)
    return f"{task}/{before}"


def _is_outermost(call: Call) -> bool:
    # An executor may be made of another one: what that returns is not the trajectory.
    return current() is None


def _begin(call: Call) -> None:
    executor, engine = call.args[0], argument(call, 6, "llm_engine")
    agent = attribute(executor, "agent_instance_cls")
    agent = attribute(executor, "agent_instance") if agent is None else agent  # 0.9.1
    for owner, point in ((engine, GENERATE), (agent, STEP)):
        kind = owner if isinstance(owner, type) else type(owner)
        state = call.probe.state(kind)
        if owner is not None and "hooked" not in state:
            state["hooked"] = call.probe.instrument(owner, (point,))
    conversation = Conversation(call.span, _key(), executor, engine)
    call.state = (conversation, CURRENT.get())
    CURRENT.set(conversation)


def _read(call: Call) -> tuple[Any, ...]:
    conversation = call.state[0]
    found = lengths_of(call.result, number(argument(call, 4, "max_length")))
    sizes: tuple[Any, ...] = (None, None, None, None)
    if found is not None:
        stop = None if conversation.mixed else conversation.stop
        cut = None if stop is None and not found.cut else int(found.cut or stop == "length")
        sizes = (found.prompt_tokens, found.response_tokens, found.runs, cut)
    return (conversation.key, *_version(conversation), *sizes)


def _version(conversation: Conversation) -> tuple[int | None, int | None]:
    """Oldest and newest weights of all turns; None unless every turn's are known."""
    if conversation.mixed:
        return None, None
    known = [version for version in conversation.versions if version is not None]
    if not known or len(known) < conversation.turns:
        return None, None
    return min(low for low, _ in known), max(high for _, high in known)


def _end(call: Call) -> None:
    if not isinstance(call.state, tuple):
        return
    conversation, before = call.state
    conversation.over = True
    CURRENT.set(before)
    made = call.result.get("action_ranges") if isinstance(call.result, dict) else None
    if made and not conversation.turns:
        raise LookupError("turns that were asked for in another thread, or of another engine")


_ATTRIBUTES = (
    "key",
    "policy_version_min",
    "policy_version_max",
    "prompt_tokens",
    "response_tokens",
    "loss_runs",
    "truncated",
)

EXECUTE = HookPoint(
    "execute",
    TRAJECTORY,
    _ATTRIBUTES,
    _read,
    before=_begin,
    after=_end,
    when=_is_outermost,
)
"""Hooked on the class of the executor, which may be the user's own."""


# ---------------------------------------------------------------- turns


def _current(call: Call) -> Conversation | None:
    """The conversation that asks its own engine."""
    conversation = current()
    if conversation is None or conversation.engine is not call.args[0]:
        return None
    return conversation


def _is_turn(call: Call) -> bool:
    conversation = _current(call)
    if conversation is None or conversation.mixed:
        return False
    if conversation.asking:
        conversation.mixed = True
        raise LookupError("two turns of one trajectory at a time: of which, nobody knows")
    return True


def _turn_begin(call: Call) -> None:
    conversation = _current(call)
    if conversation is None:
        return
    prompt = argument(call, 1, "prompt_token_ids")
    # Counted now: an executor may add the answer to this very list.
    sent = len(prompt) if isinstance(prompt, (list, tuple)) else None
    call.state = (conversation, conversation.turns, sent, WEIGHTS.oldest())
    conversation.turns += 1
    conversation.asking += 1
    conversation.stop = None


def _read_turn(call: Call) -> tuple[Any, ...]:
    conversation, turn, sent, _ = call.state
    output = _output(call.result)
    tokens = attribute(output, "token_ids")
    got = len(tokens) if hasattr(tokens, "__len__") else None
    cached = number(call.result, "num_cached_tokens")
    name = attribute(call.result, "request_id")
    request = digest(name) if isinstance(name, str) else None
    return (conversation.span, 1, turn, sent, got, cached, request, *_served(call.result))


def _served(result: Any) -> tuple[Any, ...]:
    """What vLLM tells of the one request of a turn: of its times, and why it ended."""
    metrics = attribute(result, "metrics")
    queued, scheduled, first, last = (
        time if isinstance(time, float) and time > 0 else None
        for time in (
            attribute(metrics, name)
            for name in ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
        )
    )
    spans = ((queued, scheduled), (scheduled, first), (first, last))
    times = (
        end - begin if begin is not None and end is not None and end >= begin else None
        for begin, end in spans
    )
    stop = attribute(_output(result), "finish_reason")
    return (*times, stop if stop in FINISHES else None)


def _output(result: Any) -> Any:
    outputs = attribute(result, "outputs")
    return outputs[0] if isinstance(outputs, (list, tuple)) and len(outputs) == 1 else None


def _turn_end(call: Call) -> None:
    if call.state is None:
        return
    conversation, _, _, oldest = call.state
    conversation.asking -= 1
    if call.error is not None:
        return
    stop = attribute(_output(call.result), "finish_reason")
    conversation.stop = stop if isinstance(stop, str) else None
    newest = WEIGHTS.newest()
    known = oldest is not None and newest is not None
    conversation.versions.append((oldest, newest) if known else None)


GENERATE = HookPoint(
    "generate",
    TURN,
    (
        *("batch", "samples", "turn", "prompt_tokens", "response_tokens", "cached_tokens"),
        *("request", "queue_s", "prefill_s", "decode_s", "finish"),
    ),
    _read_turn,
    before=_turn_begin,
    after=_turn_end,
    when=_is_turn,
)
"""Hooked on the class of the actor that has the engine."""


# ---------------------------------------------------------------- environments


def _is_step(call: Call) -> bool:
    return current() is not None


def _step_end(call: Call) -> None:
    """After a step of an environment: a tool if the model is told of it, else the verification."""
    conversation = current()
    if conversation is None:
        return
    result = call.result if isinstance(call.result, dict) else {}
    if call.error is None and _is_true(result.get("done")):
        # Its reward is what this step gives, and what earlier ones gave.
        values = {"batch": conversation.span, "function": "agent"}
        name = VERIFY
    else:
        error = error_of(call)
        values = {
            "batch": conversation.span,
            "turn": conversation.turns - 1 if conversation.turns else None,
            "tool": "step",
            "status": tool_status(error),
        }
        name = TOOL_CALL
    call.probe.record(name, call.start_ns, call.end_ns, values)


def _is_true(done: Any) -> bool:
    """As OpenRLHF takes it, but for tensors, which are not read."""
    return type(done).__name__ in ("bool", "bool_", "int") and bool(done)


STEP = HookPoint("step", after=_step_end, when=_is_step)
"""Hooked on the class of the environment, which is the user's own."""


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
    watch_rewards(probe, executor)


EXECUTORS = (
    HookPoint("openrlhf.utils.agent:SingleTurnAgentExecutor.__init__", after=_made),
    HookPoint(
        "openrlhf.trainer.ray.vllm_engine:_load_agent_executor",
        after=_loaded,
        parameters=("agent_func_path",),
    ),
)
"""Where executors are made, in the actor that has the engine."""
