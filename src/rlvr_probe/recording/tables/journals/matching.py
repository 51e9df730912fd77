"""Joins trajectories with the rows of who trains on them, by their keys, as the trace does.

:class:`~rlvr_probe.recording.keys.KeyedRows` says what agrees; here the same is said in SQL, of all
trajectories of an attempt at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from rlvr_probe.model.batch import BatchShard
from rlvr_probe.recording.bulk import Bulk
from rlvr_probe.recording.clock import RunClock
from rlvr_probe.recording.columns import Column, Table
from rlvr_probe.recording.generated import TrajectoryRow
from rlvr_probe.recording.keys import KeyedRows
from rlvr_probe.recording.left import SLICE, KeyTexts, LeftRows, Unfit
from rlvr_probe.recording.load import Recorded

__all__ = ["LeftKeys", "Part", "Places"]

_ROWS = (
    ("n", "INTEGER"),
    ("local", "INTEGER"),
    ("prompt", "BIGINT"),
    ("response", "BIGINT"),
    ("cut", "BIGINT"),
    ("engine", "BIGINT"),
    ("grp", "BIGINT"),
    ("loss", "BIGINT"),
    ("span", "BIGINT"),
    ("high", "UBIGINT"),
    ("low", "UBIGINT"),
    ("narrow", "BOOLEAN"),
)
_LISTS = ("prompt", "response", "cut", "engine", "grp", "loss", "span")

_FOUND = (
    ("p", "INTEGER"),
    ("own", "BIGINT"),
    ("start_ns", "BIGINT"),
    ("end_ns", "BIGINT"),
    ("served", "BIGINT"),
    ("oldest", "BIGINT"),
    ("newest", "BIGINT"),
    ("stopped", "BOOLEAN"),
    ("kept", "BIGINT"),
    ("ok", "BOOLEAN"),
)
"""What a trajectory's own span says; ``own`` is its id, ``ok`` whether the two agree."""


