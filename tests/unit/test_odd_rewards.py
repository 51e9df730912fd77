"""A reward that is NaN or infinite is no reward that is missing: from the probe to the reports."""

from __future__ import annotations

import io
import json
from array import array
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rlvr_probe import cli
from rlvr_probe.analysis.metrics.rewards import rewards as chapter
from rlvr_probe.model import names
from rlvr_probe.model.columns import MeasureColumn, finite_of, unknown_in
from rlvr_probe.reading import reward, rewards
from rlvr_probe.recording import read_run
from rlvr_probe.recording.tables import open_tables
from rlvr_probe.report import render
from tests.chaptered import said
from tests.journals import JournalFile
from tests.summarized import summary_of

GIVEN = (1.0, nan, None, inf, 0.5)
"""What one function gave the trajectories of a batch."""


def trainer(folder: Path) -> JournalFile:
    journal = JournalFile(folder, 1)
    journal.event(names.SESSION, 0.1, session=0, rank=0, world_size=1)
    journal.span(names.STEP, 1, 50, session=0, step=1)
    return journal


def told(folder: Path) -> None:
    """By the trainer, in one event."""
    journal, rows = trainer(folder), [5] * len(GIVEN)
    where: dict[str, Any] = {"session": 0, "step": 1, "mode": "train"}
    batch = journal.span(names.ROLLOUT, 2, 30, **where)
    journal.event(
        names.TRAJECTORIES, 30, **where, batch=batch, offset=0, total=len(rows),
        group_size=len(rows), prompt_tokens=rows, response_tokens=rows,
    )  # fmt: skip
    journal.event(names.REWARDS, 31, batch=batch, function="f", index=0, **rewards(GIVEN))
    journal.close()


def verified(folder: Path) -> None:
    """By another process, one verification for each trajectory."""
    journal, rows = trainer(folder), [5] * len(GIVEN)
    keys = [f"a/{row}" for row in range(len(GIVEN))]
    journal.event(
        names.TRAJECTORIES, 40, session=0, step=1, mode="train", offset=0, total=len(rows),
        group_size=1, prompt_tokens=rows, response_tokens=rows, keys=keys,
    )  # fmt: skip
    journal.close()
    owner = read_run(folder).processes[0].key
    actor = JournalFile(folder, 2, header={"owner": owner})
    for key, given in zip(keys, GIVEN, strict=True):
        span = actor.span(names.TRAJECTORY, 2, 30, key=key, prompt_tokens=5, response_tokens=5)
        value, odd = reward(given)
        actor.span(
            names.VERIFY, 5, 25, batch=span, function="f", value=value, not_finite=odd
        )  # fmt: skip
    actor.close()


@pytest.mark.parametrize("record", [told, verified])
def test_it_is_counted_apart(record: Any, tmp_path: Path) -> None:
    record(tmp_path)
    trace = read_run(tmp_path)
    assert trace.lost == {}
    [batch] = [batch for step in trace.steps() for batch in step.batches]
    values = [one.rewards[0].value for group in batch.groups() for one in group.trajectories]
    assert [value is None for value in values] == [value is None for value in GIVEN]
    assert [value is not None and isnan(value) for value in values] == [
        False, True, False, True, False,
    ]  # fmt: skip
    [shown] = json.loads(json.dumps(summary_of(tmp_path), allow_nan=False))["rewards"]
    counts = {name: shown[name] for name in ("values", "not_finite", "missing", "mean")}
    assert counts == {"values": 2, "not_finite": 2, "missing": 1, "mean": 0.75}
    text = io.StringIO()
    render(summary_of(tmp_path), text)
    assert "NaN  missing" in text.getvalue()

    with open_tables(tmp_path, threads=1) as tables:
        rows = tables.sql.execute("SELECT value FROM reward ORDER BY trajectory_id").fetchall()
        found = said([chapter(tables)])
    assert [repr(value) for (value,) in rows] == ["1.0", "nan", "None", "nan", "0.5"]
    for name, count in (("finite", 2), ("not_finite", 2), ("missing", 1)):
        assert found.value(f"rewards.value.{name}", function="f") == count
    assert any("2 of the rewards that f gave are NaN or infinite" in note for note in found.notes)


