"""The attempts of a run: who belongs to which launch of the job, and what each did to the others.

A job launch is a component of processes with one job key or one owner. A rank that appears in it a
second time is a restart of its ranks, or a second job that cannot be told apart. A later attempt
continues the training run of an earlier one, throwing away steps of it, or starts another, perhaps
with other facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, Protocol

from rlvr_probe.model import names
from rlvr_probe.model.trace import Attempt, Session
from rlvr_probe.recording.clock import RunClock
from rlvr_probe.recording.header import Header
from rlvr_probe.recording.processes import Recorded

__all__ = [
    "FACTS", "Launch", "Launched", "changed_facts", "find_launches", "job_launches",
    "last_training", "retrained", "supersede",
]  # fmt: skip

FACTS: Final = (
    "framework", "framework_version", "algorithm", "engine", "model_type", "world_size",
    "accelerators", "rollout_tp", "group_size", "max_prompt_tokens", "max_response_tokens",
    "steps_per_generation", "iterations", "accumulation", "prompts_per_update",
    "reward_functions",
)  # fmt: skip
"""Facts of a session that are the same on every rank."""

_CLOCK_SLACK_NS = 5_000_000_000
"""Overlap that two machines' wall clocks can feign, ns."""


class Launched(Protocol):
    """A process, as far as it shows to which launch it belongs."""

    @property
    def header(self) -> Header:
        """The first line of its journal."""
        ...

    @property
    def trained(self) -> bool:
        """Whether it took part in training."""
        ...


@dataclass(slots=True)
class Launch:
    """The processes of one attempt, by index.

    Attributes:
        job: Job key.
        component: Number of the job launch; restarts inside one launch share it.
        members: Every process.
        trainers: Those that took part in the training.
        lineage: Launches that continue one another share it.
    """

    job: str
    component: int
    members: list[int]
    trainers: list[int] = field(default_factory=list)
    concurrent: bool = False
    mixed: bool = False
    lineage: int = 0


@dataclass(slots=True)
class _Lifetimes:
    """When each process ran, and when it trained, on the clock of the run, ns."""

    alive: list[tuple[int, int]]
    training: list[tuple[int, int]]

    @classmethod
    def of(cls, processes: Sequence[Recorded], clock: RunClock) -> _Lifetimes:
        alive, training = list[tuple[int, int]](), list[tuple[int, int]]()
        for process in processes:
            journal, table = process.journal, process.table
            last = clock.at(process, process.heartbeat_ns)
            alive.append((clock.at(process, process.header.mono_ns), last))
            moments = [row.time_ns for row in journal.trajectories]
            for span in journal.spans:
                if span.name != names.USER.name:
                    moments += (span.start_ns, span.end_ns)
            if table is not None and table.slots:
                moments += (min(slot.start_ns for slot in table.slots), process.heartbeat_ns)
            moments = [clock.at(process, moment) for moment in moments]
            training.append((min(moments, default=0), max(moments, default=-1)))
        return cls(alive, training)


def _resumed_step(processes: Iterable[Recorded], session: int, life: int = 0) -> int | None:
    """Trainer steps that were done when ``session`` started; None if that is unknown."""
    starts = [process.starts_of(session)[life : life + 1] for process in processes]
    steps = [row.facts.get("resumed_step") for rows in starts for row in rows]
    return min((step for step in steps if type(step) is int), default=None)


def find_launches(processes: Sequence[Recorded], clock: RunClock) -> tuple[list[Launch], list[str]]:
    """The attempts of a run by first start, and what should be said about them."""
    times = _Lifetimes.of(processes, clock)
    notes, launches = list[str](), list[Launch]()
    training, others = list[list[int]](), list[list[int]]()
    for group in job_launches(processes):
        (training if any(processes[i].trained for i in group) else others).append(group)
    hulls = [_hull(times.alive, group) for group in training]
    alone = list[list[int]]()
    for group in others:
        alive = _hull(times.alive, group)
        hosts = [i for i, hull in enumerate(hulls) if _overlap(alive, hull) > 0]
        if len(hosts) == 1:
            training[hosts[0]].extend(group)
        else:
            alone.append(group)
    for number, group in enumerate([*training, *alone]):
        launches += _generations(processes, times, number, sorted(group), notes)
    launches.sort(
        key=lambda launch: min(times.alive[i][0] for i in launch.trainers or launch.members)
    )
    _mark_concurrent(processes, launches, times, notes)
    _number_lineages(processes, launches)
    return launches, notes


