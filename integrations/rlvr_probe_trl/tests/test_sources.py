"""A column that the user named says where a prompt is from; the training keeps the same books."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import isclose
from statistics import fmean, pstdev
from typing import Any

import pytest
from rlvr_probe_trl.tests.runs import Finished, Runner, Scenario
from rlvr_probe_trl.tests.train import CANARY

from rlvr_probe.analysis.metrics.signal import signal
from rlvr_probe.recording.tables import open_tables
from tests.chaptered import Said, said

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(2000)]

NAMED = ("RLVR_PROBE_SOURCE=origin",)
SCENARIOS = {
    "named": Scenario("--eval-every 2 --max-tokens 12", environment=NAMED),
    "missing": Scenario(environment=("RLVR_PROBE_SOURCE=elsewhere",)),
    "canaries": Scenario("--canaries", environment=NAMED),
}


@pytest.fixture(scope="module")
def runner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runner]:
    runner = Runner(tmp_path_factory.mktemp("sources"))
    runner.start(SCENARIOS.values())
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def named(runner: Runner) -> Finished:
    return runner.finished(SCENARIOS["named"])


@pytest.fixture(scope="module")
def found(named: Finished) -> Iterator[Said]:
    with open_tables(named.recording) as tables:
        yield said([signal(tables)])


def books(run: Finished, split: str) -> list[Mapping[str, Any]]:
    text = (run.folder / "books" / "truth-0.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    return [line for line in lines if line.get("split") == split]


def recorded(run: Finished, mode: str) -> list[list[str | None]]:
    return [
        [trajectory.source for group in batch.groups() for trajectory in group.trajectories]
        for step in run.trace.steps()
        for batch in (step.batches if mode == "train" else step.evaluations)
    ]


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_source_of_each_trajectory_is_that_of_its_row(named: Finished, mode: str) -> None:
    origins = [line["origin"] for line in books(named, mode)]
    assert recorded(named, mode) == origins
    assert len({name for batch in origins for name in batch}) > 1


def test_a_column_that_no_row_has_is_not_recorded(runner: Runner) -> None:
    run = runner.finished(SCENARIOS["missing"])
    assert {name for batch in recorded(run, "train") for name in batch} == {None}
    assert len(recorded(run, "train")) == len(books(run, "train")) == 3
    assert run.trace.lost == {}
    assert all(not process.faults for process in run.trace.processes)


def test_a_workload_has_aliases_alone(runner: Runner) -> None:
    run = runner.finished(SCENARIOS["canaries"])
    assert CANARY["source"] in {name for batch in recorded(run, "train") for name in batch}
    texts = [path.read_text() for path in run.workload[1].rglob("*") if path.is_file()]
    assert not any(CANARY["source"] in text for text in texts)
    assert any('"source":"s1"' in text.replace(" ", "") for text in texts)


def test_rewards_are_those_of_the_books(named: Finished, found: Said) -> None:
    for mode, split in (("training", "train"), ("evaluation", "eval")):
        lines = books(named, split)
        values = [value for line in lines for value in line["rewards"]]
        name = f"signal.{mode}"
        assert isclose(found.value(f"{name}.mean", function="keeper"), fmean(values))
        assert isclose(found.value(f"{name}.std", function="keeper"), pstdev(values), abs_tol=1e-9)
        means = {
            step: fmean(x for line in lines if line["step"] == step for x in line["rewards"])
            for step in {line["step"] for line in lines}
        }
        assert {row["step"]: row["reward"] for row in found.rows(f"{name}.by_step")
                if row["function"] == "keeper"} == pytest.approx(means)  # fmt: skip


def test_what_trains_nothing_is_what_trl_says(named: Finished, found: Said) -> None:
    # TRL logs the share of groups whose weighted sum of rewards is the same.
    log = [line for line in named.results[0]["log"] if "frac_reward_zero_std" in line]
    assert found.value("signal.training.untrained") == pytest.approx(
        fmean(line["frac_reward_zero_std"] for line in log)
    )
