"""Answers of queries in arrays: as rows say them, over any number of chunks, or none at all."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator

import duckdb
import pytest

from rlvr_probe.recording.arrow import columns_by_first
from rlvr_probe.recording.tables.database import connect

ROWS = 700_000
"""Several chunks of every release, and enough for several threads."""


@pytest.fixture
def sql() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect(4, signals=False) as connection:
        yield connection


def test_columns_are_the_rows(sql: duckdb.DuckDBPyConnection) -> None:
    drawn = random.Random(0)
    sizes = [drawn.choice([0, 1, 3, 1_000, 150_000]) for _ in range(30)]
    sql.execute("CREATE TABLE numbered (n INTEGER, place BIGINT, u UINTEGER, x DOUBLE)")
    for n, size in enumerate(sizes):
        sql.execute(
            "INSERT INTO numbered SELECT ?, i - 5, i, CASE WHEN i % 7 = 0 THEN 'NaN' ELSE i / 3 END"
            " FROM range(?) r(i)",
            [n, size],
        )
    query = "SELECT n, place, u, x FROM numbered ORDER BY n, place"
    found = list(columns_by_first(sql, query))
    assert sum(sizes) > ROWS
    assert [n for n, _ in found] == [n for n, size in enumerate(sizes) if size]
    for n, (places, numbers, values) in found:
        assert (places.typecode, numbers.typecode, values.typecode) == ("q", "I", "d")
        assert places == array("q", range(-5, sizes[n] - 5))
        assert numbers == array("I", range(sizes[n]))
        assert [value for value in values if value == value] == [
            place / 3 for place in range(sizes[n]) if place % 7
        ]


def test_rows_are_in_their_order_however_many_threads_sort_them(
    sql: duckdb.DuckDBPyConnection,
) -> None:
    """DuckDB before 2.0 loses it where a query has parameters: half of the times, of so many."""
    sql.execute(f"CREATE TABLE drawn AS SELECT hash(i) AS x FROM range({2 * ROWS}) r(i)")
    query = "SELECT (x % 20)::INTEGER AS n, (x >> 1)::BIGINT AS y FROM drawn ORDER BY n, y"
    found = list(columns_by_first(sql, query))
    assert [n for n, _ in found] == list(range(20))
    assert sum(len(column) for _, [column] in found) == 2 * ROWS
    assert all(column == array("q", sorted(column)) for _, [column] in found)


def test_no_row_gives_nothing(sql: duckdb.DuckDBPyConnection) -> None:
    assert list(columns_by_first(sql, "SELECT 1, 2 WHERE false")) == []


def test_a_number_that_is_unknown_is_refused(sql: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(ValueError, match="a number is unknown in the answer to SELECT"):
        list(columns_by_first(sql, "SELECT i, if(i = 3, NULL, i) FROM range(5) r(i) ORDER BY i"))


def test_an_order_that_is_missing_is_refused(sql: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(ValueError, match="rows are not in order in the answer to SELECT"):
        list(columns_by_first(sql, "SELECT i, i FROM range(5) r(i) ORDER BY i DESC"))


@pytest.mark.parametrize("said", ["too large", "Out of Memory"])
@pytest.mark.parametrize("order", ["", " ORDER BY i"])
def test_what_fails_is_an_error_of_duckdb(
    sql: duckdb.DuckDBPyConnection, said: str, order: str
) -> None:
    """Without an order a new release hands over the first rows before the last one fails."""
    failing = f"if(i = 2_999_999, error('{said}')::BIGINT, i)"
    with pytest.raises(duckdb.Error, match=said):
        list(columns_by_first(sql, f"SELECT 1, {failing} FROM range(3_000_000) r(i){order}"))


def test_memory_that_does_not_suffice_is_said_as_elsewhere() -> None:
    with duckdb.connect() as sql:
        sql.execute("SET memory_limit = '20MB'; SET temp_directory = ''; SET threads = 1")
        query = "SELECT i, hash(i)::DOUBLE FROM range(5_000_000) r(i) ORDER BY hash(i)"
        with pytest.raises(duckdb.OutOfMemoryException):
            list(columns_by_first(sql, query))
