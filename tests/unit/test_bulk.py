"""Rows that are gathered for a table."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from rlvr_probe.recording.bulk import Bulk
from rlvr_probe.recording.schema import BY_NAME, statements


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


def test_of_a_key_its_hashes_are_loaded() -> None:
    keys = [None if number % 3 == 0 else f"key {number}" for number in range(10_000)]
    with duckdb.connect() as sql:
        bulk = Bulk(sql)
        sql.execute(BY_NAME["q_key"].ddl)
        sql.execute(statements("rlvr_probe.recording.fine", "join.sql")["hashes"])
        bulk.add_columns("q_key", {"local": list(range(len(keys))), "key": keys}, k=7)
        bulk.finish()
        rows = sql.execute("SELECT k, local, high, low FROM q_key ORDER BY local").fetchall()
        hashes = sql.execute(
            "SELECT unnest(range(len($1))) AS local, unnest($1) AS key,"
            " hash(key), hash('#' || key) ORDER BY local",
            [keys],
        ).fetchall()
    assert rows == [
        (7, local, *((None, None) if key is None else (high, low)))
        for local, key, high, low in hashes
    ]
