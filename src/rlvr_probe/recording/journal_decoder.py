"""Rows of one process's journal, decoded and checked; whatever is unsound is counted, not guessed.

Times leave here as CLOCK_MONOTONIC of the machine the process ran on, ns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from msgspec.structs import astuple

from rlvr_probe.model import names
from rlvr_probe.recording.checks import BadRow, checked_hex, checked_id, checked_text, name_list
from rlvr_probe.recording.decode import RowDecoder, attributes_of
from rlvr_probe.recording.devicerows import DEVICE_EVENTS, used
from rlvr_probe.recording.fine.rows import FineRows, Sink
from rlvr_probe.recording.generated import rewards, trajectories
from rlvr_probe.recording.journal import Journal
from rlvr_probe.recording.rows import (
    RpcRow,
    SessionRow,
    SpanRow,
    belongs_nowhere,
    rpc,
    selected,
    trained,
)
from rlvr_probe.recording.types import FINE, Definition

__all__ = ["JournalDecoder"]

_KEPT: Final = frozenset(
    {
        *names.STAGES,
        names.STEP.name,
        names.EXPERIENCE.name,
        names.REWARD_FN.name,
        names.OPTIMIZER_STEP.name,
        names.USER.name,
        names.RPC.name,
    }
)
"""Spans kept one by one. Finer ones (turns, tool calls) can be a million: they are columns."""

_TIME_MAX: Final = 1 << 62
_POOL: Final = 4_096


class JournalDecoder(RowDecoder):
    """Decodes the rows of one process into a :class:`Journal`; definitions outlive segments."""

    def __init__(
        self,
        mono_ns: int,
        watched: frozenset[int] = frozenset(),
        sink: Sink | None = None,
        process: int = 0,
    ) -> None:
        """Start with no definitions.

        Args:
            mono_ns: Time 0 of its rows, CLOCK_MONOTONIC.
            watched: Span ids of the open-span table: whether they finish is noted.
            sink: Gets the fine rows; without one they are only checked and counted.
            process: Number of the process there.
        """
        super().__init__()
        self.journal = Journal()
        self._watched = watched
        self._fine = FineRows(self.journal, mono_ns, watched, sink, process)
        self._last: dict[tuple[str, ...], dict[str, Any]] = {}
        self._pool: dict[tuple[object, ...], Mapping[str, object]] = {}
        self._mono_ns = mono_ns
        self._service: dict[str, Callable[[list[Any]], object]] = {
            "def": self.define,
            "open": self._open,
            "lost": self._lost,
            "fault": self._fault,
            "level": self._level,
            "muted": self._mute,
            "own": self._own,
            "end": self._end,
        }

    def rows(self, lines: bytes) -> None:
        """Decode whole lines; count those that are unsound."""
        super().rows(lines)
        self._fine.flush()

    def finish(self) -> Journal:
        """What there was, once all lines are decoded."""
        self._fine.flush(1)
        return self.journal

    def taker(self, known: Definition) -> Callable[[Any], object]:
        """Fine rows wait until they are columns, all others are taken one by one."""
        if not known.event and known.name in FINE:
            return self._fine.waiting(known).append
        return self.guarded(self._event if known.event else self._span, known)

    def service(self, row: list[Any]) -> None:
        """Take a definition, a span that is open, or what the process tells of its recording."""
        self._service[row[0]](row)

    def refuse(self, reason: str) -> None:
        """Count a line that cannot be used."""
        self.journal.skipped[reason] += 1

    def _span(self, definition: Definition, row: Any) -> None:
        start, duration, span, parent, error, *values = astuple(row)
        start_ns = self._mono_ns + start
        end_ns = start_ns + duration
        if end_ns >= 2 * _TIME_MAX:  # a column of times holds no such number
            raise BadRow("duration")
        attributes = attributes_of(definition, values)
        journal = self.journal
        journal.last_ns = max(journal.last_ns, end_ns)
        if journal.opened:
            journal.opened.pop(span, None)
        if span in self._watched:
            journal.finished.add(span)
        if definition.name == names.RPC.name:
            journal.spans.append(self._same(rpc(start_ns, end_ns, span, parent, error, attributes)))
        elif definition.name in _KEPT and not belongs_nowhere(definition.name, parent, attributes):
            journal.spans.append(
                SpanRow(
                    definition.name, start_ns, end_ns, span, parent, error, self._shared(attributes)
                )
            )
        else:
            if definition.name == names.REWARD_FN.name:
                journal.elsewhere.add(start_ns, duration, error, attributes)
            count, total = journal.totals.get(definition.name, (0, 0))
            journal.totals[definition.name] = (count + 1, total + duration)

    def _same(self, row: RpcRow) -> RpcRow:
        """``row`` with the one dict of all calls that say the same: they alternate in a step."""
        given = row.attributes
        key = tuple((name, type(value), value) for name, value in given.items())
        if len(self._pool) >= _POOL:
            self._pool.clear()
        return replace(row, attributes=self._pool.setdefault(key, given))

    def _event(self, definition: Definition, row: Any) -> None:
        time, parent, *given = astuple(row)
        time_ns = self._mono_ns + time
        values = attributes_of(definition, given)
        journal = self.journal
        if definition.name in DEVICE_EVENTS:
            journal.devices.event(definition.name, time_ns, values)
        elif definition.name == names.TRAJECTORIES.name:
            found = trajectories(time_ns, parent, values, self._fine.keys)
            (journal.trajectories if found.queue_group is None else journal.queued).append(found)
        elif definition.name == names.TRAINED.name:
            journal.taken.append(trained(time_ns, values))
        elif definition.name == names.REWARDS.name:
            journal.rewards.append(rewards(parent, values))
        elif definition.name == names.SELECTED.name:
            chosen = selected(time_ns, values)
            (journal.selected if chosen.batch is None else journal.sifted).append(chosen)
        elif definition.name == names.PROCESS.name:
            role, actor = values.get("role", ""), values.get("actor", "")
            if not journal.role:
                # The first: a process may make the class of another actor later.
                journal.role, journal.actor = checked_text(role), checked_text(actor)
                journal.given = tuple(name_list(values.get("accelerators")) or ())
            journal.model_type = checked_text(values.get("model_type", journal.model_type))
            every_s = values.get("spool_s")
            if isinstance(every_s, float) and 0 < every_s < 1e6:
                journal.spool_s = every_s
        elif definition.name == names.STARTED.name:
            journal.started[checked_text(values["actor"])] = checked_text(values.get("role", ""))
        elif definition.name == names.LEFT.name:
            since_s = values.get("since_s", 0)
            if not isinstance(since_s, (int, float)) or not 0 <= since_s < 60:
                raise BadRow("since_s")
            journal.left_ns = time_ns - round(since_s * 1e9)
        elif definition.name == names.DEVICES_USED.name:
            journal.used = used(values)
        elif definition.name == names.SESSION.name:
            journal.sessions.append(SessionRow(time_ns, values))
            journal.over_ns = 0
        elif definition.name == names.APPLICATION_SPAN.name:
            ids = checked_hex(values["trace"], 32), checked_hex(values["span"], 16)
            journal.applications[checked_id(parent)] = ids
        elif definition.name == names.SESSION_END.name:
            journal.returned = True
            journal.over_ns = time_ns
        journal.last_ns = max(journal.last_ns, time_ns)

    def _shared(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """The one dict of all spans in a row that say the same: most of a step's do."""
        last = self._last.setdefault(tuple(attributes), attributes)
        # True and 1.0 equal 1.
        if last == attributes and list(map(type, last.values())) == list(
            map(type, attributes.values())
        ):
            return last
        self._last[tuple(attributes)] = attributes
        return attributes

    def _time(self, value: object) -> int:
        # A span may have begun before the journal did.
        if type(value) is not int or not -_TIME_MAX < value < _TIME_MAX:
            raise BadRow("time")
        return self._mono_ns + value

    def _open(self, row: list[Any]) -> None:
        _, number, start, span, parent = row
        start_ns = self._time(start)
        checked_id(parent, 0)
        known = self.definitions.get(number) if type(number) is int else None
        if known is None:
            self.journal.skipped["unknown_definition"] += 1
            return
        # Only a damaged file has two rows of a span: then the later begin, whatever their order.
        told = start_ns, known.name, parent
        name, before_ns, above = self.journal.opened.get(checked_id(span), ("", start_ns, -1))
        start_ns, name, parent = max(told, (before_ns, name, above))
        self.journal.opened[span] = (name, start_ns, parent)
        self.journal.last_ns = max(self.journal.last_ns, start_ns)

    def _lost(self, row: list[Any]) -> None:
        _, time, reason, total = row
        self._seen(time)
        self.journal.reported[checked_text(reason)] = checked_id(total, 0)

    def _fault(self, row: list[Any]) -> None:
        _, time, place, error, total = row
        self._seen(time)
        self.journal.faults[f"{checked_text(place)}: {checked_text(error)}"] = checked_id(total, 0)

    def _level(self, row: list[Any]) -> None:
        _, time, level, reason = row
        self._seen(time)
        self.journal.level, self.journal.level_reason = checked_text(level), checked_text(reason)

    def _mute(self, row: list[Any]) -> None:
        _, time, place, reason = row
        self._seen(time)
        self.journal.muted[checked_text(place)] = checked_text(reason)

    def _own(self, row: list[Any]) -> None:
        _, time, total = row
        self._seen(time)
        self.journal.own_ns = checked_id(total, 0)

    def _end(self, row: list[Any]) -> None:
        self._seen(row[1])
        self.journal.ended = True

    def _seen(self, time: object) -> None:
        self.journal.last_ns = max(self.journal.last_ns, self._time(time))
