"""Fine rows of one process, made columns as they are decoded; whatever is unsound is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import chain, compress, count, pairwise, repeat
from operator import add, attrgetter, le
from typing import TYPE_CHECKING, Any, Final, Protocol

from rlvr_probe.model import names
from rlvr_probe.model.turns import LooseCall
from rlvr_probe.recording.decode import COUNT_MAX, Definition
from rlvr_probe.recording.schema import BY_NAME

if TYPE_CHECKING:
    from rlvr_probe.recording.journal import Journal

__all__ = ["Columns", "FineRows", "Sink"]

_TOGETHER: Final = 1_024
"""Rows that are made columns at a time."""

_INT64: Final = 1 << 63
_HEAD: Final = frozenset({"span", "parent", "start", "duration", "error"})
"""What every span has, by the names of columns."""

Columns = dict[str, "Sequence[Any] | None"]
"""Lists of equal length by name; None where nothing is known of any row."""


class Sink(Protocol):
    """Takes the columns of fine rows."""

    def add(self, table: str, process: int, values: Columns) -> None:
        """Take rows of one process."""
        ...

    def keys(self, keys: Sequence[str | None]) -> int:
        """Take the keys of the rows of a batch; the number by which they are found again."""
        ...


class _Rows:
    """Rows of one definition; a column of them is made once."""

    def __init__(self, definition: Definition, rows: Sequence[Any]) -> None:
        self.rows = rows
        self._definition = definition
        self._heads: dict[str, list[Any]] = {}
        self._columns: dict[str, list[Any] | None] = {}

    def where(self, keep: Sequence[object]) -> _Rows:
        """Those of which ``keep`` is true."""
        if all(keep):
            return self
        return _Rows(self._definition, list(compress(self.rows, keep)))

    def head(self, name: str) -> list[Any]:
        """What every span has."""
        if name not in self._heads:
            self._heads[name] = list(map(attrgetter(name), self.rows))
        return self._heads[name]

    def of(self, name: str) -> list[Any] | None:
        """The attribute ``name``; None where it is unknown of all."""
        if name not in self._columns:
            self._columns[name] = self._made(name)
        return self._columns[name]

    def _made(self, name: str) -> list[Any] | None:
        known = self._definition.attributes
        if name not in known or not self.rows:
            return None
        values = list(map(attrgetter(f"a{known.index(name)}"), self.rows))
        return None if values[0] is None and values.count(None) == len(values) else values

    def each(self, *names_of: str) -> Iterator[tuple[Any, ...]]:
        """Several attributes of one row after the other."""
        size = len(self.rows)
        return zip(*(self.of(name) or repeat(None, size) for name in names_of), strict=True)

    def batch(self) -> list[int]:
        """The batch of each: its parent, if it names none."""
        parents, told = self.head("parent"), self.of("batch")
        if told is None:
            return parents
        pairs = zip(told, parents, strict=True)
        return [parent if batch is None else batch for batch, parent in pairs]

    def columns(self, table: str) -> Columns:
        """What columns of ``table`` have the names of, as it is."""
        return {
            name: self.head(name) if name in _HEAD else self.of(name)
            for name in BY_NAME[table].names
        }


class FineRows:
    """Gathers the fine rows of a process, and notes in its journal what they say of itself."""

    def __init__(
        self, journal: Journal, mono_ns: int, watched: Set[int], sink: Sink | None, process: int
    ) -> None:
        """Gather rows.

        Args:
            journal: Of the process.
            mono_ns: Time 0 of its rows, CLOCK_MONOTONIC.
            watched: Spans of which to note whether they ended.
            sink: Gets the columns; without one they are only checked.
            process: Number of the process there.
        """
        self._journal = journal
        self._mono_ns = mono_ns
        self._watched = watched
        self._sink = sink
        self._process = process
        self._gathered: dict[Definition, list[Any]] = {}
        self._calls = count()
        self._takes: Mapping[str, Callable[[_Rows], Sequence[Any]]] = {
            names.TRAJECTORY.name: self._trajectories,
            names.TURN.name: self._turns,
            names.TOOL_CALL.name: self._tools,
            names.VERIFY.name: self._verifications,
            names.REQUEST.name: self._requests,
        }

    def waiting(self, definition: Definition) -> list[Any]:
        """Where rows of ``definition`` wait to be taken."""
        return self._gathered.setdefault(definition, [])

    def flush(self, least: int = _TOGETHER) -> None:
        """Make columns of the rows of each definition that has ``least`` or more."""
        for definition, waiting in self._gathered.items():
            if len(waiting) >= least:
                rows = waiting[:]
                waiting.clear()
                self._take(definition, rows)

    def keys(self, keys: Sequence[str | None]) -> int:
        """Number of the keys of a batch."""
        return -1 if self._sink is None else self._sink.keys(keys)

    def _take(self, definition: Definition, decoded: Sequence[Any]) -> None:
        journal = self._journal
        sound: Sequence[Any] = ()
        rows, ends = _Rows(definition, decoded), [0]
        if decoded:
            ends = list(map(add, rows.head("start"), rows.head("duration")))
            if self._mono_ns + max(ends) >= _INT64:  # a column of times holds no such number
                rows = rows.where([self._mono_ns + end < _INT64 for end in ends])
                ends = [end for end in ends if self._mono_ns + end < _INT64]
        if rows.rows:
            journal.last_ns = max(journal.last_ns, self._mono_ns + max(ends))
            self._note_ends(rows)
            sound = self._takes[definition.name](rows)
        journal.skipped["bad_row"] += len(decoded) - len(sound)
        if sound:
            whole = len(sound) == len(rows.rows)
            durations = rows.head("duration") if whole else map(attrgetter("duration"), sound)
            journal.add_total(definition.name, len(sound), sum(durations))

    def _note_ends(self, rows: _Rows) -> None:
        journal = self._journal
        if journal.opened or self._watched:
            journal.note_ends(set(rows.head("span")), self._watched)

    def _add(self, table: str, values: Columns) -> None:
        if self._sink is not None and values["start"]:
            self._sink.add(table, self._process, values)

    # What takes rows of a name gives those back that are sound.

    def _trajectories(self, rows: _Rows) -> Sequence[Any]:
        told = ("policy_version_min", "policy_version_max")
        versions = [rows.of(name) for name in told]
        if versions != [None, None] and not _are_ordered(*versions):
            rows = rows.where(
                [
                    (oldest is None) == (newest is None) and (oldest or 0) <= (newest or 0)
                    for oldest, newest in rows.each(*told)
                ]
            )
        rows, masks = _masked(rows)
        values = rows.columns("q_trajectory")
        truncated = rows.of("truncated")
        if truncated is not None:
            known = set(map(type, truncated)) == {int}
            values["truncated"] = list(map(bool if known else _flag, truncated))
        if masks is not None:
            values["loss_runs"] = masks
            values["loss"] = [
                None if mask is None else mask[0] if len(mask) == 1 else sum(mask[::2])
                for mask in masks
            ]
        self._add("q_trajectory", values)
        return rows.rows

    def _turns(self, rows: _Rows) -> Sequence[Any]:
        if _are_alone(rows):
            return self._alone(rows)
        alone = [_is_alone(*each) for each in rows.each(*_OF_A_TURN)]
        several = [not single for single in alone]
        return [*self._alone(rows.where(alone)), *self._several(rows.where(several))]

    def _alone(self, rows: _Rows) -> Sequence[Any]:
        """Turns that each were a call of the engine."""
        values = rows.columns("q_turn")
        named, size = rows.of("rows"), len(rows.rows)
        values |= {
            "batch": rows.batch(),
            "local": [0] * size if named is None else [row or 0 for row in named],
            "whole": [True] * size if named is None else [row is None for row in named],
        }
        self._add("q_turn", values)
        return rows.rows

    def _several(self, rows: _Rows) -> Sequence[Any]:
        """Turns of calls for several trajectories; keeps calls that mix them."""
        sound = list[Any]()
        entries = list[tuple[Any, ...]]()
        told_of = rows.each(*_OF_A_TURN)
        for row, batch, told in zip(rows.rows, rows.batch(), told_of, strict=True):
            turn, prompt, response, _, named, samples = told
            if turn is None:
                start_ns = self._mono_ns + row.start
                end_ns = start_ns + row.duration
                self._journal.whole_calls.append(
                    LooseCall(0, start_ns, end_ns, _single(samples), _single(response))
                )
            else:
                lists = _lists(*told[:5])
                if lists is None or prompt is None:
                    continue
                size, local = len(lists[0]), lists[4]
                head = (
                    row.start, row.duration, row.span, batch, next(self._calls), size, local[-1],
                    named is None,
                )  # fmt: skip
                entries += ((*head, *entry) for entry in zip(*lists, strict=True))
            sound.append(row)
        if entries:
            self._add("q_turn", dict(zip(_ENTRY, zip(*entries, strict=True), strict=True)))
        return sound

    def _tools(self, rows: _Rows) -> Sequence[Any]:
        self._add("q_tool", rows.columns("q_tool") | {"batch": rows.batch()})
        return rows.rows

    def _verifications(self, rows: _Rows) -> Sequence[Any]:
        told = rows.each("value", "not_finite", "attempts", "timeouts")
        if rows.of("not_finite") is not None or rows.of("timeouts") is not None:
            rows = rows.where(
                [
                    not (odd and value is not None)
                    and (timeouts is None or timeouts <= (attempts or 0))
                    for value, odd, attempts, timeouts in told
                ]
            )
        values = rows.columns("q_verification") | {
            "batch": rows.batch(),
            "function": [function or "" for (function,) in rows.each("function")],
        }
        if rows.of("not_finite") is not None:
            pairs = rows.each("value", "not_finite")
            values["value"] = ["NaN" if odd else value for value, odd in pairs]
        self._add("q_verification", values)
        return rows.rows

    def _requests(self, rows: _Rows) -> Sequence[Any]:
        rows = rows.where([teller is not None for (teller,) in rows.each("told_by")])
        client = [teller == names.TELLERS[0] for (teller,) in rows.each("told_by")]
        self._add("q_request", rows.columns("q_request") | {"client": client})
        return rows.rows


_OF_A_TURN: Final = (
    "turn", "prompt_tokens", "response_tokens", "cached_tokens", "rows", "samples",
)  # fmt: skip
_ENTRY: Final = (
    "start", "duration", "span", "batch", "call", "entries", "last", "whole", "turn",
    "prompt_tokens", "response_tokens", "cached_tokens", "local",
)  # fmt: skip


def _are_ordered(first: list[Any] | None, second: list[Any] | None) -> bool:
    """Whether two columns, all known, are in order in each row."""
    return (
        first is not None
        and second is not None
        and None not in first
        and None not in second
        and all(map(le, first, second))
    )


def _flag(value: Any) -> bool | None:
    return None if value is None else value == 1


def _are_alone(rows: _Rows) -> bool:
    """Whether each of these, as most turns, is as :func:`_is_alone` says."""
    *counts, cached, named, samples = (rows.of(name) for name in _OF_A_TURN)
    return (
        all(column is not None and set(map(type, column)) == {int} for column in counts)
        and all(
            column is None or set(map(type, column)) <= {int, type(None)}
            for column in (cached, named, samples)
        )
        and set(samples or ()) <= {1, None}
        and max(max(column or (0,)) for column in counts) <= COUNT_MAX
        and max(filter(None, cached or ()), default=0) <= COUNT_MAX
    )


def _masked(rows: _Rows) -> tuple[_Rows, Sequence[Sequence[int] | None] | None]:
    """Rows whose mask of the loss is as long as their response, and these masks."""
    runs, response = rows.of("loss_runs"), rows.of("response_tokens")
    if runs is None:
        return rows, None
    if set(map(type, runs)) == {list} and list(map(sum, runs)) == response:
        return rows, runs
    pairs = rows.each("loss_runs", "response_tokens")
    rows = rows.where([mask is None or sum(_listed(mask)) == tokens for mask, tokens in pairs])
    masks = rows.of("loss_runs") or ()
    return rows, [None if mask is None else _listed(mask) for mask in masks]


def _is_alone(
    turn: Any, prompt: Any, response: Any, cached: Any, row: object, samples: object
) -> bool:
    """Whether an engine call is recorded as of one trajectory, in numbers and not in lists."""
    return (
        type(turn) is type(prompt) is type(response) is int
        and turn <= COUNT_MAX
        and prompt <= COUNT_MAX
        and response <= COUNT_MAX
        and (cached is None or (type(cached) is int and cached <= COUNT_MAX))
        and (row is None or type(row) is int)
        and (samples is None or (samples == 1 and type(samples) is int))
    )


def _lists(
    turn: Any, prompt: Any, response: Any, cached: Any, named: Any
) -> tuple[Sequence[Any], ...] | None:
    """Turns, lengths and rows of a call, all of the same length; None if they are not."""
    if prompt is None or response is None:
        return None
    prompts, responses = _listed(prompt), _listed(response)
    size = len(prompts)
    turns = [turn] * size if type(turn) is int else turn
    hits: Sequence[Any] = [None] * size if cached is None else _listed(cached)
    local = list(range(size)) if named is None else _listed(named)
    lists: tuple[Sequence[Any], ...] = (turns, prompts, responses, hits, local)
    if not size or any(len(column) != size for column in lists):
        return None
    if any(a >= b for a, b in pairwise(local)):
        return None
    known: Iterator[Any] = chain.from_iterable(lists if cached is not None else (*lists[:3], local))
    return None if max(known) > COUNT_MAX else lists


def _listed(value: Any) -> Sequence[int]:
    """A column of numbers, of one where it is given as a number."""
    return [value] if type(value) is int else value


def _single(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < _INT64 else None
