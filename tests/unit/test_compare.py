"""``rlvr-probe compare``: what differs between two runs, and what it says of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe import cli
from rlvr_probe.analysis.comparison import Comparison, Side, compare, read_side
from rlvr_probe.analysis.comparison.scaling import scaling
from rlvr_probe.exceptions import RecordingError
from rlvr_probe.report.blocks import Grid
from rlvr_probe.report.compare import headline, lay_out_comparisons
from rlvr_probe.report.comparison_page import comparison_page
from tests.simulated import SMALL, Corpus, brief
from tests.simulator import Scenario, scenario
from tests.simulator.courses import Course, SlowUpdate
from tests.synthetic import write_recording

BEFORE = replace(brief(scenario(22), steps=18), faults=(), hz=0.02)
"""Its devices are read seldom: no comparison asks what they said."""
AGAIN = replace(BEFORE, seed=900_022)
SLOWER = replace(AGAIN, faults=(SlowUpdate(0.2, Course("each", tuple(range(1, 19)))),))
SINCE = replace(AGAIN, faults=(SlowUpdate(0.5, Course("since", tuple(range(11, 19)))),))
STALLED = replace(AGAIN, faults=(SlowUpdate(20.0, Course("now_and_then", (6, 10, 15))),))
LONGER = replace(AGAIN, lengths=replace(BEFORE.lengths, median=1.3 * BEFORE.lengths.median))
LARGER = replace(AGAIN, ranks=2 * BEFORE.ranks, gpus_per_node=BEFORE.ranks)


def compared(corpus: Corpus, after: Scenario, before: Scenario = BEFORE) -> Comparison:
    return compare(corpus.asked(before, read_side), corpus.asked(after, read_side))


def named(found: Comparison) -> list[str]:
    return [change.name for change in found.changed]


def run(corpus: Corpus, drawn: Scenario) -> str:
    return str(corpus.run(drawn)[0])


def said(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    """What the command says on its screen, in one line."""
    assert cli.main(["compare", *words]) == code
    return " ".join(capsys.readouterr().out.split())


@pytest.fixture
def read_before(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is given what was read of these runs: to read one takes a second or two."""
    runs = {corpus.run(drawn)[0]: drawn for drawn in (BEFORE, SLOWER, LARGER)}

    def side(run: Path, steps: tuple[int, int] | None) -> Side:
        assert steps is None
        return corpus.asked(runs[run], read_side)

    monkeypatch.setattr("rlvr_probe.cli.compare._side", side)


def test_equal_runs_do_not_differ(corpus: Corpus) -> None:
    found = compared(corpus, AGAIN)
    assert named(found) == []
    assert headline(found).startswith("nothing differs beyond chance: a step takes ")
    assert found.settings == {}


def test_a_stage_that_is_slower_is_named_with_its_factor(corpus: Corpus) -> None:
    found = compared(corpus, SLOWER)
    assert named(found) == ["update"]
    [update] = found.changed
    assert update.since is None
    assert update.times == pytest.approx(1.2, rel=0.03)
    assert update.low is not None
    assert update.high is not None
    assert update.low < 1.2 < update.high
    assert "most of it in the update 1." in headline(found)


def test_a_change_within_the_run_after_has_its_first_step(corpus: Corpus) -> None:
    [update] = compared(corpus, SINCE).changed
    assert update.name == "update"
    assert update.since in (10, 11, 12)
    assert update.times == pytest.approx(1.5, rel=0.08)
    assert update.in_single_steps == pytest.approx(1, abs=0.05)


def test_single_steps_that_stall_are_told_by_their_cause(corpus: Corpus) -> None:
    found = compared(corpus, STALLED)
    assert named(found) == []
    assert [cause.kind for cause in found.worse(0.05)] == ["slow_update"]
    assert "in single steps; in B the update took " in headline(found)
    assert found.fails(0.05) != []


def test_a_pair_that_differs_in_lengths_only_is_called_that(corpus: Corpus) -> None:
    found = compared(corpus, LONGER)
    assert found.lengths_only
    assert headline(found).startswith("they differ in lengths only: a step takes 1.")
    update = next(change for change in found.stages if change.name == "update")
    assert update.lengths is not None
    assert update.lengths > 1.05
    assert update.low is not None
    assert update.high is not None
    assert update.low < 1 < update.high < 1.1


