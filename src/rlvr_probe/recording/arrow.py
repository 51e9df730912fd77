"""Numbers that a query answers, in arrays, over Arrow: no row of them is made in Python."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import nanoarrow

__all__ = ["columns_by_first"]


def columns_by_first(
    sql: duckdb.DuckDBPyConnection, query: str, values: Sequence[Any] = ()
) -> Iterator[tuple[int, list[array[Any]]]]:
    """The rows of each value of the first column, as an array of each of the others.

    Args:
        sql: Has the tables.
        query: Orders rows by its first column. Its numbers are all known: BIGINT, INTEGER, UINTEGER
            or DOUBLE.
        values: Of its parameters.

    Raises:
        duckdb.Error: The query failed.
    """
    first: int | None = None
    columns: list[array[Any]] = []
    for chunk in _chunks(sql, query, values):
        numbers, *others = chunk
        begin = 0
        while begin < len(numbers):
            end = bisect_right(numbers, numbers[begin], begin)
            if numbers[begin] != first:
                if first is not None:
                    yield first, columns
                first, columns = numbers[begin], [array(other.format) for other in others]
            for column, other in zip(columns, others, strict=True):
                column.frombytes(other[begin:end].cast("B"))
            begin = end
    if first is not None:
        yield first, columns


def _chunks(
    sql: duckdb.DuckDBPyConnection, query: str, values: Sequence[Any]
) -> Iterator[list[memoryview]]:
    """Some thousand rows after another, in columns."""
    try:
        for rows in nanoarrow.c_array_stream(sql.sql(query, params=values)):
            children = list(rows.view().children)
            if any(child.null_count for child in children):
                raise ValueError(f"a number is unknown in the answer to {query}")
            # Buffer 0 of a column says which of its numbers are known.
            yield [memoryview(child.buffer(1)) for child in children]
    except RuntimeError as error:  # nanoarrow's, with what DuckDB said
        is_memory = "Out of Memory" in str(error)
        kind = duckdb.OutOfMemoryException if is_memory else duckdb.Error
        raise kind(str(error)) from None
