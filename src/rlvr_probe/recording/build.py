"""Builds the Trace of a run from what its processes left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rlvr_probe.model.devices import DeviceSeries
from rlvr_probe.model.trace import Attempt, OpenSpan, Process, Session, Span, Step, Trace
from rlvr_probe.recording import remarks
from rlvr_probe.recording.attempts import (
    Launch,
    find_launches,
    rank_of,
    resumed_step,
    world_size_of,
)
from rlvr_probe.recording.batches import Beside, Member
from rlvr_probe.recording.between import find_between
from rlvr_probe.recording.clock import RunClock, align
from rlvr_probe.recording.devices import devices_of, join_devices, unread
from rlvr_probe.recording.endings import settle
from rlvr_probe.recording.fine.join import Part, join
from rlvr_probe.recording.liveness import Machine
from rlvr_probe.recording.load import Loaded, Recorded
from rlvr_probe.recording.queues import place_queued
from rlvr_probe.recording.selection import mark_unselected
from rlvr_probe.recording.steps import build_steps
from rlvr_probe.recording.store import FineStore
from rlvr_probe.recording.sums import fine_totals, reward_work
from rlvr_probe.recording.training import retrained

__all__ = ["Built", "build_trace"]


@dataclass(frozen=True, slots=True)
class Built:
    """A trace without what is known of single trajectories, and how to get to that.

    Attributes:
        parts: What was told of batches; their places are the numbers by which they are joined.
        is_joined: The tables of the store were filled.
    """

    trace: Trace
    parts: Sequence[Part]
    processes: Sequence[Recorded]
    clock: RunClock
    is_joined: bool


def build_trace(loaded: Loaded, machine: Machine, store: FineStore) -> Built:
    """The trace of what was read; uses up the rows.

    Args:
        loaded: What the processes of one run left behind, or as much of it as is needed.
        machine: This machine.
        store: Has their fine rows.
    """
    clock = align(loaded.recorded)
    processes = [one for one in loaded.recorded if not one.is_sidecar]
    sidecars = [one for one in loaded.recorded if one.is_sidecar]
    devices = join_devices(sidecars, clock)
    launches, notes = find_launches(processes, clock)
    settle(launches, processes, clock)
    now_ns = machine.now_ns()
    between = [find_between(index, one, clock, now_ns) for index, one in enumerate(processes)]
    attempts, user, unplaced = list[Attempt](), list[Span](), list[Span]()
    untrained = 0
    loose, parts = Counter[str](), list[Part]()
    for index, launch in enumerate(launches):
        attempt, marked, apart, left = _attempt(index, launch, processes, clock, loose, parts)
        untrained += left
        attempts.append(attempt)
        user += marked
        unplaced += apart
    _supersede(attempts, launches, processes)
    is_joined = store.sink is not None and (
        not store.is_empty or any(part.row.spans is not None for part in parts)
    )
    if is_joined:
        counts = join(store, attempts, parts, processes, clock)
        loose.update(counts.loose)
        for index, skipped in counts.skipped.items():
            _book(launches[index], processes, skipped)
    unreached = _unreached(processes)
    trace = Trace(
        run=loaded.run,
        processes=[_process(i, one, clock, machine, devices) for i, one in enumerate(processes)],
        attempts=attempts,
        open_spans=[
            span
            for index, one in enumerate(processes)
            for span in _open_spans(index, one, clock, machine)
        ],
        between=[one for one in between if one is not None],
        user_spans=sorted(user, key=lambda span: span.start_ns),
        lost=_lost(loaded),
        notes=[
            *notes,
            *retrained(attempts),
            *remarks.not_reached(unreached),
            *remarks.untrained(untrained),
            *remarks.loose(loose),
            *(remarks.left_out(processes) if store.sink is None else ()),
            *remarks.reduced(processes),
            *remarks.overflows(processes),
            *unread(sidecars),
            *clock.notes,
            *loaded.notes,
        ],
        unplaced=sorted(unplaced, key=lambda span: span.start_ns),
        unreached=unreached,
        unjoined_rpcs=loose["rpcs"],
        totals=fine_totals(processes),
        reward_work=reward_work(processes, clock),
        devices=devices,
        sidecars=[_process(i, one, clock, machine, devices) for i, one in enumerate(sidecars)],
        application_spans={
            (index, span): ids
            for index, one in enumerate(processes)
            for span, ids in one.journal.applications.items()
        },
        epoch_ns=clock.epoch_ns,
    )
    return Built(trace, parts, processes, clock, is_joined)


def _book(launch: Launch, processes: Sequence[Recorded], skipped: Counter[str]) -> None:
    """What could not be joined is lost to the run as a whole: it is booked on the first member."""
    processes[launch.members[0]].journal.skipped.update(skipped)


def _attempt(
    index: int,
    launch: Launch,
    processes: Sequence[Recorded],
    clock: RunClock,
    loose: Counter[str],
    parts: list[Part],
) -> tuple[Attempt, list[Span], list[Span], int]:
    members = [Member(i, _rank(processes[i], processes), processes[i]) for i in launch.members]
    skipped = Counter[str]()
    left = place_queued(members, clock)
    beside = Beside()
    steps, user, unplaced, rpcs = build_steps(index, members, clock, skipped, loose, beside, parts)
    _book(launch, processes, skipped)
    sessions = list[Session]()
    models = {one.recorded.journal.model_type for one in members} - {""}
    # Of several models nobody told which training each was of.
    told = {"model_type": models.pop()} if len(models) == 1 else {}
    for member in members:
        for row in member.recorded.journal.sessions:
            number, facts = row.facts.get("session", 0), {**told, **row.facts}
            sessions.append(Session(member.index, number if type(number) is int else 0, facts))
    loose["batches"] += mark_unselected(steps, sessions)
    attempt = Attempt(
        index=index,
        job=launch.job,
        processes=launch.members,
        sessions=sessions,
        steps=steps,
        concurrent=launch.concurrent,
        mixed=launch.mixed,
        lineage=launch.lineage,
        rpcs=rpcs,
        untrained=beside.untrained,
        loose_calls=beside.calls,
    )
    return attempt, user, unplaced, left


def _rank(process: Recorded, processes: Sequence[Recorded]) -> int | None:
    """The rank of a process; that of who started it, if it generates for a queue."""
    if process.journal.queued:
        owners = (one for one in processes if one.header.process == process.header.owner)
        process = next(owners, process)
    return rank_of(process)


def _supersede(
    attempts: list[Attempt], launches: list[Launch], processes: Sequence[Recorded]
) -> None:
    """Mark the steps whose weights were thrown away because a later attempt began before them.

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
            began = _began_after(later, session, life, launches, processes)
            if began is None:
                continue
            own = [step for step in later.steps if step.life < life]
            for step in (*before, *own):
                unmarked = step.superseded_by is None
                if unmarked and step.session == session and step.number > began:
                    step.superseded_by = later.index


