"""Fills the tables from the files of a run, without its fine rows passing through Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import duckdb

from rlvr_probe.model.trace import Trace
from rlvr_probe.recording.build import build_trace
from rlvr_probe.recording.bulk import Bulk
from rlvr_probe.recording.files import list_files
from rlvr_probe.recording.left import LeavingReader, Unfit
from rlvr_probe.recording.liveness import Machine
from rlvr_probe.recording.load import Progress, load
from rlvr_probe.recording.tables.device_rows import fill_devices
from rlvr_probe.recording.tables.filling import fill_run, fill_steps, numbered
from rlvr_probe.recording.tables.journals.matching import LeftKeys, Places
from rlvr_probe.recording.tables.journals.placing import place
from rlvr_probe.recording.tables.journals.staging import Stager

__all__ = ["read_tables"]

_WRONG: Final = "unjoined_turns"


def read_tables(
    sql: duckdb.DuckDBPyConnection,
    folder: Path,
    run: Sequence[Path],
    *,
    progress: Progress | None = None,
    machine: Machine | None = None,
) -> Trace:
    """Fill the tables of ``sql`` from the folders of a run; what is left of its trace.

    That has everything but turns, tool calls and verifications of single trajectories, and times.

    Args:
        sql: Has the tables, empty.
        folder: Private; takes about as much as the fine rows do, compressed.
        run: Its folders, as for :func:`rlvr_probe.recording.read_run`.
        progress: Called after each process with bytes read so far and bytes to read.
        machine: Where to look whether processes still run; this machine.

    Raises:
        RecordingError: They hold no recording, two runs, or a newer format.
        Unfit: This has to be done the other way.
    """
    machine = Machine() if machine is None else machine
    files = list_files(*run)
    stager = Stager(sql, folder)
    try:
        reader = LeavingReader(folder, stager.add)
        loaded = load(files, machine, progress, reader.decode)
        reader.close()
        if files.spool is not None and not files.spool.exists():
            raise Unfit("it was moved from a spool meanwhile")
        stager.finish()
        _check_turns(sql, reader)
        places = Places(sql, folder, reader.left, reader.keys, reader.longest_b)
        trace = build_trace(loaded, machine, lambda clock: LeftKeys(clock, places))
        bulk = Bulk(sql, folder)
        steps = numbered(trace)
        _book(trace, place(bulk, places, trace, steps))
        fill_run(bulk, trace)
        fill_steps(bulk, trace, steps)
        fill_devices(bulk, trace)
        bulk.finish()
        _tidy(sql)
    except duckdb.Error as error:
        raise Unfit(f"DuckDB: {str(error).splitlines()[0]}") from error
    finally:
        stager.close()
    return trace


def _check_turns(sql: duckdb.DuckDBPyConnection, reader: LeavingReader) -> None:
    """See that no row of several trajectories belongs to one that has a span of its own.

    Raises:
        Unfit: One does.
    """
    several = [
        (one.number, row.batch) for one in reader.left.values() for row in one.decoder.journal.turns
    ]
    if not several:
        return
    sql.execute("CREATE TEMP TABLE q_several (p INTEGER, batch BIGINT)")
    sql.execute(
        "INSERT INTO q_several SELECT unnest(?::INTEGER[]), unnest(?::BIGINT[])",
        [[number for number, _ in several], [batch for _, batch in several]],
    )
    [[found]] = sql.execute(
        "SELECT count(*) FROM q_several s SEMI JOIN q_trajectory t"
        " ON t.p = s.p AND t.span = s.batch"
    ).fetchall()
    if found:
        raise Unfit("turns of several trajectories belong to one")


def _book(trace: Trace, wrong: Mapping[int, int]) -> None:
    """Count turns and tool calls that contradict their batch, on the first process as ever."""
    for attempt, count in wrong.items():
        at = trace.attempts[attempt].processes[0]
        one = trace.processes[at]
        lost = {**one.lost, _WRONG: one.lost.get(_WRONG, 0) + count}
        trace.processes[at] = replace(one, lost=lost)
        trace.lost[_WRONG] = trace.lost.get(_WRONG, 0) + count


def _tidy(sql: duckdb.DuckDBPyConnection) -> None:
    """Drop what only the joining needed."""
    made = sql.execute("SELECT table_name FROM duckdb_tables() WHERE starts_with(table_name, 'q_')")
    for (name,) in made.fetchall():
        sql.execute(f"DROP TABLE {name}")
