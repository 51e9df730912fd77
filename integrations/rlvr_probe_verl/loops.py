"""Trajectories of verl's agent loops, in the workers that run them.

The controller sends each worker a chunk of its batch; the worker runs one agent loop per row. What
joins a row of the controller with a trajectory here is a key that both sides know from what verl
itself sent: the uid of the prompt, the worker, the row of the chunk. Rows are known by the object
that verl made for each, never by counting calls, so that none takes the place of another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, ray_actors
from rlvr_probe.adapter.controller import instrument_once
from rlvr_probe.adapter.conversation import LENGTHS
from rlvr_probe.model.names import TRAJECTORY
from rlvr_probe.reading import argument, attribute, digest, mask_runs, number, option, size
from rlvr_probe.releases import Dated
from rlvr_probe_verl.conversation import CURRENT, Conversation, Output, was_cut
from rlvr_probe_verl.requests import CLIENT, engine_of, find_engines
from rlvr_probe_verl.tools import INTERACT, USE

__all__ = ["LOOPS", "RUN"]

_ROLLOUT = "actor_rollout_ref.rollout"
_MODULE = "verl.experimental.agent_loop.agent_loop"


@dataclass(slots=True)
class Chunk:
    """One call of ``generate_sequences`` of this worker.

    Attributes:
        number: Calls before it.
        infos: What verl says of each row, in order; kept, so that ids stay those of these objects.
        rows: Row of each, by the identity of what verl says of it.
        places: Row of each, by the index of its prompt and its number among the rows next to it
            with that index; None where two rows share a place.
    """

    number: int
    infos: list[Any] = field(default_factory=list)
    rows: dict[int, int] = field(default_factory=dict)
    places: dict[tuple[Any, Any], int | None] = field(default_factory=dict)


_CHUNK: ContextVar[Chunk | None] = ContextVar("rlvr_probe_verl_chunk", default=None)
_chunks = 0


def _chunk_begin(call: Call) -> None:
    """The first thing that every ``generate_sequences`` of a worker does with its rows."""
    global _chunks
    _CHUNK.set(None)
    # One thread, and nothing is awaited in between: each call has its number.
    call.state = _chunks
    _chunks += 1


def _chunk_known(call: Call) -> None:
    infos = call.result
    if not isinstance(infos, list) or call.state is None:
        return
    chunk = Chunk(call.state, infos)
    for row, info in enumerate(infos):
        if not isinstance(info, Mapping):
            return
        chunk.rows[id(info)] = row
        place = (info.get("sample_index"), info.get("rollout_n"))
        chunk.places[place] = None if place in chunk.places else row
    # The tasks that verl makes next inherit it.
    _CHUNK.set(chunk)


@cache
def worker_number() -> int | None:
    """Which of the manager's workers this process is, from the name that verl gave its actor."""
    ray = ray_actors.context()
    name = None if ray is None else ray.get_actor_name()
    worker = re.match(r"agent_loop_worker_(\d+)(_|$)", name or "")
    return None if worker is None else int(worker[1])


def row_name(uid: object, row: int | None) -> str | None:
    """What names a row of the current chunk in every process; None if anything is unknown."""
    chunk, worker = _CHUNK.get(), worker_number()
    if chunk is None or worker is None or row is None:
        return None
    prompt = "-" if uid is None else digest(uid)
    return f"{prompt}/{chunk.number}/{worker}/{row}"


# ---------------------------------------------------------------- one trajectory


def _begin(call: Call) -> None:
    session = call.kwargs.get("session_id")
    uid = call.kwargs.get("uid")
    if session is not None:  # V1: a prompt is repeated here, and the controller sends no rows
        known = uid is not None and number(session) is not None
        name = f"{digest(uid)}_{session}" if known else None
    else:
        chunk = _CHUNK.get()
        info = argument(call, 2, "trajectory")
        name = row_name(uid, None if chunk is None else chunk.rows.get(id(info)))
    numbered = session is not None
    CURRENT.enter(call, Conversation(call.span, name, numbered=numbered, verified=call.span))


def _end(call: Call) -> None:
    CURRENT.leave(call)


_ATTRIBUTES = ("key", "engine", *LENGTHS)


def _read(call: Call) -> tuple[Any, ...]:
    conversation = call.state[0]
    outputs = conversation.outputs or []
    if len(outputs) > 1:  # each of them has a span of its own: its turns are those of all
        return _values(conversation, None, None)
    return _values(conversation, outputs[0] if outputs else None, conversation.name())


def _values(conversation: Conversation, output: Output | None, key: str | None) -> tuple[Any, ...]:
    sizes = (
        (None, None, None, None)
        if output is None
        else (output.prompt_tokens, output.response_tokens, output.runs, output.truncated)
    )
    return (key, engine_of(conversation), *conversation.version(), *sizes)


