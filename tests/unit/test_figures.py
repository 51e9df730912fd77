"""Which ids are behind a figure does not depend on the order of rows."""

from __future__ import annotations

import random

import duckdb
import pytest

ROWS = [(1, 2.0), (2, 2.0), (3, None), (4, 1.0), (5, 2.0), (6, 1.0)]


def asked(expression: str, rows: list[tuple[int, float | None]]) -> object:
    with duckdb.connect() as sql:
        sql.execute("CREATE TABLE t (id INTEGER, value DOUBLE)")
        sql.executemany("INSERT INTO t VALUES (?, ?)", rows)
        known = "FILTER (value IS NOT NULL)"
        [[found]] = sql.execute(f"SELECT {expression} {known} FROM t").fetchall()
        return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("arg_max(id, (value, id), 4)", [5, 2, 1, 6]),
        ("arg_max(id, (value, id), 9)", [5, 2, 1, 6, 4]),
        ("arg_max(id, (value, id))", 5),
        ("arg_min(id, (value, id), 3)", [4, 6, 1]),
        ("arg_min(id, (value, id))", 4),
    ],
)
def test_of_equal_values_the_ids_decide(expression: str, expected: object) -> None:
    draw = random.Random(0)
    for _ in range(4):
        assert asked(expression, draw.sample(ROWS, len(ROWS))) == expected


def test_where_nothing_has_a_value_nothing_is_behind_it() -> None:
    assert asked("arg_max(id, (value, id), 4)", [(3, None)]) is None
