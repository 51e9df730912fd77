"""What overlaps or touches is one interval."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_probe.analysis.islands import islands

Rows = list[tuple[int | None, int, int]]

rows = st.lists(
    st.tuples(st.sampled_from([None, 1, 2]), st.integers(0, 40), st.integers(1, 12)).map(
        lambda one: (one[0], one[1], one[1] + one[2])
    ),
    min_size=1,
    max_size=20,
)


@pytest.fixture(scope="module")
def sql() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute("CREATE TABLE one (key INTEGER, start_ns BIGINT, end_ns BIGINT)")
        yield opened


@settings(deadline=None, max_examples=50)
@given(some=rows)
def test_intervals_apart_cover_what_was_covered_and_nothing_twice(
    sql: duckdb.DuckDBPyConnection, some: Rows
) -> None:
    sql.execute("DELETE FROM one")
    sql.executemany("INSERT INTO one VALUES (?, ?, ?)", some)
    found = sql.execute(
        "SELECT key, min(start_ns) AS start_ns, max(end_ns) AS end_ns"
        f" FROM ({islands('one', 'key')}) GROUP BY key, island ORDER BY key, start_ns"
    ).fetchall()
    for key in {one[0] for one in some}:
        covered = {at for of, start, end in some if of == key for at in range(start, end)}
        apart = [(start, end) for of, start, end in found if of == key]
        assert [at for start, end in apart for at in range(start, end)] == sorted(covered)
        # What touches is one.
        assert all(end < start for (_, end), (start, _) in pairwise(apart))
