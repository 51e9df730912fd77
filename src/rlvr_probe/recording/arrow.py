"""Numbers that a query answers, in arrays, over Arrow: no row of them is made in Python."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import duckdb
import nanoarrow

__all__ = ["columns_by_first"]


def columns_by_first(
    sql: duckdb.DuckDBPyConnection, query: str
) -> Iterator[tuple[int, list[array[Any]]]]:
    """The rows of each value of the first column, as an array of each of the others.

    Args:
        sql: Has the tables.
        query: Orders rows by its first column. Its numbers are all known: BIGINT, INTEGER, UINTEGER
            or DOUBLE.

    Raises:
        duckdb.Error: The query failed.
        ValueError: A number is unknown, or rows are not in order.
    """
    # DuckDB before 2.0 keeps rows of a query with parameters in a table first: in order, if at all,
    # of insertion.
    sql.execute("SET preserve_insertion_order = true")
    first: int | None = None
    columns: list[array[Any]] = []
    for numbers, *others in _chunks(sql, query):
        begin = 0
        for number, same in groupby(numbers):
            end = begin + len(list(same))
            if number != first:
                if first is not None:
                    yield first, columns
                    if number < first:
                        raise ValueError(f"rows are not in order in the answer to {query}")
                first, columns = number, [array(other.format) for other in others]
            for column, other in zip(columns, others, strict=True):
                column.frombytes(other[begin:end].cast("B"))
            begin = end
    if first is not None:
        yield first, columns


def _chunks(sql: duckdb.DuckDBPyConnection, query: str) -> Iterator[list[memoryview]]:
    """Some thousand rows after another, in columns."""
    try:
        for rows in nanoarrow.c_array_stream(sql.sql(query)):
            children = list(rows.view().children)
            if any(child.null_count for child in children):
                raise ValueError(f"a number is unknown in the answer to {query}")
            # Buffer 0 of a column says which of its numbers are known.
            yield [memoryview(child.buffer(1)) for child in children]
    except RuntimeError as error:  # nanoarrow's, with what DuckDB said
        is_memory = "Out of Memory" in str(error)
        kind = duckdb.OutOfMemoryException if is_memory else duckdb.Error
        raise kind(str(error)) from None