def _began_after(
    attempt: Attempt, session: int, life: int, launches: list[Launch], processes: Sequence[Recorded]
) -> int | None:
    """The step that the attempt resumed from; None if it did none of its own."""
    started: list[Step] = [
        step
        for step in attempt.steps
        if (step.session, step.life) == (session, life) and step.started
    ]
    if not started:
        return None
    members = (processes[i] for i in launches[attempt.index].trainers)
    recorded = resumed_step(members, session, life)
    return min(step.number for step in started) - 1 if recorded is None else recorded


def _process(
    index: int,
    one: Recorded,
    clock: RunClock,
    machine: Machine,
    devices: Sequence[DeviceSeries],
) -> Process:
    header, journal = one.header, one.journal
    silent = machine.now_ns() - one.heartbeat_ns if one.state == "running" else None
    return Process(
        index=index,
        key=header.process,
        job=header.job,
        owner=header.owner,
        host=header.host,
        boot=header.boot,
        pid=header.pid,
        ppid=header.ppid,
        rank=rank_of(one) if one.trained else header.rank,
        world_size=world_size_of(one),
        state=one.state,
        start_ns=clock.at(one, header.mono_ns),
        last_seen_ns=clock.at(one, one.heartbeat_ns),
        ids=header.ids,
        lost=_sum(journal.reported, journal.skipped, _unreported(one)),
        faults=journal.faults,
        level=journal.level,
        level_reason=journal.level_reason,
        muted=journal.muted,
        own_s=None if journal.own_ns is None else journal.own_ns / 1e9,
        probe=header.probe,
        silent_s=None if silent is None else max(0.0, silent / 1e9),
        role=_class(journal.role),
        devices=devices_of(one, devices),
        given=journal.given,
        devices_how="" if journal.used is None else journal.used.how,
        corrected_s=clock.corrected_ns.get(header.clock, 0) / 1e9,
    )


def _open_spans(index: int, one: Recorded, clock: RunClock, machine: Machine) -> list[OpenSpan]:
    """Spans that had not ended: of the table, and finer ones that were journaled as open."""
    until = machine.now_ns() if one.state == "running" else one.heartbeat_ns
    spans = dict[int, OpenSpan]()

    def add(
        span: int,
        parent: int,
        name: str,
        start_ns: int,
        detail: str = "",
        step: int | None = None,
        thread: int | None = None,
    ) -> None:
        spans[span] = OpenSpan(
            process=index,
            id=span,
            parent=parent,
            name=name,
            detail=detail,
            step=step,
            start_ns=clock.at(one, start_ns),
            age_s=max(0, until - start_ns) / 1e9,
            thread=thread,
        )

    for span, (name, start_ns, parent) in one.journal.opened.items():
        add(span, parent, name, start_ns)
    for slot in one.table.slots if one.table is not None else ():
        if slot.span not in one.journal.finished:
            add(
                slot.span, slot.parent, slot.name, slot.start_ns, slot.detail, slot.step,
                slot.thread,
            )  # fmt: skip
    return sorted(spans.values(), key=lambda span: (span.start_ns, span.id))


def _lost(loaded: Loaded) -> dict[str, int]:
    total = Counter(loaded.skipped)
    for one in loaded.recorded:
        total.update(one.journal.reported)
        total.update(one.journal.skipped)
        total.update(_unreported(one))
    return {reason: count for reason, count in sorted(total.items()) if count}


def _sum(*counts: dict[str, int]) -> dict[str, int]:
    total = Counter[str]()
    for one in counts:
        total.update(one)
    return {reason: count for reason, count in sorted(total.items()) if count}


def _unreported(one: Recorded) -> dict[str, int]:
    """Losses that only the open-span table tells of: the disk was full to the end."""
    known = sum(one.journal.reported.values())
    more = 0 if one.table is None else one.table.lost - known
    return {"unreported": more} if more > 0 else {}


def _unreached(processes: Sequence[Recorded]) -> dict[str, int]:
    """Actors that were asked for and never told of themselves, by class."""
    told = {one.journal.actor for one in processes}
    started = dict[str, str]()
    for one in processes:
        started.update(one.journal.started)
    missing = Counter(_class(role) for actor, role in started.items() if actor not in told)
    return dict(sorted(missing.items()))


def _class(role: str) -> str:
    """Name of a class without what it was made in."""
    return role.rpartition(".")[2]
