"""Rows that are gathered for a table."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from rlvr_probe.recording.bulk import Bulk
from rlvr_probe.recording.schema import BY_NAME


def test_where_one_table_cannot_be_loaded_no_file_stays_open() -> None:
    with duckdb.connect() as sql:
        bulk = Bulk(sql)
        for name, row in (("lost", ("reason", 1 << 64)), ("q_key", (1 << 32, 0, 1, 2))):
            sql.execute(BY_NAME[name].ddl)
            bulk.add(name, [row])
        with pytest.raises(duckdb.Error):
            bulk.finish()
        left = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert not [name for name in left if "memfd:rlvr-probe" in name]
