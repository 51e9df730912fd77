"""Requests to vLLM: as the process sees them that asks an engine, and as their scheduler does.

Engine and scheduler may be in the process that asks or in a child of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.adapter.batch_events import known
from rlvr_probe.adapter.controller import state_of
from rlvr_probe.model.names import FINISHES, REQUEST
from rlvr_probe.reading import argument, attribute, digest, number

__all__ = ["CLIENT", "SCHEDULING", "keep_to"]

_PROCESSOR = "vllm.v1.engine.output_processor:OutputProcessor"
_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"

_KEPT = 4_096
"""Requests that are remembered before those are looked for that ended unseen."""


def keep_to(remembered: MutableMapping[str, Any], living: object) -> None:
    """Forget the requests that are not among the ``living``: not every end of one is seen."""
    if len(remembered) <= _KEPT:
        return
    if not isinstance(living, Mapping):
        remembered.clear()
    elif len(remembered) > 2 * len(living):
        for gone in [key for key in remembered if key not in living]:
            del remembered[gone]


def _finish(reason: object) -> str | None:
    """Why a request ended, by vLLM's member of an enum; None if that is unknown."""
    finish = str(reason)
    return finish if finish in FINISHES else None


# ---------------------------------------------------------------- the process that asks

# With statistics on, vLLM sends back what the scheduler measured; they are off by default in an
# offline `LLM` and under verl, and are never turned on here.


def _asked_of(call: Call) -> dict[str, Any]:
    """When each request was asked for and in which span, by its id."""
    asked: dict[str, Any] = call.probe.state(call.args[0]).setdefault("asked", {})
    return asked


def _asked(call: Call) -> None:
    """After a request was taken: whose it is, is known here and never again."""
    if call.error is not None:
        return
    name = attribute(argument(call, 1, "request"), "request_id")
    asked = _asked_of(call)
    if isinstance(name, str) and name not in asked:  # of a stream of prompts, the first
        keep_to(asked, attribute(call.args[0], "request_states"))
        asked[name] = (call.start_ns, call.probe.current())


def _finished(call: Call) -> None:
    state, reason = argument(call, 1, "req_state"), argument(call, 2, "finish_reason")
    _record(call, state, _finish(reason))


def _abort_begins(call: Call) -> None:
    """Before requests are given up, by ids of vLLM's own or by those that its caller gave."""
    request_ids = argument(call, 1, "request_ids")
    states = attribute(call.args[0], "request_states")
    # Anything else may be there to be iterated over once, by vLLM.
    if not isinstance(request_ids, (list, tuple, set, frozenset)) or not isinstance(states, dict):
        return
    external = attribute(call.args[0], "external_req_ids")  # since 0.14
    ids = list[Any](request_ids)
    for name in request_ids:
        ids += external.get(name, ()) if isinstance(external, dict) else ()
    call.state = [states[name] for name in dict.fromkeys(ids) if name in states]


def _abort_ends(call: Call) -> None:
    states = attribute(call.args[0], "request_states")
    for state in call.state or ():
        if isinstance(states, dict) and attribute(state, "request_id") not in states:
            _record(call, state, "abort")


def _record(call: Call, state: Any, finish: str | None) -> None:
    key = attribute(state, "request_id")
    asked = _asked_of(call).pop(key, None)
    if asked is None:  # before the probe was there
        return
    start_ns, parent = asked
    stats = attribute(state, "stats")
    values = {
        "told_by": "client",
        "key": digest(key),
        "request": digest(_name(state)),
        "prompt_tokens": number(state, "prompt_len"),
        "response_tokens": _generated(state),
        "cached_tokens": _cached(state),
        "queue_s": _seconds(attribute(stats, "queued_ts"), attribute(stats, "scheduled_ts")),
        "prefill_s": _seconds(attribute(stats, "scheduled_ts"), attribute(stats, "first_token_ts")),
        "decode_s": _seconds(attribute(stats, "first_token_ts"), attribute(stats, "last_token_ts")),
        "preemptions": number(stats, "num_preemptions"),  # since 0.30
        "finish": finish,
    }
    call.probe.record(REQUEST, start_ns, call.start_ns, known(values), parent=parent)


def _name(state: Any) -> object:
    """The id that the caller gave: vLLM adds to it since 0.14, and for each of several answers."""
    name = attribute(state, "external_req_id")
    if name is None:
        name = attribute(state, "parent_req", "request_id")
    return attribute(state, "request_id") if name is None else name


def _generated(state: Any) -> int | None:
    detokenizer = attribute(state, "detokenizer")
    count = attribute(detokenizer, "num_output_tokens")
    if callable(count):
        return number(count())
    tokens = attribute(detokenizer, "output_token_ids")
    return len(tokens) if isinstance(tokens, list) else None


def _cached(state: Any) -> int | None:
    """Tokens found in the cache; until its first token vLLM has 0 there, which says nothing."""
    prefilling = attribute(state, "is_prefilling")
    return number(state, "num_cached_tokens") if prefilling is False else None


def _seconds(start: object, end: object) -> float | None:
    """Time between two readings of one clock, s; None if one is missing, which vLLM writes as 0."""
    if not isinstance(start, float) or not isinstance(end, float) or start <= 0:
        return None
    return end - start if start <= end < math.inf else None


