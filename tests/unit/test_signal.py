"""The reward signal of tables made by hand, whose figures can be worked out on paper."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan, sqrt

import pytest

from rlvr_probe.analysis.metrics.signal import signal
from rlvr_probe.recording.tables import Tables
from tests.chaptered import Said, said
from tests.unit.test_chapters import batch, put, step, tables

__all__ = ["tables"]

Values = Sequence[Sequence[float | None]]


def rewarded(tables: Tables, number: int, values: Values, *, mode: str = "train", fn: int = 0,
             ids: Sequence[int] | None = None) -> Sequence[int]:  # fmt: skip
    """A batch in step ``number`` whose groups got ``values`` of ``f``, or of the ``fn``-th."""
    if ids is None:
        at = 2 * number + (mode == "eval")
        ids = batch(tables, at, [[5] * len(group) for group in values], step=number, mode=mode)
    for trajectory, value in zip(ids, (value for group in values for value in group), strict=True):
        put(tables, "reward", trajectory_id=trajectory, function="fgh"[fn], fn=fn, value=value)
    return ids


def read(tables: Tables) -> Said:
    return said([signal(tables)])


def test_rewards_of_three_steps_move(tables: Tables) -> None:
    for number in range(3):
        step(tables, number + 1)
    rewarded(tables, 0, [(0, 0), (0, 1)])
    same = rewarded(tables, 1, [(0, 1), (1, 1)])
    rewarded(tables, 2, [(1, 1), (1, 1)])

    found = read(tables)

    of = {"function": "f"}
    # 0 0 0 1, 0 1 1 1, 1 1 1 1: eight of twelve.
    assert found.value("signal.training.mean", **of) == pytest.approx(8 / 12)
    assert found.value("signal.training.std", **of) == pytest.approx(sqrt(8 / 12 * 4 / 12))
    assert found.value("signal.training.mean_first", **of) == 1 / 4
    assert found.value("signal.training.std_first", **of) == pytest.approx(sqrt(3) / 4)
    assert found.value("signal.training.mean_last", **of) == 1
    assert found.value("signal.training.std_last", **of) == 0
    assert found.value("signal.training.same", **of) == 4 / 6
    assert found.value("signal.training.same_first", **of) == 1 / 2
    assert found.value("signal.training.same_last", **of) == 1
    assert same[2] in found.figure("signal.training.same", **of).evidence["trajectory"].ids
    assert found.value("signal.training.untrained") == 4 / 6
    assert found.value("signal.training.untrained_last") == 1
    assert found.value("signal.evaluation.mean") is None
    assert [
        (row["step"], row["trajectories"], row["reward"], row["same_groups"])
        for row in found.rows("signal.training.by_step")
    ] == [(1, 4, 0.25, 0.5), (2, 4, 0.75, 0.5), (3, 4, 1.0, 1.0)]


def test_evaluation_is_apart(tables: Tables) -> None:
    step(tables, 1)
    rewarded(tables, 0, [(0, 1)])
    rewarded(tables, 0, [(4, 4), (2, 6)], mode="eval")

    found = read(tables)

    assert found.value("signal.training.mean", function="f") == 0.5
    assert found.value("signal.evaluation.mean", function="f") == 4
    assert found.value("signal.evaluation.std", function="f") == sqrt(8 / 4)
    assert found.value("signal.evaluation.untrained") == 0.5
    last = found.figure("signal.evaluation.mean_last", function="f")
    assert last.value is None
    assert "three steps" in last.why


def test_what_is_no_number_has_no_part_in_the_mean(tables: Tables) -> None:
    step(tables, 1)
    rewarded(tables, 0, [(1, nan), (None, 3), (None, None), (2, 2), (7,)])
    rewarded(tables, 0, [(9, inf)], mode="eval")

    found = read(tables)

    of = {"function": "f"}
    assert found.value("signal.training.mean", **of) == (1 + 3 + 2 + 2 + 7) / 5
    assert found.value("signal.training.not_finite", **of) == 1 / 9
    assert found.value("signal.training.missing", **of) == 3 / 9
    # Those with a NaN, with no number at all and of one trajectory alone say nothing.
    assert found.value("signal.training.same", **of) == 1 / 2
    assert found.value("signal.training.untrained") == 1 / 2
    assert found.value("signal.evaluation.mean", **of) == 9
    assert found.value("signal.evaluation.same", **of) is None


def test_without_a_finite_reward_neither_mean_nor_spread_is_known(tables: Tables) -> None:
    step(tables, 1)
    ids = rewarded(tables, 0, [(None, nan), (None, None)])
    rewarded(tables, 0, [(1, 2), (3, 4)], fn=1, ids=ids)

    found = read(tables)

    for value in ("mean", "std", "mean_first", "std_first"):
        assert found.value(f"signal.training.{value}", function="f") is None
        assert found.value(f"signal.training.{value}", function="g") is not None
    assert found.figure("signal.training.std", function="f").why == "no reward is finite"
    assert next(row["spread"] for row in found.rows("signal.training.by_step")) is None


def test_a_group_trains_something_if_any_function_tells_it_apart(tables: Tables) -> None:
    step(tables, 1)
    ids = rewarded(tables, 0, [(1, 1), (0, 0), (1, 0)])
    rewarded(tables, 0, [(2, 3), (None, None), (5, 5)], fn=1, ids=ids)

    found = read(tables)

    assert found.value("signal.training.same", function="f") == 2 / 3
    assert found.value("signal.training.same", function="g") == 1 / 2
    assert found.value("signal.training.untrained") == 1 / 3


def test_equal_rewards_have_no_spread(tables: Tables) -> None:
    step(tables, 1)
    rewarded(tables, 0, [(0.1,) * 3] * 7)

    assert read(tables).value("signal.training.std", function="f") == 0


def test_a_workload_does_not_say_why_rewards_are_missing(tables: Tables) -> None:
    tables.sql.execute("UPDATE run SET kind = 'workload'")
    step(tables, 1)
    rewarded(tables, 0, [(1, None)])

    missing = read(tables).figure("signal.training.missing", function="f")

    assert missing.value is None
    assert "workload" in missing.why


def test_rewards_are_by_source_where_any_is_known(tables: Tables) -> None:
    step(tables, 1)
    rewarded(tables, 0, [(0, 1), (1, 1), (3, 5)])
    assert not any(id.startswith("signal.training.source") for id, _ in read(tables).figures)
    tables.sql.execute("UPDATE trajectory SET source = ['math', 'code', NULL][1 + grp]")

    found = read(tables)

    assert found.value("signal.training.source.mean", function="f", source="math") == 0.5
    assert found.value("signal.training.source.same", function="f", source="math") == 0
    assert found.value("signal.training.source.mean", function="f", source="code") == 1
    assert found.value("signal.training.source.same", function="f", source="code") == 1
    assert found.value("signal.training.source.mean", function="f", source="(unknown)") == 4
    assert found.value("signal.training.mean", function="f") == 11 / 6
