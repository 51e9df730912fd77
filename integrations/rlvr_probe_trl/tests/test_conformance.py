"""Real trainings with TRL, recorded by the real core and compared with their own books."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from rlvr_probe_trl.tests.runs import SCENARIOS, Finished, Runner, named

from rlvr_probe.model.batch import Batch
from rlvr_probe.model.names import STAGES
from rlvr_probe.model.trace import Span, Step
from tests import trainings
from tests.published import JUDGE
from tests.watched import GPUS, check_what_is_told_of_it

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(2000)]

ALWAYS = {"data", "rollout", "reward", "advantage", "update_actor"}


@pytest.fixture(scope="module")
def runner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runner]:
    runner = Runner(tmp_path_factory.mktemp("trl"))
    runner.start_named(request.session, "name", SCENARIOS)
    yield runner
    runner.close()


@pytest.fixture
def run(runner: Runner, name: str) -> Finished:
    return runner.finished(SCENARIOS[name])


every_run = pytest.mark.parametrize("name", named(*SCENARIOS))
whole_runs = pytest.mark.parametrize(
    "name", named(*(name for name, scenario in SCENARIOS.items() if scenario.then is None))
)


def groups(batch: Batch) -> list[dict[str, Any]]:
    return [
        {
            "input": group.trajectories[0].prompt_tokens,
            "output": [sample.response_tokens for sample in group.trajectories],
        }
        for group in batch.groups()
    ]


def recorded(run: Finished) -> list[Batch]:
    return [batch for step in run.trace.steps() for batch in step.batches]


def spans(run: Finished, *names: str) -> list[Span]:
    return [span for step in run.trace.steps() for span in step.spans if span.name in names]


@every_run
def test_lengths_are_exactly_those_of_the_run(run: Finished) -> None:
    assert run.truth.batches
    assert [(batch.step, groups(batch)) for batch in recorded(run)] == run.truth.batches


@every_run
def test_the_release_that_is_recorded_is_the_one_that_was_asked_for(run: Finished) -> None:
    releases = {
        session.facts["framework_version"]
        for attempt in run.trace.attempts
        for session in attempt.sessions
    }
    assert releases == {run.scenario.trl or metadata.version("trl")}


@pytest.mark.parametrize("name", named("n8_truncated", "0.17", "0.20_masked"))
def test_many_completions_are_cut_off_where_that_is_the_point(run: Finished) -> None:
    stopped = [ended for batch in run.truth.stopped for ended in batch]
    assert stopped.count(False) > len(stopped) // 2
    assert True in stopped


@pytest.mark.parametrize("name", named("0.17", "0.20_masked"))
def test_prompts_are_cut_where_that_is_the_point(run: Finished) -> None:
    inputs = [group["input"] for _, batch in run.truth.batches for group in batch]
    assert max(inputs) == 6
    texts = (run.folder / "books" / "truth-0.jsonl").read_text()
    assert (
        max(length for line in texts.splitlines() for length in json.loads(line).get("text", []))
        > 6
    )


@every_run
def test_completions_cut_off_by_the_cap_are_told_from_those_that_ended(run: Finished) -> None:
    assert [
        [not sample.truncated for group in batch.groups() for sample in group.trajectories]
        for batch in recorded(run)
    ] == run.truth.stopped


@every_run
def test_rewards_are_those_that_the_function_gave(run: Finished) -> None:
    assert [
        [sample.rewards[0].value for group in batch.groups() for sample in group.trajectories]
        for batch in recorded(run)
    ] == run.truth.rewards


@every_run
def test_the_policy_that_sampled_is_the_one_of_the_step_before(run: Finished) -> None:
    assert [(batch.policy_version, batch.mode) for batch in recorded(run)] == [
        (batch.step - 1, "train") for batch in recorded(run)
    ]


@pytest.mark.parametrize("name", named("many", "two_ranks", "0.17", "0.20_masked", "0.28", "1.0"))
def test_evaluations_are_kept_apart_with_their_own_lengths(run: Finished) -> None:
    evaluations = [batch for step in run.trace.steps() for batch in step.evaluations]
    assert len(evaluations) > 1
    assert [(batch.step, groups(batch)) for batch in evaluations] == run.truth.evaluations


@every_run
def test_the_workload_holds_every_batch_of_the_run_once(run: Finished) -> None:
    written, directory = run.workload
    samples = [len(group["output"]) for _, batch in run.truth.batches for group in batch]
    assert (written.groups, written.trajectories) == (len(samples), sum(samples))
    assert packed(directory) == run.truth.packed()["packed"]


def packed(directory: Path) -> dict[str, Any]:
    """Lengths in the order in which PolyTrace reads them."""
    steps: dict[str, Any] = {}
    for path in directory.glob("packed_lengths_step_*.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows.sort(key=lambda row: (row["dp_rank"], row["rank"], row["local_index"]))
        number = path.stem.rpartition("_")[2]
        steps[number] = [{"input": row["input"], "output": row["output"]} for row in rows]
    return steps


@every_run
@pytest.mark.skipif(
    "POLYTRACE_SRC" not in os.environ or not JUDGE.is_file(), reason="no PolyTrace checkout"
)
def test_polytrace_itself_accepts_the_workload(run: Finished, tmp_path: Path) -> None:
    _, directory = run.workload
    truth = tmp_path / "truth.json"
    truth.write_text(json.dumps(run.truth.packed()))
    tool = [sys.executable, str(JUDGE), str(directory)]
    done = subprocess.run(
        [*tool, "--truth", str(truth)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@whole_runs
def test_nothing_is_lost_and_nothing_failed(run: Finished) -> None:
    trace = run.trace
    assert [dict(process.faults) for process in trace.processes] == [{}] * run.scenario.ranks
    assert (trace.lost, trace.notes, trace.open_spans) == ({}, [], [])
    assert [step.complete for step in trace.steps()] == [True] * len(list(trace.steps()))


@every_run
def test_every_stage_is_there_on_every_rank_and_step(run: Finished) -> None:
    generating = {batch.step for batch in recorded(run)}
    for step in run.trace.steps():
        seen = Counter(span.name for span in step.spans if span.name in STAGES)
        expected = ALWAYS if step.number in generating else {"data", "update_actor"}
        assert expected <= set(seen), step.number
        assert seen["update_actor"] >= 2 * run.scenario.ranks  # micro steps and the optimizer
    assert {span.name for span in spans(run, *STAGES)} >= ALWAYS | run.scenario.stages


@every_run
def test_a_stage_lies_within_what_contains_it(run: Finished) -> None:
    for step in run.trace.steps():
        by_id = {(span.process, span.id): span for span in step.spans}
        for span in step.spans:
            parent = by_id.get((span.process, span.parent))
            if parent is not None:
                assert parent.start_ns <= span.start_ns <= span.end_ns <= parent.end_ns
            else:
                assert span.name in {"step", "data", "eval", "checkpoint"}


@every_run
def test_the_stages_of_a_step_do_not_overlap_and_fill_most_of_it(run: Finished) -> None:
    shares = []
    for step in run.trace.steps():
        for whole in (span for span in step.spans if span.name == "step"):
            stages = inside(step, whole)
            assert all(span.end_ns <= other.start_ns for span, other in pairwise(stages))
            share = sum(span.seconds for span in stages) / whole.seconds
            assert share <= 1.0, step.number
            shares.append(share)
    # A busy machine may take the processor away between the stages of one.
    assert median(shares) > 0.5


def inside(step: Step, whole: Span) -> list[Span]:
    """Stages of one step span that lie in no other stage, by start."""
    own = [span for span in step.spans if span.process == whole.process and span.name in STAGES]
    outer = [
        span
        for span in own
        if whole.start_ns <= span.start_ns < whole.end_ns
        if not any(other.id == span.parent for other in own)
    ]
    return sorted(outer, key=lambda span: span.start_ns)


@every_run
def test_every_call_is_recorded_once(run: Finished) -> None:
    ranks, steps = run.scenario.ranks, list(run.trace.steps())
    batches = sum(len(step.batches) + len(step.evaluations) for step in steps)
    counted = Counter(span.name for span in spans(run, *STAGES, "experience", "step"))
    assert counted["step"] == ranks * len(steps)
    for name in ("experience", "rollout", "reward", "advantage"):
        assert counted[name] == ranks * batches, name
    optimizer = spans(run, "optimizer_step")
    assert Counter((span.process, span.attributes["step"]) for span in optimizer) == {
        (process, step.number): 1
        for step in steps
        for process in {span.process for span in step.spans}
    }


@pytest.mark.parametrize("name", named("many", "two_ranks", "0.17", "0.20_masked"))
def test_losses_weights_and_tokens_are_those_of_the_run_without_a_probe(
    runner: Runner, run: Finished
) -> None:
    bare = runner.finished(run.scenario.bare)
    assert len(run.results) == run.scenario.ranks
    assert run.results == bare.results


@pytest.mark.parametrize(
    "name", named(*(name for name, scenario in SCENARIOS.items() if scenario.watched))
)
def test_what_its_sidecar_read_is_recorded_and_told_and_is_no_part_of_the_job(
    run: Finished,
) -> None:
    [recording] = run.recordings
    assert len(run.trace.processes) == run.scenario.ranks
    assert {process.devices for process in run.trace.processes} == {GPUS}
    check_what_is_told_of_it(run.trace, recording, run.folder, lasting=run.scenario.ranks > 1)


@pytest.mark.parametrize("name", named("many", "0.28"))
def test_each_kind_of_reward_function_is_timed_and_its_values_kept(run: Finished) -> None:
    functions = ["keeper", "sometimes", "later", "reward_model_3"]
    for batch in recorded(run):
        for shard in batch.shards:
            assert sorted(call.function for call in shard.calls) == sorted(functions)
            assert [column.function for column in shard.rewards] == functions
            by_name = {column.function: column for column in shard.rewards}
            lengths = shard.response_tokens
            assert list(by_name["sometimes"].values) == [
                None if length % 3 == 0 else -0.01 * length for length in lengths
            ]
            assert list(by_name["later"].values) == [0.001 * length for length in lengths]
            assert None not in by_name["reward_model_3"].values
    asynchronous = [
        span for span in spans(run, "reward_fn") if span.attributes["function"] == "later"
    ]
    assert min(span.seconds for span in asynchronous) > 0.03


@pytest.mark.parametrize("name", named("0.17", "0.22_rloo", "0.26", "1.0"))
def test_a_reward_model_is_timed_and_its_values_kept(run: Finished) -> None:
    functions = ["keeper", "sometimes", "reward_model_2"]
    for batch in recorded(run):
        for shard in batch.shards:
            assert sorted(call.function for call in shard.calls) == sorted(functions)
            assert [column.function for column in shard.rewards] == functions
            assert None not in shard.rewards[2].values


@pytest.mark.parametrize("name", named("two_ranks", "0.20_two_ranks"))
def test_waiting_for_a_slow_reward_of_another_rank_is_told_from_reward_work(run: Finished) -> None:
    ranks = {process.index: process.rank for process in run.trace.processes}
    waits: dict[int | None, list[Span]] = {0: [], 1: []}
    for span in spans(run, "wait"):
        assert span.attributes["on"] == "reward_gather"
        waits[ranks[span.process]].append(span)
    calls: dict[int | None, list[Span]] = {0: [], 1: []}
    for span in spans(run, "reward_fn"):
        if span.attributes["function"] == "keeper":
            calls[ranks[span.process]].append(span)
    assert len(waits[0]) == len(waits[1]) == len(calls[0]) == len(calls[1]) > 0
    for late, own, wait_of_late, wait in zip(calls[0], calls[1], waits[0], waits[1], strict=True):
        # Each works before it waits, and nobody waits for less than for the other one's work.
        assert late.end_ns <= wait_of_late.start_ns
        assert own.end_ns <= wait.start_ns
        assert late.end_ns <= wait.end_ns
        assert own.end_ns <= wait_of_late.end_ns
        assert late.seconds > 1.0
    # One rank is two seconds late; a busy machine makes both late.
    assert median(span.seconds for span in waits[1]) > 0.2
    assert sum(span.seconds for span in waits[0]) < sum(span.seconds for span in waits[1])


@pytest.mark.parametrize("name", named("straddling", "0.24_straddling"))
def test_a_group_may_lie_on_two_ranks(run: Finished) -> None:
    assert [[len(shard.response_tokens) for shard in batch.shards] for batch in recorded(run)] == [
        [4, 4] for _ in run.truth.batches
    ]


@pytest.mark.parametrize("name", named("resumed", "0.20_resumed"))
def test_steps_done_again_after_a_resume_count_once(run: Finished) -> None:
    assert [step.number for step in run.trace.steps()] == [1, 2, 3, 4, 5, 6]
    assert [step.number for step in run.trace.redone] == [4, 5]
    assert [attempt.sessions[0].facts["resumed_step"] for attempt in run.trace.attempts] == [0, 3]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("many", "grpo"),
        ("rloo", "rloo"),
        pytest.param("0.20_two_ranks", "grpo", marks=pytest.mark.full),
        pytest.param("0.22_rloo", "rloo", marks=pytest.mark.full),
    ],
)
def test_a_training_states_its_facts(run: Finished, expected: str) -> None:
    facts = dict(run.trace.attempts[0].sessions[0].facts)
    assert {name: facts[name] for name in ("framework", "algorithm", "engine", "rollout_tp")} == {
        "framework": "trl",
        "algorithm": expected,
        "engine": "transformers",
        "rollout_tp": 1,
    }
    assert (facts["group_size"], facts["batch_per_rank"], facts["max_response_tokens"]) == (
        4,
        8,
        48,
    )
    assert facts["model_type"] == "qwen2"


@pytest.mark.parametrize("name", named("many"))
def test_the_report_has_the_rows_that_it_has_of_every_framework(run: Finished) -> None:
    assert trainings.not_shown(run.recording) == []
