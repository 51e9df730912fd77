"""Batches, timers and worker groups of verl, in one process and in orders that a job has by chance.

Scenes are played by ``scene.py`` in an environment with that release of verl.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_verl.tests.environments import python
from rlvr_probe_verl.tests.runs import JOB

from rlvr_probe.model import names
from rlvr_probe.model.batch import Batch
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import find_run, read_run
from tests.surroundings import surroundings

# The first test may have to make the environment, a gigabyte.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3000)]

SCENE = Path(__file__).with_name("scene.py")


@dataclass(frozen=True)
class Played:
    """A scene, and what was recorded of it."""

    truth: dict[str, Any]
    trace: Trace

    def batches(self, mode: str) -> list[Batch]:
        return [
            batch
            for step in self.trace.steps()
            for batch in (step.evaluations if mode == "eval" else step.batches)
        ]


Play = Callable[[str, str], Played]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    played: dict[tuple[str, str], Played] = {}

    def once(name: str, version: str) -> Played:
        if (name, version) not in played:
            folder = tmp_path_factory.mktemp(name)
            played[name, version] = _play(name, version, folder)
        return played[name, version]

    return once


def _play(name: str, version: str, folder: Path) -> Played:
    environ = surroundings()
    environ |= {"RLVR_PROBE": "1", "RLVR_PROBE_OUT": str(folder / "recordings")}
    environ |= {"RLVR_PROBE_SIDECAR": "0"}
    environ |= {"VERL_CPU_DEVICE": "1", "PYTHONPATH": str(JOB)}
    done = subprocess.run(
        [str(python(version)), str(SCENE), name, str(folder)],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    trace = read_run(find_run(folder / "recordings"))
    assert [dict(process.faults) for process in trace.processes] == [{}]
    return Played(json.loads((folder / "truth.json").read_text()), trace)


def columns(batch: Batch) -> list[list[Any]]:
    """Prompt lengths, response lengths and rewards, in the order of the rows."""
    rows = [trajectory for group in batch.groups() for trajectory in group.trajectories]
    return [
        [row.prompt_tokens for row in rows],
        [row.response_tokens for row in rows],
        [row.rewards[0].value if row.rewards else None for row in rows],
    ]


def test_balancing_is_undone_also_where_another_process_scores(play: Play) -> None:
    played = play("standard", "0.5.0")
    batches = played.batches("train")
    # Each step generates a baseline as well.
    assert [columns(batch) for batch in batches] == played.truth["train"]
    assert [(batch.step, batch.group_size, batch.ordinal) for batch in batches] == [
        (1, 4, 0),
        (2, 4, 0),
    ]
    assert {reward.function for batch in batches for reward in batch.shards[0].rewards} == {"judge"}
    # The baseline is scored, too, and is not among them.
    calls = [batch.shards[0].calls for batch in batches]
    assert [[call.samples for call in shard] for shard in calls] == [[12], []]


def test_what_a_step_is_trained_on_is_fetched_in_a_stage_of_it(play: Play) -> None:
    trace = play("fetched", "0.5.0").trace
    spans = [
        (step.session, step.number, span.error, span.parent)
        for step in trace.steps()
        for span in step.spans
        if span.name == names.DATA.name
    ]
    # After the first step each training asks once more, for its second epoch.
    told = [(session, step) for session in (0, 1) for step in (1, 2, 2)]
    assert spans == [(*place, None, 0) for place in told]
    sessions = [session for attempt in trace.attempts for session in attempt.sessions]
    assert [session.facts["resumed_step"] for session in sessions] == [0, 0]


def test_what_fills_up_an_evaluation_is_no_trajectory(play: Play) -> None:
    played = play("evaluation", "0.5.0")
    batches = played.batches("eval")
    assert [columns(batch) for batch in batches] == played.truth["eval"]
    assert [batch.ordinal for batch in batches] == [0, 1]
    assert played.batches("train") == []


@pytest.mark.parametrize("scene", ["dynamic", "dynamic_scored"])
def test_the_dapo_recipe_generates_until_enough_prompts_pass_within_one_step(
    play: Play, scene: str
) -> None:
    played = play(scene, "0.5.0")
    batches = played.batches("train")
    assert [columns(batch) for batch in batches] == played.truth["train"]
    assert [sorted(batch.kept or ()) for batch in batches] == played.truth["kept"]
    assert [step.number for step in played.trace.steps()] == [1, 2, 3]
    assert all(step.complete for step in played.trace.steps())
    assert not any(batch.unselected for batch in batches)
    for step, used in zip(played.trace.steps(), played.truth["used"], strict=True):
        # Those that passed first; what is left over is cut off.
        passed = [
            (batch.ordinal, group) for batch in step.batches for group in sorted(batch.kept or ())
        ]
        recorded = [
            (batch.ordinal, group) for batch in step.batches for group in sorted(batch.used or ())
        ]
        assert recorded == passed[:used]
        assert len([span for span in step.spans if span.name == "step"]) == 1


def test_what_the_dapo_recipe_passed_before_it_gave_up_is_there(play: Play) -> None:
    played = play("given_up", "0.5.0")
    *_, step = played.trace.steps()
    assert not step.done
    batches = played.batches("train")
    assert [sorted(batch.kept or ()) for batch in batches] == played.truth["kept"]
    assert (step.batches[-1].kept is not None, step.batches[-1].used) == (True, None)
    assert played.trace.lost == {}


def test_the_prime_recipe_scores_and_downsamples_within_one_step(play: Play) -> None:
    played = play("downsampled", "0.5.0")
    batches = played.batches("train")
    assert [columns(batch) for batch in batches] == played.truth["train"]
    assert [sorted(batch.kept or ()) for batch in batches] == played.truth["kept"]
    assert [sorted(batch.used or ()) for batch in batches] == played.truth["kept"]
    steps = list(played.trace.steps())
    assert [step.complete for step in steps] == [True, True]
    stages = {"rollout", "reward", "advantage", "update_actor"}
    assert [stages <= {span.name for span in step.spans} for step in steps] == [True, True]
    calls = [batch.shards[0].calls for batch in batches]
    assert [[call.samples for call in shard] for shard in calls] == [[16], [16]]


@pytest.mark.parametrize("version", ["0.5.0", "0.9.1"])
def test_a_rank_tells_each_call_of_its_worker_group_and_none_of_its_own(
    play: Play, version: str
) -> None:
    played = play("calls", version)
    assert played.truth["results"] == [4, 4, 1, 5]
    assert played.truth["error"] == ["private"]
    assert played.truth["kinds"] == [True, "Doubles."]
    assert played.truth["marks"] == [False, "inner"]
    spans = [span for span in played.trace.unplaced if span.name == "rpc"]
    worker = [span for span in spans if span.attributes["side"] == "worker"]
    assert [(span.attributes["method"], span.error) for span in worker] == [
        ("outer", None),
        ("later", None),
        ("inner", None),
        ("fails", "KeyError"),
    ]
    assert {span.attributes["rank"] for span in worker} == {1}


@pytest.mark.parametrize("version", ["0.5.0", "0.9.1"])
def test_what_a_worker_group_calls_by_stays_an_object_of_its_name(play: Play, version: str) -> None:
    played = play("calls", version)
    assert played.truth["function"] == [True, "generate_sequences"]
    assert played.truth["output"] == 3
    [caller] = [
        span.attributes for span in played.trace.unplaced if span.attributes.get("side") == "caller"
    ]
    assert (caller["method"], caller["ranks"], caller["samples"], caller["waits"]) == (
        "generate_sequences",
        2,
        3,
        0,
    )
