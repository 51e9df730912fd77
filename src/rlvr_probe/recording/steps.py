"""Puts spans and batches of one attempt under the trainer steps they belong to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlvr_probe.model import names
from rlvr_probe.model.trace import Rpc, Span, Step
from rlvr_probe.recording.batches import Beside, Member, ancestors, join_batches
from rlvr_probe.recording.clock import RunClock
from rlvr_probe.recording.coarse_rows import RpcRow, SpanRow
from rlvr_probe.recording.fine.join import Part
from rlvr_probe.recording.rpcs import join_rpcs

__all__ = ["build_steps"]

_GENERATING = (names.EXPERIENCE.name, names.ROLLOUT.name)

_OF_A_STEP = frozenset((names.STEP.name, names.EXPERIENCE.name, *names.STAGES))

_Place = tuple[int, int, int]
"""Session, life and step."""


@dataclass(slots=True)
class _Call:
    """A joined call, while its spans come in."""

    key: tuple[str, str, int]
    place: _Place | None = None
    sides: list[tuple[int | None, Span]] = field(default_factory=list)

    def rpc(self) -> Rpc:
        """The call."""
        [caller] = (span for rank, span in self.sides if rank is None)
        ranks = {rank: span for rank, span in self.sides if rank is not None}
        return Rpc(*self.key, caller, tuple(ranks[rank] for rank in sorted(ranks)))


def build_steps(
    attempt: int,
    members: Sequence[Member],
    clock: RunClock,
    skipped: Counter[str],
    loose: Counter[str],
    beside: Beside,
    events: list[Part],
) -> tuple[list[Step], list[Span], list[Span], list[Rpc]]:
    """Steps of one attempt by session, life and number, its user spans, and what has no step.

    That is spans, and joined calls of worker groups whose spans are among them.

    Step 0 holds what happened before the first step, for example an evaluation. The rows of spans
    are taken out of the journals.

    Args:
        attempt: Its index.
        members: Its processes.
        clock: Clock of the run.
        skipped: Gets the rows that could not be used, by reason.
        loose: Gets what belongs to no step without being lost, by what it is.
        beside: Gets what engines did beside the batches of its steps.
        events: Gets the recorded events of batches, one part each.
    """
    steps = dict[_Place, Step]()
    sizes = dict[int, int]()

    def step_at(place: _Place) -> Step:
        if place not in steps:
            session, life, number = place
            if session not in sizes:
                sizes[session] = _ranks(members, session)
            steps[place] = Step(attempt, session, number, [], [], [], 0, sizes[session], life=life)
        return steps[place]

    joined_batches = join_batches(attempt, members, clock, skipped, beside, events)
    for (session, life), batches in joined_batches.items():
        for batch in batches:
            step = step_at((session, life, batch.step))
            (step.evaluations if batch.mode == "eval" else step.batches).append(batch)
    user, unplaced = list[Span](), list[Span]()
    joined = join_rpcs(members, clock)
    calls = [_Call(key) for key, _ in joined.calls]
    done = dict[_Place, set[int]]()
    # Callers first: a call belongs to the step of who made it.
    for member in sorted(members, key=lambda member: not _calls(member)):
        places = _places(member)
        numbers = joined.number.get(member.index, {})
        rows = member.recorded.journal.spans
        for where, count in _lost_batches(member, places).items():
            seen = step_at(where)
            seen.lost_batches = max(seen.lost_batches, count)
        # Each row goes as its span comes: a long run has no room for both.
        rows.reverse()
        places.reverse()
        while rows:
            row, place = rows.pop(), places.pop()
            span = Span(
                process=member.index,
                id=row.id,
                parent=row.parent,
                name=row.name,
                start_ns=clock.at(member.recorded, row.start_ns),
                end_ns=clock.at(member.recorded, row.end_ns),
                error=row.error,
                attributes=row.attributes,
            )
            if isinstance(row, RpcRow) and row.id in numbers:
                call = calls[numbers[row.id]]
                call.sides.append((row.rank, span))
                if row.rank is None:
                    call.place = place
                place = call.place
            if row.name == names.USER.name:
                user.append(span)
            elif place is None:
                unplaced.append(span)
            else:
                step_at(place).spans.append(span)
                if row.name == names.STEP.name and row.error is None:
                    rank = -1 - member.index if member.rank is None else member.rank
                    done.setdefault(place, set()).add(rank)
        for place, inside in _open_steps(member):
            step = step_at(place)
            step.open = step.open or inside
    apart = list[Rpc]()
    for call in calls:
        (apart if call.place is None else step_at(call.place).rpcs).append(call.rpc())
    apart.sort(key=lambda rpc: rpc.caller.start_ns)
    loose["rpcs"] += joined.unjoined
    for place, step in steps.items():
        step.rpcs.sort(key=lambda rpc: rpc.caller.start_ns)
        # Outer spans first where two start together.
        step.spans.sort(key=lambda span: (span.start_ns, -span.end_ns))
        step.ranks_done = len(done.get(place, ()))
    return [steps[place] for place in sorted(steps)], user, unplaced, apart


def _calls(member: Member) -> bool:
    """Whether it called a worker group."""
    return any(
        isinstance(row, RpcRow) and row.rank is None for row in member.recorded.journal.spans
    )


def _ranks(members: Sequence[Member], session: int) -> int:
    known = [member.recorded.world_size(session) for member in members if member.recorded.trained]
    sizes = [size for size in known if size is not None and size > 0]
    return max(sizes) if sizes else sum(member.recorded.trained for member in members)


def _open_steps(member: Member) -> list[tuple[_Place, bool]]:
    """Steps of which anything is open, and whether that is the step itself.

    They are known from the open-span table only: a kill may leave nothing else.
    """
    journal, table = member.recorded.journal, member.recorded.table
    if table is None or not journal.sessions:
        return []
    last = journal.sessions[-1]
    session = last.facts.get("session", 0)
    if type(session) is not int:
        return []
    life = member.recorded.life_at(session, last.time_ns)
    return [
        ((session, life, slot.step), slot.name == names.STEP.name)
        for slot in table.slots
        if slot.name in _OF_A_STEP and slot.step and slot.span not in journal.finished
    ]


def _lost_batches(member: Member, places: Sequence[_Place | None]) -> Counter[_Place]:
    """Generations that a process recorded spans of and no lengths, by step.

    One that ended by an error gave no lengths. A process without any leaves them to others.
    """
    journal = member.recorded.journal
    with_lengths = {row.batch for row in journal.trajectories if row.batch}
    if not with_lengths:
        return Counter()
    by_id = {span.id: span for span in journal.spans}
    around = {
        above.id for key in with_lengths & by_id.keys() for above in ancestors(by_id[key], by_id)
    }
    lost = dict[int, _Place]()
    for span, place in zip(journal.spans, places, strict=True):
        if place is None or span.error is not None or span.name not in _GENERATING:
            continue
        chain = (span, *ancestors(span, by_id))
        if any(
            outer.name == names.EVAL.name or outer.attributes.get("mode") == "eval"
            for outer in chain
        ):
            continue
        keys = {key for outer in chain for key in (outer.id, outer.parent)}
        batch = span.attributes.get("batch")
        if type(batch) is int:
            keys.add(batch)
        if span.id not in around and with_lengths.isdisjoint(keys):
            lost[span.id] = place
    return Counter(
        place
        for number, place in lost.items()
        if not any(above.id in lost for above in ancestors(by_id[number], by_id))
    )


def _places(member: Member) -> list[_Place | None]:
    """Session and step of every span of a process: its own, else those of what is around."""
    journal = member.recorded.journal
    by_id = {span.id: span for span in journal.spans}
    by_batch = {
        row.batch: (row.session, row.step)
        for row in journal.trajectories
        if row.batch and row.step >= 0
    }
    sessions = {row.facts.get("session", 0) for row in journal.sessions}
    only = sessions.pop() if len(sessions) == 1 else 0
    default = only if type(only) is int else 0

    def place_of(span: SpanRow) -> _Place | None:
        found = around(span)
        if found is None:
            return None
        # Its end: the first spans of a session may start before its row.
        return (found[0], member.recorded.life_at(found[0], span.end_ns), found[1])

    def around(span: SpanRow) -> tuple[int, int] | None:
        session: object = None
        for above in (span, *ancestors(span, by_id)):
            session = above.attributes.get("session") if session is None else session
            step = above.attributes.get("step")
            if type(step) is int and step >= 0:
                return (session if type(session) is int and session >= 0 else default, step)
            for key in (above.attributes.get("batch"), above.id, above.parent):
                if type(key) is int and key in by_batch:
                    return by_batch[key]
        return None

    known = dict[_Place | None, _Place | None]()
    return [known.setdefault(place, place) for place in map(place_of, journal.spans)]
