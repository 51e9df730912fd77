"""Rows of one process's journal, decoded and checked; whatever is unsound is counted, not guessed.

Times leave here as CLOCK_MONOTONIC of the machine the process ran on, ns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from msgspec import convert
from msgspec.structs import astuple

from rlvr_probe.model import names
from rlvr_probe.recording import coarse
from rlvr_probe.recording.decode import RowDecoder, attributes_of
from rlvr_probe.recording.devicerows import DEVICE_EVENTS
from rlvr_probe.recording.fine.rows import FineRows, Sink
from rlvr_probe.recording.journal import Journal
from rlvr_probe.recording.types import FINE, Definition, Id, Number, Time

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
        self.refused = self.journal.skipped
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

    def _span(self, definition: Definition, row: Any) -> None:
        start, duration, span, parent, error, *values = astuple(row)
        start_ns = self._mono_ns + start
        end_ns = start_ns + duration
        if end_ns >= 2 * _TIME_MAX:  # a column of times holds no such number
            raise ValueError("duration")
        attributes = attributes_of(definition, values)
        journal = self.journal
        journal.last_ns = max(journal.last_ns, end_ns)
        if journal.opened:
            journal.opened.pop(span, None)
        if span in self._watched:
            journal.finished.add(span)
        if definition.name == names.RPC.name:
            journal.spans.append(
                self._same(coarse.rpc(start_ns, end_ns, span, parent, error, attributes))
            )
        elif definition.name in _KEPT and not _belongs_nowhere(definition.name, parent, attributes):
            journal.spans.append(
                coarse.SpanRow(
                    definition.name, start_ns, end_ns, span, parent, error, self._shared(attributes)
                )
            )
        else:
            if definition.name == names.REWARD_FN.name:
                journal.elsewhere.add(start_ns, duration, error, attributes)
            count, total = journal.totals.get(definition.name, (0, 0))
            journal.totals[definition.name] = (count + 1, total + duration)

    def _same(self, row: coarse.RpcRow) -> coarse.RpcRow:
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
            row = coarse.trajectories(time_ns, parent, values)
            if row.keys is not None:
                row.k, row.keys = self._fine.keys(row.keys), None
            (journal.trajectories if row.queue_group is None else journal.queued).append(row)
        elif definition.name == names.TRAINED.name:
            journal.taken.append(coarse.trained(time_ns, values))
        elif definition.name == names.REWARDS.name:
            journal.rewards.append(coarse.rewards(parent, values))
        elif definition.name == names.SELECTED.name:
            chosen = coarse.selected(time_ns, values)
            (journal.selected if chosen.batch is None else journal.sifted).append(chosen)
        elif definition.name == names.PROCESS.name:
            self._process(convert(values, coarse.ProcessRow))
        elif definition.name == names.STARTED.name:
            started = convert(values, coarse.StartedRow)
            journal.started[started.actor] = started.role
        elif definition.name == names.LEFT.name:
            since_s = convert(values, coarse.LeftRow).since_s
            journal.left_ns = time_ns - round(since_s * 1e9)
        elif definition.name == names.DEVICES_USED.name:
            journal.used = convert(values, coarse.UsedRow)
        elif definition.name == names.SESSION.name:
            journal.sessions.append(coarse.SessionRow(time_ns, values))
            journal.over_ns = 0
        elif definition.name == names.APPLICATION_SPAN.name:
            around = convert({**values, "parent": parent}, coarse.ApplicationRow)
            journal.applications[around.parent] = around.trace, around.span
        elif definition.name == names.SESSION_END.name:
            journal.returned = True
            journal.over_ns = time_ns
        journal.last_ns = max(journal.last_ns, time_ns)

    def _process(self, row: coarse.ProcessRow) -> None:
        journal = self.journal
        if not journal.role:
            # The first: a process may make the class of another actor later.
            journal.role, journal.actor = row.role, row.actor
            journal.given = tuple(row.accelerators)
        journal.model_type = journal.model_type if row.model_type is None else row.model_type
        if isinstance(row.spool_s, float) and 0 < row.spool_s < 1e6:
            journal.spool_s = row.spool_s

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

    def _open(self, row: list[Any]) -> None:
        _, number, time, span, parent = convert(row, tuple[str, Any, Time, Id, Number])
        start_ns = self._mono_ns + time
        known = self.definitions.get(number) if type(number) is int else None
        if known is None:
            self.refused["unknown_definition"] += 1
            return
        # Only a damaged file has two rows of a span: then the later begin, whatever their order.
        told = start_ns, known.name, parent
        name, before_ns, above = self.journal.opened.get(span, ("", start_ns, -1))
        start_ns, name, parent = max(told, (before_ns, name, above))
        self.journal.opened[span] = (name, start_ns, parent)
        self._seen(start_ns - self._mono_ns)

    def _lost(self, row: list[Any]) -> None:
        _, time, reason, total = convert(row, tuple[str, Time, str, Number])
        self._seen(time)
        self.journal.reported[reason] = total

    def _fault(self, row: list[Any]) -> None:
        _, time, place, error, total = convert(row, tuple[str, Time, str, str, Number])
        self._seen(time)
        self.journal.faults[f"{place}: {error}"] = total

    def _level(self, row: list[Any]) -> None:
        _, time, level, reason = convert(row, tuple[str, Time, str, str])
        self._seen(time)
        self.journal.level, self.journal.level_reason = level, reason

    def _mute(self, row: list[Any]) -> None:
        _, time, place, reason = convert(row, tuple[str, Time, str, str])
        self._seen(time)
        self.journal.muted[place] = reason

    def _own(self, row: list[Any]) -> None:
        _, time, total = convert(row, tuple[str, Time, Number])
        self._seen(time)
        self.journal.own_ns = total

    def _end(self, row: list[Any]) -> None:
        self._seen(convert(row[1], Time))
        self.journal.ended = True

    def _seen(self, time: int) -> None:
        self.journal.last_ns = max(self.journal.last_ns, self._mono_ns + time)


def _belongs_nowhere(name: str, parent: int, attributes: Mapping[str, Any]) -> bool:
    """Whether a call of a reward function belongs to no batch of its process.

    Where a process verifies for others, one by one, there can be a million.
    """
    return (
        name == names.REWARD_FN.name
        and not parent
        and "batch" not in attributes
        and "step" not in attributes
    )
