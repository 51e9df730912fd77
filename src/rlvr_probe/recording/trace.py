"""The trace of a run, read from its files and built of what its processes left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlvr_probe.model.device_series import DeviceSeries
from rlvr_probe.model.trace import (
    Attempt,
    OpenSpan,
    Process,
    RewardWork,
    Session,
    Span,
    Trace,
)
from rlvr_probe.recording import notes
from rlvr_probe.recording.attempts import Launch, find_launches, retrained, supersede
from rlvr_probe.recording.batches import Beside, Member, mark_unselected
from rlvr_probe.recording.between_steps import find_between
from rlvr_probe.recording.clock import RunClock, align
from rlvr_probe.recording.devices import devices_of, join_devices, unread
from rlvr_probe.recording.fine.join import Part, join, tidy
from rlvr_probe.recording.journal_files import Decode, decode
from rlvr_probe.recording.opentable import Slot
from rlvr_probe.recording.process_state import Machine, settle
from rlvr_probe.recording.processes import Loaded, Progress, Recorded, load_run
from rlvr_probe.recording.queues import place_queued
from rlvr_probe.recording.steps import build_steps
from rlvr_probe.recording.store import FineStore, no_collection

__all__ = ["read_loaded", "read_run", "read_tables"]


def read_run(
    path: Path,
    *more: Path,
    progress: Progress | None = None,
    machine: Machine | None = None,
    strict: bool = True,
) -> Trace:
    """Everything recorded of the run in folder ``path``.

    Takes memory for the lengths and coarse spans of the run, not for its journals; turns and tool
    calls add to it only where they belong to one trajectory. A run that still goes on is read as
    far as it has been written.

    Args:
        path: A run folder, for example from :func:`~rlvr_probe.recording.find_run`.
        more: Other folders of the same run, where nodes kept a part of it each.
        progress: Called after each process with bytes read so far and bytes to read.
        machine: Where to look whether processes still run; this machine.
        strict: Whether a missing library raises that joins rows of single trajectories; else these
            are omitted, and a note says so.

    Raises:
        ProbeError: A library is missing.
        RecordingError: They hold no recording, two runs, or a newer format.
    """
    machine = Machine() if machine is None else machine
    with no_collection(), FineStore(strict=strict) as store:
        return read_loaded(load_run((path, *more), store, machine, progress), machine, store)


def read_loaded(loaded: Loaded, machine: Machine, store: FineStore) -> Trace:
    """The trace of what was loaded, with what ``store`` took of it."""
    built = _build(loaded, machine, store)
    if built.is_joined:
        from rlvr_probe.recording.fine.restore import restore

        restore(store, built.trace.attempts, built.parts)
    return built.trace


def read_tables(
    store: FineStore,
    run: Sequence[Path],
    *,
    progress: Progress | None = None,
    machine: Machine | None = None,
    decode: Decode = decode,
) -> Trace:
    """Fill the tables of ``store`` from the folders of a run; ``decode`` decodes its files.

    Returns:
        Its trace, without what is known of single trajectories.

    Raises:
        RecordingError: They hold no recording, two runs, or a newer format.
    """
    from rlvr_probe.recording.tables.fill import fill

    machine = Machine() if machine is None else machine
    with no_collection():
        built = _build(load_run(run, store, machine, progress, decode), machine, store)
    if not built.is_joined:
        join(store, built.trace.attempts, built.parts, built.processes, built.clock)
    sql, bulk = store.open()
    fill(sql, bulk, built.trace)
    tidy(sql)
    return built.trace


@dataclass(frozen=True, slots=True)
class _Built:
    """A trace without its single trajectories, and how to get to those.

    Attributes:
        parts: Recorded events of batches; their places are the numbers by which they are joined.
        is_joined: The tables of the store were filled.
    """

    trace: Trace
    parts: Sequence[Part]
    processes: Sequence[Recorded]
    clock: RunClock
    is_joined: bool


def _build(loaded: Loaded, machine: Machine, store: FineStore) -> _Built:
    """The trace of what was read; uses up the rows.

    Args:
        loaded: What the processes of one run left behind, or as much of it as is needed.
        machine: This machine.
        store: Has their fine rows.
    """
    clock = align(loaded.recorded)
    processes = [process for process in loaded.recorded if not process.is_sidecar]
    sidecars = [process for process in loaded.recorded if process.is_sidecar]
    devices = join_devices(sidecars, clock)
    launches, launch_notes = find_launches(processes, clock)
    settle(launches, processes, clock)
    now_ns = machine.now_ns()
    between = [
        find_between(index, process, clock, now_ns) for index, process in enumerate(processes)
    ]
    attempts, user, unplaced = list[Attempt](), list[Span](), list[Span]()
    untrained = 0
    loose, parts = Counter[str](), list[Part]()
    for index, launch in enumerate(launches):
        attempt, marked, apart, left = _attempt(index, launch, processes, clock, loose, parts)
        untrained += left
        attempts.append(attempt)
        user += marked
        unplaced += apart
    supersede(attempts, launches, processes)
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
        processes=[
            _process(index, process, clock, machine, devices)
            for index, process in enumerate(processes)
        ],
        attempts=attempts,
        open_spans=[
            span
            for index, process in enumerate(processes)
            for span in _open_spans(index, process, clock, machine)
        ],
        between=[span for span in between if span is not None],
        user_spans=sorted(user, key=lambda span: span.start_ns),
        lost=_sum(
            loaded.skipped,
            *(counts for process in loaded.recorded for counts in _losses(process)),
        ),
        notes=[
            *launch_notes,
            *retrained(attempts),
            *notes.not_reached(unreached),
            *notes.untrained(untrained),
            *notes.loose(loose),
            *(notes.omitted(processes, store.missing) if store.sink is None else ()),
            *notes.reduced(processes),
            *notes.overflows(processes),
            *unread(sidecars),
            *clock.notes,
            *loaded.notes,
        ],
        unplaced=sorted(unplaced, key=lambda span: span.start_ns),
        unreached=unreached,
        unjoined_rpcs=loose["rpcs"],
        totals=_fine_totals(processes),
        reward_work=[
            RewardWork(
                index, function, calls, clock.at(process, starts // calls), total / 1e9, errors
            )
            for index, process in enumerate(processes)
            for function, (
                calls,
                starts,
                total,
                errors,
            ) in process.journal.unattributed_rewards.items()
        ],
        devices=devices,
        sidecars=[
            _process(index, sidecar, clock, machine, devices)
            for index, sidecar in enumerate(sidecars)
        ],
        application_spans={
            (index, span): ids
            for index, process in enumerate(processes)
            for span, ids in process.journal.applications.items()
        },
        epoch_ns=clock.epoch_ns,
    )
    return _Built(trace, parts, processes, clock, is_joined)


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
    models = {member.recorded.journal.model_type for member in members} - {""}
    # Which training each of several models was of is unknown.
    known = {"model_type": models.pop()} if len(models) == 1 else {}
    for member in members:
        for row in member.recorded.journal.sessions:
            number, facts = row.facts.get("session", 0), {**known, **row.facts}
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
    """The rank of a process; that of who started it or takes from it, if it fills a queue."""
    if not process.journal.queued:
        return process.rank
    owner = process.header.owner
    ranks = {other.rank for other in processes if other.header.process == owner} - {None}
    ranks = ranks or {other.rank for other in processes if other.journal.taken} or {process.rank}
    return ranks.pop() if len(ranks) == 1 else None


def _process(
    index: int,
    process: Recorded,
    clock: RunClock,
    machine: Machine,
    devices: Sequence[DeviceSeries],
) -> Process:
    header, journal = process.header, process.journal
    silent = machine.now_ns() - process.heartbeat_ns if process.state == "running" else None
    return Process(
        index=index,
        key=header.process,
        job=header.job,
        owner=header.owner,
        host=header.host,
        boot=header.boot,
        pid=header.pid,
        ppid=header.ppid,
        rank=process.rank if process.trained else header.rank,
        world_size=process.world_size(),
        state=process.state,
        start_ns=clock.at(process, header.mono_ns),
        last_seen_ns=clock.at(process, process.heartbeat_ns),
        ids=header.ids,
        lost=_sum(*_losses(process)),
        faults=journal.faults,
        level=journal.level,
        level_reason=journal.level_reason,
        muted=journal.muted,
        own_s=None if journal.own_ns is None else journal.own_ns / 1e9,
        probe=header.probe,
        silent_s=None if silent is None else max(0.0, silent / 1e9),
        role=_class(journal.role),
        devices=devices_of(process, devices),
        given=journal.given,
        devices_how="" if journal.used is None else journal.used.how,
        corrected_s=clock.corrected_ns.get(header.clock, 0) / 1e9,
    )


def _open_spans(index: int, process: Recorded, clock: RunClock, machine: Machine) -> list[OpenSpan]:
    """Spans that had not ended: of the table, and finer ones that were journaled as open."""
    until_ns = machine.now_ns() if process.state == "running" else process.heartbeat_ns
    journal, table = process.journal, process.table
    slots = [
        Slot(span, parent, start_ns, None, None, name, "")
        for span, (name, start_ns, parent) in journal.opened.items()
    ]
    slots += () if table is None else table.slots
    spans = {
        slot.span: OpenSpan(
            process=index,
            id=slot.span,
            parent=slot.parent,
            name=slot.name,
            detail=slot.detail,
            step=slot.step,
            start_ns=clock.at(process, slot.start_ns),
            age_s=max(0, until_ns - slot.start_ns) / 1e9,
            thread=slot.thread,
        )
        for slot in slots
        if slot.span in journal.opened or slot.span not in journal.finished
    }
    return sorted(spans.values(), key=lambda span: (span.start_ns, span.id))


def _fine_totals(processes: Sequence[Recorded]) -> dict[str, tuple[int, float]]:
    """Count and summed duration, s, of the spans that are not kept, by name."""
    counts, durations_ns = Counter[str](), Counter[str]()
    for process in processes:
        for name, (count, duration_ns) in process.journal.totals.items():
            counts[name] += count
            durations_ns[name] += duration_ns
    return {name: (counts[name], durations_ns[name] / 1e9) for name in sorted(counts)}


def _losses(process: Recorded) -> tuple[dict[str, int], ...]:
    """Rows known to be missing, by reason.

    Some are known from the open-span table alone: the disk was full to the end.
    """
    reported, table = process.journal.reported, process.table
    more = 0 if table is None else table.lost - sum(reported.values())
    return reported, process.journal.skipped, {"unreported": max(0, more)}


def _sum(*counts: dict[str, int]) -> dict[str, int]:
    total = Counter[str]()
    for by_reason in counts:
        total.update(by_reason)
    return {reason: count for reason, count in sorted(total.items()) if count}


def _unreached(processes: Sequence[Recorded]) -> dict[str, int]:
    """Actors that were asked for and recorded nothing, by class."""
    recorded = {process.journal.actor for process in processes}
    started = dict[str, str]()
    for process in processes:
        started.update(process.journal.started)
    missing = Counter(_class(role) for actor, role in started.items() if actor not in recorded)
    return dict(sorted(missing.items()))


def _class(role: str) -> str:
    """Name of a class without what it was made in."""
    return role.rpartition(".")[2]