def job_launches(processes: Sequence[Launched]) -> list[list[int]]:
    """Processes connected by job key, owner, or, where they did not train, by parent; by index.

    One that did not train goes with its owner where that is known, whatever its job key: ranks of
    two jobs on one Ray node have the same parent, and with it the same key.
    """
    leader = list(range(len(processes)))

    def find(index: int) -> int:
        while leader[index] != index:
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    headers = [process.header for process in processes]
    by_key = {header.process: index for index, header in enumerate(headers)}
    by_pid = {(header.clock, header.pid): index for index, header in enumerate(headers)}
    orphans = _orphans(processes, by_key)
    by_job = dict[str, int]()
    for index, header in enumerate(headers):
        trained = processes[index].trained
        above = by_key.get(header.owner or "")
        if above is None and not trained:
            above = orphans.get(header.owner or "")
        if above is None or trained:
            leader[find(index)] = find(by_job.setdefault(header.job, index))
        if above is None and not trained:
            above = by_pid.get((header.clock, header.ppid))
        if above is not None:
            leader[find(index)] = find(above)
    groups = dict[int, list[int]]()
    for index in range(len(processes)):
        groups.setdefault(find(index), []).append(index)
    return list(groups.values())


def _orphans(processes: Sequence[Launched], by_key: Mapping[str, int]) -> dict[str, int]:
    """By owner of whom nothing is left: the only process of its own that trained."""
    owned = dict[str, list[int]]()
    for index, process in enumerate(processes):
        owner = process.header.owner
        if owner and owner not in by_key and process.trained:
            owned.setdefault(owner, []).append(index)
    return {owner: members[0] for owner, members in owned.items() if len(members) == 1}


def _generations(
    processes: Sequence[Recorded],
    times: _Lifetimes,
    component: int,
    group: list[int],
    notes: list[str],
) -> list[Launch]:
    """Split a job launch where a rank appears again."""
    job = next((processes[i].header.job for i in group if processes[i].trained), None)
    job = processes[group[0]].header.job if job is None else job
    launches = list[Launch]()
    ranks = list[set[int]]()
    for index in group:
        if not processes[index].trained:
            continue
        rank = processes[index].rank
        for launch, taken in zip(launches, ranks, strict=True):
            meets = any(_overlap(times.alive[index], times.alive[i]) > 0 for i in launch.trainers)
            if rank not in taken and meets:
                break
        else:
            launch, taken = Launch(job, component, []), set()
            launches.append(launch)
            ranks.append(taken)
        launch.trainers.append(index)
        launch.members.append(index)
        if rank is not None:
            taken.add(rank)
    if not launches:
        return [Launch(job, component, group)]
    for index in group:
        if not processes[index].trained:
            _home(processes, times, launches, index).members.append(index)
    for launch in launches:
        launch.members.sort()
    _mark_mixed(processes, times, launches, notes)
    return launches


def _home(
    processes: Sequence[Recorded], times: _Lifetimes, launches: list[Launch], index: int
) -> Launch:
    """The launch that a process without training belongs to: its owner's, else by time."""
    owner = processes[index].header.owner
    for launch in launches:
        if any(processes[i].header.process == owner for i in launch.members):
            return launch
    alive = times.alive[index]
    return max(launches, key=lambda launch: _overlap(alive, _hull(times.alive, launch.trainers)))


def _mark_mixed(
    processes: Sequence[Recorded], times: _Lifetimes, launches: list[Launch], notes: list[str]
) -> None:
    """Ranks of two jobs under one job key: with several ranks, who belongs to whom is unknown."""
    for launch, other in combinations(launches, 2):
        sizes = {processes[i].world_size() or 1 for i in (*launch.trainers, *other.trainers)}
        hulls = _hull(times.training, launch.trainers), _hull(times.training, other.trainers)
        if _overlap(*hulls) > 0 and sizes != {1}:
            launch.mixed = other.mixed = True
    if any(launch.mixed for launch in launches):
        notes.append(
            "two processes claim the same rank of one job at the same time: two jobs share a run id"
            " and their rows cannot be told apart"
        )


def _mark_concurrent(
    processes: Sequence[Recorded], launches: list[Launch], times: _Lifetimes, notes: list[str]
) -> None:
    hulls = [_hull(times.training, launch.trainers) for launch in launches]
    clocks = [{processes[i].header.clock for i in launch.trainers} for launch in launches]
    trained = sorted((hulls[i], i) for i, launch in enumerate(launches) if launch.trainers)
    for place, (hull, number) in enumerate(trained):
        for other_hull, other in trained[place + 1 :]:
            if other_hull[0] >= hull[1]:
                break
            slack = _CLOCK_SLACK_NS if len(clocks[number] | clocks[other]) > 1 else 0
            if _overlap(hull, other_hull) > slack:
                launches[number].concurrent = launches[other].concurrent = True
    together = [str(i) for i, launch in enumerate(launches) if launch.concurrent]
    if together:
        notes.append(
            f"two jobs ran at the same time under one run id (attempts {', '.join(together)}):"
            " they are kept apart; give each job its own RLVR_PROBE_RUN_ID"
        )


