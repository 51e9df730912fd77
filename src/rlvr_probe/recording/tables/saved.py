"""Keeps the tables of a source as Parquet files, so that a second question is quick."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rlvr_probe.exceptions import RecordingError
from rlvr_probe.recording.schema import TABLES, VIEWS
from rlvr_probe.recording.tables.database import Tables, connect

__all__ = ["is_saved", "open_saved", "save_tables"]

_ABOUT: Final = "tables.json"
_FORMAT: Final = "rlvr-probe/tables"
_VERSION: Final = 2
_NAMES: Final = frozenset(table.name for table in TABLES)


def save_tables(tables: Tables, directory: Path) -> None:
    """Write every table into ``directory``, one Parquet file each, for any tool that reads those.

    What figures were made of goes into a folder ``made`` in it, where there are any yet, and
    ``open.sql`` makes views of all, so that the query of a figure can be asked again.

    Raises:
        RecordingError: It is there already, and not empty.
        OSError: It cannot be written.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise RecordingError(f"{directory} is there already; give the name of a new directory")
    directory.mkdir(parents=True, exist_ok=True)
    views = list[str]()
    for name in (*(table.name for table in TABLES), *_made(tables)):
        place = f"{name}.parquet" if name in _NAMES else f"made/{name}.parquet"
        path = directory / place
        path.parent.mkdir(exist_ok=True)
        literal = str(path).replace("'", "''")
        tables.sql.execute(f"COPY (FROM {name}) TO '{literal}' (FORMAT parquet, COMPRESSION zstd)")
        views.append(f"CREATE VIEW {name} AS FROM '{place}';\n")
    views += [f"CREATE VIEW {name} AS {query};\n" for name, query in VIEWS.items()]
    (directory / "open.sql").write_text("".join(views), encoding="utf-8")
    about = {
        "format": _FORMAT,
        "version": _VERSION,
        "source": tables.source,
        "notes": list(tables.notes),
    }
    # Last: a directory without it is not whole.
    (directory / _ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _made(tables: Tables) -> list[str]:
    """Tables and views besides those of the schema."""
    there = tables.sql.execute(
        "SELECT table_name FROM duckdb_tables() UNION SELECT view_name FROM duckdb_views()"
        " WHERE NOT internal ORDER BY ALL"
    )
    return [name for (name,) in there.fetchall() if name not in _NAMES and name not in VIEWS]


def is_saved(directory: Path) -> bool:
    """Whether ``directory`` holds saved tables."""
    return (directory / _ABOUT).is_file()


@contextmanager
def open_saved(
    directory: Path, *, threads: int | None = None, signals: bool = True
) -> Iterator[Tables]:
    """The tables in ``directory``, until the context is left; they are read when asked.

    Args:
        directory: As :func:`save_tables` wrote it.
        threads: Of DuckDB; by default one for each core.
        signals: Whether Ctrl-C, and a handled SIGTERM, end each query from then on.

    Raises:
        RecordingError: It holds none, not all of them, or those of another version.
    """
    try:
        about = json.loads((directory / _ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordingError(f"{directory} holds no saved tables: {error}") from None
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise RecordingError(f"{directory / _ABOUT} does not say that tables are saved there")
    if about.get("version") != _VERSION:
        raise RecordingError(
            f"{directory} holds tables of version {about.get('version')}; expected {_VERSION}: save"
            " them again with this version"
        )
    with connect(threads, signals=signals) as sql:
        for table in TABLES:
            path = directory / f"{table.name}.parquet"
            if not path.is_file():
                raise RecordingError(f"{path} is missing: save the tables again")
            literal = str(path).replace("'", "''")
            sql.execute(f"CREATE VIEW {table.name} AS SELECT * FROM read_parquet('{literal}')")
        for name, query in VIEWS.items():
            sql.execute(f"CREATE VIEW {name} AS {query}")
        yield Tables(sql, str(about.get("source")), tuple(map(str, about.get("notes", ()))))
