"""What inference engines did for requests, and how long these waited for it."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any, Final

from rlvr_probe.analysis.quantiles import distribution
from rlvr_probe.model.trace import Trace

__all__ = ["TIMES", "requests"]

TIMES: Final = ("queue_s", "prefill_s", "decode_s")
"""Times of a request, one after another."""


def requests(trace: Trace) -> dict[str, Any] | None:
    """Counts, times and cached tokens of all requests; None where no engine told of any."""
    found = [one for attempt in trace.attempts for one in (attempt.requests,) if len(one)]
    if not found:
        return None
    times = {name: array("d") for name in TIMES}
    finishes = Counter[str]()
    prompt = cached = preempted = 0
    preemptions: int | None = None
    for request in (request for one in found for request in one):
        for name, measured in times.items():
            value = getattr(request, name)
            if value is not None:
                measured.append(value)
        finishes[request.finish or "unknown"] += 1
        if request.preemptions is not None:
            preemptions = (preemptions or 0) + request.preemptions
            preempted += request.preemptions > 0
        if request.prompt_tokens is not None and request.cached_tokens is not None:
            prompt += request.prompt_tokens
            cached += request.cached_tokens
    return {
        "requests": sum(map(len, found)),
        "unjoined": sum(attempt.unjoined_requests for attempt in trace.attempts),
        "finishes": dict(sorted(finishes.items())),
        "preemptions": preemptions,
        "preempted": None if preemptions is None else preempted,
        "cached_share": cached / prompt if prompt else None,
        **{name: distribution(array("d", sorted(measured))) for name, measured in times.items()},
        "total_s": {name: sum(measured) for name, measured in times.items() if measured},
    }
