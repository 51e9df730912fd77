"""Tables in a file of DuckDB, for another process that asks a part of the questions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from rlvr_probe.recording.schema import TABLES, VIEWS, literal
from rlvr_probe.recording.tables.database import Tables, connect

__all__ = ["adopt", "open_shipped", "ship"]

_FILE: Final = "shipped"
_SOURCE: Final = "source"
"""Names of the file: where tables are written to it or taken from it, and where they are asked."""

_TEXTS: Final = "made_view"
"""The table of the file that says how views are made, in their order."""

_MADE_TABLES: Final = "SELECT table_name FROM duckdb_tables() WHERE temporary ORDER BY table_oid"
# DuckDB 1.3 spells it TEMPORARY.
_MADE_VIEWS: Final = (
    "SELECT view_oid AS place, regexp_replace(sql, '^CREATE TEMP(ORARY)? VIEW',"
    " 'CREATE OR REPLACE TEMP VIEW') AS text FROM duckdb_views() WHERE temporary AND NOT internal"
    f" AND view_name NOT IN ({', '.join(map(literal, VIEWS))})"
)


def ship(tables: Tables, path: Path, *, made: bool = False) -> None:
    """Write tables into a new file: what the schema names, and all besides.

    Args:
        tables: What to write; of views that were made, the text.
        path: The file.
        made: Only what was made of the tables of the schema: it is temporary.

    Raises:
        OSError: It cannot be written.
    """
    sql = tables.sql
    names = [name for (name,) in sql.execute(_MADE_TABLES).fetchall()]
    if not made:
        names += [table.name for table in TABLES]
    with _attached(sql, path):
        for name in names:
            sql.execute(f"CREATE TABLE {_FILE}.{name} AS FROM {name}")
        sql.execute(f"CREATE TABLE {_FILE}.{_TEXTS} AS {_MADE_VIEWS}")
        # Into the file itself: a log beside it would stay behind.
        sql.execute(f"CHECKPOINT {_FILE}")


@contextmanager
def open_shipped(path: str, like: tuple[str, tuple[str, ...]]) -> Iterator[Tables]:
    """The tables in a file, until the context is left.

    Args:
        path: As :func:`ship` wrote it.
        like: What they are of: source and notes, as in :class:`Tables`.
    """
    with connect(1, signals=False) as sql:
        sql.execute(f"ATTACH {literal(path)} AS {_SOURCE} (READ_ONLY); USE {_SOURCE}")
        for name, query in VIEWS.items():
            sql.execute(f"CREATE TEMP VIEW {name} AS {query}")
        _make_views(sql, _SOURCE)
        yield Tables(sql, *like)


def adopt(tables: Tables, path: Path) -> None:
    """Have what was made in another process as if it had been made here.

    Args:
        tables: Get it.
        path: As :func:`ship` wrote it there.
    """
    sql = tables.sql
    with _attached(sql, path, " (READ_ONLY)"):
        found = f"SELECT table_name FROM duckdb_tables() WHERE database_name = '{_FILE}'"
        for (name,) in sql.execute(found).fetchall():
            if name != _TEXTS:
                sql.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM {_FILE}.{name}")
        _make_views(sql, _FILE)


def _make_views(sql: duckdb.DuckDBPyConnection, file: str) -> None:
    for (text,) in sql.execute(f"SELECT text FROM {file}.{_TEXTS} ORDER BY place").fetchall():
        sql.execute(text)


@contextmanager
def _attached(sql: duckdb.DuckDBPyConnection, path: Path | str, how: str = "") -> Iterator[None]:
    sql.execute(f"ATTACH {literal(path)} AS {_FILE}{how}")
    try:
        yield
    finally:
        sql.execute(f"DETACH {_FILE}")
