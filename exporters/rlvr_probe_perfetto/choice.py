"""Which trajectories of a step are drawn: the slowest, the failed, and a sample of the rest."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from rlvr_probe.exporter.timed_trajectories import Candidate, candidates
from rlvr_probe.model.trace import Step

__all__ = ["chosen"]

_SLOWEST: Final = 4
"""The slowest take one of so many places."""


def chosen(step: Step, most: int) -> Sequence[tuple[Candidate, str]]:
    """At most ``most`` trajectories of a step, each with the reason; empty if all are.

    A quarter of the places is for the slowest, then come the failed; the rest goes to others by a
    hash of their place, so that every call chooses the same.
    """
    known = list(candidates(step))
    if len(known) <= most:
        return [(candidate, "") for candidate in known]
    reasons = dict[int, str]()
    lengths = ((candidate.end_ns - candidate.start_ns, -at) for at, candidate in enumerate(known))
    for _, at in heapq.nlargest(most // _SLOWEST, lengths):
        reasons[-at] = "slowest"
    rest = [
        (0 if candidate.failed else 1, _hash(step, candidate), at)
        for at, candidate in enumerate(known)
        if at not in reasons
    ]
    for sampled, _, at in heapq.nsmallest(most - len(reasons), rest):
        reasons[at] = "sampled" if sampled else "failed"
    return [(known[at], reasons[at]) for at in sorted(reasons)]


def _hash(step: Step, candidate: Candidate) -> bytes:
    place = (step.session, step.life, step.number, *candidate.place)
    return blake2b(repr(place).encode(), digest_size=8).digest()
