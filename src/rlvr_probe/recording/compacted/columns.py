"""Takes compacted segments as they are: lines are decoded, columns go to their tables by SQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path

import duckdb

from rlvr_probe.recording.compacted.about import About, read_about
from rlvr_probe.recording.compacted.lines import opened, rows_of
from rlvr_probe.recording.journal import JournalDecoder
from rlvr_probe.recording.schema import BY_NAME, SEGMENT_ROW

__all__ = ["load_columns", "read_compacted"]


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
            "SELECT span FROM read_parquet(?) WHERE span IN (SELECT unnest(?::BIGINT[]))",
            [str(path), list(spans)],
        ).fetchall()
    return {span for (span,) in found}


def load_columns(
    sql: duckdb.DuckDBPyConnection, table: str, files: Sequence[tuple[str, int]]
) -> None:
    """Put columns into a table of fine rows, in the order of the files.

    Args:
        sql: Has the table.
        table: Its name.
        files: Path and number of the process of each.
    """
    held = set(SEGMENT_ROW.names)
    names = ", ".join(f'"{name}"' for name in BY_NAME[table].names if name in held)
    paths, numbers = map(list, zip(*files, strict=True))
    sql.execute("SET preserve_insertion_order = true")
    sql.execute(
        f"INSERT INTO {table} (p, {names})"
        f" SELECT p, {names} FROM read_parquet($paths, filename = true)"
        " JOIN (SELECT unnest($paths) AS filename, unnest($numbers) AS p) USING (filename)"
        f" WHERE kind = '{table}'",
        {"paths": paths, "numbers": numbers},
    )
    sql.execute("SET preserve_insertion_order = false")