def test_a_token_that_takes_longer_is_named_by_itself(corpus: Corpus) -> None:
    side = corpus.asked(BEFORE, read_side)
    paces = {step: 6e10 * (1 + 0.002 * (step % 3)) for step in [*side.numbers][1:]}
    slower = {step: 1.05 * ns for step, ns in paces.items()}
    found = compare(replace(side, paces=paces), replace(side, paces=slower))
    [token] = found.changed
    assert token.title == "a token of rollout"
    assert token.times == pytest.approx(1.05, rel=0.01)
    assert token.before == pytest.approx(60.1, rel=0.01)
    # The steps took no longer, however long a token takes: it is no reason to fail.
    assert not found.step.changed
    assert found.fails(0.03) == []


def test_what_takes_place_too_rarely_changes_no_step(corpus: Corpus) -> None:
    def with_evaluations(side: Side, seconds: float) -> Side:
        ns = dict.fromkeys([*side.numbers][4::6], seconds * 1e9)
        taken = replace(side.taken, ns={**side.taken.ns, "evaluation": ns})
        whole = {step: took + ns.get(step, 0.0) for step, took in side.whole.items()}
        return replace(side, taken=taken, whole=whole)

    side = corpus.asked(BEFORE, read_side)
    found = compare(with_evaluations(side, 10), with_evaluations(side, 60))
    assert not found.differs
    assert found.step.times is not None
    assert found.step.low is not None
    assert found.step.low < 1 < found.step.times


def test_settings_that_differ_are_there_and_so_is_the_stage_that_stops_scaling(
    corpus: Corpus,
) -> None:
    found = compared(corpus, LARGER)
    assert found.settings["gpus"] == (str(BEFORE.gpus), str(LARGER.gpus))
    scaled = {stage.name: stage for stage in scaling([found.before, found.after])}
    update, sync = scaled["update"].exponent, scaled["weight_sync"].exponent
    assert update is not None
    assert sync is not None
    # The update is divided among the GPUs; to move the weights takes as long with each number.
    assert update < 0.5 < sync


def test_what_each_start_has_of_its_own_is_no_setting(corpus: Corpus) -> None:
    with corpus.tables(SMALL) as tables:
        known = read_side(tables).settings
        tables.sql.execute(
            """UPDATE session SET facts = json_merge_patch(facts, '{"ids": {"wandb": "3kq8"}}')"""
        )
        assert read_side(tables).settings == known


@pytest.mark.usefixtures("read_before")
def test_the_screen_says_it(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, cli.OK, run(corpus, BEFORE), run(corpus, LARGER))
    assert "What they were made with setting A B accelerators" in text
    assert "Scaling: GPU-seconds for a million tokens, by number of GPUs" in text
    assert "stops scaling first: " in text
    several = lay_out_comparisons([compared(corpus, AGAIN), compared(corpus, LARGER)], [])
    titles = [block.title for block in several if isinstance(block, Grid)]
    assert titles.count("Stages (mean s of a step, or of a token; B by A)") == 2
    assert "Scaling: GPU-seconds for a million tokens, by number of GPUs" in titles


def test_two_ranges_of_one_run_are_compared(
    corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, cli.OK, run(corpus, SINCE), "--steps", "2:10", "11:18")
    assert "9 steps, 2 to 10 B" in text
    assert "8 steps, 11 to 18" in text
    assert "the update 1.4" in text or "the update 1.5" in text


def test_one_range_is_of_both_runs(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, cli.OK, run(corpus, BEFORE), run(corpus, AGAIN), "--steps", "3:9")
    assert text.count("7 steps, 3 to 9") == 2


@pytest.mark.parametrize(
    ("after", "limit", "fails"),
    [(SLOWER, 0.05, True), (SLOWER, 0.3, False), (AGAIN, 0.05, False), (LONGER, 0.05, False),
     (STALLED, 0.05, True)],
)  # fmt: skip
def test_what_takes_longer_than_is_allowed_fails(
    corpus: Corpus, after: Scenario, limit: float, fails: bool
) -> None:
    assert bool(compared(corpus, after).fails(limit)) == fails


