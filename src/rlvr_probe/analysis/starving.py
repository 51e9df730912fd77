"""Whether a trainer generates for a step that gets nothing: its filter passes no group."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.launched import Launch
from rlvr_probe.model import names
from rlvr_probe.recording.follow.member import Member, Work

__all__ = ["is_starving", "step_of"]

_TIMES: Final = 3
_ROUNDS: Final = 3
"""Rollouts of a step that are no surprise where none has ended yet."""
_SHARE: Final = 0.9
"""Of what was generated, what must have been thrown away: some of it is on its way."""


def step_of(member: Member) -> Work | None:
    """The step that a trainer is in, or the rollout for a queue; None if it is in none."""
    name = names.ROLLOUT.name if member.sifting.queued else names.STEP.name
    return next((work for work in member.work if work.name == name), None)


def is_starving(member: Member, step: Work, launch: Launch) -> bool:
    """Whether the filter of a trainer passed nothing in its step, as far as is recorded.

    Either it tells of groups that it threw away, and nearly all that were generated are among
    them, or, where that is not known, thrice as many as in any step before; or it generated thrice
    as often as in any.

    Args:
        member: A trainer, or who generates for its queue.
        step: That it is in.
        launch: That it belongs to.
    """
    sifting = member.sifting
    if sifting.passed or member.filters == 0:
        return False
    if sifting.rounds > _TIMES * (sifting.most_rounds or _ROUNDS):
        return True
    if not sifting.discarded:
        return False
    generated = _generated(launch, member.wall_ns(step.start_ns))
    # Who generates for a queue does not tell it, and its trainer does.
    sizes = (one.group_size for one in (member, *launch.members))
    size = next((one for one in sizes if one is not None), None)
    if generated is None or size is None:
        return 0 < _TIMES * sifting.most_discarded < sifting.discarded
    return sifting.discarded * size >= _SHARE * generated


def _generated(launch: Launch, since_ns: int) -> int | None:
    """Trajectories of a launch that ended since then, by wall clocks; None if that is not known."""
    count = 0
    for one in launch.members:
        ended = one.trajectories
        if len(ended) == ended.maxlen and one.wall_ns(ended[0]) >= since_ns:
            return None
        count += sum(one.wall_ns(time_ns) >= since_ns for time_ns in ended)
    return count or None
