"""A recording as tables, for programs and notebooks.

Nothing here loads DuckDB before a run is opened: who has the package without the extra ``cli``
can still import all of it.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from rlvr_probe.access import whose
from rlvr_probe.exceptions import ProbeError, RecordingError
from rlvr_probe.model.names import STAGES
from rlvr_probe.recording import check_readable, find_run, list_denied

if TYPE_CHECKING:
    import duckdb

    from rlvr_probe.recording.tables import Tables

__all__ = ["Relation", "Run", "open_run", "require"]

_SHOWN_ROWS: Final = 10
_SHOWN_CHARACTERS: Final = 80
_ROWS: Final = 4_096
"""Taken at once of those that a program goes through."""

_RELATIONS: Final = {
    "steps": ("step", "step_id"),
    "stages": ("span", "start_ns, process, id"),
    "groups": ("prompt_group", "ALL"),
    "trajectories": ("trajectory", "trajectory_id"),
    "turns": ("turn", "trajectory_id, turn"),
    "rewards": ("reward", "trajectory_id, fn"),
    "devices": ("device", "device"),
}
"""By name: the table whose columns it has, and the order of its rows."""


def require(library: str, user: str) -> Any:
    """The module ``library``.

    Args:
        library: Name that it is imported by.
        user: What needs it, for the message.

    Raises:
        ProbeError: It is not installed.
    """
    try:
        return import_module(library)
    except ImportError as error:
        # What an installed library lacks itself is another matter.
        if (error.name or "").partition(".")[0] != library:
            raise
    is_duckdb = library == "duckdb"
    title, package = ("DuckDB", "'rlvr-probe[cli]'") if is_duckdb else (library, library)
    raise ProbeError(
        f"{user} needs {title}, which is not installed; install it with pip install {package}"
    )


class Relation:
    """Rows of a run: one of its tables, or the answer to a question in SQL.

    It holds no rows: each use of it asks the run, which has to be open. As an iterable it gives one
    dict for each row, by column; ``len()`` counts rows.

    Attributes:
        name: Of the table; ``sql`` for an answer.
        columns: Names of its columns, in their order.
    """

    def __init__(self, run: Run, name: str, query: str, units: Sequence[tuple[str, str]]) -> None:
        """Made by :class:`Run`, with the unit of each column."""
        self.name = name
        self.columns = [column for column, _ in units]
        self._run = run
        self._query = query
        self._units = units

    def to_arrow(self) -> Any:
        """The rows as a ``pyarrow.Table``.

        Raises:
            ProbeError: pyarrow is not installed, or the run was closed.
        """
        require("pyarrow", "to_arrow()")
        return self._use(lambda rows: rows.to_arrow_table())

    def to_pandas(self) -> Any:
        """The rows as a ``pandas.DataFrame``; a column of integers with unknown ones is of floats.

        Raises:
            ProbeError: pandas is not installed, or the run was closed.
        """
        require("pandas", "to_pandas()")
        return self._use(lambda rows: rows.df())

    def to_polars(self) -> Any:
        """The rows as a ``polars.DataFrame``.

        Raises:
            ProbeError: polars is not installed, or the run was closed.
        """
        return self._use(require("polars", "to_polars()").DataFrame)

    def __len__(self) -> int:
        count: int = self._use(len)
        return count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with self._run._asking() as sql:
            sql.execute(self._query)
        while True:
            with self._run._asking(sql):
                rows = sql.fetchmany(_ROWS)
            if not rows:
                return
            for row in rows:
                yield dict(zip(self.columns, row, strict=True))

    def __repr__(self) -> str:
        return f"<{self.name} of run {self._run.source}: {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        """The first rows, for a notebook."""
        rows = self._use(lambda rows: rows.limit(_SHOWN_ROWS).fetchall())
        caption = f"{self.name}, {len(rows):,} of {len(self):,} rows"
        return _table(caption, self._units, rows)

    def _use(self, use: Callable[[Any], Any]) -> Any:
        """What ``use`` makes of DuckDB's relation of these rows."""
        with self._run._asking() as sql:
            return use(sql.sql(self._query))