_PART = Table(
    "q_part",
    "",
    tuple(
        Column(name, kind, "")
        for name, kind in (
            ("n", "INTEGER"), ("size", "INTEGER"), ("p", "INTEGER"), ("clock", "VARCHAR"),
            ("told_ns", "BIGINT"), ("begun_ns", "BIGINT"), ("batch", "BIGINT"),
        )
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one event, by number."""

    row: TrajectoryRow
    shard: BatchShard
    recorded: Recorded
    begun_ns: int | None


@dataclass(slots=True)
class Places:
    """Where every trajectory of a run was told, over all its attempts.

    Attributes:
        sql: Has the tables of :mod:`rlvr_probe.recording.tables.journals.staging`.
        folder: Private.
        left: By process key.
        keys: File of keys.
        longest_b: Its longest line, bytes.
        parts: At the place that is their number.
    """

    sql: duckdb.DuckDBPyConnection
    folder: Path
    left: Mapping[str, LeftRows]
    keys: Path
    longest_b: int
    parts: list[Part] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the tables."""
        rows = ", ".join(f"{name} {kind}" for name, kind in (*_ROWS, *_FOUND))
        self.sql.execute(f"CREATE TABLE q_joined ({rows})")
        self.sql.execute(_PART.ddl)
        self.sql.execute("CREATE TABLE q_member (p INTEGER, shift_ns BIGINT, clock VARCHAR)")

    def number_of(self, recorded: Recorded) -> int:
        """The number of a process."""
        return self.left[recorded.header.process].number


class LeftKeys(KeyedRows):
    """The rows of one attempt, whose trajectories are not in the journals."""

    def __init__(self, clock: RunClock, places: Places) -> None:
        """Hold none; times are on ``clock``."""
        self.untold = 0
        self._clock = clock
        self._places = places
        self._first = len(places.parts)
        self._members: list[Recorded] = []

    def add(
        self, row: TrajectoryRow, shard: BatchShard, recorded: Recorded, begun_ns: int | None
    ) -> None:
        """Take the rows of a shard, as :meth:`KeyedRows.add`."""
        self._places.parts.append(Part(row, shard, recorded, begun_ns))

    def note(self, recorded: Recorded) -> None:
        """Note a process of the attempt."""
        self._members.append(recorded)

    def join(self, recorded: Recorded) -> dict[int, tuple[BatchShard, int]]:
        """Nothing: where its trajectories are is known in SQL."""
        return {}

    def finish(self, skipped: Counter[str]) -> None:
        """Join all of them; count the rows that have none, and the trajectories nobody told of.

        Raises:
            Unfit: One span is told of twice.
        """
        sql, first = self._places.sql, self._first
        sql.execute(
            "CREATE OR REPLACE TEMP TABLE q_now (p INTEGER, shift_ns BIGINT, clock VARCHAR)"
        )
        numbers = [self._places.number_of(one) for one in self._members]
        clocks = [one.header.clock for one in self._members]
        shifts = [self._clock.at(one, 0) for one in self._members]
        sql.execute(
            "INSERT INTO q_now SELECT unnest(?::INTEGER[]), unnest(?::BIGINT[]),"
            " unnest(?::VARCHAR[])",
            [numbers, shifts, clocks],
        )
        sql.execute("INSERT INTO q_member FROM q_now")
        parts = self._places.parts[first:]
        if not parts:
            [[self.untold]] = sql.execute(_ALONE).fetchall()
            return
        self._load(parts)
        sql.execute(_JOIN.format(first=first))
        sql.execute(_BY_SPAN.format(first=first))
        skipped["unjoined_trajectories"] += self._count(first)
        self._check_spans(first)

    def _load(self, parts: Sequence[Part]) -> None:
        """Make a row of every row of every part.

        Raises:
            Unfit: Not as many as there are.
        """
        sql, folder = self._places.sql, self._places.folder
        bulk = Bulk(sql, folder)
        bulk.add(_PART, (self._part(number, one) for number, one in enumerate(parts, self._first)))
        bulk.finish()
        path, longest_b = folder / "parts.json", 0
        with path.open("wb") as file:
            for number, part in enumerate(parts, self._first):
                for line in _slices(number, part.row):
                    longest_b = max(longest_b, file.write(msgspec.json.encode(line) + b"\n"))
        lists = ", ".join(f"'{name}': 'BIGINT[]'" for name in _LISTS)
        lines = _read(
            path, longest_b, f"'n': 'INTEGER', 'k': 'INTEGER', 'begin': 'INTEGER', {lists}"
        )
        keys = "(SELECT NULL::INTEGER AS k, 0 AS begin, NULL::VARCHAR[] AS keys WHERE false)"
        if self._places.keys.exists():
            columns = "'k': 'INTEGER', 'begin': 'INTEGER', 'keys': 'VARCHAR[]'"
            keys = _read(self._places.keys, self._places.longest_b, columns)
        own = ", ".join(f"unnest({name}) AS {name}" for name in _LISTS)
        sql.execute(
            "CREATE OR REPLACE TABLE q_row AS SELECT * EXCLUDE (key),"
            " CASE WHEN key IS NOT NULL THEN hash(key) END AS high,"
            " CASE WHEN key IS NOT NULL THEN hash('#' || key) END AS low,"
            " starts_with(key, '-') AS narrow FROM"
            " (SELECT n, unnest(range(begin, begin + len(prompt)))::INTEGER AS local,"
            f" {own}, unnest(keys) AS key FROM {lines} l LEFT JOIN {keys} k USING (k, begin))"
        )
        path.unlink()
        [[count]] = sql.execute("SELECT count(*) FROM q_row").fetchall()
        if count != sum(len(part.row.response_tokens) for part in parts):
            raise Unfit("rows of batches were not found again")

    def _part(self, number: int, part: Part) -> Sequence[Any]:
        row, recorded = part.row, part.recorded
        if row.keys is not None and row.spans is not None:
            raise Unfit("a batch names its trajectories by keys and by spans")
        return (
            number, len(row.response_tokens), self._places.number_of(recorded),
            recorded.header.clock, self._clock.at(recorded, row.time_ns), part.begun_ns, row.batch,
        )  # fmt: skip

    def _check_spans(self, first: int) -> None:
        [[count, apart]] = self._places.sql.execute(
            "SELECT count(*), count(DISTINCT (p::BIGINT << 40) + own) FROM q_joined"
            f" WHERE ok AND n >= {first}"
        ).fetchall()
        if count != apart:
            raise Unfit("one span is said to be of two trajectories")

    def _count(self, first: int) -> int:
        """Rows with a key that have no trajectory; also finds those that several claim."""
        sql = self._places.sql
        [[named, claims, sum_rows, sum_claims]] = sql.execute(_CHECK.format(first=first)).fetchall()
        [[alone, sum_alone]] = sql.execute(_ALONE_SUM).fetchall()
        if (named, sum_rows) != (claims, sum_claims) or (alone, sum_alone) != (
            claims,
            self._claimed(first),
        ):
            claims = self._settle(first)
        self.untold = alone - claims
        [[unjoined]] = sql.execute(
            f"SELECT count(high) - count(*) FILTER (high IS NOT NULL AND ok) FROM q_joined"
            f" WHERE n >= {first}"
        ).fetchall()
        return int(unjoined)

    def _claimed(self, first: int) -> int | None:
        [[found]] = self._places.sql.execute(
            "SELECT sum(hash((p::BIGINT << 40) + own)) FROM q_joined"
            f" WHERE n >= {first} AND high IS NOT NULL AND own IS NOT NULL"
        ).fetchall()
        return None if found is None else int(found)

    def _settle(self, first: int) -> int:
        """Take back what is not between one row and one trajectory; how many claims there were."""
        sql = self._places.sql
        sql.execute(
            "CREATE OR REPLACE TEMP TABLE q_twice AS SELECT high FROM q_row WHERE high IS NOT NULL"
            " GROUP BY high HAVING count(*) > 1"
        )
        [[claims]] = sql.execute(
            "SELECT count(*) FROM q_joined WHERE high IS NOT NULL AND own IS NOT NULL AND"
            f" n >= {first} AND high NOT IN (FROM q_twice)"
        ).fetchall()
        sql.execute(
            "CREATE OR REPLACE TEMP TABLE q_bad AS SELECT n, local, min(rowid) AS one FROM q_joined"
            f" WHERE n >= {first} AND high IS NOT NULL GROUP BY n, local"
            " HAVING count(*) > 1 OR any_value(high) IN (FROM q_twice)"
        )
        sql.execute(
            "DELETE FROM q_joined USING q_bad b WHERE q_joined.n = b.n AND q_joined.local = b.local"
            " AND q_joined.rowid <> b.one"
        )
        sql.execute(
            "UPDATE q_joined SET ok = false FROM q_bad b WHERE q_joined.n = b.n"
            " AND q_joined.local = b.local"
        )
        return int(claims)


def _slices(number: int, row: TrajectoryRow) -> Iterator[dict[str, Any]]:
    """The columns of a row, as lists, some thousands at a time."""
    keys = row.keys.number if isinstance(row.keys, KeyTexts) else None
    columns: dict[str, Sequence[Any] | None] = {
        "prompt": row.prompt_tokens,
        "response": row.response_tokens,
        "cut": row.truncated,
        "engine": row.engines,
        "grp": row.groups,
        "span": row.spans,
        "loss": None if row.loss_runs is None else [sum(runs[::2]) for runs in row.loss_runs],
    }
    known = {name: list(column) for name, column in columns.items() if column is not None}
    for begin in range(0, len(row.response_tokens), SLICE):
        part = {name: column[begin : begin + SLICE] for name, column in known.items()}
        yield {"n": number, "k": keys, "begin": begin, **part}


def _read(path: Path, longest_b: int, columns: str) -> str:
    return (
        f"read_json('{path}', format = 'newline_delimited', columns = {{{columns}}},"
        f" maximum_object_size = {max(1 << 22, longest_b + 1_024)})"
    )


_ALONE = "SELECT count(*) FROM q_trajectory JOIN q_now USING (p) WHERE high IS NOT NULL"
_ALONE_SUM = (
    "SELECT count(*), sum(hash((p::BIGINT << 40) + span)) FROM q_trajectory JOIN q_now USING (p)"
    " WHERE high IS NOT NULL"
)
_CHECK = (
    "SELECT (SELECT count(high) FROM q_row), count(own) FILTER (high IS NOT NULL),"
    " (SELECT sum(hash((n::BIGINT << 32) + local)) FROM q_row WHERE high IS NOT NULL),"
    " sum(hash((n::BIGINT << 32) + local)) FILTER (high IS NOT NULL AND own IS NOT NULL)"
    " FROM q_joined WHERE n >= {first}"
)

_TWICE = "(t.start_ns + t.end_ns)"
_MIDDLE = f"({_TWICE} - ({_TWICE} % 2 + 2) % 2) // 2"
_START = f"CASE WHEN t.clock = s.clock THEN t.start_ns ELSE {_MIDDLE} END"
_END = f"CASE WHEN t.clock = s.clock THEN t.end_ns ELSE {_MIDDLE} END"
_AGREES = (
    "(t.prompt IS NULL OR t.prompt = r.prompt) AND (t.response IS NULL OR t.response = r.response)"
    f" AND CASE WHEN NOT t.narrow AND t.clock <> s.clock THEN true WHEN {_END} > s.told_ns THEN"
    f" false ELSE NOT t.narrow OR coalesce({_START} >= s.begun_ns, false) END"
)
"""As :meth:`KeyedRows._agrees`."""

_JOIN = (
    "INSERT INTO q_joined SELECT r.n, r.local, r.prompt, r.response, r.cut, r.engine, r.grp,"
    " r.loss, r.span, r.high, r.low, r.narrow, t.p, t.span, t.start_ns, t.end_ns, t.engine,"
    f" t.oldest, t.newest, t.truncated, t.loss, t.span IS NOT NULL AND coalesce({_AGREES}, false)"
    " FROM q_row r JOIN q_part s USING (n) LEFT JOIN (SELECT q.* REPLACE"
    " (q.start_ns + shift_ns AS start_ns, q.end_ns + shift_ns AS end_ns), clock"
    " FROM q_trajectory q JOIN q_now USING (p)) t ON r.high = t.high AND r.low = t.low"
    " WHERE s.n >= {first} AND r.span IS NULL"
)
"""Rows with the trajectories that have their keys, rows without a key included."""

_BY_SPAN = (
    "INSERT INTO q_joined (n, local, prompt, response, cut, engine, grp, loss, span, p, own,"
    " start_ns, end_ns, ok) SELECT r.n, r.local, r.prompt, r.response, r.cut, r.engine, r.grp,"
    " r.loss, r.span, s.p, r.span, t.start_ns + m.shift_ns, t.end_ns + m.shift_ns, true"
    " FROM q_row r JOIN q_part s USING (n) JOIN q_now m ON m.p = s.p LEFT JOIN q_trajectory t"
    " ON t.p = s.p AND t.span = r.span WHERE s.n >= {first} AND r.span IS NOT NULL"
)
"""Rows that name the span of their trajectory, which is of the process that tells of them."""
