"""``show`` and ``characterize`` say one thing of one recording."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from rlvr_probe import cli
from rlvr_probe.analysis.statistics import quantile
from tests import today
from tests.agreeing import disagreements, of_characterize, of_show
from tests.simulated import BESIDE, FILTERED, SMALL, TRAINED, Corpus
from tests.simulator import Scenario
from tests.summarized import summary_of
from tests.trained_twice import trained_twice


def shown(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(summary_of(run), allow_nan=False))
    return found


def characterized(run: Path, out: Path) -> dict[str, Any]:
    assert cli.main(["characterize", str(run), "--json", str(out)]) == cli.OK
    found: dict[str, Any] = json.loads(out.read_text())
    return found


class Asked(NamedTuple):
    """One recording, and what the two commands say of it."""

    show: dict[str, Any]
    characterized: dict[str, Any]


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    folder = tmp_path_factory.mktemp("twice")
    trained_twice(folder / "run")
    return Asked(shown(folder / "run"), characterized(folder / "run", folder / "json"))


def test_a_run_that_trained_twice_is_what_it_was_in_the_end(twice: Asked) -> None:
    assert disagreements(twice.show, twice.characterized) == []
    facts = twice.show["training"]
    stated = [facts[name] for name in ("framework_version", "algorithm", "max_response_tokens")]
    assert stated == ["1.17.0", "rloo", 2048]
    [note] = [note for note in twice.show["notes"] if "training runs were recorded" in note]
    assert "max_response_tokens 64, then 2048" in note
    assert note in twice.characterized["notes"]


def test_of_trainings_with_several_caps_no_share_is_as_long_as_the_cap(twice: Asked) -> None:
    [lengths] = [one for one in twice.characterized["chapters"] if one["name"] == "lengths"]
    figures = {one["id"]: one for one in lengths["figures"]}
    for name in ("at_cap", "tail_index"):
        assert figures[f"lengths.response.{name}"]["value"] is None
        assert "another cap" in figures[f"lengths.response.{name}"]["why"]


def test_of_a_batch_that_lacks_trajectories_no_length_is_told(twice: Asked) -> None:
    assert twice.show["trajectories"] == 56
    assert twice.show["step_list"][-1]["trajectories"] == 8
    assert twice.show["step_list"][-1]["lengths"]["response_tokens"] is None
    said = "1 generation batch is not whole (8 trajectories)"
    assert any(note.startswith(said) for note in twice.show["notes"])


@pytest.mark.parametrize(
    "drawn",
    today.some([SMALL, FILTERED, TRAINED, BESIDE], 1),
    ids=["small", "filtered", "trained", "beside"],
)
def test_a_simulated_run(corpus: Corpus, drawn: Scenario) -> None:
    run, _ = corpus.run(drawn)
    found = json.loads(corpus.characterized(drawn).json.read_text())
    told = shown(run)
    assert disagreements(told, found) == []
    stages = {name[0] for name, value in of_show(told).items() if name[1:] == ("watts",) and value}
    placed = set[str]() if drawn is BESIDE else {"devices in rollout"}
    assert placed | {"devices in update_actor"} <= stages


def test_a_figure_that_differs_is_found(twice: Asked) -> None:
    changed = copy.deepcopy(twice.show)
    changed["lengths"]["response_tokens"]["p90"] += 0.5
    changed["training"]["max_response_tokens"] = None
    assert [one.partition(":")[0] for one in disagreements(changed, twice.characterized)] == [
        "response p90", "training max_response_tokens",
    ]  # fmt: skip
    compared = {name for name, value in of_show(twice.show).items() if value is not None}
    assert compared <= of_characterize(twice.characterized).keys()
    assert {("response", "p90"), ("step 2", "p50"), ("reward accuracy", "time")} <= compared


@pytest.mark.parametrize("count", [1, 2, 3, 10, 999])
def test_a_quantile_is_that_of_duckdb(count: int) -> None:
    drawn = random.Random(count)
    shares = [0.0, 0.5, 0.9, 0.99, 1.0]
    values = sorted(drawn.choice([drawn.randrange(50), drawn.random()]) for _ in range(count))
    asked = duckdb.execute(
        "SELECT quantile_cont(value, $shares::DOUBLE[])"
        " FROM (SELECT unnest($values::DOUBLE[]) AS value)",
        {"shares": shares, "values": values},
    ).fetchall()
    [[expected]] = asked
    assert [quantile(values, share) for share in shares] == pytest.approx(expected)
