"""Rows of one process's journal, decoded and checked; whatever is unsound is counted, not guessed.

Times leave here as CLOCK_MONOTONIC of the machine the process ran on, ns.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from rlvr_probe.model import names
from rlvr_probe.model.schema import Column

__all__ = ["Journal", "RewardRow", "RowDecoder", "SessionRow", "SpanRow", "TrajectoryRow"]

_KEPT: Final = frozenset(
    {
        *names.STAGES,
        names.STEP.name,
        names.EXPERIENCE.name,
        names.REWARD_FN.name,
        names.OPTIMIZER_STEP.name,
        names.USER.name,
    }
)
"""Spans kept one by one. Finer ones (turns, tool calls) can be a million: they are summed."""

_TIME_MAX: Final = 1 << 62


class _BadRow(ValueError):
    """A row that is JSON, but not a row of the schema."""


@dataclass(frozen=True, slots=True)
class SpanRow:
    """A finished span that is kept."""

    name: str
    start_ns: int
    end_ns: int
    id: int
    parent: int
    error: str | None
    attributes: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A ``session`` event."""

    time_ns: int
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class TrajectoryRow:
    """A ``trajectories`` event: columns of equal length."""

    time_ns: int
    parent: int
    session: int
    step: int
    mode: str
    batch: int
    ordinal: int
    policy_version: int | None
    offset: int
    total: int
    group_size: int
    prompt_tokens: Sequence[int]
    response_tokens: Sequence[int]
    truncated: Sequence[int] | None


@dataclass(frozen=True, slots=True)
class RewardRow:
    """A ``rewards`` event: columns of equal length."""

    batch: int
    function: str
    index: int
    values: Sequence[float | None]
    verify_s: Sequence[float | None] | None


@dataclass(slots=True)
class Journal:
    """What one process recorded.

    Attributes:
        opened: Spans journaled as open and not finished since: id to (name, start, parent).
        totals: Count and summed duration, ns, of the spans that are not kept, by name.
        reported: Rows the process itself dropped, by reason: running totals, the last one counts.
        skipped: Rows this reader could not use, by reason.
        finished: Ids among the watched ones whose span has finished.
        ended: The journal was closed in an orderly way.
        returned: A training returned by itself.
        last_ns: Time of the last row; 0 if there was none.
    """

    spans: list[SpanRow] = field(default_factory=list)
    sessions: list[SessionRow] = field(default_factory=list)
    trajectories: list[TrajectoryRow] = field(default_factory=list)
    rewards: list[RewardRow] = field(default_factory=list)
    opened: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    faults: dict[str, int] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    level: str = "full"
    own_ns: int | None = None
    ended: bool = False
    returned: bool = False
    last_ns: int = 0


@dataclass(frozen=True, slots=True)
class _Definition:
    name: str
    attributes: tuple[str, ...]
    event: bool
    kept: bool


