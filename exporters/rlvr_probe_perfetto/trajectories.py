"""Trajectories of a step as slices, with their parts inside: which are drawn, and as what."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final

from rlvr_probe.exporter.timed_trajectories import Candidate, candidates
from rlvr_probe.model.batch import RewardCall
from rlvr_probe.model.trace import Step
from rlvr_probe_perfetto.slices import Slice, arguments

__all__ = ["trajectory_slices"]

_SLOWEST: Final = 4
"""The slowest take one of so many places."""


def trajectory_slices(step: Step, most: int) -> Iterator[Slice]:
    """The slices of at most ``most`` trajectories of a step; their ``process`` is its attempt."""
    verified = dict[int, Mapping[int, list[RewardCall]]]()
    for candidate, why in _chosen(step, most):
        shard = id(candidate.shard)
        if shard not in verified:
            verified[shard] = _verified(candidate)
        # Of no rank alone, and of a step that may be repeated in another life of its attempt.
        key = (step.session, step.life, step.number, *candidate.place)
        mode = "" if candidate.batch.mode == "train" else f"{candidate.batch.mode} "
        name = f"{mode}trajectory {candidate.row}"
        calls = verified[shard].get(candidate.local, ())
        yield Slice(
            step.attempt, key, None, name + (" (failed)" if candidate.failed else ""), "trajectory",
            candidate.start_ns, max(candidate.start_ns, candidate.end_ns),
            _arguments(step, candidate, why), False,
        )  # fmt: skip
        for number, part in enumerate(_parts(candidate, list(calls))):
            what, kind, start_ns, end_ns, given = part
            given = {"step": step.number, "trajectory": candidate.row, **given}
            yield Slice(
                step.attempt, (*key, number), key, what, kind, start_ns, max(start_ns, end_ns),
                arguments(given), False,
            )  # fmt: skip


def _verified(candidate: Candidate) -> Mapping[int, list[RewardCall]]:
    """Verifications of single trajectories of a shard, by row in it."""
    found = dict[int, list[RewardCall]]()
    for call in candidate.shard.calls:
        if call.row is not None:
            found.setdefault(call.row, []).append(call)
    return found


_Part = tuple[str, str, int, int, dict[str, object]]


def _parts(candidate: Candidate, verified: list[RewardCall]) -> Iterator[_Part]:
    shard, local = candidate.shard, candidate.local
    for turn in shard.turns.get(local, ()):
        if turn.start_ns is not None and turn.end_ns is not None:
            yield (
                f"turn {turn.index}", "turn", turn.start_ns, turn.end_ns,
                {
                    "prompt_tokens": turn.prompt_tokens,
                    "response_tokens": turn.response_tokens,
                    "cached_tokens": turn.cached_tokens,
                },
            )  # fmt: skip
    for call in shard.tool_calls.get(local, ()):
        yield (
            f"tool: {call.tool or 'unknown'}", "tool_call", call.start_ns, call.end_ns,
            {"turn": call.turn, "status": call.status, "error": call.error},
        )  # fmt: skip
    for done in verified:
        name = f"verify: {done.function}" if done.function else "verify"
        yield name, "verify", done.start_ns, done.end_ns, {}


def _arguments(step: Step, candidate: Candidate, why: str) -> dict[str, object]:
    shard, local = candidate.shard, candidate.local
    group = (
        candidate.row // candidate.batch.group_size if shard.groups is None else shard.groups[local]
    )
    versions = None if shard.policy_versions is None else shard.policy_versions[local]
    cut = None if shard.truncated is None else shard.truncated[local]
    rewards = {
        f"reward {column.function}".strip(): column.values[local] for column in shard.rewards
    }
    return arguments(
        {
            "step": step.number,
            "mode": candidate.batch.mode,
            "batch": candidate.batch.ordinal,
            "row": candidate.row,
            "group": group,
            "rank": shard.rank,
            "engine": None if shard.engines is None else shard.engines[local],
            "prompt_tokens": shard.prompt_tokens[local],
            "response_tokens": shard.response_tokens[local],
            "truncated": None if cut is None else bool(cut),
            "policy_version_min": None if versions is None else versions[0],
            "policy_version_max": None if versions is None else versions[1],
            **rewards,
            "drawn_because": why or None,
        }
    )


def _chosen(step: Step, most: int) -> Sequence[tuple[Candidate, str]]:
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
