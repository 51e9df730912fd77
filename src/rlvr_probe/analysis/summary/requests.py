"""What inference engines did for requests, and how long these waited for it."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from rlvr_probe.analysis.statistics import distribution
from rlvr_probe.model.trace import Trace
from rlvr_probe.model.turns import Request, RequestColumns

__all__ = ["TIMES", "requests"]

TIMES: Final = ("queue_s", "prefill_s", "decode_s")
"""Times of a request, one after another."""


def requests(trace: Trace) -> dict[str, Any] | None:
    """Counts, times and cached tokens of all requests; None where no engine told of any."""
    found = [_columns(attempt.requests) for attempt in trace.attempts if len(attempt.requests)]
    if not found:
        return None
    times = {name: array("d") for name in TIMES}
    finishes, lost = Counter[str | None](), Counter[int]()
    prompt = cached = 0
    for told in found:
        for measured, values in zip(times.values(), told.times(), strict=True):
            measured.extend(values)
        finishes.update(told.finishes())
        lost.update(told.preempted())
        sent, held = told.cached()
        prompt, cached = prompt + sent, cached + held
    return {
        "requests": sum(map(len, found)),
        "unjoined": sum(attempt.unjoined_requests for attempt in trace.attempts),
        "finishes": dict(sorted((one or "unknown", count) for one, count in finishes.items())),
        "preemptions": sum(often * count for often, count in lost.items()) if lost else None,
        "preempted": lost.total() - lost[0] if lost else None,
        "cached_share": cached / prompt if prompt else None,
        **{name: distribution(array("d", sorted(measured))) for name, measured in times.items()},
        "total_s": {name: sum(measured) for name, measured in times.items() if measured},
    }


def _columns(requests: Sequence[Request]) -> RequestColumns:
    return requests if isinstance(requests, RequestColumns) else RequestColumns(requests)
