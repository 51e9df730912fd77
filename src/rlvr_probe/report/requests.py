"""What inference engines did for requests, and how long these waited for it."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rlvr_probe.analysis.quantiles import distribution
from rlvr_probe.model.trace import Trace
from rlvr_probe.report.document import Block, Column, Line, grid, seconds

__all__ = ["request_blocks", "requests"]

_PARTS = ("queue_s", "prefill_s", "decode_s")


def requests(trace: Trace) -> dict[str, Any] | None:
    """Counts, times and cached tokens of all requests; None where no engine told of any."""
    found = [one for attempt in trace.attempts for one in (attempt.requests,) if len(one)]
    if not found:
        return None
    times = {name: array("d") for name in _PARTS}
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


def request_blocks(found: Mapping[str, Any] | None) -> list[Block]:
    """What :func:`requests` found, and the table of its times."""
    if found is None:
        return []
    parts = [f"{found['requests']:,} requests to engines"]
    if found["unjoined"]:
        parts.append(f"{found['unjoined']:,} of no turn that is known")
    if found["cached_share"] is not None:
        parts.append(f"{found['cached_share']:.1%} of their prompt tokens cached")
    if found["preemptions"]:
        parts.append(f"{found['preempted']:,} preempted, {found['preemptions']:,} times in all")
    rows = [
        [
            name.removesuffix("_s"),
            *(seconds(found[name][what]) for what in ("p50", "p90", "p99", "max")),
            seconds(found["total_s"][name]),
        ]
        for name in _PARTS
        if found[name] is not None
    ]
    blocks: list[Block] = [Line(", ".join(parts))]
    if rows:
        columns = (
            Column("requests", number=False),
            *(Column(f"{what} s") for what in ("p50", "p90", "p99", "max")),
            Column("total s"),
        )
        blocks.append(grid("Requests", columns, rows, head=3, tail=0, what="times"))
    return blocks