@pytest.mark.usefixtures("read_before")
@pytest.mark.parametrize(("limit", "code"), [("5%", cli.UNSOUND), ("0.3", cli.OK)])
def test_the_exit_code_says_it(
    corpus: Corpus, capsys: pytest.CaptureFixture[str], limit: str, code: int
) -> None:
    text = said(capsys, code, run(corpus, BEFORE), run(corpus, SLOWER), "--fail-above", limit)
    assert ("longer than --fail-above allows: the update" in text) == (code == cli.UNSOUND)


def test_the_json_has_all_of_it(
    corpus: Corpus, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = run(corpus, BEFORE), run(corpus, SLOWER), "--html", str(tmp_path / "page")
    said(capsys, cli.OK, *words, "--json", str(tmp_path / "a"))
    document: dict[str, Any] = json.loads((tmp_path / "a").read_text("utf-8"))
    assert document["schema_version"] == 1
    assert document["failed"] == []
    assert document["scaling"] is None
    [found] = document["comparisons"]
    assert [change["name"] for change in found["stages"] if change["changed"]] == ["update"]
    assert found["before"]["steps"] == found["after"]["steps"] == 17
    assert found["step"]["low"] < found["step"]["times"] < found["step"]["high"]
    assert "most of it in the update 1." in (tmp_path / "page").read_text("utf-8")


@pytest.mark.usefixtures("read_before")
def test_the_json_can_be_printed_alone(
    corpus: Corpus, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = run(corpus, BEFORE), run(corpus, SLOWER)
    said(capsys, cli.OK, *words, "--json", str(tmp_path / "a"))
    printed = said(capsys, cli.OK, *words, "--json", "-", "--html", str(tmp_path / "page"))
    assert json.loads(printed) == json.loads((tmp_path / "a").read_text("utf-8"))


def test_the_page_has_it_and_loads_nothing(corpus: Corpus) -> None:
    found = compared(corpus, SLOWER)
    text = comparison_page([found], lay_out_comparisons([found], []))
    assert "most of it in the update 1." in text
    assert text.count("<circle") > 100
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_stage_of_one_of_the_runs_alone_is_there(corpus: Corpus, side: str) -> None:
    found = compared(corpus, AGAIN)
    whole: Side = getattr(found, side)
    ns = {name: times for name, times in whole.taken.ns.items() if name != "update"}
    runs = {"before": found.before, "after": found.after}
    runs[side] = replace(whole, taken=replace(whole.taken, ns=ns))
    found = compare(**runs)
    [update] = (stage for stage in found.stages if stage.name == "update")
    assert [name for name in runs if getattr(update, name) is None] == [side]
    drawn = comparison_page([found], lay_out_comparisons([found], []))
    assert f'aria-label="{update.title}, s of a step"' in drawn


def test_names_of_a_recording_are_no_html(corpus: Corpus) -> None:
    found = compared(corpus, AGAIN)
    odd = replace(found, settings={"<b>": ("<script>", None)})
    page = comparison_page([odd], lay_out_comparisons([odd], []))
    assert "&lt;script&gt;" in page
    assert "<script" not in page


def test_saved_tables_are_compared_like_the_run(
    corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = str(corpus.characterized(SMALL).saved)
    folder = run(corpus, SMALL)
    assert "too few steps: " in said(capsys, cli.OK, saved, folder)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["RUN"], "found one run, expected two"),
        (["RUN", "RUN", "--steps", "1:2", "3:4", "5:6"], "found 3 ranges of --steps and 2 runs"),
        (["RUN", "RUN", "--steps", "70:80"], "expected some of steps 70 to 80"),
        (["RUN", "nowhere"], "nowhere does not exist"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    write_recording(tmp_path / "run", steps=2, trajectories=8)
    folder = str(tmp_path / "run")
    assert cli.main(["compare", *(word.replace("RUN", folder) for word in words)]) == cli.UNABLE
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--steps", "9"], ["--steps", "9:3"], ["--fail-above", "much"]])
def test_a_wrong_argument_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["compare", "a", "b", *words])
    assert ended.value.code == cli.UNABLE
    assert "expected" in capsys.readouterr().err


def test_a_run_without_steps_is_refused(corpus: Corpus) -> None:
    with corpus.tables(SMALL) as tables:
        tables.sql.execute("DELETE FROM step")
        with pytest.raises(RecordingError, match="has no finished step with its times"):
            read_side(tables)
