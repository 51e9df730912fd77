"""Takes fine rows from journal files into tables of their own, as they were written.

What a usual row is, :mod:`rlvr_probe.recording.tables.journals.forms` says; the rest is decoded in
Python, and comes into the same tables. All rows that were left are taken, or none: they are
counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec

from rlvr_probe.model import names
from rlvr_probe.recording.bulk import Bulk
from rlvr_probe.recording.columns import Column, Table
from rlvr_probe.recording.journal import Journal
from rlvr_probe.recording.left import Form, KeyTexts, LeftRows, Unfit
from rlvr_probe.recording.lone import LoneSpans, LoneTurns, ToolRows, Verifications
from rlvr_probe.recording.tables.journals.forms import OPEN, OPEN_PATTERN, STAGES, Taken, taken

__all__ = ["Stager"]

_LINES: Final = (
    "read_csv({files}, columns = {{'line': 'VARCHAR'}}, delim = '\\x01', quote = '', escape = '',"
    " header = false, auto_detect = false, max_line_size = {longest}, filename = true)"
)
_LINE_B: Final = 8 * 1024 * 1024
"""Longest line of a usual journal, bytes."""

_TOGETHER_B: Final = 256 * 1024 * 1024
"""Journals that are taken together, bytes."""

_PACK: Final = 1 << 40
"""Ids of spans from here on are unusual."""

_HEAD: Final = (
    Column("p", "INTEGER", "process"),
    Column("span", "BIGINT", "id"),
    Column("start_ns", "BIGINT", "start"),
    Column("end_ns", "BIGINT", "end"),
)


@dataclass(slots=True)
class _Group:
    """Files in which rows of the same forms were left."""

    forms: frozenset[Form]
    files: dict[str, LeftRows]
    rows: int = 0


class Stager:
    """Takes fine rows while others are still read: Python checks sums, DuckDB parses."""

    def __init__(self, sql: duckdb.DuckDBPyConnection, folder: Path) -> None:
        """Make the tables; ``folder`` is private."""
        # These are read once or twice: to compress them takes a fifth of the time.
        sql.execute("SET force_compression = 'uncompressed'")
        for one in STAGES.values():
            sql.execute(one.ddl)
        sql.execute(OPEN)
        sql.execute("CREATE TABLE q_done (p INTEGER, span BIGINT)")
        sql.execute(_KEYED.ddl)
        self._sql = sql
        self._folder = folder
        self._beside = sql.cursor()
        # A filter that is pushed down takes what it is over along, to be computed again.
        self._beside.execute("SET disabled_optimizers = 'filter_pushdown'")
        self._beside.execute("SET enable_progress_bar = false")
        self._pool = ThreadPoolExecutor(1, "rlvr-probe-tables")
        self._taken: list[Future[list[tuple[int, str]]]] = []
        self._waiting: list[LeftRows] = []
        self._size_b = 0
        self._processes: list[LeftRows] = []

    def add(self, process: LeftRows) -> None:
        """Take what was left of one process, soon."""
        self._processes.append(process)
        self._waiting.append(process)
        self._size_b += sum(file.path.stat().st_size for file in process.files)
        if self._size_b > _TOGETHER_B:
            self._submit()

    def finish(self) -> None:
        """Wait until everything is taken, and add what only Python could decode.

        The journals get what only fine rows tell of their processes: when they were last written
        to, and what was open in the end.

        Raises:
            Unfit: Not every row was found again, or one needs what only Python can join.
        """
        self._submit()
        done = list[tuple[int, int]]()
        by_number = {one.number: one for one in self._processes}
        for taken_rows in self._taken:
            for number, line in taken_rows.result():
                data = line.encode()
                by_number[number].decoder.line(data)
                done += _done(number, data)
        bulk = Bulk(self._sql, self._folder)
        for process in self._processes:
            _add_decoded(bulk, process)
        bulk.add(_table("q_done", ()), done)
        bulk.finish()
        columns = [name for name, _, _ in STAGES[names.TRAJECTORY.name].columns]
        made = ", ".join(
            made.replace("$key", "key") if "$key" in made else name
            for name, _, made in STAGES[names.TRAJECTORY.name].columns
        )
        self._sql.execute(
            f"INSERT INTO q_trajectory (p, span, start_ns, end_ns, {', '.join(columns)})"
            f" SELECT p, span, start_ns, end_ns, {made} FROM q_decoded"
        )
        self._sql.execute("RESET force_compression")
        _tell_journals(self._sql, self._processes)

    def close(self) -> None:
        """Give up what was not taken yet."""
        self._beside.interrupt()
        self._pool.shutdown(cancel_futures=True)
        self._beside.close()

    def _submit(self) -> None:
        groups = dict[frozenset[Form], _Group]()
        for process in self._waiting:
            for file in process.files:
                group = groups.setdefault(file.forms, _Group(file.forms, {}))
                group.files[str(file.path)] = process
                group.rows += file.rows
        self._waiting, self._size_b = [], 0
        self._taken += [self._pool.submit(_take, self._beside, group) for group in groups.values()]


def _table(name: str, columns: Sequence[tuple[str, str, str]]) -> Table:
    own = [Column(column, kind, "") for column, kind, _ in columns]
    return Table(name, "", (*(_HEAD if own else _HEAD[:2]), *own))


def _take(sql: duckdb.DuckDBPyConnection, group: _Group) -> list[tuple[int, str]]:
    """Take the rows of one group of files; process and line of those that are not as usual.

    Raises:
        Unfit: Not as many were found as there were.
    """
    sql.execute("CREATE OR REPLACE TEMP TABLE q_file (filename VARCHAR, p INTEGER, zero BIGINT)")
    paths = list(group.files)
    sql.execute(
        "INSERT INTO q_file SELECT unnest(?::VARCHAR[]), unnest(?::INTEGER[]), unnest(?::BIGINT[])",
        [
            paths,
            [group.files[path].number for path in paths],
            [group.files[path].header.mono_ns for path in paths],
        ],
    )
    literal = "[" + ", ".join(map(_text, paths)) + "]"
    lines = _LINES.format(files=literal, longest=_LINE_B)
    found = 0
    forms = sorted(group.forms, key=lambda one: one.number)
    usual = [_insert(taken(form), lines) for form in forms]
    for statement in (*usual, _insert_open(forms, lines)):
        if found < group.rows:
            [[count]] = sql.execute(statement).fetchall()
            found += count
    rest = list[tuple[int, str]]()
    for statement in _unusual(forms, lines) if found < group.rows else ():
        rest += sql.execute(statement).fetchall()
    if found + len(rest) != group.rows:
        raise Unfit(f"{found + len(rest)} of {group.rows} rows of trajectories were found again")
    return rest


def _text(pattern: str) -> str:
    return "'" + pattern.replace("'", "''") + "'"


def _matches(how: Taken) -> str:
    return f"starts_with(line, '{how.prefix}') AND regexp_full_match(line, {_text(how.pattern)})"


def _columns(how: Taken, lines: str, *more: str) -> str:
    """A query of the columns of a stage, and what is only checked, for every usual row."""
    start, duration, span = how.head
    head = (
        "p",
        f"{span} AS span",
        f"zero + {start} AS start_ns",
        f"zero + {start} + {duration} AS end_ns",
    )
    own = (f"{made} AS {name}" for name, made in how.columns.items())
    # What is no usual row may be no JSON: DuckDB is free to look at it before it is left out.
    taken_of = f"CASE WHEN regexp_full_match(line, {_text(how.pattern)}) THEN {how.values} END"
    # Joined before anything is taken, which would have to be carried along.
    return (
        f"SELECT {', '.join((*head, *own, *more))} FROM (SELECT p, zero, line, {taken_of} AS s FROM"
        f" {lines} JOIN q_file USING (filename) WHERE starts_with(line, '{how.prefix}'))"
        " WHERE s IS NOT NULL"
    )


def _insert(how: Taken, lines: str) -> str:
    names_of = ", ".join(
        ("p", "span", "start_ns", "end_ns", *(one[0] for one in how.stage.columns))
    )
    return (
        f"INSERT INTO {how.stage.table} SELECT {names_of} FROM ({_columns(how, lines)})"
        f" WHERE {how.stage.sound}"
    )


def _insert_open(forms: Sequence[Form], lines: str) -> str:
    named = " ".join(f"WHEN {form.number} THEN '{form.name}'" for form in forms)
    return (
        f"INSERT INTO q_open SELECT p, try_cast(s.span AS BIGINT), CASE s.def {named} END,"
        " zero + try_cast(s.start AS BIGINT), try_cast(s.parent AS BIGINT) FROM"
        " (SELECT filename, regexp_extract(line, "
        f"{_text(OPEN_PATTERN)}, ['def', 'start', 'span', 'parent']) AS s FROM {lines}"
        f" WHERE {_opens(forms)}) JOIN q_file USING (filename)"
    )


def _opens(forms: Sequence[Form]) -> str:
    begins = " OR ".join(f"""starts_with(line, '["open",{form.number},')""" for form in forms)
    return f"({begins}) AND regexp_full_match(line, {_text(OPEN_PATTERN)})"


def _unusual(forms: Sequence[Form], lines: str) -> Iterator[str]:
    """Queries of process and line of the rows that the ones above leave out."""
    begins = " OR ".join(
        f"""starts_with(line, '[{form.number},') OR starts_with(line, '["open",{form.number},')"""
        for form in forms
    )
    fits = " OR ".join((*(f"({_matches(taken(form))})" for form in forms), f"({_opens(forms)})"))
    yield (
        f"SELECT p, line FROM {lines} JOIN q_file USING (filename)"
        f" WHERE ({begins}) AND NOT ({fits})"
    )
    for form in forms:
        how = taken(form)
        if how.stage.sound != "true":
            rows = _columns(how, lines, "line")
            yield f"SELECT p, line FROM ({rows}) WHERE NOT ({how.stage.sound})"


def _done(number: int, line: bytes) -> Iterator[tuple[int, int]]:
    """The span that an unusual row ends, if it ends one."""
    try:
        row = msgspec.json.decode(line)
        if type(row[0]) is int and type(row[3]) is int and 0 < row[3] < _PACK:
            yield number, row[3]
    except (ValueError, TypeError, LookupError, msgspec.DecodeError, RecursionError):
        return


def _add_decoded(bulk: Bulk, process: LeftRows) -> None:
    """Take the fine rows of a process that were decoded, out of its journal.

    Raises:
        Unfit: They tell of requests, or their ids are no usual ones.
    """
    journal = process.decoder.journal
    lone = journal.lone_turns
    if len(journal.requests) or any(lone.name) or len(lone.told):
        raise Unfit("requests of an engine are joined with turns one by one")
    verified = journal.verified
    ids = (
        journal.alone.span, lone.batch, verified.batch, journal.tool_calls.batch,
        *verified.shared.values(),
    )  # fmt: skip
    if any(max(column, default=0) >= _PACK for column in ids):
        raise Unfit("ids of spans are larger than any that is counted up to")
    number = process.number
    for name, rows in (
        (names.TRAJECTORY.name, _trajectories(number, journal)),
        (names.TURN.name, _turns(number, journal)),
        (names.TOOL_CALL.name, _tools(number, journal)),
        (names.VERIFY.name, _verifications(number, journal)),
    ):
        keyed = name == names.TRAJECTORY.name
        bulk.add(_KEYED if keyed else _table(STAGES[name].table, STAGES[name].columns), rows)
    journal.alone, journal.lone_turns = LoneSpans(), LoneTurns()
    journal.verified, journal.tool_calls = Verifications(), ToolRows()


_KEYED: Final = Table(
    "q_decoded",
    "",
    (
        *_HEAD,
        Column("key", "VARCHAR", ""),
        *(
            Column(name, kind, "")
            for name, kind, _ in STAGES[names.TRAJECTORY.name].columns
            if name not in ("high", "low", "narrow")
        ),
    ),
)
"""Trajectories that were decoded, with the text of their keys."""


def _trajectories(number: int, journal: Journal) -> Iterator[Sequence[Any]]:
    alone = journal.alone
    texts = alone.keys.texts if isinstance(alone.keys, KeyTexts) else []
    for at, key in enumerate(texts):
        truncated = alone.truncated[at]
        yield (
            number, alone.span[at], alone.start_ns[at], alone.end_ns[at], key, alone.engine[at],
            alone.oldest[at], alone.newest[at], alone.prompt_tokens[at], alone.response_tokens[at],
            None if truncated is None else bool(truncated),
            sum(alone.loss_runs[at][::2]) if alone.masked[at] else None,
        )  # fmt: skip


def _turns(number: int, journal: Journal) -> Iterator[Sequence[Any]]:
    lone = journal.lone_turns
    for at, span in enumerate(lone.span):
        yield (
            number, span, lone.start_ns[at], lone.end_ns[at], lone.batch[at], lone.row[at],
            lone.turn[at], lone.prompt_tokens[at], lone.response_tokens[at],
            lone.cached_tokens[at],
        )  # fmt: skip


def _tools(number: int, journal: Journal) -> Iterator[Sequence[Any]]:
    tools = journal.tool_calls
    words = list(tools.words)
    for at, batch in enumerate(tools.batch):
        yield (
            number, None, tools.start_ns[at], tools.end_ns[at], batch, tools.row[at],
            tools.turn[at], *words[tools.word[at]],
        )  # fmt: skip


def _verifications(number: int, journal: Journal) -> Iterator[Sequence[Any]]:
    verified = journal.verified
    functions = list(verified.functions)
    for at, batch in enumerate(verified.batch):
        value = verified.value[at]
        yield (
            number, None, verified.start_ns[at], verified.end_ns[at], batch,
            functions[verified.function[at]],
            None if value != value else value if isfinite(value) else "NaN",
            verified.attempts[at], verified.timeouts[at],
            list(verified.shared[at]) if at in verified.shared else None,
        )  # fmt: skip


def _tell_journals(sql: duckdb.DuckDBPyConnection, processes: Sequence[LeftRows]) -> None:
    """Give the journals the last time of a fine row, and the spans that did not end."""
    tables = [one.table for one in STAGES.values()]
    every = " UNION ALL ".join(
        f"SELECT p, max(end_ns) AS t FROM {one} GROUP BY p" for one in tables
    )
    opened = "SELECT p, max(start_ns) FROM q_open GROUP BY p"
    by_number = {one.number: one.decoder.journal for one in processes}
    for number, last_ns in sql.execute(f"{every} UNION ALL {opened}").fetchall():
        journal = by_number[number]
        journal.last_ns = max(journal.last_ns, last_ns)
    ended = " UNION ALL ".join(f"SELECT p, span FROM {one}" for one in (*tables, "q_done"))
    [[count]] = sql.execute("SELECT count(*) FROM q_open").fetchall()
    if not count:
        return
    rows = sql.execute(
        f"SELECT p, span, name, start_ns, parent FROM q_open o WHERE NOT EXISTS (SELECT 1 FROM"
        f" ({ended}) e WHERE e.p = o.p AND e.span = o.span) ORDER BY p, span, start_ns, name,"
        " parent"
    )
    for number, span, name, start_ns, parent in rows.fetchall():
        by_number[number].opened[span] = (name, start_ns, parent)
