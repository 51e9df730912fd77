"""Launches of a run that are not past."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlvr_probe.recording.attempts import job_launches
from rlvr_probe.recording.follow.member import Member
from rlvr_probe.recording.termination import DRIVER, is_taken

__all__ = ["Launch", "launches"]


@dataclass(frozen=True, slots=True)
class Launch:
    """Processes of one launch; wall clocks are all that two machines have in common.

    Attributes:
        members: The processes.
        begun_ns, seen_ns, moved_ns: When it began, was last seen, and when a process of it last
            began or something in one ended, by wall clocks.
        active_ns: When a trajectory or what is finer last ended; 0 before.
        ranks: Those that trained; of a launch in which none did, all, and each says so.
        alive: Whether a process of it runs.
        trained, returned: Whether one of it took part in a training, and whether that returned.
        closed: Whether a process that trained has ended in an orderly way.
        worked_ns: When something that trainers did last ended, by wall clocks.
        clocks: Keys of the clocks of trainers.
        left: Drivers that left it.
        last_ns: When each rank of a role last began, by wall clocks, as one that trains and as any:
            one that is started again in its job, as by torchrun, is another process.
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
        trained = [one for one in members if one.trained]
        return cls(
            members,
            min(one.header.epoch_ns for one in members),
            max(one.wall_ns(one.heartbeat_ns) for one in members),
            max(one.wall_ns(max(one.last_ns, one.header.mono_ns)) for one in members),
            max((one.wall_ns(one.active_ns) for one in members if one.active_ns), default=0),
            frozenset((one.trained, one.rank) for one in trained or members),
            any(one.state == "running" for one in members),
            bool(trained),
            any(one.returned for one in trained),
            any(one.state == "exited" for one in trained),
            max((one.wall_ns(one.last_ns) for one in trained), default=0),
            frozenset(one.header.clock for one in trained),
            [one for one in members if one.left_ns],
            _last_begun(members),
        )

    def outlived(self, member: Member) -> bool:
        """Whether a process that is gone, or of another machine, is not needed any more.

        Who trains says so itself; others are ended with the training, as Ray ends them, and who
        was started again is another process.
        """
        if member.state not in ("died", "unknown"):
            return False
        seen_ns = member.wall_ns(member.heartbeat_ns)
        if self.last_ns.get((member.role, member.rank, member.trained), 0) > seen_ns:
            return True
        if any(_was_taken(member, one) for one in self.left):
            return True
        if member.trained:
            return member.returned
        if self.returned or not self.closed or self.alive:
            return self.returned
        # Of a training that failed, who left a moment before may be the reason. Times of two
        # machines are not compared.
        return self.clocks != {member.header.clock} or seen_ns >= self.worked_ns


def _last_begun(members: Sequence[Member]) -> dict[tuple[str, int | None, bool], int]:
    found = dict[tuple[str, int | None, bool], int]()
    for one in members:
        if one.rank is not None:
            for trained in {False, one.trained}:
                place = one.role, one.rank, trained
                found[place] = max(found.get(place, 0), one.header.epoch_ns)
    return found


def _was_taken(member: Member, driver: Member) -> bool:
    if member.role in ("", DRIVER):
        return False
    return is_taken(member.header, member.heartbeat_ns, driver.header, driver.left_ns)


def launches(members: Sequence[Member]) -> list[Launch]:
    """All but those that are over and of which a later one took up a rank.

    Of one that trained only one that trains does: what else is started may have any rank, or none.
    """
    found = [Launch.of([members[index] for index in launch]) for launch in job_launches(members)]
    last_ns = dict[tuple[bool, int | None], int]()
    for one in found:
        for trained, rank in one.ranks:
            for place in {(trained, rank), (False, rank)}:
                last_ns[place] = max(last_ns.get(place, one.begun_ns), one.begun_ns)
    return [
        one for one in found if one.alive or all(last_ns[rank] <= one.seen_ns for rank in one.ranks)
    ]