CLIENT = (
    HookPoint(f"{_PROCESSOR}.add_request", after=_asked, parameters=("request",)),
    HookPoint(
        f"{_PROCESSOR}._update_stats_from_finished",
        after=_finished,
        parameters=("req_state", "finish_reason"),
    ),
    HookPoint(
        f"{_PROCESSOR}.abort_requests",
        before=_abort_begins,
        after=_abort_ends,
        parameters=("request_ids",),
    ),
)
"""Hooked where an engine is asked: once per request, never per token."""


# ---------------------------------------------------------------- the scheduler

# Times are read here, so that they are known whether vLLM keeps statistics or not. Where they are
# read is where vLLM reads its own.


@dataclass(slots=True)
class Progress:
    """How far a request has come; 0 is not yet.

    Attributes:
        request: vLLM's own record of it.
        queued_ns: When the scheduler was given it.
        scheduled_ns: When the step started that it was first part of.
        first_ns: When the step ended that gave its first token.
        cached_tokens: Tokens of its prompt that were there when it was first scheduled.
    """

    request: Any
    queued_ns: int
    scheduled_ns: int = 0
    first_ns: int = 0
    cached_tokens: int | None = None


@dataclass(slots=True)
class Books:
    """Requests of one scheduler by their id.

    Attributes:
        known: All of them.
        waiting: Those that were never scheduled.
        prefilling: Those that were, and have no token yet.
    """

    known: dict[str, Progress] = field(default_factory=dict)
    waiting: dict[str, Progress] = field(default_factory=dict)
    prefilling: dict[str, Progress] = field(default_factory=dict)


def _books(call: Call) -> Books:
    return state_of(call.probe, call.args[0], Books)


def _queued(call: Call) -> None:
    request = argument(call, 1, "request")
    name = attribute(request, "request_id")
    if call.error is not None or not isinstance(name, str):
        return
    books = _books(call)
    if name not in books.known:  # of a stream of prompts, the first
        living = attribute(call.args[0], "requests")
        for remembered in (books.known, books.waiting, books.prefilling):
            keep_to(remembered, living)
        books.known[name] = books.waiting[name] = Progress(request, call.start_ns)


def _any_waits(call: Call) -> bool:
    return bool(_books(call).waiting)


def _scheduled(call: Call) -> None:
    books = _books(call)
    # Some releases send a request that comes back after a preemption as a new one again.
    for new in attribute(call.result, "scheduled_new_reqs") or ():
        name = attribute(new, "req_id")
        progress = books.waiting.pop(name, None)
        if progress is not None:
            progress.scheduled_ns = call.start_ns
            progress.cached_tokens = number(new, "num_computed_tokens")
            books.prefilling[name] = progress


def _any_prefills(call: Call) -> bool:
    return bool(_books(call).prefilling)


def _first_tokens(call: Call) -> None:
    prefilling = _books(call).prefilling
    for name in [name for name, progress in prefilling.items() if _tokens(progress)]:
        prefilling.pop(name).first_ns = call.end_ns


def _freed(call: Call) -> None:
    """After a request ended and its place is free for others."""
    request, books = argument(call, 1, "request"), _books(call)
    name = attribute(request, "request_id")
    progress = books.known.pop(name, None)
    books.waiting.pop(name, None)
    books.prefilling.pop(name, None)
    if progress is None:  # queued before the probe was there
        return
    generated = _tokens(progress)
    if generated and progress.scheduled_ns and not progress.first_ns:
        progress.first_ns = call.start_ns  # its first step was its last
    reason = attribute(request, "get_finished_reason")
    values = {
        "told_by": "scheduler",
        "key": digest(name),
        "prompt_tokens": number(request, "num_prompt_tokens"),
        "response_tokens": generated,
        "cached_tokens": progress.cached_tokens,
        "queue_s": _between(progress.queued_ns, progress.scheduled_ns),
        "prefill_s": _between(progress.scheduled_ns, progress.first_ns),
        "decode_s": _between(progress.first_ns, call.start_ns),
        "preemptions": number(request, "num_preemptions"),  # since 0.11.1
        "finish": _finish(reason()) if callable(reason) else None,
    }
    call.probe.record(REQUEST, progress.queued_ns, call.start_ns, known(values), parent=0)


def _tokens(progress: Progress) -> int | None:
    return number(progress.request, "num_output_tokens")


def _between(start_ns: int, end_ns: int) -> float | None:
    return (end_ns - start_ns) / 1e9 if 0 < start_ns <= end_ns else None


SCHEDULING = (
    HookPoint(f"{_SCHEDULER}.add_request", after=_queued, parameters=("request",)),
    HookPoint(f"{_SCHEDULER}.schedule", after=_scheduled, when=_any_waits),
    HookPoint(
        f"{_SCHEDULER}.update_from_output",
        after=_first_tokens,
        when=_any_prefills,
        parameters=("scheduler_output", "model_runner_output"),
    ),
    HookPoint(f"{_SCHEDULER}._free_request", after=_freed, parameters=("request",)),
)
"""Hooked where requests are scheduled: in the engine's own process, or in that of who asks."""
