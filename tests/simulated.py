"""Simulated runs that tests share: each is simulated, opened and asked once in a session.

Several processes share them on disk. What a test gets is its own: tables in memory that it may
change, values read anew. A run folder is everybody's, and nobody changes it.
"""

from __future__ import annotations

import fcntl
import io
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from rlvr_probe import cli
from rlvr_probe.recording.tables import Tables, open_tables
from rlvr_probe.recording.tables.database import connect
from tests.simulator import Scenario, Truth, scenario, simulate
from tests.simulator.faults import Fault, Straggler, ThermalThrottling

__all__ = ["FILTERED", "SMALL", "TRAINED", "Characterized", "Corpus", "brief"]

SMALL = replace(scenario(4), steps=4)
"""A run that is characterized anyway, for whoever needs any."""

TRAINED = replace(scenario(1), steps=3)
"""A run of ranks that do everything, with tools."""

_Answer = TypeVar("_Answer")


def brief(drawn: Scenario, steps: int = 12, prompts: int = 16) -> Scenario:
    """The same in fewer steps and with fewer groups; what is wrong with it is in what is left."""
    faults = list[Fault]()
    for one in drawn.faults:
        if isinstance(one, Straggler):
            number = one.group_number % prompts
            one = replace(one, step=min(one.step, steps), group_number=number)
        elif isinstance(one, ThermalThrottling):
            one = replace(one, first_step=min(one.first_step, steps // 2))
        faults.append(one)
    return replace(
        drawn, steps=steps, prompts=prompts, faults=tuple(faults),
        generated=drawn.generated * prompts // drawn.prompts,
    )  # fmt: skip


FILTERED = brief(scenario(11))
"""A run with a controller whose filter throws away half of the groups."""


BESIDE = brief(scenario(3))
"""An asynchronous run, which generates what it never trains on."""


@dataclass(frozen=True)
class Characterized:
    """What ``rlvr-probe characterize`` printed of a run and wrote."""

    screen: list[str]
    json: Path
    page: Path
    saved: Path


@dataclass(frozen=True)
class Corpus:
    """Simulated runs, and what was asked of them, in a folder of this session of tests."""

    folder: Path

    def run(self, drawn: Scenario) -> tuple[Path, Truth]:
        """The run folder of a scenario, and what is true of it."""

        def make(folder: Path) -> None:
            _put(folder / "truth", simulate(drawn, folder / "run"))

        folder = self._entry(drawn, "run", make)
        return folder / "run", _read(folder / "truth")

    @contextmanager
    def tables(self, drawn: Scenario) -> Iterator[Tables]:
        """The tables of a scenario; whatever is done to them is gone afterwards."""
        with self.after(drawn, _nothing) as (tables, _):
            yield tables

    @contextmanager
    def after(
        self, drawn: Scenario, ask: Callable[[Tables], _Answer]
    ) -> Iterator[tuple[Tables, _Answer]]:
        """The tables as ``ask``, a function of a module, left them, and what it said."""

        def make(folder: Path) -> None:
            with self._opened(drawn, ask) as tables:
                _put(folder / "answer", ask(tables))
                _put(folder / "about", (tables.source, tables.notes))
                _keep(tables.sql, folder)

        folder = self._entry(drawn, f"after-{ask.__name__}", make)
        with connect(1) as sql:
            _fill(sql, folder)
            yield Tables(sql, *_read(folder / "about")), _read(folder / "answer")

    @contextmanager
    def _opened(self, drawn: Scenario, ask: Callable[[Tables], Any]) -> Iterator[Tables]:
        if ask is not _nothing:
            with self.tables(drawn) as tables:
                yield tables
        else:
            with open_tables(self.run(drawn)[0], threads=1) as tables:
                yield tables

    def asked(self, drawn: Scenario, ask: Callable[[Tables], _Answer]) -> _Answer:
        """What ``ask``, a function of a module, says of the tables of a scenario."""

        def make(folder: Path) -> None:
            with self.tables(drawn) as tables:
                _put(folder / "answer", ask(tables))

        answer: _Answer = _read(self._entry(drawn, f"asked-{ask.__name__}", make) / "answer")
        return answer

    def characterized(self, drawn: Scenario) -> Characterized:
        """What the command says of a run, in all the ways that it has."""

        def make(folder: Path) -> None:
            screen = io.StringIO()
            given = "--json", folder / "json", "--html", folder / "page", "--save", folder / "saved"
            with redirect_stdout(screen):
                code = cli.main(["characterize", str(self.run(drawn)[0]), *map(str, given)])
            assert code == cli.OK
            (folder / "screen").write_text(screen.getvalue(), encoding="utf-8")

        folder = self._entry(drawn, "characterized", make)
        screen = (folder / "screen").read_text(encoding="utf-8").splitlines()
        return Characterized(screen, folder / "json", folder / "page", folder / "saved")

    def _entry(self, drawn: Scenario, what: str, make: Callable[[Path], None]) -> Path:
        """The folder that ``make`` fills, once in the session: others wait for it."""
        name = f"{sha256(repr(drawn).encode()).hexdigest()[:16]}-{what}"
        path = self.folder / name
        if not path.exists():
            self.folder.mkdir(exist_ok=True)
            with (self.folder / f"{name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not path.exists():
                    part = Path(tempfile.mkdtemp(dir=self.folder))
                    make(part)
                    part.rename(path)
        return path


def _nothing(tables: Tables) -> None:
    """Asks nothing of a run."""


def _keep(sql: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Write a database to files."""
    sql.execute(f"ATTACH '{folder / 'tables'}' AS kept (BLOCK_SIZE 16384)")
    [[name]] = sql.execute("SELECT current_database()").fetchall()  # a large one is in a file
    sql.execute(f"COPY FROM DATABASE {name} TO kept")
    # What the analysis makes is temporary, which no copy of a database has.
    sql.execute(f"ATTACH '{folder / 'temporary'}' AS temporary (BLOCK_SIZE 16384)")
    tables = sql.execute("SELECT table_name FROM duckdb_tables() WHERE temporary").fetchall()
    for (name,) in tables:
        sql.execute(f"CREATE TABLE temporary.{name} AS FROM temp.{name}")
    views = sql.execute(
        "SELECT sql FROM duckdb_views() WHERE temporary AND NOT internal"
    ).fetchall()
    _put(folder / "made", ([name for (name,) in tables], [text for (text,) in views]))


def _fill(sql: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Read what :func:`_keep` wrote into an empty database in memory."""
    sql.execute(f"ATTACH '{folder / 'tables'}' AS kept (READ_ONLY)")
    sql.execute("COPY FROM DATABASE kept TO memory")
    names, views = _read(folder / "made")
    if names:
        sql.execute(f"ATTACH '{folder / 'temporary'}' AS temporary (READ_ONLY)")
    for name in names:
        sql.execute(f"CREATE TEMP TABLE {name} AS FROM temporary.{name}")
    while views:
        try:
            sql.execute(views[0])
        except duckdb.CatalogException:
            views.append(views[0])  # it reads another one, which is not there yet
        del views[0]
    sql.execute("DETACH kept")
    if names:
        sql.execute("DETACH temporary")


def _put(path: Path, value: object) -> None:
    path.write_bytes(pickle.dumps(value))


def _read(path: Path) -> Any:
    return pickle.loads(path.read_bytes())