def _place_begin(call: Call) -> None:
    chunk = _CHUNK.get()
    place = (call.kwargs.get("sample_index"), call.kwargs.get("rollout_n"))
    row = None if chunk is None else chunk.places.get(place)
    CURRENT.enter(call, Conversation(call.span, row=row, verified=call.span))


def _is_trajectory(call: Call) -> bool:
    return call.kwargs.get("name") == "agent_loop" and _CHUNK.get() is not None


# ---------------------------------------------------------------- the agent loop


def _loop_made(call: Call) -> None:
    """Hook the methods of an agent loop, on the classes that define them."""
    loop, probe = call.args[0], call.probe
    client = attribute(loop, "server_manager")
    if call.error is not None:
        return
    instrument_once(probe, loop, (RUN, USE, INTERACT))
    instrument_once(probe, client, CLIENT)
    find_engines(probe, client)


def _run_begin(call: Call) -> None:
    conversation = CURRENT.get()
    # An agent loop may run another one: what that returns is not the trajectory.
    if conversation is not None and conversation.loop is None:
        conversation.loop = call.state = call.args[0]
        conversation.client = attribute(call.args[0], "server_manager")
        if conversation.row is not None:  # 0.5 has no uid yet
            conversation.key = row_name(call.kwargs.get("uid"), conversation.row)


def _run_end(call: Call) -> None:
    conversation, loop = CURRENT.get(), call.state
    if conversation is None or loop is None:
        return
    conversation.loop = conversation.client = None
    if call.error is not None:
        return
    outputs = call.result if isinstance(call.result, list) else [call.result]
    conversation.outputs = [_output(loop, conversation, output) for output in outputs]
    if len(outputs) > 1:
        _record_outputs(call, conversation)


def _record_outputs(call: Call, conversation: Conversation) -> None:
    """Several samples of one conversation (V1): each has its key and its lengths."""
    spans = list[int]()
    for index, output in enumerate(conversation.outputs or ()):
        values = _values(conversation, output, conversation.name(index))
        named = dict(zip(_ATTRIBUTES, values, strict=True))
        start, end = call.start_ns, call.end_ns
        spans.append(call.probe.record(TRAJECTORY, start, end, named, parent=conversation.span))
    # verl verifies the last one; what that gives is the reward of all.
    *others, conversation.verified = spans
    conversation.sharing = [span for span in others if span]


def _output(loop: Any, conversation: Conversation, output: Any) -> Output:
    prompt, response = size(attribute(output, "prompt_ids")), attribute(output, "response_ids")
    if not isinstance(response, list):
        return Output(prompt, None, None, None)
    runs = mask_runs(attribute(output, "response_mask"), len(response))
    return Output(prompt, len(response), runs, _truncated(loop, conversation, response))


def _truncated(loop: Any, conversation: Conversation, response: list[Any]) -> int | None:
    cap = number(loop, "response_length")
    if cap is None:  # a loop of the user's
        rollout = attribute(loop, "rollout_config")  # since 0.7
        rollout = option(attribute(loop, "config"), _ROLLOUT) if rollout is None else rollout
        cap = number(option(rollout, "response_length"))
    end = attribute(loop, "tokenizer", "eos_token_id")
    ends = frozenset([end]) if isinstance(end, int) else frozenset[int]()
    cut = was_cut(response, cap, ends, conversation.stop)
    if cut == 0 and conversation.turns and conversation.asked == conversation.turns - 1:
        # Tools were called, and what they said was dropped, for want of room. Loops of users' own
        # may have other reasons.
        own = type(loop).__module__.startswith("verl.")
        return int(not conversation.broken) if own else None
    return cut


RUN = HookPoint("run", before=_run_begin, after=_run_end)

_CHUNK_INFO = HookPoint(
    f"{_MODULE}:get_trajectory_info",
    before=_chunk_begin,
    after=_chunk_known,
    parameters=("step", "index", "validate"),
)

_TRAJECTORY = HookPoint(
    f"{_MODULE}:AgentLoopWorker._run_agent_loop",
    TRAJECTORY,
    _ATTRIBUTES,
    _read,
    before=_begin,
    after=_end,
    parameters=("sampling_params", "trajectory"),
)

# The worker of 0.5 is defined under ray.remote and goes by value. That of 0.6 has a base that does
# not, but Ray took the base's methods before this module was there to be hooked: were one replaced,
# the original would go by value, and with it a copy of the registry of agent loops. This surrounds
# all that either does for one trajectory.
_TRACED = replace(
    _TRAJECTORY,
    target="verl.utils.rollout_trace:rollout_trace_attr",
    before=_place_begin,
    when=_is_trajectory,
    parameters=(),
)

LOOPS = (
    Dated(_CHUNK_INFO, "0.5"),
    Dated(_TRACED, "0.5", "0.7"),
    Dated(_TRAJECTORY, "0.7"),
    Dated(HookPoint(f"{_MODULE}:AgentLoopBase.__init__", after=_loop_made), "0.5"),
)
"""Hooked in the workers when their modules are imported."""
