"""Trajectories of OpenRLHF's agent executors, in the actor that has the engine.

The controller asks an engine's actor for the samples of a prompt; the actor runs one executor per
sample, all in one event loop. What joins a row of the controller with a trajectory here is a key
that both sides know from Ray itself: the id of the task, and the sample's number in it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, ray_actors
from rlvr_probe.adapter import conversation as kit
from rlvr_probe.adapter.controller import instrument_once
from rlvr_probe.model.names import FINISHES, TOOL_CALL, TRAJECTORY, TURN, VERIFY
from rlvr_probe.reading import argument, attribute, error_of, number, size, tool_status
from rlvr_probe_openrlhf.reading import lengths_of
from rlvr_probe_openrlhf.weights import WEIGHTS

__all__ = ["CURRENT", "EXECUTE", "GENERATE", "STEP", "in_conversation"]


@dataclass(slots=True)
class Conversation(kit.Conversation):
    """A trajectory from its start to its end.

    Attributes:
        engine: What it asks for turns.
        asking: Turns that have not ended.
        mixed: Others ask in its name: two turns at a time were seen.
    """

    engine: Any = None
    asking: int = 0
    mixed: bool = False


CURRENT = kit.Current[Conversation]("rlvr_probe_openrlhf_conversation")
"""The trajectory of each context."""

_samples = OrderedDict[str, int]()
"""Samples that started, by task."""

_MOST_TASKS = 4096


def _key() -> str | None:
    """Name of the next sample of this task: OpenRLHF starts them in the order of its answer."""
    ray = ray_actors.context()
    task = None if ray is None else ray.get_task_id()
    if task is None:
        return None
    before = _samples.pop(task, 0)
    _samples[task] = before + 1
    while len(_samples) > _MOST_TASKS:
        _samples.popitem(last=False)
    return f"{task}/{before}"


def _is_outermost(call: Call) -> bool:
    # An executor may be made of another one: what that returns is not the trajectory.
    return CURRENT.get() is None


def _begin(call: Call) -> None:
    executor, engine = call.args[0], argument(call, 6, "llm_engine")
    agent = attribute(executor, "agent_instance_cls")
    agent = attribute(executor, "agent_instance") if agent is None else agent  # 0.9.1
    for owner, point in ((engine, GENERATE), (agent, STEP)):
        if owner is not None:
            instrument_once(call.probe, owner, (point,))
    CURRENT.enter(call, Conversation(call.span, _key(), engine=engine))


def _read(call: Call) -> tuple[Any, ...]:
    conversation = call.state[0]
    lengths = lengths_of(call.result, number(argument(call, 4, "max_length")))
    sizes: tuple[Any, ...] = (None, None, None, None)
    if lengths is not None:
        stop = None if conversation.mixed else conversation.stop
        cut = None if stop is None and not lengths.cut else int(lengths.cut or stop == "length")
        sizes = (lengths.prompt_tokens, lengths.response_tokens, lengths.runs, cut)
    version = (None, None) if conversation.mixed else conversation.version()
    return (conversation.key, *version, *sizes)


def _end(call: Call) -> None:
    conversation = CURRENT.leave(call)
    if conversation is None:
        return
    ranges = call.result.get("action_ranges") if isinstance(call.result, dict) else None
    if ranges and not conversation.turns:
        raise LookupError("turns that were asked for in another thread, or of another engine")


EXECUTE = HookPoint(
    "execute",
    TRAJECTORY,
    ("key", *kit.LENGTHS),
    _read,
    before=_begin,
    after=_end,
    when=_is_outermost,
)
"""Hooked on the class of the executor, which may be the user's own."""


# ---------------------------------------------------------------- turns


def _current(call: Call) -> Conversation | None:
    """The conversation that asks its own engine."""
    conversation = CURRENT.get()
    if conversation is None or conversation.engine is not call.args[0]:
        return None
    return conversation


def _is_turn(call: Call) -> bool:
    conversation = _current(call)
    if conversation is None or conversation.mixed:
        return False
    if conversation.asking:
        conversation.mixed = True
        raise LookupError("two turns of one trajectory at a time, which cannot be separated")
    return True


def _turn_begin(call: Call) -> None:
    conversation = _current(call)
    if conversation is None:
        return
    # Counted now: an executor may add the answer to this very list.
    sent = size(argument(call, 1, "prompt_token_ids"))
    call.state = (conversation, conversation.start_turn(), sent, WEIGHTS.oldest())
    conversation.asking += 1


def _read_turn(call: Call) -> tuple[Any, ...]:
    conversation, turn, sent, _ = call.state
    tokens = attribute(_output(call.result), "token_ids")
    generated = len(tokens) if hasattr(tokens, "__len__") else None
    cached = number(call.result, "num_cached_tokens")
    request = attribute(call.result, "request_id")
    values = kit.turn_values(conversation, turn, sent, generated, cached, request)
    return (*values, *_served(call.result))


def _served(result: Any) -> tuple[Any, ...]:
    """What vLLM reports of the one request of a turn: its times, and why it ended."""
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
        end - start if start is not None and end is not None and end >= start else None
        for start, end in spans
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
    newest = WEIGHTS.newest()
    known = oldest is not None and newest is not None
    stop = attribute(_output(call.result), "finish_reason")
    conversation.end_turn(stop, (oldest, newest) if known else None)


GENERATE = HookPoint(
    "generate",
    TURN,
    (*kit.TURN_ATTRIBUTES, "queue_s", "prefill_s", "decode_s", "finish"),
    _read_turn,
    before=_turn_begin,
    after=_turn_end,
    when=_is_turn,
)
"""Hooked on the class of the actor that has the engine."""


# ---------------------------------------------------------------- environments


def in_conversation(call: Call) -> bool:
    """Whether a trajectory goes on in this context."""
    return CURRENT.get() is not None


def _step_end(call: Call) -> None:
    """After a step of an environment: a tool if the model sees it, else the verification."""
    conversation = CURRENT.get()
    if conversation is None:
        return
    result = call.result if isinstance(call.result, dict) else {}
    if call.error is None and _is_true(result.get("done")):
        # Its reward is what this step gives, and what earlier ones gave.
        values = {"batch": conversation.span, "function": "agent"}
        call.probe.record(VERIFY, call.start_ns, call.end_ns, values)
        return
    error = error_of(call)
    values = {
        "batch": conversation.span,
        "turn": conversation.turn,
        "tool": "step",
        "status": tool_status(error),
    }
    call.probe.record(TOOL_CALL, call.start_ns, call.end_ns, values)


def _is_true(done: Any) -> bool:
    """As OpenRLHF takes it, but for tensors, which are not read."""
    return type(done).__name__ in ("bool", "bool_", "int") and bool(done)


STEP = HookPoint("step", after=_step_end, when=in_conversation)
"""Hooked on the class of the environment, which is the user's own."""