class Run:
    """The tables of one recording, until it is closed.

    As a context it is closed at the end of the block; it closes itself once nothing refers to it.
    Several may be open at a time. The recording is only read. A forked child opens it anew.

    Attributes:
        source: The run id.
        notes: What a reader should know of the recording: sentences, most important first.
    """

    def __init__(self, tables: Tables, stack: ExitStack, notes: Sequence[str] = ()) -> None:
        """Made by :func:`open_run`."""
        from rlvr_probe.analysis.statements import fill, statements

        self.source = tables.source
        self.notes = (*notes, *tables.notes)
        self._sql = tables.sql
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._closing = weakref.finalize(self, _close, stack, self._sql, self._pid)
        for name in _RELATIONS:
            rows = fill(statements(__name__)[name], names=STAGES)
            self._sql.execute(f'CREATE VIEW "{name}" AS {rows}')

    @property
    def steps(self) -> Relation:
        """Trainer steps: columns of ``step``."""
        return self._relation("steps")

    @property
    def stages(self) -> Relation:
        """Stages of the steps, one row for each process and time: columns of ``span``."""
        return self._relation("stages")

    @property
    def groups(self) -> Relation:
        """Prompts, each with its trajectories: columns of ``prompt_group``."""
        return self._relation("groups")

    @property
    def trajectories(self) -> Relation:
        """Sampled completions: columns of ``trajectory``."""
        return self._relation("trajectories")

    @property
    def turns(self) -> Relation:
        """Engine calls of single trajectories: columns of ``turn``."""
        return self._relation("turns")

    @property
    def rewards(self) -> Relation:
        """What each reward function gave each trajectory: columns of ``reward``."""
        return self._relation("rewards")

    @property
    def devices(self) -> Relation:
        """GPUs, parts of them and hosts: columns of ``device``."""
        return self._relation("devices")

    def sql(self, query: str) -> Relation:
        """The answer to one ``SELECT``, of DuckDB, over these tables and all others of the run.

        Raises:
            ProbeError: It is not one SELECT, DuckDB cannot answer it, or the run was closed.
        """
        kind = require("duckdb", "sql()").StatementType.SELECT
        with self._asking() as sql:
            kinds = [statement.type for statement in sql.extract_statements(query)]
            if kinds != [kind]:
                raise ProbeError(f"expected one SELECT, found {query!r}: a run is only read")
            columns = sql.sql(query).columns
        doubled = sorted({column for column in columns if columns.count(column) > 1})
        if doubled:
            raise ProbeError(f"two columns are called {doubled[0]}; AS gives one another name")
        return Relation(self, "sql", query, [(column, "") for column in columns])

    def close(self) -> None:
        """Give back memory and temporary files; what was made of the tables stays."""
        with self._lock:
            self._closing()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "" if self._closing.alive else ", closed"
        return f"<rlvr_probe.Run {self.source}{state}>"

    def _repr_html_(self) -> str:
        """Its tables and notes, for a notebook."""
        rows = [(name, f"{len(self._relation(name)):,}") for name in _RELATIONS]
        notes = "".join(f"<li>{_text(note)}</li>" for note in self.notes)
        table = _table(f"run {self.source}", [("table", ""), ("rows", "")], rows)
        return f"{table}<ul>{notes}</ul>"

    def _relation(self, name: str) -> Relation:
        from rlvr_probe.recording.schema import BY_NAME

        table, order = _RELATIONS[name]
        units = [(column.name, column.unit) for column in BY_NAME[table].columns]
        return Relation(self, name, f'FROM "{name}" ORDER BY {order}', units)

    @contextmanager
    def _asking(
        self, sql: duckdb.DuckDBPyConnection | None = None
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection for a question, or that for more rows of one; other threads wait.

        Ctrl-C ends a query in the block, and what DuckDB cannot do is an error of ours.
        """
        duckdb = require("duckdb", "a run")
        from rlvr_probe.recording.tables.database import interruptible

        # A connection is not closed while a query of its cursors runs, but refuses.
        with self._lock:
            if not self._closing.alive or os.getpid() != self._pid:
                state = "opened by another process" if self._closing.alive else "closed"
                raise ProbeError(
                    f"run {self.source} was {state}; rlvr_probe.open_run() opens a recording again"
                )
            try:
                if sql is None:
                    sql = self._sql.cursor()
                    sql.execute("SET enable_progress_bar = false")
                    # A name in a query is that of a table, never that of a variable here.
                    sql.execute("SET python_enable_replacements = false")
                with interruptible(sql):
                    yield sql
            except duckdb.Error as error:
                raise ProbeError(f"DuckDB cannot answer this: {error}") from None


def open_run(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Run:
    """Open the tables of a recording, which needs the extra ``cli``.

    Args:
        path: A run folder, a folder of runs, of which the newest is taken, tables that
            ``characterize --save`` kept, a run of a lake, also one such as
            ``s3://bucket/name/run=ID``, or several folders of one run, where nodes kept a part of
            it each.

    Raises:
        ProbeError: DuckDB is not installed.
        RecordingError: There is no recording, it cannot be read, or there are two.
    """
    require("duckdb", "open_run()")
    from rlvr_probe.recording.lake import local_folder, tables_in
    from rlvr_probe.recording.tables import open_saved, open_tables
    from rlvr_probe.storage import is_remote, to_place

    given = [path] if isinstance(path, (str, os.PathLike)) else path
    places = [to_place(os.fspath(part)) for part in given]
    paths = [place if is_remote(place) else place.expanduser() for place in places]
    if not paths:
        raise RecordingError("expected a folder of a run, found none")
    for part in paths:
        check_readable(part)
    with ExitStack() as stack:
        saved = tables_in(paths[0]) if len(paths) == 1 else None
        if saved is not None:
            tables = stack.enter_context(open_saved(saved, signals=False))
            return Run(tables, stack.pop_all())
        paths = [stack.enter_context(local_folder(part)) for part in paths]
        # Found once: another run may start meanwhile.
        runs = [find_run(part) for part in paths]
        notes = [
            f"{denied.name} may be newer and may not be read: it {whose(denied)}"
            for part, run in zip(paths, runs, strict=True)
            for denied in list_denied(part, run)[:1]
        ]
        tables = stack.enter_context(open_tables(runs, signals=False))
        return Run(tables, stack.pop_all(), notes)


def _close(stack: ExitStack, sql: duckdb.DuckDBPyConnection, pid: int) -> None:
    """Close what the process ``pid`` opened; in a child of it DuckDB's threads are not there."""
    if os.getpid() == pid:
        stack.close()
    else:  # not even at the end of the program: to drop it would wait for those threads
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(sql))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(stack))


def _table(
    caption: str, columns: Iterable[tuple[str, str]], rows: Iterable[Sequence[object]]
) -> str:
    """An HTML table, of columns with their units."""
    head = "".join(
        f"<th>{_text(name)}{unit and f'<br><small>{_text(unit)}</small>'}</th>"
        for name, unit in columns
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return (
        f"<table><caption>{_text(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _cell(value: object) -> str:
    """A value; not all of a long text."""
    text = str(value)
    if len(text) > _SHOWN_CHARACTERS:
        text = f"{text[:_SHOWN_CHARACTERS]}…"
    return f"<td>{'<i>NULL</i>' if value is None else _text(text)}</td>"


def _text(text: str) -> str:
    """A text that a recording may hold, as HTML; what turns a line around is replaced."""
    return escape("".join(char if char.isprintable() else "\ufffd" for char in text))