class RowDecoder:
    """Decodes the rows of one process into a :class:`Journal`; definitions outlive segments."""

    def __init__(self, mono_ns: int, watched: frozenset[int] = frozenset()) -> None:
        """Start with no definitions.

        Args:
            mono_ns: Time 0 of its rows, CLOCK_MONOTONIC.
            watched: Span ids of the open-span table: whether they finish is noted.
        """
        self.journal = Journal()
        self._watched = watched
        self._decode = msgspec.json.Decoder().decode
        self._definitions: dict[int, _Definition] = {}
        self._mono_ns = mono_ns
        self._service: dict[str, Callable[[list[Any]], None]] = {
            "def": self._define,
            "open": self._open,
            "lost": self._lost,
            "fault": self._fault,
            "level": self._level,
            "own": self._own,
            "end": self._end,
        }

    def line(self, line: bytes) -> None:
        """Decode one line; count it if it is unsound."""
        try:
            row = self._decode(line)
        except (ValueError, RecursionError):
            self.journal.skipped["bad_line"] += 1
            return
        if type(row) is not list or not row:
            self.journal.skipped["bad_line"] += 1
            return
        try:
            self._row(row)
        except (ValueError, TypeError, LookupError, OverflowError):
            self.journal.skipped["bad_row"] += 1

    def _row(self, row: list[Any]) -> None:
        tag = row[0]
        if type(tag) is str:
            service = self._service.get(tag)
            if service is None:
                raise _BadRow(tag)
            service(row)
            return
        definition = self._definitions.get(tag) if type(tag) is int else None
        if definition is None:
            self.journal.skipped["unknown_definition"] += 1
        elif definition.event:
            self._event(definition, row)
        else:
            self._span(definition, row)

    def _span(self, definition: _Definition, row: list[Any]) -> None:
        start, duration, span, parent, error = row[Column.START : Column.SPAN_ATTRIBUTES]
        start_ns = self._time(start)
        if type(duration) is not int or not 0 <= duration < _TIME_MAX:
            raise _BadRow("duration")
        _id(span)
        _id(parent, 0)
        if error is not None and type(error) is not str:
            raise _BadRow("error")
        attributes = _attributes(definition, row, Column.SPAN_ATTRIBUTES)
        journal = self.journal
        end_ns = start_ns + duration
        journal.last_ns = max(journal.last_ns, end_ns)
        if journal.opened:
            journal.opened.pop(span, None)
        if span in self._watched:
            journal.finished.add(span)
        if definition.kept:
            journal.spans.append(
                SpanRow(definition.name, start_ns, end_ns, span, parent, error, attributes)
            )
        else:
            count, total = journal.totals.get(definition.name, (0, 0))
            journal.totals[definition.name] = (count + 1, total + duration)

    def _event(self, definition: _Definition, row: list[Any]) -> None:
        time_ns = self._time(row[1])
        parent = _id(row[Column.EVENT_PARENT], 0)
        values = _attributes(definition, row, Column.EVENT_ATTRIBUTES)
        journal = self.journal
        if definition.name == names.TRAJECTORIES.name:
            journal.trajectories.append(_trajectories(time_ns, parent, values))
        elif definition.name == names.REWARDS.name:
            journal.rewards.append(_rewards(parent, values))
        elif definition.name == names.SESSION.name:
            journal.sessions.append(SessionRow(time_ns, values))
        elif definition.name == names.SESSION_END.name:
            journal.returned = True
        journal.last_ns = max(journal.last_ns, time_ns)

    def _time(self, value: object) -> int:
        # A span may have begun before the journal did.
        if type(value) is not int or not -_TIME_MAX < value < _TIME_MAX:
            raise _BadRow("time")
        return self._mono_ns + value

    def _define(self, row: list[Any]) -> None:
        _, number, kind, name, attributes = row
        _id(number, 0)
        if kind not in ("span", "event") or type(name) is not str or type(attributes) is not list:
            raise _BadRow("def")
        if not all(type(attribute) is str for attribute in attributes):
            raise _BadRow("def")
        self._definitions[number] = _Definition(
            name, tuple(attributes), kind == "event", name in _KEPT
        )

    def _open(self, row: list[Any]) -> None:
        _, number, start, span, parent = row
        start_ns = self._time(start)
        _id(parent, 0)
        definition = self._definitions.get(number) if type(number) is int else None
        if definition is None:
            self.journal.skipped["unknown_definition"] += 1
            return
        self.journal.opened[_id(span)] = (definition.name, start_ns, parent)
        self.journal.last_ns = max(self.journal.last_ns, start_ns)

    def _lost(self, row: list[Any]) -> None:
        _, time, reason, total = row
        self._seen(time)
        self.journal.reported[_text(reason)] = _id(total, 0)

    def _fault(self, row: list[Any]) -> None:
        _, time, place, error, total = row
        self._seen(time)
        self.journal.faults[f"{_text(place)}: {_text(error)}"] = _id(total, 0)

    def _level(self, row: list[Any]) -> None:
        self._seen(row[1])
        self.journal.level = _text(row[2])

    def _own(self, row: list[Any]) -> None:
        _, time, total = row
        self._seen(time)
        self.journal.own_ns = _id(total, 0)

    def _end(self, row: list[Any]) -> None:
        self._seen(row[1])
        self.journal.ended = True

    def _seen(self, time: object) -> None:
        self.journal.last_ns = max(self.journal.last_ns, self._time(time))


def _attributes(definition: _Definition, row: list[Any], begin: int) -> dict[str, Any]:
    """Attributes that are known, by name; a hook whose reading failed gives none at all."""
    values = row[begin:]
    if values and len(values) != len(definition.attributes):
        raise _BadRow("attributes")
    return {
        name: value
        for name, value in zip(definition.attributes, values, strict=False)
        if value is not None
    }


def _trajectories(time_ns: int, parent: int, values: dict[str, Any]) -> TrajectoryRow:
    prompt_tokens = array("I", values["prompt_tokens"])
    response_tokens = array("I", values["response_tokens"])
    truncated = values.get("truncated")
    mode = values.get("mode", "train")
    offset, total = _id(values["offset"], 0), _id(values["total"])
    if mode not in names.MODES or len(prompt_tokens) != len(response_tokens):
        raise _BadRow("columns")
    if not response_tokens or offset + len(response_tokens) > total:
        raise _BadRow("rows")
    if truncated is not None:
        # bytes(5) would be five zeros.
        if type(truncated) is not list or len(truncated) != len(response_tokens):
            raise _BadRow("columns")
        truncated = bytes(truncated)
    return TrajectoryRow(
        time_ns=time_ns,
        parent=parent,
        session=_id(values.get("session", 0), 0),
        step=_id(values["step"], 0),
        mode=mode,
        batch=_id(values.get("batch", parent), 0),
        ordinal=_id(values.get("ordinal", 0), 0),
        policy_version=_id(values["policy_version"], 0) if "policy_version" in values else None,
        offset=offset,
        total=total,
        group_size=_id(values["group_size"]),
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
        truncated=truncated,
    )


def _rewards(parent: int, values: dict[str, Any]) -> RewardRow:
    verify_s = values.get("verify_s")
    column = _numbers(values["values"])
    times = None if verify_s is None else _numbers(verify_s)
    if times is not None and len(times) != len(column):
        raise _BadRow("columns")
    return RewardRow(
        batch=_id(values.get("batch", parent), 0),
        function=_text(values["function"]),
        index=_id(values.get("index", 0), 0),
        values=column,
        verify_s=times,
    )


def _numbers(values: object) -> Sequence[float | None]:
    if type(values) is not list:
        raise _BadRow("column")
    if None in values:
        for value in values:
            if value is not None and type(value) not in (int, float):
                raise _BadRow("column")
        return tuple(values)
    return array("d", values)


def _id(value: object, least: int = 1) -> int:
    if type(value) is not int or not least <= value < _TIME_MAX:
        raise _BadRow("number")
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise _BadRow("text")
    return value