def test_the_mean_of_absurd_ones_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, rows = trainer(tmp_path), [5] * 4
    where: dict[str, Any] = {"session": 0, "step": 1, "mode": "train"}
    journal.event(
        names.TRAJECTORIES, 30, **where, batch=7, offset=0, total=4, group_size=4,
        prompt_tokens=rows, response_tokens=rows,
    )  # fmt: skip
    journal.event(names.REWARDS, 31, batch=7, function="f", index=0, **rewards([1e308] * 4))
    journal.close()
    summary = summary_of(tmp_path)
    [shown] = json.loads(json.dumps(summary, allow_nan=False))["rewards"]
    assert (shown["values"], shown["mean"]) == (4, None)
    render(summary, io.StringIO())
    assert cli.main(["characterize", str(tmp_path)]) == cli.OK
    assert "rewards: f mean unknown" in capsys.readouterr().out


def test_a_workload_does_not_tell_them_from_none(tmp_path: Path) -> None:
    """Its format has one word for both."""
    told(tmp_path)
    with open_tables(tmp_path, threads=1) as tables:
        tables.sql.execute("UPDATE run SET kind = 'workload'")
        tables.sql.execute("UPDATE reward SET value = NULL WHERE NOT isfinite(value)")
        found = said([chapter(tables)])
    assert found.value("rewards.value.finite", function="f") == 2
    for name in ("not_finite", "missing"):
        figure = found.figure(f"rewards.value.{name}", function="f")
        assert figure.value is None
        assert "does not distinguish" in figure.why


def test_rewards_as_a_journal_holds_them() -> None:
    assert rewards(GIVEN) == {"values": [1.0, None, None, None, 0.5], "not_finite": [1, 3]}
    assert rewards([1.0, None]) == {"values": [1.0, None], "not_finite": None}
    assert rewards(None) == {"values": None, "not_finite": None}
    assert [reward(value) for value in (0.5, None, nan, -inf)] == [
        (0.5, None), (None, None), (None, 1), (None, 1),
    ]  # fmt: skip
    # Readers of before see what they saw: null.
    assert msgspec.json.encode(rewards(GIVEN)["values"]) == b"[1.0,null,null,null,0.5]"


@pytest.mark.parametrize("odd", [[0], [5], [-1], ["1"], 1, [True]])
def test_rows_that_cannot_be_no_number_are_no_row(odd: Any, tmp_path: Path) -> None:
    journal = trainer(tmp_path)
    journal.event(names.REWARDS, 31, batch=9, function="f", values=[1.0, None], not_finite=odd)
    journal.close()
    assert read_run(tmp_path).lost == {"bad_row": 1}


@pytest.mark.parametrize("given", [{"value": 0.5, "not_finite": 1}, {"not_finite": 2}])
def test_a_verification_that_contradicts_itself_is_no_row(
    given: dict[str, Any], tmp_path: Path
) -> None:
    journal = trainer(tmp_path)
    journal.span(names.VERIFY, 5, 25, batch=9, function="f", **given)
    journal.close()
    assert read_run(tmp_path).lost["bad_row"] == 1


@pytest.mark.parametrize(
    ("values", "odd", "finite", "unknown"),
    [
        ([1.5, -2.0], [], [1.5, -2.0], 0),
        ([nan, nan, 1.5, inf, -inf], [0], [1.5], 1),
        ([1e308, 1e308], [], [1e308, 1e308], 0),
        ([], [], [], 0),
    ],
)
def test_a_column_knows_which_of_its_values_are_numbers(
    values: list[float], odd: list[int], finite: list[float], unknown: int
) -> None:
    column = MeasureColumn(array("d", values), odd)
    assert list(finite_of(column)) == list(finite_of(list(column))) == finite
    assert unknown_in(column) == unknown_in(list(column)) == unknown


def test_a_column_tells_no_number_from_none() -> None:
    column = MeasureColumn(array("d", [nan, nan, 1.5]), odd=[0])
    assert repr([column[0], column[1], column[-3], *column[1:], *column]) == repr(
        [nan, None, nan, None, 1.5, nan, None, 1.5]
    )
