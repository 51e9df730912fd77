"""Rows that are gathered for a table."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from rlvr_probe.recording.bulk import Bulk
from rlvr_probe.recording.columns import Column, Table


def test_where_one_table_cannot_be_loaded_no_file_stays_open() -> None:
    tables = [Table(name, "", (Column("n", "INTEGER", ""),)) for name in ("one", "other")]
    with duckdb.connect() as sql:
        bulk = Bulk(sql)
        for table in tables:
            sql.execute(table.ddl)
            bulk.add(table, [(5_000_000_000,)])
        with pytest.raises(duckdb.Error):
            bulk.finish()
        left = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert not [name for name in left if "memfd:rlvr-probe" in name]
