"""A real asynchronous GRPO training, recorded in both its processes, against its own books."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_trl.tests.runs import run_script
from rlvr_probe_trl.tests.train_async import GROUP
from rlvr_probe_trl.tests.train_tools import CANARY

from rlvr_probe.exceptions import WorkloadError
from rlvr_probe.model.batch import Batch, Trajectory
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from rlvr_probe.workload import build_workload
from tests.summarized import summary_of
from tests.trainings import polytrace

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(2000)]

SCRIPT = Path(__file__).with_name("train_async.py")
STEPS = 3


@dataclass(frozen=True)
class Run:
    """One training: its folder and what it printed."""

    folder: Path
    output: str

    @cached_property
    def recording(self) -> Path:
        """Its run folder."""
        [recording] = [path for path in (self.folder / "recordings").iterdir() if path.is_dir()]
        return recording

    @cached_property
    def trace(self) -> Trace:
        """What was recorded."""
        return read_run(self.recording)

    @cached_property
    def batches(self) -> list[Batch]:
        """Recorded groups that were trained on."""
        return [batch for step in self.trace.steps() for batch in step.batches]

    def book(self, name: str) -> list[dict[str, Any]]:
        """Lines of one of its books."""
        lines = (self.folder / "books" / f"{name}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    @cached_property
    def conversations(self) -> dict[int, list[dict[str, int]]]:
        """Requests of each conversation, by its number, in the order of its turns."""
        result: dict[int, list[dict[str, int]]] = {}
        for line in sorted(self.book("requests"), key=lambda line: (line["tag"], line["turn"])):
            result.setdefault(line["tag"], []).append(line)
        return result


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("async")
    return Run(folder, run_script(SCRIPT, folder, f"--attach --steps {STEPS}"))


def rows(batch: Batch) -> list[Trajectory]:
    return [sample for group in batch.groups() for sample in group.trajectories]


def test_the_rollout_process_is_a_process_of_the_run(run: Run) -> None:
    trainer, child = run.trace.processes
    assert [attempt.processes for attempt in run.trace.attempts] == [[0, 1]]
    assert (trainer.state, child.state) == ("exited", "exited")
    assert child.owner == trainer.key
    assert child.pid == run.book("groups")[0]["pid"] != trainer.pid
    assert run.trace.lost == {}
    assert [dict(process.faults) for process in run.trace.processes] == [{}, {}]


def test_every_step_has_the_groups_that_it_trained_on(run: Run) -> None:
    first: dict[int, int] = {}
    for line in run.book("steps"):
        for group, *_ in line["samples"]:
            first.setdefault(group, line["step"])
    assert sorted(set(first.values())) == list(range(1, STEPS + 1))
    assert {batch.ordinal: batch.step for batch in run.batches} == first
    assert all(batch.queued and batch.whole and batch.total == GROUP for batch in run.batches)
    assert [step.done for step in run.trace.steps() if step.started] == [True] * STEPS


def test_what_was_generated_and_never_trained_on_is_said_and_counts(run: Run) -> None:
    trained = {group for line in run.book("steps") for group, *_ in line["samples"]}
    left = sum(GROUP for line in run.book("groups")) - GROUP * len(trained)
    assert left > 0
    [note] = [note for note in run.trace.notes if "never trained on" in note]
    # A group that is being scored when TRL stops was recorded and never reached the book.
    untrained = int(note.split()[0])
    assert 0 <= untrained - left <= GROUP
    shown = summary_of(run.recording)
    assert shown["trajectories"] == GROUP * len(trained) + untrained
    assert sum(step["trajectories"] for step in shown["step_list"]) == GROUP * len(trained)


def test_lengths_are_those_of_the_samples_that_were_trained_on(run: Run) -> None:
    samples: dict[int, list[tuple[int, int]]] = {}
    for line in run.book("steps"):
        for group, tokens, loss in line["samples"]:
            samples.setdefault(group, []).append((tokens, loss))
    for batch in run.batches:
        assert sorted(
            (row.prompt_tokens + row.response_tokens, row.loss_tokens) for row in rows(batch)
        ) == sorted(samples[batch.ordinal])


def in_order(run: Run) -> list[tuple[dict[str, Any], list[Trajectory]]]:
    """Groups that were trained on, as the reward function saw them and as they were recorded.

    TRL scores one group after the other, and its trainer takes them in that order.
    """
    recorded = sorted(run.batches, key=lambda batch: batch.shards[0].recorded_ns or 0)
    return [(line, rows(batch)) for line, batch in zip(run.book("groups"), recorded, strict=False)]


def test_the_turns_of_each_trajectory_are_those_that_the_engine_was_asked_for(run: Run) -> None:
    result = in_order(run)
    assert len(result) == len(run.batches) > STEPS
    for line, trajectories in result:
        for tag, trajectory in zip(line["tags"], trajectories, strict=True):
            assert [
                (turn.index, turn.prompt_tokens, turn.response_tokens) for turn in trajectory.turns
            ] == [
                (turn["turn"], turn["prompt"], turn["response"]) for turn in run.conversations[tag]
            ]
            assert trajectory.start_ns is not None
            assert trajectory.end_ns is not None
            for turn in trajectory.turns:
                assert turn.start_ns is not None
                assert turn.end_ns is not None
                assert trajectory.start_ns <= turn.start_ns <= turn.end_ns <= trajectory.end_ns


def test_the_tool_calls_of_each_trajectory_are_those_that_the_tools_saw(run: Run) -> None:
    seen: dict[int, list[tuple[int, str | None, str]]] = {}
    for line in run.book("tools"):
        _, tag, turn = line["key"].split()[0].split("#")
        seen.setdefault(int(tag), []).append((int(turn[1:]), line["tool"], line["status"]))
    outcomes = set[str | None]()
    for line, trajectories in in_order(run):
        for tag, trajectory in zip(line["tags"], trajectories, strict=True):
            # A tool that there is not keeps no book: its conversations are every fourth.
            expected = [(0, None, "not_found")] if tag % GROUP == 3 else seen.get(tag, [])
            calls = [(call.turn, call.tool, call.status) for call in trajectory.tool_calls]
            assert sorted(map(str, calls)) == sorted(map(str, expected))
            outcomes |= {call.error or call.status for call in trajectory.tool_calls}
    assert outcomes == {"ok", "not_found", "LookupError"}


def test_rewards_are_those_of_the_trajectory_that_they_were_given_for(run: Run) -> None:
    for line, trajectories in in_order(run):
        assert [
            [(reward.function, reward.value) for reward in trajectory.rewards]
            for trajectory in trajectories
        ] == [[("keeper", value), ("waiting", 0.5)] for value in line["rewards"]]
        assert [
            sum(turn.response_tokens or 0 for turn in trajectory.turns)
            for trajectory in trajectories
        ] == (line["generated"])


def test_the_policy_that_sampled_is_never_newer_than_the_step_that_trained(run: Run) -> None:
    versions = [batch.policy_version for batch in run.batches]
    assert None not in versions
    assert all(0 <= (batch.policy_version or 0) < batch.step for batch in run.batches)
    assert 0 in versions


def test_stages_of_both_processes_are_there(run: Run) -> None:
    for step in (step for step in run.trace.steps() if step.started):
        names = {(span.process, span.name) for span in step.spans}
        assert {(0, "step"), (0, "data"), (0, "update_actor"), (0, "optimizer_step")} <= names
        assert {(1, "reward"), (1, "reward_fn")} <= names
    syncs = [
        span.attributes["weight_version"]
        for step in run.trace.steps()
        for span in step.spans
        if span.name == "weight_sync"
    ]
    assert syncs == list(range(1, STEPS + 2))


def test_a_training_states_its_facts(run: Run) -> None:
    [session] = run.trace.attempts[0].sessions
    facts = {name: session.facts.get(name) for name in ("algorithm", "engine", "group_size")}
    assert facts == {"algorithm": "async_grpo", "engine": "vllm-server", "group_size": GROUP}
    assert session.facts["reward_functions"] == ["keeper", "waiting"]


def test_packed_lengths_cannot_say_such_a_run_and_the_exporter_says_why(
    run: Run, tmp_path: Path
) -> None:
    with pytest.raises(WorkloadError, match="generated beside the training"):
        polytrace().write(build_workload(run.trace), tmp_path, keep_names=False)


@pytest.mark.parametrize("place", CANARY)
def test_what_models_and_tools_say_appears_nowhere(run: Run, place: str) -> None:
    for path in run.recording.rglob("*"):
        assert CANARY[place].encode() not in path.read_bytes()
