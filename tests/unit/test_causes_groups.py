"""Several groups of processes have methods of one name: their ranks are no peers.

As all models of OpenRLHF have ``forward`` and ``fit``, each in processes of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from rlvr_probe.analysis.causes import Cause, find_causes
from rlvr_probe.recording.tables import Tables
from tests import today
from tests.simulated import Corpus
from tests.simulator import scenario

DRAWN = replace(scenario(18), ranks=4, gpus_per_node=4, steps=12, prompts=16)
"""A sound run with a controller."""
OTHERS = 1_000
"""What numbers of processes of the second group are higher by."""
TAKES = 0.5
"""What its calls take, by those of the first: its model is smaller."""


@pytest.fixture
def tables(corpus: Corpus) -> Iterator[Tables]:
    """The run, with log-probabilities of the reference in a group of its own, by the same name.

    It begins when the other has ended.
    """
    assert (DRAWN.shape, DRAWN.faults) == ("verl", ())
    with corpus.tables(DRAWN) as tables:
        tables.sql.execute(
            f"INSERT INTO process BY NAME SELECT * REPLACE (process + {OTHERS} AS process)"
            " FROM process WHERE process IN (SELECT process FROM rpc_rank)"
        )
        move(tables, "compute_ref_log_prob", "compute_log_prob")
        yield tables


def move(tables: Tables, method: str, to: str) -> None:
    """Let a group of its own do the calls of a method, as its method ``to``."""
    tables.sql.execute(
        f"UPDATE rpc_rank SET process = process + {OTHERS},"
        f" end_ns = start_ns + {TAKES} * (end_ns - start_ns)"
        f" WHERE rpc_id IN (SELECT rpc_id FROM rpc WHERE method = '{method}')"
    )
    tables.sql.execute(
        f"UPDATE rpc SET worker_group = 'reference', method = '{to}' WHERE method = '{method}'"
    )


def slow(tables: Tables, factor: float) -> float:
    """Let rank 1 of the second group take longer; by how much it makes others wait, s."""
    own = f"r.process >= {OTHERS} AND rank = 1"
    tables.sql.execute(
        f"UPDATE rpc_rank AS r SET end_ns = start_ns + {factor} * (end_ns - start_ns) WHERE {own}"
    )
    waited = tables.sql.execute(
        "SELECT sum(late) / 1e9 FROM (SELECT max(r.end_ns - r.start_ns) - max(CASE"
        f" WHEN {own} THEN (r.end_ns - r.start_ns) / {factor} ELSE r.end_ns - r.start_ns END)"
        " AS late FROM rpc_rank AS r JOIN rpc USING (rpc_id)"
        f" WHERE r.process >= {OTHERS} AND step_id IS NOT NULL GROUP BY rpc_id)"
    )
    return float(waited.fetchall()[0][0])


def found(tables: Tables) -> list[Cause]:
    return [one for one in find_causes(tables) if not one.natural]


@pytest.mark.parametrize("of", today.some([0, OTHERS], 1))
def test_the_only_rank_of_a_group_has_no_peers(tables: Tables, of: int) -> None:
    """Of both groups, or of the second one."""
    tables.sql.execute(f"DELETE FROM rpc_rank WHERE rank > 0 AND process >= {of}")
    assert found(tables) == []


def test_a_slow_rank_is_told_with_its_group_and_what_its_peers_wait(tables: Tables) -> None:
    waited_s = slow(tables, 2.0)
    first, *others = found(tables)
    assert first.kind == "slow_rank"
    assert "rank 1 of reference" in first.title
    assert (first.where["rank"], first.where["worker_group"]) == (1, "reference")
    assert first.gpu_s == pytest.approx(waited_s * DRAWN.ranks, rel=0.1)
    assert others == []


def test_a_rank_that_is_late_in_one_stage_is_told_with_its_group(tables: Tables) -> None:
    late_s, method = 300, "compute_log_prob"
    tables.sql.execute(
        f"UPDATE rpc_rank AS r SET end_ns = r.end_ns + {late_s}e9 FROM rpc"
        f" WHERE rpc.rpc_id = r.rpc_id AND rpc.method = '{method}' AND r.process < {OTHERS}"
        " AND rank = 1"
    )
    first, *others = found(tables)
    assert (first.kind, first.where["rank"], first.where["stage"]) == ("slow_rank", 1, method)
    assert first.where["worker_group"] != "reference"
    # Somebody else was longer by less than that in some steps.
    assert 0.6 < first.gpu_s / (late_s * DRAWN.steps * DRAWN.ranks) <= 1.0
    assert others == []


@pytest.mark.parametrize("ranks", today.some([2, 4], 1))
def test_a_rank_that_is_late_by_the_same_time_in_each_step_is_not_a_clock_that_differs(
    tables: Tables, ranks: int
) -> None:
    """Ranks of one machine have one clock, however regular one of them is late."""
    late_s, method = 300, "compute_log_prob"
    tables.sql.execute(f"DELETE FROM rpc_rank WHERE process >= {OTHERS} OR rank >= {ranks}")
    tables.sql.execute(
        f"UPDATE rpc_rank AS r SET end_ns = r.start_ns + 10e9 + {late_s}e9 * (rank = 1)::INTEGER"
        f" FROM rpc WHERE rpc.rpc_id = r.rpc_id AND rpc.method = '{method}'"
    )
    first, *others = found(tables)
    assert (first.kind, first.where) == ("slow_rank", {"rank": 1, "stage": method})
    assert first.gpu_s == pytest.approx(late_s * DRAWN.steps * DRAWN.ranks)
    assert others == []


@pytest.mark.parametrize("ahead_s", today.some([0, 40], 1))
def test_a_rank_alone_on_its_machine_is_late_if_it_is_in_one_stage(
    tables: Tables, ahead_s: int
) -> None:
    """Clocks that differ, differ in all that is done: they are told beside it."""
    late_s, method = 300, "compute_log_prob"
    tables.sql.execute(f"DELETE FROM rpc_rank WHERE process >= {OTHERS} OR rank >= 2")
    tables.sql.execute(
        "UPDATE process SET boot = 'another', host = 'node-2' WHERE process IN"
        " (SELECT process FROM rpc_rank WHERE rank = 1)"
    )
    tables.sql.execute(
        f"UPDATE rpc_rank AS r SET end_ns = r.start_ns + 10e9 + {late_s}e9 * (rank = 1)::INTEGER"
        f" FROM rpc WHERE rpc.rpc_id = r.rpc_id AND rpc.method = '{method}'"
    )
    tables.sql.execute(
        f"UPDATE rpc_rank SET start_ns = start_ns + {ahead_s}e9, end_ns = end_ns + {ahead_s}e9"
        " WHERE rank = 1"
    )
    first, *others = found(tables)
    assert (first.kind, first.where) == ("slow_rank", {"rank": 1, "stage": method})
    assert first.gpu_s == pytest.approx(late_s * DRAWN.steps * DRAWN.ranks)
    assert [one.title for one in others] == (
        [f"wall clocks of two machines are {ahead_s}.0 s apart"] if ahead_s else []
    )


def test_a_rank_is_as_slow_in_an_attempt_as_its_peers_there_tell(tables: Tables) -> None:
    """In the attempt before it was as slow, which does not make it usual."""
    tables.sql.execute(f"DELETE FROM rpc_rank WHERE process >= {OTHERS}")
    tables.sql.execute(
        "UPDATE rpc_rank SET end_ns = start_ns + 1.5 * (end_ns - start_ns) WHERE rank = 1"
    )
    tables.sql.execute(
        f"INSERT INTO process BY NAME SELECT * REPLACE (process + {2 * OTHERS} AS process,"
        " attempt + 1 AS attempt) FROM process WHERE process IN (SELECT process FROM rpc_rank)"
    )
    tables.sql.execute(
        f"UPDATE rpc_rank AS r SET process = r.process + {2 * OTHERS} FROM rpc"
        f" WHERE rpc.rpc_id = r.rpc_id AND step_id >= {DRAWN.steps // 2}"
    )
    causes = found(tables)
    assert [(one.kind, one.where) for one in causes] == [("slow_rank", {"rank": 1})] * 2
    assert len({one.evidence["process"] for one in causes}) == 2


def test_ranks_of_one_number_in_two_groups_are_told_both(tables: Tables) -> None:
    slow(tables, 2.0)
    method = "update_weights"
    tables.sql.execute(
        "UPDATE rpc_rank AS r SET end_ns = r.end_ns + 300e9 FROM rpc"
        f" WHERE rpc.rpc_id = r.rpc_id AND rpc.method = '{method}' AND rank = 1"
    )
    assert {(one.where["rank"], one.where.get("stage")) for one in found(tables)} == {
        (1, None), (1, method),
    }  # fmt: skip


def test_a_slow_rank_costs_nothing_while_a_longer_call_of_another_group_goes_on(
    tables: Tables,
) -> None:
    slow(tables, 2.0)
    tables.sql.execute(
        "UPDATE rpc_rank AS r SET end_ns = r.start_ns + 600e9 + (r.rank + rpc.step_id) % 4 * 5e9"
        " FROM rpc WHERE rpc.rpc_id = r.rpc_id"
        f" AND r.process < {OTHERS} AND rpc.method = 'compute_log_prob'"
    )
    assert found(tables) == []


def test_groups_that_end_at_different_times_do_not_tell_of_clocks(tables: Tables) -> None:
    tables.sql.execute(f"UPDATE process SET boot = 'another' WHERE process >= {OTHERS}")
    tables.sql.execute(
        "INSERT INTO rpc BY NAME SELECT * REPLACE (rpc_id + 1_000_000 AS rpc_id,"
        " 'reference' AS worker_group) FROM rpc WHERE method = 'update_actor'"
    )
    tables.sql.execute(
        "INSERT INTO rpc_rank BY NAME SELECT r.* REPLACE (rpc_id + 1_000_000 AS rpc_id,"
        f" r.process + {OTHERS} AS process, r.end_ns + 3_000_000_000 AS end_ns)"
        " FROM rpc_rank AS r JOIN rpc USING (rpc_id) WHERE method = 'update_actor'"
    )
    assert found(tables) == []
