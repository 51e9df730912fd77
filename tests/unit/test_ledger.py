"""The ledger of a recording is that of the books of whoever made it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rlvr_probe.analysis.ledger import CATEGORIES, make_ledger
from rlvr_probe.analysis.ledger.gpu_owners import find_places
from rlvr_probe.analysis.ledger.painting import find_stages
from rlvr_probe.analysis.metrics.ledger import ledger
from rlvr_probe.model import names
from rlvr_probe.recording.tables import Tables, open_tables
from tests import today
from tests.journals import JournalFile
from tests.ledger_scored import errors_of
from tests.simulated import Corpus, brief
from tests.simulator import scenario
from tests.simulator.books import CATEGORIES as TRUE_CATEGORIES
from tests.simulator.draws import Lengths
from tests.unit.test_simulator import small


def test_every_true_category_has_its_name() -> None:
    assert set(TRUE_CATEGORIES) <= set(CATEGORIES)


@pytest.mark.parametrize("seed", today.some([1, 3, 4, 12, 16], 1))
def test_the_ledger_is_that_of_the_books(corpus: Corpus, seed: int) -> None:
    drawn = brief(scenario(seed))
    truth = corpus.run(drawn)[1]
    with corpus.after(drawn, make_ledger) as (_, made):
        assert made is not None
    assert len(made.gpus) == truth.gpus
    assert sum(made.ns.values()) == truth.gpus * (made.end_ns - made.begin_ns)
    errors = errors_of(made, truth)
    assert max(errors.values(), key=abs) < 0.01, errors


def seconds_waited(tables: Tables) -> list[tuple[int, str, int, str, int | None, str | None]]:
    """Step, barrier, GPU ns, and kind, rank and name of the last."""
    return tables.sql.execute(
        "SELECT number, barrier, gpu_ns, last_kind, barrier_wait.rank, name FROM barrier_wait"
        " JOIN step USING (step_id)"
    ).fetchall()


@pytest.mark.parametrize("seed", today.some([1, 3, 4, 16], 1))
def test_who_was_waited_for_is_who_the_books_say(corpus: Corpus, seed: int) -> None:
    drawn = brief(scenario(seed))
    truth = corpus.run(drawn)[1]
    with corpus.after(drawn, make_ledger) as (tables, made):
        told = seconds_waited(tables)
    assert made is not None
    sums = Counter[str]()
    for _, barrier, gpu_ns, kind, _, _ in told:
        assert kind
        sums[barrier] += gpu_ns
    assert sums == Counter(
        {
            barrier: made.ns[f"wait.{barrier}"]
            for barrier in ("rollout", "reward", "update", "refit")
            if made.ns[f"wait.{barrier}"]
        }
    )
    whole = agreed = 0
    for wait in truth.waits:
        here = [one for one in told if one[:2] == (wait["step"], wait["barrier"])]
        _, _, _, kind, rank, name = min(here, key=lambda one: abs(one[2] - wait["gpu_ns"]))
        same = kind == wait["kind"] and name == wait.get("name")
        whole += wait["gpu_ns"]
        agreed += wait["gpu_ns"] * (same and wait.get("rank") in (None, rank))
    # Ranks that are late by less than readings differ cannot be told apart.
    assert agreed >= 0.95 * whole


def test_ranks_that_ask_a_server_wait_for_the_last_trajectory_of_a_step(corpus: Corpus) -> None:
    with corpus.tables(small("trl")) as tables:
        tables.sql.execute("UPDATE run SET engine = 'vllm-server'")
        made = make_ledger(tables)
        assert made is not None
        rows = tables.sql.execute(
            "SELECT step_id, trajectory_id, rank, engine, gpu_ns FROM barrier_wait"
            " WHERE barrier = 'rollout' ORDER BY step_id"
        ).fetchall()
        longest = tables.sql.execute(
            "SELECT step_id, max(turn.end_ns) AS end_ns FROM trajectory JOIN turn"
            " USING (trajectory_id) WHERE mode = 'train' GROUP BY step_id ORDER BY step_id"
        ).fetchall()
        ended = dict(
            tables.sql.execute(
                "SELECT trajectory_id, max(end_ns) FROM turn GROUP BY trajectory_id"
            ).fetchall()
        )
    assert sum(gpu_ns for *_, gpu_ns in rows) == made.ns["wait.rollout"] > 0
    assert [(step, ended[one]) for step, one, *_ in rows] == longest
    assert {(rank, engine) for _, _, rank, engine, _ in rows} == {(None, None)}


@pytest.mark.parametrize("seed", today.some([3, 12], 1))
def test_the_chapter_tells_the_ledger_by_step_gpu_and_barrier(corpus: Corpus, seed: int) -> None:
    drawn = brief(scenario(seed))
    truth = corpus.run(drawn)[1]
    with corpus.tables(drawn) as tables, corpus.after(drawn, make_ledger) as (_, made):
        chapter = ledger(tables)
        assert make_ledger(tables) == made
    told = {(one.id, one.by.get("category")): one.value for one in chapter.figures}
    whole = told["ledger.gpu_time", None]
    assert told["ledger.gpus", None] == truth.gpus
    assert isinstance(whole, float)
    assert sum(told["ledger.share", name] for name in CATEGORIES) == pytest.approx(1.0)  # type: ignore[misc]
    for name in CATEGORIES:
        time_s = told["ledger.time", name]
        assert told["ledger.share", name] == pytest.approx(time_s / whole)  # type: ignore[operator]
    series = {one.id: one for one in chapter.series}
    steps, each = series["ledger.steps"], series["ledger.each_gpu"]
    for one, count in ((steps, len(truth.steps_ns)), (each, truth.gpus)):
        assert (len(one.rows), one.total) == (count, count)
        first = one.columns.index(CATEGORIES[0])
        assert sum(sum(row[first:]) for row in one.rows) == pytest.approx(whole)
    assert series["ledger.barriers"].rows[0][2] > 0


def test_a_source_without_steps_has_no_ledger_and_says_why(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    journal.event(names.SESSION, 0.5, session=0, framework="trl", rank=0, world_size=1)
    journal.close()
    with open_tables(tmp_path) as tables:
        chapter = ledger(tables)
    assert all(one.value is None and one.why for one in chapter.figures)


@pytest.mark.parametrize("turns", today.some([1, 3], 1))
@pytest.mark.parametrize("shape", today.some(["trl", "verl", "async"], 2))
def test_rollout_for_what_was_thrown_away_is_told_apart(
    corpus: Corpus, shape: str, turns: int
) -> None:
    lengths = Lengths(median=300.0, cap=400, turns=turns, tool_s=(0.3, 0.3), reward_s=(0.4, 0.4))
    one = small(
        shape, lengths=lengths, mask_truncated=True, keep=0.8, generated=10, staleness=0, steps=6
    )  # fmt: skip
    truth = corpus.run(one)[1]
    thrown = {
        "trl": {"truncated"},
        "verl": {"truncated", "filtered", "surplus"},
        "async": {"truncated", "stale"},
    }[shape]
    assert {f"discarded.{why}" for why in thrown} == {
        name for name, ns in truth.ledger_ns.items() if ns and name.startswith("discarded.")
    }
    made = corpus.asked(one, make_ledger)
    assert made is not None
    whole = truth.gpus * (truth.end_ns - truth.begin_ns)
    for name, ns in truth.ledger_ns.items():
        if name.startswith(("discarded.", "work.rollout")):
            assert made.ns[name] == pytest.approx(ns, abs=whole // 2_000), name


def test_a_call_that_was_not_joined_is_of_the_controller_of_its_own_attempt(corpus: Corpus) -> None:
    with corpus.tables(small("verl")) as tables:
        tables.sql.execute("DELETE FROM rpc")
        find_places(tables)
        find_stages(tables)
        tellers = "SELECT DISTINCT teller FROM ledger_placed"
        expected = tables.sql.execute(tellers).fetchall()
        # An earlier attempt had another one.
        tables.sql.execute(
            "INSERT INTO gpu_teller BY NAME SELECT gpu, -1 AS process, attempt - 1 AS attempt, own"
            " FROM gpu_teller"
        )
        find_stages(tables)
        assert tables.sql.execute(tellers).fetchall() == expected
    assert len(expected) == 1
