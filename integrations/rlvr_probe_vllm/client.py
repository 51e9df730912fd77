"""Requests as the process sees them that asks an engine: lengths, end, and what asked.

Engine and scheduler may be in this process or in a child. With statistics on, vLLM sends back what
the scheduler measured; they are off by default in an offline ``LLM`` and under verl, and are never
turned on here.
"""

from __future__ import annotations

from typing import Any

from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.adapter.batch_events import known
from rlvr_probe.model.names import REQUEST
from rlvr_probe.reading import argument, attribute, digest, number
from rlvr_probe_vllm.report import finish_of, keep_to, seconds, stash

__all__ = ["CLIENT"]

_PROCESSOR = "vllm.v1.engine.output_processor:OutputProcessor"
_ASKED = "asked"


def _asked(call: Call) -> None:
    """After a request was taken: whose it is, is known here and never again."""
    if call.error is not None:
        return
    name = attribute(argument(call, 1, "request"), "request_id")
    asked = stash(call, _ASKED)
    if isinstance(name, str) and name not in asked:  # of a stream of prompts, the first
        keep_to(asked, attribute(call.args[0], "request_states"))
        asked[name] = (call.start_ns, call.probe.current())


def _finished(call: Call) -> None:
    state, reason = argument(call, 1, "req_state"), argument(call, 2, "finish_reason")
    _record(call, state, finish_of(reason))


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
    asked = stash(call, _ASKED).pop(key, None)
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
        "queue_s": seconds(attribute(stats, "queued_ts"), attribute(stats, "scheduled_ts")),
        "prefill_s": seconds(attribute(stats, "scheduled_ts"), attribute(stats, "first_token_ts")),
        "decode_s": seconds(attribute(stats, "first_token_ts"), attribute(stats, "last_token_ts")),
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
