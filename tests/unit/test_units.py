"""What GPU time is called: of ranks where no GPU is known, and in one unit on a page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rlvr_probe.analysis.characterization import Characterization, characterize
from rlvr_probe.model import names
from rlvr_probe.recording.tables import open_tables
from rlvr_probe.report.blocks import Grid, Line
from rlvr_probe.report.characterize import lay_out_characterization, to_document
from rlvr_probe.report.page.contents import document
from tests.chaptered import Said, said
from tests.journals import JournalFile, Training, simple_run
from tests.simulated import SMALL, Corpus

RANKS, STEPS = 2, 3


class Told(NamedTuple):
    """What is said of one recording."""

    whole: Characterization
    chapters: Said
    screen: str
    json: dict[str, Any]
    page: dict[str, Any]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Of two ranks without a GPU, which also evaluate, with two reward functions."""
    folder = tmp_path_factory.mktemp("ranks")
    for rank in range(RANKS):
        training = Training(JournalFile(folder, rank + 1), rank=rank, ranks=RANKS)
        training.begin()
        for step in range(1, STEPS + 1):
            batch = training.generate(step)
            training.journal.span(
                names.REWARD_FN, training.now_s - 0.1, training.now_s, batch=batch,
                function="format", samples=8,
            )  # fmt: skip
            training.step(step, generate=False)
            training.evaluate(step)
        training.journal.close()
    with open_tables(folder, threads=1) as tables:
        whole = characterize(tables)
        yield told(whole, document(tables, whole))


def told(whole: Characterization, page: dict[str, Any]) -> Told:
    blocks = lay_out_characterization(whole)
    lines = [
        " ".join((one.title, *(column.heading for column in one.columns)))
        if isinstance(one, Grid)
        else one.text
        for one in blocks
    ]
    screen = "\n".join(line for line in lines if not line.startswith("note: "))
    return Told(whole, said(whole.chapters), screen, to_document(whole), page)


def test_without_a_gpu_time_is_that_of_ranks(ranks: Told) -> None:
    assert "2 ranks" in ranks.screen
    assert "rank-seconds" in ranks.screen
    assert "ranks wait for reward function accuracy" in ranks.screen
    assert "GPU" not in ranks.screen
    assert ranks.json["ledger"]["unit"] == ranks.page["unit"] == "rank"
    assert ranks.page["ledger"]["count"] == "2 ranks"
    assert ranks.page["headline"][0].startswith("Ranks worked ")
    [ledger] = [one for one in ranks.json["chapters"] if one["name"] == "ledger"]
    texts = [ledger["title"]]
    for one in (*ledger["figures"], *ledger["series"]):
        units = one["units"].values() if "units" in one else [one["unit"]]
        texts += [one["title"], *units]
    assert [text for text in texts if "GPU" in text] == []
    assert "rank-s" in texts
    assert ranks.json["causes"]
    assert "GPU" not in json.dumps([
        {name: cause[name] for name in ("title", "usually_helps", "refuted_by")}
        for cause in ranks.json["causes"]
    ])  # fmt: skip


def test_of_gpus_time_is_theirs(corpus: Corpus) -> None:
    with corpus.after(SMALL, characterize) as (tables, whole):
        found = told(whole, document(tables, whole))
    assert "GPU-" in found.screen
    assert found.json["ledger"]["unit"] == found.page["unit"] == "GPU"
    for name, by in (("ledger.gpu_time", {}), ("devices.stage.seconds", {"stage": "step"})):
        assert found.chapters.figure(name, **by).unit == "GPU-s"
    assert found.chapters.series["devices.by_step"].units["seconds"] == "GPU-s"


def test_tokens_of_training_are_over_the_time_without_evaluation(ranks: Told) -> None:
    ledger = ranks.whole.ledger
    assert ledger is not None
    assert ledger.ns["eval"] > 0
    counts = dict(zip(ranks.whole.counts.columns, ranks.whole.counts.row, strict=True))
    training_s = (sum(ledger.ns.values()) - ledger.ns["eval"]) / 1e9
    figure = ranks.chapters.figure("ledger.token_rate")
    assert figure.value == pytest.approx(counts["response_tokens"] / training_s)
    assert figure.unit == "tokens/rank-s"


def test_a_trajectory_of_two_reward_functions_is_one(ranks: Told) -> None:
    rows = ranks.chapters.rows("rewards.by_process")
    assert len(rows) == RANKS * STEPS
    assert {row["samples"] for row in rows} == {8}
    assert rows[0]["seconds"] == pytest.approx(0.125 + 0.1)


def test_a_run_too_short_for_an_interval_has_no_alarm(ranks: Told, tmp_path: Path) -> None:
    simple_run(tmp_path / "run", steps=1)
    with open_tables(tmp_path / "run", threads=1) as tables:
        whole = characterize(tables)
        page = document(tables, whole)
    said = "the run has 1 step, and it takes 3"
    for found, early in ((whole, True), (ranks.whole, False)):
        first = found.causes[0]
        assert (first.early, first.low is None, first.no_interval == said) == (early, early, early)
        lines = [one for one in lay_out_characterization(found) if isinstance(one, Line)]
        assert any(line.style == "alarm" for line in lines) is not early
        assert any(said in line.text for line in lines) is early
    assert page["headline"][1].startswith(f"Only a hint, as {said}: ")
    assert [cause["early"] for cause in page["causes"]] == [True]
