"""A run that is asked in ranges of its steps says what it says at once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.analysis.characterization import HERE
from rlvr_probe.analysis.metrics import make_chapters
from rlvr_probe.cli import OK, main
from rlvr_probe.recording.fine import join
from rlvr_probe.recording.ranges import Range, narrowed
from rlvr_probe.recording.tables import open_tables, step_ranges
from rlvr_probe.recording.tables.step_ranges import in_ranges
from tests import today
from tests.apart import said
from tests.corpus.recordings import RECORDED, folder_of, unpacked
from tests.golden import differences
from tests.simulated import FILTERED, TRAINED, Corpus, brief
from tests.simulator import Scenario, scenario

QUEUED = brief(scenario(6), steps=8)
"""A run whose groups come out of a queue, some of them never."""

CONTROLLED = brief(scenario(10), steps=3)
"""A run whose workers generate, call tools and verify, each trajectory in one of them."""

UNTURNED = brief(scenario(2), steps=3)
"""A run that recorded no turn."""

EXACT = 1e-9
"""How far sums may be apart, as a share: those of ranges are added up."""


def of_ranges(run: Path, trajectories: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How what a run says in ranges of that many trajectories differs."""
    at_once = said(run, HERE)
    monkeypatch.setattr(step_ranges, "_TRAJECTORIES", trajectories)
    monkeypatch.setattr(join, "_TOGETHER", trajectories)
    return list(differences(at_once, said(run, HERE), rounding=EXACT))


def test_joins_are_made_in_several_ranges(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = list[int]()

    def counted(sql: Any, ranges: Sequence[Range], conditions: Any) -> Iterator[int]:
        joined.append(len(ranges))
        return narrowed(sql, ranges, conditions)

    monkeypatch.setattr(join, "_TOGETHER", 1)
    monkeypatch.setattr(join, "narrowed", counted)
    with open_tables(corpus.run(CONTROLLED)[0], signals=False):
        pass
    # Rows of batches; then turns, tools and verifications of processes.
    assert len(joined) == 4
    assert min(joined) > 1


@pytest.mark.parametrize(
    "drawn",
    [
        QUEUED,
        pytest.param(TRAINED, marks=pytest.mark.conformance),
        pytest.param(FILTERED, marks=pytest.mark.conformance),
        pytest.param(CONTROLLED, marks=pytest.mark.conformance),
        pytest.param(UNTURNED, marks=pytest.mark.conformance),
    ],
    ids=["queued", "trained", "filtered", "controlled", "unturned"],
)
def test_a_simulated_run(drawn: Scenario, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_ranges(corpus.run(drawn)[0], 1, monkeypatch) == []
    with corpus.tables(drawn) as tables:
        assert sum(1 for _ in in_ranges(tables)) > 1


@pytest.mark.conformance
def test_a_compacted_run(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(corpus.run(TRAINED)[0], tmp_path / "run")
    assert main(["compact", str(tmp_path / "run")]) == OK
    assert of_ranges(tmp_path / "run", 1, monkeypatch) == []


@pytest.mark.conformance
@pytest.mark.parametrize("name", today.some(list(RECORDED), 2))
def test_a_recorded_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_ranges(folder_of(unpacked(name, tmp_path)), 1, monkeypatch) == []


def test_calls_by_source(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    with corpus.tables(CONTROLLED) as tables:
        # Those of the first step have none.
        tables.sql.execute(
            "UPDATE trajectory SET source = 's' || trajectory_id % 2"
            " WHERE step_id > (SELECT min(step_id) FROM trajectory)"
        )

        def by_source() -> dict[str, float | int | str | None]:
            return {
                f"{figure.id} {dict(figure.by)}": figure.value
                for chapter in make_chapters(tables, names=["rewards", "tools"])
                for figure in chapter.figures
                if ".source." in figure.id
            }

        at_once = by_source()
        monkeypatch.setattr(step_ranges, "_TRAJECTORIES", 1)
        assert sum(1 for _ in in_ranges(tables)) > 1
        assert by_source() == pytest.approx(at_once, rel=EXACT)
        assert {by for key in at_once for by in ("s0", "s1", "(unknown)") if by in key} == {
            "s0", "s1", "(unknown)",
        }  # fmt: skip


def test_a_range_has_whole_steps_and_all_together_have_everything(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_ranges, "_TRAJECTORIES", 1)
    asked = "SELECT count(*), (SELECT count(*) FROM turn), list(DISTINCT step_id) FROM trajectory"
    with corpus.tables(TRAINED) as tables:
        [(trajectories, turns, steps)] = tables.sql.execute(asked).fetchall()
        found = [tables.sql.execute(asked).fetchall()[0] for _ in in_ranges(tables)]
        assert (trajectories, turns) == tuple(map(sum, list(zip(*found, strict=True))[:2]))
        assert [step for _, _, [step] in found] == sorted(steps)
        [after] = tables.sql.execute(asked).fetchall()
        assert after[:2] == (trajectories, turns)


def test_what_fails_in_a_range_leaves_the_tables_whole(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_ranges, "_TRAJECTORIES", 1)
    with corpus.tables(TRAINED) as tables:
        counts = tables.sql.execute("SELECT count(*) FROM trajectory").fetchall()
        asked = in_ranges(tables)
        next(asked)
        assert tables.sql.execute("SELECT count(*) FROM trajectory").fetchall() < counts
        asked.close()
        assert tables.sql.execute("SELECT count(*) FROM trajectory").fetchall() == counts


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE step SET number = 1",
        "UPDATE batch SET step_id = batch_id % 2",
    ],
    ids=["two steps of one number", "batches in another order"],
)
def test_steps_that_cannot_be_parted_are_asked_at_once(
    change: str, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_ranges, "_TRAJECTORIES", 1)
    with corpus.tables(TRAINED) as tables:
        tables.sql.execute(change)
        assert list(in_ranges(tables)) == [0]


def test_saved_tables_are_asked_in_ranges(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlvr_probe.recording.tables.saved import open_saved, save_tables

    with corpus.tables(TRAINED) as tables:
        save_tables(tables, tmp_path / "saved")
    monkeypatch.setattr(step_ranges, "_TRAJECTORIES", 1)
    with open_tables(corpus.run(TRAINED)[0], signals=False) as tables:
        steps = sum(1 for _ in in_ranges(tables))
    with open_saved(tmp_path / "saved") as tables:
        assert list(in_ranges(tables)) == list(range(steps)) != [0]
