"""Tables saved as Parquet, in a folder or in object storage, and opened again.

Those with a row for each trajectory, or for parts of one, are split by range of trainer steps.
Parquet as DuckDB writes it has no sums: those of files are kept beside them. Object storage keeps
its own.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import duckdb

from rlvr_probe.exceptions import RecordingError, StorageError
from rlvr_probe.recording.schema import AS_IT_IS, TABLES, VIEWS, literal
from rlvr_probe.recording.tables.database import LARGE_B, Tables, connect
from rlvr_probe.storage import answering, attach, delete_below, is_remote

__all__ = ["ABOUT", "is_saved", "open_saved", "read_about", "save_tables"]

ABOUT: Final = "tables.json"
_FORMAT: Final = "rlvr-probe/tables"
_VERSION: Final = 6
_NAMES: Final = frozenset(table.name for table in TABLES)

_SPLIT: Final = ("trajectory", "turn", "tool_call", "verification", "reward")
_BLOCK_B: Final = 4 << 20
_STEPS: Final = 1_000
"""Trainer steps of one range."""

_NO_STEP: Final = "__HIVE_DEFAULT_PARTITION__"
"""What takes the place of an unknown value in the name of a partition, for any tool."""


def save_tables(tables: Tables, directory: Path) -> None:
    """Write every table into ``directory`` as Parquet, for any tool that reads that.

    What figures were made of goes into a folder ``made`` in it, where there are any yet, and
    ``open.sql`` makes views of all, so that the query of a figure can be asked again.

    Args:
        tables: What to write.
        directory: A new folder, or one in object storage, where what is there is replaced.

    Raises:
        RecordingError: It is there already, and not empty.
        OSError: It cannot be written.
        StorageError: The storage refuses.
    """
    remote = attach(tables.sql, directory)
    if remote:
        delete_below(directory, first=ABOUT)
    elif directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise RecordingError(f"{directory} is there already; give the name of a new directory")
    views, ranges, sums = list[str](), _ranges(tables), dict[str, str]()
    for name in (*(table.name for table in TABLES), *_made(tables)):
        parts = {f"{name}.parquet" if name in _NAMES else f"made/{name}.parquet": f"FROM {name}"}
        if name in _SPLIT:
            parts = {_part(name, first): _rows(name, first, ranges) for first in ranges}
        for place, rows in parts.items():
            path = directory / place
            if not remote:
                path.parent.mkdir(parents=True, exist_ok=True)
            _copy(tables.sql, rows, path)
            if not remote:
                sums[place] = _sum_of(path)
        named = ", ".join(f"'{place}'" for place in parts)
        views.append(f"CREATE VIEW {name} AS FROM read_parquet([{named}], {AS_IT_IS});\n")
    views += [f"CREATE VIEW {name} AS {query};\n" for name, query in VIEWS.items()]
    about = {
        "format": _FORMAT,
        "version": _VERSION,
        "source": tables.source,
        "notes": list(tables.notes),
        "first_steps": ranges,
        "crc32_of_files": None if remote else sums,
    }
    about["crc32"] = _sum(about)
    with answering(directory) if remote else nullcontext():
        (directory / "open.sql").write_text("".join(views), encoding="utf-8")
        # Last: a directory without it is not whole.
        (directory / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _sum(about: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(about).encode()):08x}"


def _sum_of(path: Path) -> str:
    crc = 0
    with path.open("rb") as file:
        while data := file.read(_BLOCK_B):
            crc = zlib.crc32(data, crc)
    return f"{crc:08x}"


def _copy(sql: duckdb.DuckDBPyConnection, rows: str, path: Path) -> None:
    """Write the rows of a query into a file or an object."""
    try:
        sql.execute(f"COPY ({rows}) TO {literal(path)} (FORMAT parquet, COMPRESSION zstd)")
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        if not is_remote(path):
            raise
        raise StorageError(
            f"{path} cannot be written: {_reason(error)}", type(error).__name__
        ) from None


def _reason(error: Exception) -> str:
    """What DuckDB says, or the storage below it, whose traceback DuckDB passes on."""
    lines = str(error).strip().splitlines() or [""]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


def _ranges(tables: Tables) -> list[str]:
    """First steps of the ranges, as names of partitions; a short run has one."""
    found = tables.sql.execute(
        f"SELECT DISTINCT number // {_STEPS} * {_STEPS} FROM batch JOIN step USING (step_id)"
        " ORDER BY ALL"
    )
    ranges = [str(first) for (first,) in found.fetchall()]
    # Rows of no trajectory belong to no step.
    return [*ranges, _NO_STEP] if len(ranges) > 1 else ranges or ["0"]


def _rows(table: str, first: str, ranges: Sequence[str]) -> str:
    """The rows of a table that belong to a range of steps, as a query."""
    if len(ranges) == 1:
        return f"FROM {table}"
    value = "NULL" if first == _NO_STEP else first
    return (
        f"SELECT found.* FROM {table} AS found LEFT JOIN batch USING (batch_id)"
        " LEFT JOIN step ON step.step_id = batch.step_id"
        f" WHERE step.number // {_STEPS} * {_STEPS} IS NOT DISTINCT FROM {value}"
    )


def _part(table: str, first: str) -> str:
    return f"{table}/first_step={first}/data.parquet"


def _made(tables: Tables) -> list[str]:
    """Tables and views besides those of the schema."""
    there = tables.sql.execute(
        "SELECT table_name FROM duckdb_tables() UNION SELECT view_name FROM duckdb_views()"
        " WHERE NOT internal ORDER BY ALL"
    )
    return [name for (name,) in there.fetchall() if name not in _NAMES and name not in VIEWS]


def is_saved(directory: Path) -> bool:
    """Whether ``directory`` holds saved tables."""
    return (directory / ABOUT).is_file()


def read_about(directory: Path) -> dict[str, Any]:
    """What saved tables say of themselves.

    Raises:
        RecordingError: There are none, those of another version, or it is damaged.
    """
    try:
        about = json.loads((directory / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordingError(f"{directory} holds no saved tables: {error}") from None
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise RecordingError(f"{directory / ABOUT} does not say that tables are saved there")
    if about.get("version") != _VERSION:
        raise RecordingError(
            f"{directory} holds tables of version {about.get('version')}; expected"
            f" {_VERSION}: save them again with this version"
        )
    if about.pop("crc32", None) != _sum(about):
        raise RecordingError(f"{directory / ABOUT} is damaged: save the tables again")
    return about


@contextmanager
def open_saved(
    directory: Path, *, threads: int | None = None, signals: bool = True, hold: bool = False
) -> Iterator[Tables]:
    """The tables in ``directory``, until the context is left; they are read when asked.

    Of those in a folder every byte is checked first, a second for each gigabyte. Of those in object
    storage all but the ones that are split are read at once: each question would take a hundred
    requests.

    Args:
        directory: As :func:`save_tables` wrote it.
        threads: Of DuckDB; by default one for each core.
        signals: Whether Ctrl-C, and a handled SIGTERM, end each query from then on.
        hold: Read all tables that are in object storage at once: they will be asked for often.

    Raises:
        RecordingError: It holds none, not all of them, those of another version, or damaged ones.
    """
    about = read_about(directory)
    ranges = [str(first) for first in about.get("first_steps") or ()]
    sums: dict[str, str] | None = about.get("crc32_of_files")
    remote = is_remote(directory)
    with connect(threads, signals=signals, size_b=LARGE_B if hold and remote else 0) as sql:
        attach(sql, directory)
        for table in TABLES:
            places = [f"{table.name}.parquet"]
            if table.name in _SPLIT:
                places = [_part(table.name, first) for first in ranges]
            paths = ", ".join(literal(directory / place) for place in places)
            held = remote and (hold or table.name not in _SPLIT)
            kind = "TABLE" if held else "VIEW"
            try:
                for place in places:
                    if sums is not None and sums.get(place) != _sum_of(directory / place):
                        raise OSError(f"the checksum of {place} does not fit")
                sql.execute(
                    f"CREATE {kind} {table.name} AS FROM read_parquet([{paths}], {AS_IT_IS})"
                )
            except (duckdb.Error, OSError) as error:
                raise RecordingError(
                    f"{directory / table.name} is missing or damaged: save the tables again;"
                    f" {_reason(error)}"
                ) from None
        for name, query in VIEWS.items():
            sql.execute(f"CREATE VIEW {name} AS {query}")
        yield Tables(sql, str(about.get("source")), tuple(map(str, about.get("notes", ()))))
