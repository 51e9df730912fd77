"""Sequences in flight, in pieces of time, lose nothing of the time of turns, whatever they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_probe.analysis.metrics.occupancy import observe
from rlvr_probe.analysis.samples import prepare
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording.tables import Tables
from tests.by_hand import tables_of

NS = st.integers(0, 2_000_000_000_000)
TURNS = st.lists(st.tuples(st.integers(0, 2), NS, st.integers(1, 10**12)), min_size=1, max_size=30)
"""Engine, start and duration, ns."""


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    with tables_of(Trace("drawn", [], [], [], [], {}, [])) as found:
        yield found


def fill(tables: Tables, turns: list[tuple[int, int, int]]) -> None:
    for name in ("batch", "trajectory", "turn"):
        tables.sql.execute(f"DELETE FROM {name}")
    rows = len(turns)
    tables.sql.execute(
        f"INSERT INTO batch BY NAME SELECT 0 AS batch_id, 0 AS step_id, 'train' AS mode,"
        f' false AS queued, true AS whole, {rows} AS total, {rows} AS "rows"'
    )
    values = ", ".join(
        f"({number}, {engine}, {start}, {start + length})"
        for number, (engine, start, length) in enumerate(turns)
    )
    lived = f"(VALUES {values}) lived(number, engine, start_ns, end_ns)"
    tables.sql.execute(
        "INSERT INTO trajectory BY NAME SELECT number AS trajectory_id, 0 AS batch_id,"
        " 'train' AS mode, number AS grp, 1 AS response_tokens, engine, true AS own_times"
        f" FROM {lived}"
    )
    tables.sql.execute(
        "INSERT INTO turn BY NAME SELECT number AS trajectory_id, 0 AS turn, start_ns, end_ns"
        f" FROM {lived}"
    )


@settings(max_examples=10, deadline=None)
@given(turns=TURNS)
def test_no_time_of_a_turn_is_lost_or_made_up(
    tables: Tables, turns: list[tuple[int, int, int]]
) -> None:
    none_is_lost(tables, turns)


@pytest.mark.conformance
@settings(max_examples=50, deadline=None)
@given(turns=TURNS)
def test_so_it_is_whatever_the_turns_are(tables: Tables, turns: list[tuple[int, int, int]]) -> None:
    none_is_lost(tables, turns)


def none_is_lost(tables: Tables, turns: list[tuple[int, int, int]]) -> None:
    fill(tables, turns)
    prepare(tables)

    flight = observe(tables, None)

    bins = tables.sql.execute(
        "SELECT sum(active) * any_value(rollout.end_ns - rollout.start_ns)"
        " / any_value(rollout.bins), min(active), max(active)"
        " FROM flight JOIN rollout USING (unit)"
    ).fetchone()
    assert bins is not None
    whole, least, most = bins
    length = sum(length for _, _, length in turns)
    assert abs(whole - length) <= 1e-6 * length
    assert 0 <= least <= most <= len(turns) + 1e-6
    assert flight.total == most

    # With slots, none is in use twice, and none where there are more than ever asked.
    engines = {engine for engine, _, _ in turns}
    for slots in (1, len(turns)):
        assert observe(tables, slots).total == slots * len(engines)
        [(used,)] = tables.sql.execute("SELECT slot_ns FROM rollout").fetchall()
        assert used <= length * (1 + 1e-6)
        if slots == len(turns):
            assert abs(used - length) <= 1e-6 * length
