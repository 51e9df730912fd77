"""What overlaps or touches is one interval."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_probe.analysis.statements import covered, islands

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


@st.composite
def long_ones(draw: st.DrawFn) -> Rows:
    """Rows of all lengths, some at a power of two or one beside it, about the zero of the clock."""
    found = Rows()
    for key in draw(st.lists(st.sampled_from([None, 1, 2]), min_size=1, max_size=20)):
        width = 1 << draw(st.integers(0, 55))
        start = draw(st.integers(-2, 2)) * width + draw(st.integers(-2, 2))
        length = max(0, width + draw(st.integers(-1, 1)))
        found.append((key, start, start + length))
    return found


@settings(deadline=None, max_examples=100)
@given(some=st.one_of(rows, long_ones()))
def test_every_moment_that_is_covered_counts_once(
    sql: duckdb.DuckDBPyConnection, some: Rows
) -> None:
    sql.execute("DELETE FROM one")
    sql.executemany("INSERT INTO one VALUES (?, ?, ?)", some)
    found = dict(sql.execute(covered("one", "key")).fetchall())
    by_key = {key: [(start, end) for of, start, end in some if of == key] for key, _, _ in some}
    assert found == {key: _union(intervals) for key, intervals in by_key.items()}


def _union(intervals: list[tuple[int, int]]) -> int:
    """What they cover, piece by piece between the moments where one begins or ends."""
    moments = sorted({at for interval in intervals for at in interval})
    return sum(
        end - start
        for start, end in pairwise(moments)
        if any(one <= start and end <= other for one, other in intervals)
    )


def test_a_row_without_a_time_covers_none(sql: duckdb.DuckDBPyConnection) -> None:
    sql.execute("DELETE FROM one")
    sql.executemany("INSERT INTO one VALUES (?, ?, ?)", [(1, 0, 5), (1, None, 7), (2, None, None)])
    assert sql.execute(covered("one", "key")).fetchall() == [(1, 5)]
