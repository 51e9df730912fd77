"""Launches of a run that are not past, and whether a filter leaves a trainer of one nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rlvr_probe.model import names
from rlvr_probe.recording.attempts import job_launches
from rlvr_probe.recording.follow.member import Member, Work
from rlvr_probe.recording.process_state import DRIVER, is_taken

__all__ = ["Launch", "is_starving", "launches", "step_of"]


@dataclass(frozen=True, slots=True)
class Launch:
    """Processes of one launch; wall clocks are all that two machines have in common.

    Attributes:
        members: The processes.
        begun_ns, seen_ns, moved_ns: When it started, was last seen, and when a process of it last
            started or something in one ended, by wall clocks.
        active_ns: When a trajectory or what is finer last ended; 0 before.
        ranks: Those that trained; of a launch in which none did, all, and each says so.
        alive: Whether a process of it runs.
        trained, returned: Whether one of its processes trained, and whether that returned.
        closed: Whether a process that trained has ended in an orderly way.
        worked_ns: When something that trainers did last ended, by wall clocks.
        clocks: Keys of the clocks of trainers.
        left: Drivers that left it.
        last_ns: When each rank of a role last started, by wall clocks, as one that trains and as
            any: a rank that its job starts again, as torchrun does, is another process.
    """

    members: list[Member]
    begun_ns: int
    seen_ns: int
    moved_ns: int
    active_ns: int
    ranks: frozenset[tuple[bool, int | None]]
    alive: bool
    trained: bool
    returned: bool
    closed: bool
    worked_ns: int
    clocks: frozenset[str]
    left: list[Member]
    last_ns: Mapping[tuple[str, int | None, bool], int]

    @classmethod
    def of(cls, members: list[Member]) -> Launch:
        """Of these processes."""
        trained = [process for process in members if process.trained]
        moved = (each.wall_ns(max(each.last_ns, each.header.mono_ns)) for each in members)
        active = (each.wall_ns(each.active_ns) for each in members if each.active_ns)
        return cls(
            members,
            min(process.header.epoch_ns for process in members),
            max(process.wall_ns(process.heartbeat_ns) for process in members),
            max(moved),
            max(active, default=0),
            frozenset((process.trained, process.rank) for process in trained or members),
            any(process.state == "running" for process in members),
            bool(trained),
            any(process.returned for process in trained),
            any(process.state == "exited" for process in trained),
            max((process.wall_ns(process.last_ns) for process in trained), default=0),
            frozenset(process.header.clock for process in trained),
            [process for process in members if process.left_ns],
            _last_begun(members),
        )

    def outlived(self, member: Member) -> bool:
        """Whether a process that is gone, or of another machine, has done its part.

        A process that trains records so itself; others are ended with the training, as Ray ends
        them, and one that was started again is another process.
        """
        if member.state not in ("died", "unknown"):
            return False
        seen_ns = member.wall_ns(member.heartbeat_ns)
        if self.last_ns.get((member.role, member.rank, member.trained), 0) > seen_ns:
            return True
        if member.role not in ("", DRIVER) and any(
            is_taken(member.header, member.heartbeat_ns, driver.header, driver.left_ns)
            for driver in self.left
        ):
            return True
        if member.trained:
            return member.returned
        if self.returned or not self.closed or self.alive:
            return self.returned
        # Where training failed, a process that left a moment before may be the reason. Times of
        # two machines are not compared.
        return self.clocks != {member.header.clock} or seen_ns >= self.worked_ns


def _last_begun(members: Sequence[Member]) -> dict[tuple[str, int | None, bool], int]:
    found = dict[tuple[str, int | None, bool], int]()
    for process in members:
        if process.rank is not None:
            for trained in {False, process.trained}:
                place = process.role, process.rank, trained
                found[place] = max(found.get(place, 0), process.header.epoch_ns)
    return found


def launches(members: Sequence[Member]) -> list[Launch]:
    """All launches but those that are over and of which a later one took up a rank.

    Only a launch that trains takes up a rank of one that trained: other processes may have any rank
    or none.
    """
    found = [Launch.of([members[index] for index in launch]) for launch in job_launches(members)]
    last_ns = dict[tuple[bool, int | None], int]()
    for launch in found:
        for trained, rank in launch.ranks:
            for place in {(trained, rank), (False, rank)}:
                last_ns[place] = max(last_ns.get(place, launch.begun_ns), launch.begun_ns)
    return [
        launch
        for launch in found
        if launch.alive or all(last_ns[rank] <= launch.seen_ns for rank in launch.ranks)
    ]


_TIMES: Final = 3
_ROUNDS: Final = 3
"""Rollouts that a step may take where no step has ended yet."""
_SHARE: Final = 0.9
"""Least share of the generated that was thrown away: some of it is on its way."""


def step_of(member: Member) -> Work | None:
    """The step that a trainer is in, or the rollout for a queue; None if it is in none."""
    name = names.ROLLOUT.name if member.sifting.queued else names.STEP.name
    return next((work for work in member.work if work.name == name), None)


def is_starving(member: Member, step: Work, launch: Launch) -> bool:
    """Whether the filter of a trainer passed nothing in its step, as far as is recorded.

    Either it recorded groups that it threw away: nearly all that were generated, or, where that is
    unknown, three times as many as in any step before. Or it generated three times as often as in
    any step before.

    Args:
        member: A trainer, or the process that generates for its queue.
        step: The step it is in.
        launch: The launch it belongs to.
    """
    sifting = member.sifting
    if sifting.passed or member.filters == 0:
        return False
    if sifting.rounds > _TIMES * (sifting.most_rounds or _ROUNDS):
        return True
    if not sifting.discarded:
        return False
    generated = _generated(launch, member.wall_ns(step.start_ns))
    # A process that generates for a queue does not record the size; its trainer does.
    sizes = (process.group_size for process in (member, *launch.members))
    size = next((size for size in sizes if size is not None), None)
    if generated is None or size is None:
        return 0 < _TIMES * sifting.most_discarded < sifting.discarded
    return sifting.discarded * size >= _SHARE * generated


def _generated(launch: Launch, since_ns: int) -> int | None:
    """Trajectories of a launch that ended since then, by wall clocks; None if that is not known."""
    count = 0
    for process in launch.members:
        ended = process.trajectories
        if len(ended) == ended.maxlen and process.wall_ns(ended[0]) >= since_ns:
            return None
        count += sum(process.wall_ns(time_ns) >= since_ns for time_ns in ended)
    return count or None
