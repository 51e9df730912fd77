"""Takes compacted segments as they are: lines are decoded, columns go to their tables by SQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import duckdb

from rlvr_probe.recording.compacted.about import About, read_about
from rlvr_probe.recording.compacted.lines import opened, rows_of
from rlvr_probe.recording.journal import JournalDecoder
from rlvr_probe.recording.schema import AS_IT_IS, BY_NAME, SEGMENT_ROW, literal

__all__ = ["attach_columns", "read_compacted"]


_MOST: Final = 1 << 40
"""Rows of a file: more than that has none, and less than that a table."""


def read_compacted(decoder: JournalDecoder, path: Path) -> About:
    """Decode what is in lines, and note what the columns say of the process.

    Raises:
        OSError: It cannot be read, or is damaged.
    """
    about = read_about(path)
    for lines in rows_of(path):
        decoder.rows(lines)
    decoder.note_columns(about.totals, about.last_ns, lambda spans: _ended(path, spans))
    return about


def _ended(path: Path, spans: Collection[int]) -> set[int]:
    """Those of some spans that have a row in the columns."""
    with closing(opened()) as sql:
        found = sql.execute(
            f"SELECT span FROM read_parquet(?, {AS_IT_IS})"
            " WHERE span IN (SELECT unnest(?::BIGINT[]))",
            [str(path), list(spans)],
        ).fetchall()
    return {span for (span,) in found}


def attach_columns(
    sql: duckdb.DuckDBPyConnection, tables: Mapping[str, Sequence[tuple[str, int]]]
) -> None:
    """Make views of tables of fine rows, with the columns of files behind their rows.

    Nothing is copied: most columns of a row are unknown, and take as much room in memory as others.

    Args:
        sql: Has the tables.
        tables: Path and number of the process of each file, by name of the table.
    """
    known = {file for files in tables.values() for file in files}
    sql.execute("CREATE TABLE q_file (filename VARCHAR, p INTEGER, place BIGINT)")
    sql.executemany(
        "INSERT INTO q_file VALUES (?, ?, ?)",
        [(*file, place * _MOST) for place, file in enumerate(sorted(known), 1)],
    )
    held = set(SEGMENT_ROW.names)
    for table, files in tables.items():
        names = ", ".join(f'"{name}"' for name in BY_NAME[table].names if name in held)
        paths = ", ".join(literal(path) for path, _ in files)
        sql.execute(f"ALTER TABLE {table} RENAME TO {table}_lines")
        sql.execute(
            f"CREATE VIEW {table} AS SELECT *, rowid AS rowid FROM {table}_lines UNION ALL BY NAME"
            f" SELECT p, {names}, place + file_row_number AS rowid FROM"
            f" read_parquet([{paths}], filename = true, file_row_number = true, {AS_IT_IS})"
            f" JOIN q_file USING (filename) WHERE kind = '{table}'"
        )
