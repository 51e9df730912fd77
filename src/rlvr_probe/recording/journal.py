"""What one process recorded, decoded and checked; whatever is unsound is counted, not guessed.

Times are CLOCK_MONOTONIC of the machine the process ran on, ns. Rows of single trajectories are
kept elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import convert
from msgspec.structs import astuple

from rlvr_probe.model import names
from rlvr_probe.model.turns import LooseCallColumns
from rlvr_probe.recording import coarse_rows
from rlvr_probe.recording.decode import (
    FINE,
    Definition,
    Id,
    Number,
    RowDecoder,
    Time,
    attributes_of,
)
from rlvr_probe.recording.device_readings import READINGS, ReadingRows
from rlvr_probe.recording.devices import DEVICE_EVENTS, DeviceRows
from rlvr_probe.recording.fine.rows import FineRows, Sink

__all__ = ["Journal", "JournalDecoder"]

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
"""Different attributes of spans that are remembered: most spans of a step have the same."""
_SERVICE: Final[Mapping[str, Any]] = {
    "lost": tuple[Time, str, Number],
    "fault": tuple[Time, str, str, Number],
    "level": tuple[Time, str, str],
    "muted": tuple[Time, str, str],
    "own": tuple[Time, Number],
    "end": tuple[Time],
}
"""What rows about the recording itself hold, by their first text."""


@dataclass(slots=True)
class Journal:
    """What one process recorded.

    Attributes:
        queued: Trajectories for a trainer to take from a queue; their step is not known here.
        taken: What a trainer took from one.
        selected: Which prompts a trainer kept.
        sifted: The same, of trajectories for a queue.
        whole_calls: Engine calls that do not tell apart their trajectories.
        applications: Trace and span id of the application's own span around one of ours, by its id.
        devices: What it read of devices, as the sidecar of its node.
        used: Devices that it works on, as it recorded them.
        role: What it is to its job; empty if never recorded. ``actor`` is its id as one.
        model_type: Architecture of the model that it trains for another process; empty if
            unknown.
        given: Kind and number of each accelerator that its cluster gave it on its machine.
        started: Actors that it asked for: id to class.
        left_ns: When it started to leave its job, which ended the others; 0 if not recorded.
        opened: Spans journaled as open and not finished since: id to (name, start, parent).
        totals: Count and summed duration, ns, of the spans that are not kept, by name.
        unattributed_rewards: Of these, calls of reward functions that belong to no batch of the
            process, by function: calls, sums of their starts and durations, ns, and how many
            raised. Nothing says for whom they were, and there can be a million.
        reported: Rows the process itself dropped, by reason: running totals, the last one counts.
        skipped: Rows this reader could not use, by reason.
        finished: Ids among the watched ones whose span has finished.
        ended: The journal was closed in an orderly way.
        returned: One of its training runs returned by itself.
        over_ns: When the last training run that started returned by itself; 0 if it did not.
        level_reason: Why the level is what it is, if it ever changed.
        muted: Places where nothing was read from some time on: place to reason.
        last_ns: Time of the last row; 0 if there was none.
    """

    spans: list[coarse_rows.SpanRow] = field(default_factory=list)
    sessions: list[coarse_rows.SessionRow] = field(default_factory=list)
    trajectories: list[coarse_rows.TrajectoryRow] = field(default_factory=list)
    rewards: list[coarse_rows.RewardRow] = field(default_factory=list)
    queued: list[coarse_rows.TrajectoryRow] = field(default_factory=list)
    taken: list[coarse_rows.TrainedRow] = field(default_factory=list)
    selected: list[coarse_rows.SelectedRow] = field(default_factory=list)
    sifted: list[coarse_rows.SelectedRow] = field(default_factory=list)
    whole_calls: LooseCallColumns = field(default_factory=LooseCallColumns)
    applications: dict[int, tuple[str, str]] = field(default_factory=dict)
    devices: DeviceRows = field(default_factory=DeviceRows)
    used: coarse_rows.UsedRow | None = None
    role: str = ""
    actor: str = ""
    spool_s: float | None = None
    model_type: str = ""
    given: tuple[str, ...] = ()
    started: dict[str, str] = field(default_factory=dict)
    left_ns: int = 0
    opened: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)
    unattributed_rewards: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    faults: dict[str, int] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    level: str = "full"
    level_reason: str = ""
    muted: dict[str, str] = field(default_factory=dict)
    own_ns: int | None = None
    ended: bool = False
    returned: bool = False
    over_ns: int = 0
    last_ns: int = 0

    def add_total(self, name: str, count: int, duration_ns: int) -> None:
        """Count spans that are not kept."""
        calls, total = self.totals.get(name, (0, 0))
        self.totals[name] = (calls + count, total + duration_ns)

    def renumber_keys(self, first: int) -> None:
        """Add ``first`` to the numbers under which the keys of batches were put away."""
        for row in (*self.trajectories, *self.queued):
            row.k = None if row.k is None else row.k + first

    def note_ends(self, spans: Set[int], watched: Set[int]) -> None:
        """Note that fine spans ended: they are not open, and ``watched`` ones are finished."""
        self.finished |= watched & spans
        for span in self.opened.keys() & spans:
            del self.opened[span]

    def add_unattributed_reward(
        self, start_ns: int, duration_ns: int, error: str | None, function: object
    ) -> None:
        """Count a call of a reward function that belongs to no batch of the process."""
        name = function if isinstance(function, str) else ""
        calls, starts, total, errors = self.unattributed_rewards.get(name, (0, 0, 0, 0))
        self.unattributed_rewards[name] = (
            calls + 1, starts + start_ns, total + duration_ns, errors + (error is not None),
        )  # fmt: skip


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
        self._readings = ReadingRows(self.journal.devices, mono_ns)
        self._pool: dict[tuple[object, ...], dict[str, Any]] = {}
        self._mono_ns = mono_ns

    def rows(self, lines: bytes) -> None:
        """Decode whole lines; count those that are unsound."""
        super().rows(lines)
        self._fine.flush()
        self._flush_readings(all_of_them=False)

    def note_columns(
        self,
        totals: Mapping[str, tuple[int, int]],
        last_ns: int | None,
        ended: Callable[[Collection[int]], Set[int]],
    ) -> None:
        """Note what fine rows say of the process that are columns already.

        Args:
            totals: Count and summed duration, ns, by name.
            last_ns: Latest end of one, since the header was written.
            ended: Says which of some spans are among them.
        """
        journal = self.journal
        for name, (count, duration_ns) in totals.items():
            journal.add_total(name, count, duration_ns)
        if last_ns is None:
            return
        journal.last_ns = max(journal.last_ns, self._mono_ns + last_ns)
        if asked := self._watched | journal.opened.keys():
            journal.note_ends(ended(asked), self._watched)

    def finish(self) -> Journal:
        """What there was, once all lines are decoded."""
        self._fine.flush(1)
        self._flush_readings(all_of_them=True)
        return self.journal

    def _flush_readings(self, *, all_of_them: bool) -> None:
        journal = self.journal
        refused, last_ns = self._readings.flush(all_of_them=all_of_them)
        journal.skipped["bad_row"] += refused
        journal.last_ns = max(journal.last_ns, last_ns)

    def taker(self, known: Definition) -> Callable[[Any], object]:
        """Fine rows and readings wait until they are columns; others are taken one by one."""
        if not known.event and known.name in FINE:
            return self._fine.waiting(known).append
        if known.event and known.name in READINGS:
            return self._readings.waiting(known)
        return self.guarded(self._event if known.event else self._span, known)

    def service(self, row: list[Any]) -> None:
        """Take a definition, a span that is open, or what the process says of its recording."""
        kind, *values = row
        if kind == "def":
            self.define(row)
            return
        if kind == "open":
            self._open(*convert(values, tuple[Any, Time, Id, Number]))
            return
        journal = self.journal
        time, *values = convert(values[:1] if kind == "end" else values, _SERVICE[kind])
        self._seen(time)
        if kind == "lost":
            journal.reported[values[0]] = values[1]
        elif kind == "fault":
            journal.faults[f"{values[0]}: {values[1]}"] = values[2]
        elif kind == "level":
            journal.level, journal.level_reason = values
        elif kind == "muted":
            journal.muted[values[0]] = values[1]
        elif kind == "own":
            journal.own_ns = values[0]
        else:
            journal.ended = True

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
            rpc = coarse_rows.rpc(start_ns, end_ns, span, parent, error, attributes, self._shared)
            journal.spans.append(rpc)
        elif definition.name in _KEPT and not _belongs_nowhere(definition.name, parent, attributes):
            journal.spans.append(
                coarse_rows.SpanRow(
                    definition.name, start_ns, end_ns, span, parent, error, self._shared(attributes)
                )
            )
        else:
            if definition.name == names.REWARD_FN.name:
                function = attributes.get("function")
                journal.add_unattributed_reward(start_ns, duration, error, function)
            journal.add_total(definition.name, 1, duration)

    def _shared(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """The one dict of all spans that say the same."""
        # True and 1.0 equal 1.
        key = tuple((name, type(value), value) for name, value in attributes.items())
        if len(self._pool) >= _POOL:
            self._pool.clear()
        try:
            return self._pool.setdefault(key, attributes)
        except TypeError:  # a list
            return attributes

    def _event(self, definition: Definition, row: Any) -> None:
        time, parent, *values = astuple(row)
        time_ns = self._mono_ns + time
        attributes = attributes_of(definition, values)
        journal = self.journal
        if definition.name in DEVICE_EVENTS:
            self._flush_readings(all_of_them=True)
            journal.devices.event(definition.name, time_ns, attributes)
        elif definition.name == names.TRAJECTORIES.name:
            row = coarse_rows.trajectories(time_ns, parent, attributes)
            if row.keys is not None:
                row.k, row.keys = self._fine.keys(row.keys), None
            (journal.trajectories if row.queue_group is None else journal.queued).append(row)
        elif definition.name == names.TRAINED.name:
            journal.taken.append(coarse_rows.trained(time_ns, attributes))
        elif definition.name == names.REWARDS.name:
            journal.rewards.append(coarse_rows.rewards(parent, attributes))
        elif definition.name == names.SELECTED.name:
            chosen = coarse_rows.selected(time_ns, attributes)
            (journal.selected if chosen.batch is None else journal.sifted).append(chosen)
        elif definition.name == names.PROCESS.name:
            self._process(convert(attributes, coarse_rows.ProcessRow))
        elif definition.name == names.STARTED.name:
            started = convert(attributes, coarse_rows.StartedRow)
            journal.started[started.actor] = started.role
        elif definition.name == names.LEFT.name:
            since_s = convert(attributes, coarse_rows.LeftRow).since_s
            journal.left_ns = time_ns - round(since_s * 1e9)
        elif definition.name == names.DEVICES_USED.name:
            journal.used = convert(attributes, coarse_rows.UsedRow)
        elif definition.name == names.SESSION.name:
            journal.sessions.append(coarse_rows.SessionRow(time_ns, attributes))
            journal.over_ns = 0
        elif definition.name == names.APPLICATION_SPAN.name:
            around = convert({**attributes, "parent": parent}, coarse_rows.ApplicationRow)
            journal.applications[around.parent] = around.trace, around.span
        elif definition.name == names.SESSION_END.name:
            journal.returned = True
            journal.over_ns = time_ns
        journal.last_ns = max(journal.last_ns, time_ns)

    def _process(self, row: coarse_rows.ProcessRow) -> None:
        journal = self.journal
        if not journal.role:
            # The first: a process may make the class of another actor later.
            journal.role, journal.actor = row.role, row.actor
            journal.given = tuple(row.accelerators)
        journal.model_type = journal.model_type if row.model_type is None else row.model_type
        if isinstance(row.spool_s, float) and 0 < row.spool_s < 1e6:
            journal.spool_s = row.spool_s

    def _open(self, number: Any, time: int, span: int, parent: int) -> None:
        start_ns = self._mono_ns + time
        known = self.definitions.get(number) if type(number) is int else None
        if known is None:
            self.refused["unknown_definition"] += 1
            return
        # Only a damaged file has two rows of a span: then the later start, whatever their order.
        name, before_ns, above = self.journal.opened.get(span, ("", start_ns, -1))
        start_ns, name, parent = max((start_ns, known.name, parent), (before_ns, name, above))
        self.journal.opened[span] = (name, start_ns, parent)
        self._seen(start_ns - self._mono_ns)

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
