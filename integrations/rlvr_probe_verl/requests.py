"""Turns of trajectories: requests that an agent loop makes, and the engine that served each.

Hooked on the client that the loop was given, whatever its class. A client that goes on with what an
engine aborted asks several times for one turn; what the loop asked for is the turn.
"""

from __future__ import annotations

import re
import sys
import threading
from contextvars import ContextVar
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.adapter.conversation import TURN_ATTRIBUTES, Version, turn_values
from rlvr_probe.adapter.ray_actors import actor_id, context
from rlvr_probe.model.names import TURN
from rlvr_probe.reading import argument, attribute, number, size
from rlvr_probe.releases import Dated
from rlvr_probe_verl.conversation import CURRENT, Conversation

__all__ = ["ACQUIRE", "CHOOSE", "CLIENT", "GENERATE", "NAME", "REQUESTS"]
__all__ += ["engine_of", "find_engines", "replica_of"]

_NAMES: ContextVar[list[Any] | None] = ContextVar("rlvr_probe_verl_names", default=None)
"""Ids that engines were given for the turn of this context; None outside of turns."""


def _current(call: Call) -> Conversation | None:
    """The conversation whose loop asks its own client; None for teachers, judges and tools."""
    conversation = CURRENT.get()
    if conversation is None or conversation.client is not call.args[0]:
        return None
    return conversation


def _is_turn(call: Call) -> bool:
    # Not what a client asks of the class that it is made from: that is the same turn.
    return _NAMES.get() is None and _current(call) is not None


def _turn_begin(call: Call) -> None:
    conversation = _current(call)
    if conversation is None:
        return
    # Counted now: verl 0.5 adds the answer to this very list.
    sent = size(argument(call, 2, "prompt_ids"))
    names = list[Any]()
    call.state = (conversation, conversation.start_turn(), sent, names)
    _NAMES.set(names)


def _read_turn(call: Call) -> tuple[Any, ...]:
    conversation, turn, sent, names = call.state
    result = call.result
    tokens = result if isinstance(result, list) else attribute(result, "token_ids")
    cached = number(_extra(result).get("num_cached_tokens"))
    # A client that asked several times has several requests: none is the turn's.
    name = names[0] if len(names) == 1 else None
    return turn_values(conversation, turn, sent, size(tokens), cached, name)


def _named(call: Call) -> None:
    names = _NAMES.get()
    if names is not None and _current(call) is not None and call.error is None:
        names.append(call.result)


def _turn_end(call: Call) -> None:
    if call.state is None:
        return
    _NAMES.set(None)
    if call.error is not None:
        return
    stop = attribute(call.result, "stop_reason")
    call.state[0].end_turn(stop, _version(_extra(call.result)))


def _extra(output: Any) -> dict[str, Any]:
    extra = attribute(output, "extra_fields")
    return extra if isinstance(extra, dict) else {}


def _version(extra: dict[str, Any]) -> Version | None:
    only = number(extra.get("global_steps"))
    low, high = number(extra.get("min_global_steps")), number(extra.get("max_global_steps"))
    low, high = only if low is None else low, only if high is None else high
    return None if low is None or high is None else (low, high)


# ---------------------------------------------------------------- engines


def _servers_given(call: Call) -> None:
    """Before the client of 0.5 to 0.7.0 shuffles the servers: these are in order of replicas."""
    handles = argument(call, 2, "server_handles")
    if isinstance(handles, list):
        call.probe.state(call.args[0])["servers"] = list(handles)


def _chosen(call: Call) -> None:
    conversation = _current(call)
    if conversation is None or call.error is not None:
        return
    engine = _number_of(call.probe, call.args[0], call.result)
    if engine not in conversation.engines:
        conversation.engines.append(engine)


def _number_of(probe: Probe, client: Any, chosen: Any) -> Any:
    """Number of the replica that a client chose, or the id of an actor that may have one."""
    servers = probe.state(client).get("servers")
    if isinstance(servers, list):
        return next((at for at, server in enumerate(servers) if server is chosen), None)
    if not isinstance(chosen, tuple) or len(chosen) != 2:
        return None
    known = attribute(client, "_server_id_to_handle")
    if isinstance(known, dict):  # 0.7.1: in the order of replicas
        return next((at for at, address in enumerate(known) if address == chosen[0]), None)
    actor = actor_id(chosen[1])
    if actor is not None and actor not in _ENGINES.numbers:
        _ask_ray(probe, _MOST_ASKED)
    return actor


def engine_of(conversation: Conversation) -> int | None:
    """The one engine that served all of it; None if there were several, or it is unknown."""
    replicas = {
        engine if isinstance(engine, int) else _ENGINES.numbers.get(engine)
        for engine in conversation.engines
    }
    return replicas.pop() if len(replicas) == 1 else None


class _Engines:
    """Replica of each server actor, by the names that verl gives them (0.8 and later).

    A client of those releases knows actors and addresses only. Ray is asked in a thread of its own,
    which no trajectory waits for.

    Attributes:
        numbers: Replica by actor id.
        asked: How often Ray was asked.
        asking: Whether it is being asked.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.asked = 0
        self.asking = False


_ENGINES = _Engines()
_MOST_ASKED = 8
_SERVER = re.compile(r"\w*server_(\d+)(?:_0)?")


def find_engines(probe: Probe, client: Any) -> None:
    """Find out which replica each server is, once, where ``client`` does not know it."""
    known = isinstance(attribute(client, "_server_id_to_handle"), dict)
    if not known and attribute(client, "_load_balancer") is not None:
        _ask_ray(probe, 1)


def _ask_ray(probe: Probe, most: int) -> None:
    engines = _ENGINES
    if engines.asking or engines.asked >= most or context() is None:
        return
    engines.asked += 1
    engines.asking = True
    ask = probe.guarded(_ask)
    try:
        threading.Thread(target=ask, name="rlvr-probe-engines", daemon=True).start()
    except RuntimeError:  # no thread can be started
        engines.asking = False
        raise


def _ask() -> None:
    try:
        ray = sys.modules["ray"]
        for name in ray.util.list_named_actors():
            replica = replica_of(name)
            if replica is not None:
                actor = actor_id(ray.get_actor(name))
                if actor is not None:
                    _ENGINES.numbers[actor] = replica
    finally:
        _ENGINES.asking = False


def replica_of(name: str) -> int | None:
    """Replica of a server actor of the policy by its name; None for any other actor.

    A replica over several nodes has one server per node, and answers from its first.
    """
    server = _SERVER.fullmatch(name)
    return None if server is None else int(server[1])


GENERATE = HookPoint(
    "generate",
    TURN,
    TURN_ATTRIBUTES,
    _read_turn,
    before=_turn_begin,
    after=_turn_end,
    when=_is_turn,
)
CHOOSE = HookPoint("_choose_server", after=_chosen)
ACQUIRE = HookPoint("_acquire_server", after=_chosen)
NAME = HookPoint("_vllm_request_id", after=_named)

CLIENT = (GENERATE, CHOOSE, ACQUIRE, NAME)
"""Methods of the client that an agent loop asks; no release has all of the last three."""

_SERVERS = HookPoint(
    "verl.experimental.agent_loop.agent_loop:AsyncLLMServerManager.__init__",
    before=_servers_given,
    parameters=("config", "server_handles"),
)

REQUESTS = (Dated(_SERVERS, "0.5", "0.7.1"),)
"""Hooked in the workers when their modules are imported."""
