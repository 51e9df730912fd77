"""Requests as their scheduler sees them: what they waited for, and what was done twice.

Times are read here, so that they are known whether vLLM keeps statistics or not. Where they are
read is where vLLM reads its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.adapter.batch_events import known
from rlvr_probe.adapter.controller import state_of
from rlvr_probe.model.names import REQUEST
from rlvr_probe.reading import argument, attribute, digest, number
from rlvr_probe_vllm.report import finish_of, keep_to

__all__ = ["SCHEDULING"]

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"


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


def _generated(call: Call) -> None:
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
        "finish": finish_of(reason()) if callable(reason) else None,
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
        after=_generated,
        when=_any_prefills,
        parameters=("scheduler_output", "model_runner_output"),
    ),
    HookPoint(f"{_SCHEDULER}._free_request", after=_freed, parameters=("request",)),
)
"""Hooked where requests are scheduled: in the engine's own process, or in that of who asks."""
