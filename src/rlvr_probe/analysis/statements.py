"""SQL in files beside the modules that ask it: statements, their parts, and merged intervals.

A module ``lengths.py`` asks what stands in ``lengths.sql``: statements, each after a line
``-- name: ...`` and comments that say what it is. ``$name`` is a value, ``{name}`` another
statement of the same file, or a part that :func:`fill` puts there.

Of equal values a statement takes those with the larger ids, ``arg_max(id, (value, id))``, so that
the order of the rows, which no table has, does not show in metrics.

Intervals that overlap or touch are put together by :func:`islands` and :func:`covered`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from configparser import RawConfigParser
from functools import cache
from importlib.resources import files
from textwrap import indent
from typing import Any, Final

from rlvr_probe.recording.schema import statements as read
from rlvr_probe.recording.tables import Tables
from rlvr_probe.recording.tables.step_ranges import in_ranges

__all__ = [
    "OVERLAP", "Statements", "counted_quantiles", "covered", "fill", "insert", "islands", "make",
    "quantiles_of", "read_texts", "statements",
]  # fmt: skip

Derived = Mapping[str, tuple[str, str]]
"""Tables that are made before something is asked: by name, what a row is, and the query."""

_COMMENT: Final = re.compile(r"\A\s*((?:--.*\n)*)")
_PART: Final = re.compile(r"\{(\w+)\}")


class Statements(dict[str, str]):
    """The statements of a file by name, each with those of the same file that it names in it.

    Attributes:
        meanings: What the comments in front of them say, in one line each.
    """

    def __init__(self, file: str, texts: Mapping[str, str]) -> None:
        """Those of ``file``; ``texts`` have their comments in front of them."""
        super().__init__()
        self._file = file
        self._texts = {name: _COMMENT.sub("", text, 1).strip() for name, text in texts.items()}
        self.meanings = {
            name: " ".join(line.removeprefix("--").strip() for line in found[1].splitlines())
            for name, text in texts.items()
            if (found := _COMMENT.match(text))
        }

    def __missing__(self, name: str) -> str:
        """Put together the statement of that name.

        Raises:
            KeyError: The file has none.
        """
        if name not in self._texts:
            raise KeyError(f"{self._file} has no statement {name!r}; it has {sorted(self._texts)}")
        text = self._texts[name]
        named = {part for part in _PART.findall(text) if part in self._texts}
        self[name] = _put(text, {part: self[part] for part in named})
        return self[name]

    def derived(self, *names: str, **parts: object) -> dict[str, tuple[str, str]]:
        """The statements of these names as tables that are made; ``parts`` as for :func:`fill`."""
        return {name: (self.meanings[name], fill(self[name], **parts)) for name in names}


@cache
def statements(module: str) -> Statements:
    """The statements of the file beside a module, which is given by its ``__name__``."""
    package, _, name = module.rpartition(".")
    return Statements(f"{name}.sql", read(package, f"{name}.sql"))


def read_texts(module: str, file: str) -> dict[str, dict[str, str]]:
    """The sections of a file of texts beside a module, each text in one line."""
    parser = RawConfigParser(delimiters="=", comment_prefixes="#")
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(files(module.rpartition(".")[0]).joinpath(file).read_text(encoding="utf-8"))
    return {
        section: {key: " ".join(text.split()) for key, text in parser[section].items()}
        for section in parser.sections()
    }


def fill(sql: str, **parts: object) -> str:
    """``sql`` with a part in the place of each ``{name}``.

    Args:
        sql: A statement.
        parts: SQL: names of tables and columns, expressions, queries. No values: these are ``$``.

    Raises:
        KeyError: A part is missing.
    """
    missing = {*_PART.findall(sql)}.difference(parts)
    if missing:
        raise KeyError(f"expected {sorted(missing)} as well, for {sql}")
    return _put(sql, parts)


def make(tables: Tables, derived: Derived, *, by_step: bool = False) -> None:
    """Make temporary tables, again where they are there.

    Args:
        tables: Get them.
        derived: What they are.
        by_step: Whether each row is of one step, and made of its trajectories and their parts.
    """
    for name, (_, sql) in derived.items():
        for number in in_ranges(tables) if by_step else [0]:
            how = f"INSERT INTO {name}" if number else f"CREATE OR REPLACE TEMP TABLE {name} AS"
            tables.sql.execute(f"{how} {sql}")


def insert(tables: Tables, name: str, columns: str, rows: Sequence[Sequence[Any]]) -> None:
    """Make a temporary table of rows from Python."""
    types = [column.strip().split(" ") for column in columns.split(",")]
    tables.sql.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({columns})")
    values = [list(column) for column in zip(*rows, strict=True)]
    if values:
        parts = ", ".join(f"unnest(?::{kind}[])" for _, kind in types)
        tables.sql.execute(f"INSERT INTO {name} SELECT {parts}", values)


def _put(sql: str, parts: Mapping[str, object]) -> str:
    """Every part that there is at its place; one of several lines as far indented as that."""

    def put(found: re.Match[str]) -> str:
        part = str(parts.get(found[1], found[0]))
        if "\n" not in part:
            return part
        line = sql[sql.rfind("\n", 0, found.start()) + 1 : found.start()]
        before = " " * (len(line) - len(line.lstrip()))
        if line.endswith("(") and sql[found.end() :].startswith(")"):
            return f"\n{indent(part, before + '  ')}\n{before}"
        return indent(part, before).lstrip()

    return _PART.sub(put, sql)


_SQL: Final = statements(__name__)
OVERLAP: Final = _SQL["overlap"]
"""What to group rows by so that those of a group surely overlap."""


def islands(rows: str, keys: str) -> str:
    """A query of ``rows`` with ``island``: what overlaps or touches has one number.

    ``min(start_ns)`` and ``max(end_ns)`` by ``keys`` and ``island`` are intervals apart from one
    another, so that their lengths add up to the time that is covered.

    Args:
        rows: A table, or a query; it has ``start_ns`` and ``end_ns``, ns.
        keys: Columns of it: rows that differ there never belong together.
    """
    return fill(_SQL["islands"], rows=_source(rows), keys=keys)


def counted_quantiles(rows: str, keys: str) -> str:
    """A query of ``keys``, ``quantile`` and ``value``, for each of the shares ``$quantiles``.

    Args:
        rows: A table, or a query; it has ``value``, each once, and how many ``times`` it is there.
        keys: Columns of it, each combination of which has quantiles of its own.
    """
    return fill(_SQL["quantiles"], rows=_source(rows), keys=keys)


def quantiles_of(rows: str, keys: str) -> str:
    """As :func:`counted_quantiles`, of values that may all differ and need not fit into memory.

    Args:
        rows: A table, or a query; it has ``value``, and is asked twice.
        keys: See there.
    """
    names = keys.split(", ")
    held = ", ".join(f"rows.{name}" for name in names)
    same = " AND ".join(f"rows.{name} IS NOT DISTINCT FROM slots.{name}" for name in names)
    coarse = fill(_SQL["coarse"], rows=_source(rows), keys=keys, held=held, same=same)
    return counted_quantiles(coarse, keys)


def covered(rows: str, keys: str) -> str:
    """A query of ``keys`` and ``ns``, the time that rows of ``rows`` cover, each moment once.

    Args:
        rows: As for :func:`islands`; rows without a time cover none.
        keys: As for :func:`islands`.
    """
    return fill(_SQL["covered"], rows=_source(rows), keys=keys)


def _source(rows: str) -> str:
    return rows if rows.isidentifier() else fill("({rows})", rows=rows)
