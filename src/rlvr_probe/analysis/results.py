"""Results of the analysis: metrics, each with the query that made it and the ids behind it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from string import Template
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final

import duckdb

from rlvr_probe.recording.schema import literal
from rlvr_probe.recording.tables.step_ranges import in_ranges

if TYPE_CHECKING:
    from rlvr_probe.recording.tables import Tables

__all__ = [
    "Answer", "Chapter", "ChapterMaker", "Evidence", "Figure", "Queried", "Series", "query",
    "query_by_step",
]  # fmt: skip

_EVIDENCE: Final = 20
"""Ids that a figure carries of each kind."""

_TABLE_NAME: Final = re.compile(r'"table_name":"([^"]+)"')
_CTE_NAME: Final = re.compile(r'"key":"([^"]+)","value":\{"aliases"')


class Queried:
    """What a query made: :attr:`inputs` are looked up where they are asked for.

    Only what is written into a file has them, and to look them up takes a third of a query's time.
    """

    __slots__ = ()

    query: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tables and views that the query reads, sorted."""
        return _inputs(self.query) if self.query else ()

    def values(self) -> dict[str, Any]:
        """Every field by name, and :attr:`inputs` behind the query."""
        values = dict[str, Any]()
        for known in fields(self):  # type: ignore[arg-type]
            values[known.name] = getattr(self, known.name)
            if known.name == "query":
                values["inputs"] = self.inputs
        return values


@cache
def _inputs(run: str) -> tuple[str, ...]:
    """What a statement reads, as DuckDB understands it, besides what it defines itself."""
    [[tree]] = _reader().execute("SELECT json_serialize_sql(?::VARCHAR)", [run]).fetchall()
    return tuple(sorted({*_TABLE_NAME.findall(tree)}.difference(_CTE_NAME.findall(tree))))


@cache
def _reader() -> duckdb.DuckDBPyConnection:
    """A database without a table: it reads statements and runs none of them."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    return duckdb.connect(config=config)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Ids of what is behind a figure.

    Attributes:
        ids: The first of them.
        count: How many there are.
    """

    ids: tuple[int, ...]
    count: int

    @classmethod
    def of(cls, ids: Iterable[int], count: int | None = None) -> Evidence:
        """The first of ``ids``, the most important first; ``count`` where there are more."""
        found = list(ids)
        return cls(tuple(found[:_EVIDENCE]), len(found) if count is None else count)


@dataclass(frozen=True, slots=True)
class Figure(Queried):
    """One number that the analysis found, or why it is unknown.

    Attributes:
        id: Stable and documented, for example ``lengths.response.p99``.
        title: A few words.
        meaning: One sentence: formula and source.
        unit: ``s``, ``tokens``, ``J``, ``1``; a share is 0..1 and has unit ``1``.
        value: None if unknown: then ``why`` says why.
        low, high: 95 % interval, where one makes sense.
        query: The SQL that made it, as it was run.
        evidence: Ids behind it by kind: ``step`` (step_id), ``process``, ``trajectory``, ``batch``,
            ``device``.
        by: What it is the value for, for example ``{"function": "math"}``.
    """

    id: str
    title: str
    meaning: str
    unit: str
    value: float | int | str | None
    why: str = ""
    low: float | None = None
    high: float | None = None
    query: str = ""
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    by: Mapping[str, str | int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what would be read as a number that it is not.

        Raises:
            ValueError: Neither a value nor a reason, both, or a value that is not a number.
        """
        if (self.value is None) != bool(self.why):
            raise ValueError(f"{self.id}: expected a value, or a reason why there is none")
        if isinstance(self.value, float) and not math.isfinite(self.value):
            raise ValueError(f"{self.id}: {self.value} is not a number; expected None and a reason")


@dataclass(frozen=True, slots=True)
class Series(Queried):
    """Figures with one row for each step, rank or function: what a chart is drawn of.

    Attributes:
        units: Unit of each column, by its name; empty for what has none.
        rows: In the order of the query; of very many, every k-th.
        total: Rows that there were.
        query: As that of a :class:`Figure`.
    """

    id: str
    title: str
    meaning: str
    units: Mapping[str, str]
    rows: tuple[tuple[Any, ...], ...]
    total: int
    query: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.units)


@dataclass(frozen=True, slots=True)
class Chapter:
    """Figures that answer one question.

    Attributes:
        name: Stable, for example ``lengths``.
        notes: What is unknown of this source, and why: sentences.
    """

    name: str
    title: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()
    series: tuple[Series, ...] = ()


ChapterMaker = Callable[["Tables"], Chapter]
"""What makes a section of tables."""


@dataclass(frozen=True, slots=True)
class Answer(Queried):
    """What a query gave.

    Attributes:
        columns: Names.
        rows: In the order of the query.
        query: As it was run, with the values in their places.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    query: str

    @property
    def row(self) -> tuple[Any, ...]:
        """The only row.

        Raises:
            ValueError: There is none, or there are several.
        """
        [only] = self.rows
        return only

    @property
    def dicts(self) -> list[dict[str, Any]]:
        """The rows by column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def query(tables: Tables, sql: str, **values: object) -> Answer:
    """Ask a question and keep how it was asked.

    Args:
        tables: Whom.
        sql: One statement; ``$name`` stands for a value.
        values: Numbers, texts, truth values, None, or lists of them.

    Raises:
        KeyError: A value is missing.
        TypeError: A value is something else.
    """
    text = Template(dedent(sql).strip())
    run = text.substitute({name: _literal(value) for name, value in values.items()})
    done = tables.sql.execute(run)
    columns = tuple(str(column[0]) for column in done.description or ())
    rows = done.fetchall()
    return Answer(columns, rows, run)


def query_by_step(tables: Tables, sql: str, **values: object) -> Answer:
    """As :func:`query`, of a large run in ranges of steps, whose rows follow one another.

    So each row has to be of one step, or a sum over some, made of trajectories and their parts.
    """
    answers = [query(tables, sql, **values) for _ in in_ranges(tables)]
    return replace(answers[0], rows=[row for answer in answers for row in answer.rows])


def _literal(value: object) -> str:
    """``value`` in SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)) and math.isfinite(value):
        return f"{value!r}::DOUBLE" if isinstance(value, float) else repr(value)
    if isinstance(value, str):
        return literal(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_literal, value)) + "]"
    raise TypeError(f"{value!r} is not a value for a query; expected a number, a text or a list")
