"""What the user's objects look like beside a probe, and what is recorded when things go wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.model.names import STAGES
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from tests.surroundings import surroundings

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(2000)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Trace]:
    out = tmp_path_factory.mktemp("scenes")
    script = Path(__file__).with_name("scenes.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(out)],
        env=surroundings() | {"RLVR_PROBE_SIDECAR": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1]), read_run(out / "recordings" / "scenes")


@pytest.fixture(scope="module")
def seen(stage: tuple[dict[str, Any], Trace]) -> dict[str, Any]:
    return stage[0]


@pytest.fixture(scope="module")
def trace(stage: tuple[dict[str, Any], Trace]) -> Trace:
    return stage[1]


def test_nothing_of_the_probe_failed(seen: dict[str, Any], trace: Trace) -> None:
    assert seen["faults"] == []
    assert (trace.lost, trace.notes) == ({}, [])


def test_the_list_of_reward_functions_holds_the_users_functions(seen: dict[str, Any]) -> None:
    assert seen["users_list"] == [True, True]
    assert seen["callable_object"] is True


def test_an_exception_of_a_reward_function_reaches_the_user(seen: dict[str, Any]) -> None:
    assert seen["failing_reward"] == ["'mine'", True]


def test_a_trainer_that_generates_nothing_is_left_alone(seen: dict[str, Any]) -> None:
    assert "Steps" not in seen["other_trainer"]


def test_a_copied_callback_does_nothing(seen: dict[str, Any]) -> None:
    assert seen["copies"] == "Steps"


def test_a_trainer_lives_no_longer_than_without_a_probe(seen: dict[str, Any]) -> None:
    assert seen["garbage"] is True


def test_detach_restores_everything(seen: dict[str, Any]) -> None:
    assert seen["detach"].pop("callbacks")[-1] != "Steps"
    hooked = {"GRPOTrainer._generate", "Trainer.__init__", "CallbackHandler.on_save"}
    assert hooked <= set(seen["detach"].pop("hooked"))
    assert seen["detach"] == {"wrapped": [], "optimizer_hooks": 0, "threads": [], "trains": 1}


def test_each_training_from_scratch_is_a_session_of_its_own(trace: Trace) -> None:
    [attempt] = trace.attempts
    # users_list twice, failing_reward, training_reward, callable_object, garbage, calling_back,
    # detach
    assert [session.session for session in attempt.sessions] == [0, 1, 2, 3, 4, 5, 6, 7]
    done = [(step.session, step.number) for step in attempt.steps if step.complete]
    assert [step for step in done if step[1]] == [(n, 1) for n in (0, 1, 3, 4, 5, 6, 7)]


def test_callbacks_are_recorded_by_class_and_event_and_do_what_they_did(
    seen: dict[str, Any], trace: Trace
) -> None:
    assert seen["calling_back"] == ["step", "save"]
    labels = Counter(span.attributes["label"] for span in trace.user_spans)
    own = {"StepKeeper.on_step_end": 7, "Derived.on_step_end": 1, "Uploads.on_save": 1}
    assert labels == own
    [step] = [step for step in trace.steps() if (step.session, step.number) == (6, 1)]
    # What a callback does with a checkpoint belongs to it, beside the saving.
    saved = [span for span in step.spans if span.name == "checkpoint"]
    [upload] = [span for span in trace.user_spans if span.attributes["label"] == "Uploads.on_save"]
    assert [span.id for span in saved].index(upload.parent) == 1
    assert sum(span.seconds for span in saved) > upload.seconds >= 0.05


def test_an_optimizer_of_a_reward_function_is_not_the_policys(
    seen: dict[str, Any], trace: Trace
) -> None:
    assert seen["training_reward"] is True
    [step] = [step for step in trace.steps() if (step.session, step.number) == (3, 1)]
    assert [span.name for span in step.spans if span.name == "optimizer_step"] == ["optimizer_step"]


def test_an_exception_ends_the_spans_it_passes_by_its_type(trace: Trace) -> None:
    [step] = [step for step in trace.attempts[0].steps if (step.session, step.number) == (2, 1)]
    failed = {span.name: span.error for span in step.spans if span.name in STAGES and span.error}
    assert failed == {"reward": "KeyError"}
    assert {span.error for span in step.spans if span.name == "step"} <= {"Abandoned"}


def test_an_evaluation_without_a_training_is_recorded(trace: Trace) -> None:
    [step] = [step for step in trace.attempts[0].steps if (step.session, step.number) == (0, 0)]
    assert [batch.rows for batch in step.evaluations] == [8, 8]
    assert {"eval", "rollout", "reward"} <= {span.name for span in step.spans}