def _number_lineages(processes: Sequence[Recorded], launches: list[Launch]) -> None:
    """Give launches that continue or repeat the same training run the same lineage.

    A new launch under the same run id continues it, unless it starts from scratch after its
    predecessor returned by itself: a script or sweep that trains several times. Inside one launch
    a predecessor that closed in an orderly way is enough.
    """
    last: Launch | None = None
    count = 0
    for launch in launches:
        continues = False
        if last is not None and not launch.concurrent:
            fresh = not _resumed_step((processes[i] for i in launch.trainers), 0)
            returned = any(processes[i].journal.returned for i in last.trainers)
            orderly = all(processes[i].state == "exited" for i in last.trainers)
            over = returned or (orderly and launch.component == last.component)
            continues = not (fresh and over)
        if last is not None and continues:
            launch.lineage = last.lineage
        else:
            launch.lineage = count
            count += 1
        if launch.trainers and not launch.concurrent:
            last = launch


def _hull(intervals: Sequence[tuple[int, int]], members: Iterable[int]) -> tuple[int, int]:
    chosen = [intervals[i] for i in members if intervals[i][1] >= intervals[i][0]]
    starts, ends = zip(*chosen, strict=True) if chosen else ((0,), (-1,))
    return min(starts), max(ends)


def _overlap(interval: tuple[int, int], other: tuple[int, int]) -> int:
    return min(interval[1], other[1]) - max(interval[0], other[0])


def supersede(
    attempts: Sequence[Attempt], launches: Sequence[Launch], processes: Sequence[Recorded]
) -> None:
    """Mark the steps whose weights were thrown away because a later attempt started before them.

    Also those it did not reach again: their policy no longer exists. An attempt that did no step
    throws nothing away.
    """
    for later in attempts:
        before = [
            step
            for earlier in attempts[: later.index]
            if not later.concurrent and not earlier.concurrent
            if earlier.lineage == later.lineage
            for step in earlier.steps
        ]
        for session, life in sorted({(step.session, step.life) for step in later.steps}):
            resumed = _resumed_from(later, session, life, launches, processes)
            if resumed is None:
                continue
            own = [step for step in later.steps if step.life < life]
            for step in (*before, *own):
                unmarked = step.superseded_by is None
                if unmarked and step.session == session and step.number > resumed:
                    step.superseded_by = later.index


def _resumed_from(
    attempt: Attempt,
    session: int,
    life: int,
    launches: Sequence[Launch],
    processes: Sequence[Recorded],
) -> int | None:
    """The step that the attempt resumed from; None if it did none of its own."""
    started = [
        step
        for step in attempt.steps
        if (step.session, step.life) == (session, life) and step.started
    ]
    if not started:
        return None
    members = (processes[i] for i in launches[attempt.index].trainers)
    recorded = _resumed_step(members, session, life)
    return min(step.number for step in started) - 1 if recorded is None else recorded


def last_training(attempts: Iterable[Attempt]) -> dict[str, object]:
    """Facts of the last training run, by name: the first that any of its processes recorded."""
    trainings = list(_trainings(attempts))
    return _facts(trainings[-1]) if trainings else {}


def retrained(attempts: Sequence[Attempt]) -> list[str]:
    """What a reader should know where the facts of one training are not those of the next."""
    changed = [
        f"{name} {', then '.join(values)}" for name, values in changed_facts(attempts).items()
    ]
    if not changed:
        return []
    count = len(list(_trainings(attempts)))
    return [
        f"{count} training runs were recorded with different settings, and those of the"
        f" last are stated: {'; '.join(changed)}"
    ]


def changed_facts(attempts: Iterable[Attempt]) -> dict[str, list[str]]:
    """Values of each fact that has several, in the order of the training runs."""
    runs = [_facts(sessions) for sessions in _trainings(attempts)]
    values = {
        name: list(dict.fromkeys(str(facts[name]) for facts in runs if name in facts))
        for name in FACTS
    }
    return {name: several for name, several in values.items() if len(several) > 1}


def _trainings(attempts: Iterable[Attempt]) -> Iterator[list[Session]]:
    """Sessions of each training, of all its processes, in the order of their start."""
    for attempt in attempts:
        for number in sorted({session.session for session in attempt.sessions}):
            yield [session for session in attempt.sessions if session.session == number]


def _facts(sessions: Sequence[Session]) -> dict[str, object]:
    """Of several sessions that say a fact, the first counts."""
    return {
        name: value
        for session in reversed(sessions)
        for name in FACTS
        if (value := session.facts.get(name)) is not None
    }
