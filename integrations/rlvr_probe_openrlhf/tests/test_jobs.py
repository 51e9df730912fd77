"""Real jobs of OpenRLHF in all their processes, compared with what its engines and it wrote."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from statistics import fmean, median, stdev
from typing import Any

import pytest
from rlvr_probe_openrlhf.tests.runs import (
    FULL,
    GROUP,
    PROMPTS,
    SCENARIOS,
    Finished,
    Runner,
)
from rlvr_probe_openrlhf.tests.service import PATIENCE_S

from rlvr_probe.model.batch import Batch, Trajectory, Turn
from tests import trainings
from tests.planted import characterized
from tests.summarized import summary_of

# Jobs wait for one another, and one takes a minute or two on two cores.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3000)]


def jobs(*names: str) -> pytest.MarkDecorator:
    """Runs a test for each of these jobs, or for all."""
    chosen = names or SCENARIOS
    return pytest.mark.parametrize(
        "job",
        [pytest.param(name, marks=pytest.mark.full if name in FULL else ()) for name in chosen],
    )


TIMERS = {
    "timing/generation": ("rollout",),
    "timing/make_experience": ("old_logprob", "advantage"),
    "timing/ppo_train": ("update_actor",),
    "timing/broadcast": ("weight_sync",),
}
"""Our words for what each of OpenRLHF's timers times."""


def every_batch(run: Finished) -> Iterator[Batch]:
    for step in run.trace.steps():
        yield from (*step.batches, *step.evaluations)


def rows(batch: Batch) -> list[Trajectory]:
    samples = [sample for group in batch.groups() for sample in group.trajectories]
    return sorted(samples, key=lambda sample: sample.row)


def monotonic_start(run: Finished) -> int:
    """When the clock of the run began, as CLOCK_MONOTONIC has it, ns."""
    first = min(run.trace.processes, key=lambda process: process.start_ns)
    [header, *_] = [
        json.loads(path.read_text().partition("\n")[0])
        for path in run.recording.glob(f"*{first.key}*.jsonl")
    ]
    return int(header["mono_ns"]) - first.start_ns


Sizes = Counter[tuple[Any, ...]]


def told(run: Finished) -> Sizes:
    """Engine, lengths and turns of every trajectory, by the books of the engines."""
    return Counter(
        (
            turns[0]["engine"],
            len(turns[0]["prompt"]),
            len(turns[-1]["prompt"]) + len(turns[-1]["output"]) - len(turns[0]["prompt"]),
            turns[-1]["reason"] == "length",
            tuple((len(turn["prompt"]), len(turn["output"])) for turn in turns),
        )
        for turns in run.truth.trajectories
    )


def sizes(run: Finished) -> Sizes:
    """The same of every trajectory that was recorded."""
    return Counter(
        (
            sample.engine,
            sample.prompt_tokens,
            sample.response_tokens,
            sample.truncated,
            tuple((turn.prompt_tokens, turn.response_tokens) for turn in sample.turns),
        )
        for batch in every_batch(run)
        for sample in rows(batch)
    )


@jobs()
def test_lengths_turns_truncation_and_engines_are_those_of_the_engines_books(
    run: Finished,
) -> None:
    assert sum(sizes(run).values()) >= PROMPTS * GROUP * run.scenario.steps
    assert sizes(run) == told(run)


@jobs()
def test_weights_that_a_trajectory_saw_are_those_that_its_engine_had(run: Finished) -> None:
    recorded = Counter(
        (sample.engine, sample.prompt_tokens, sample.response_tokens, sample.policy_versions)
        for batch in every_batch(run)
        for sample in rows(batch)
    )
    served = Counter(
        (
            turns[0]["engine"],
            len(turns[0]["prompt"]),
            len(turns[-1]["prompt"]) + len(turns[-1]["output"]) - len(turns[0]["prompt"]),
            (turns[0]["versions"][0], turns[-1]["versions"][1]),
        )
        for turns in run.truth.trajectories
    )
    assert recorded <= served
    if not run.scenario.asynchronous:
        steps = {
            (step.number - 1,) * 2: versions
            for step in run.trace.steps()
            for batch in step.batches
            for versions in [{sample.policy_versions for sample in rows(batch)}]
        }
        assert {versions: {versions} for versions in steps} == steps


@jobs()
def test_every_request_lies_within_its_turn(run: Finished) -> None:
    origin = monotonic_start(run)
    turns: dict[Any, list[tuple[int, int]]] = {}
    for batch in every_batch(run):
        for sample in rows(batch):
            for turn in sample.turns:
                assert turn.start_ns is not None
                assert turn.end_ns is not None
                lengths = (sample.engine, turn.prompt_tokens, turn.response_tokens)
                turns.setdefault(lengths, []).append((turn.start_ns, turn.end_ns))
    served: dict[Any, list[tuple[int, int]]] = {}
    for line in run.truth.requests:
        lengths = (line["engine"], len(line["prompt"]), len(line["output"]))
        served.setdefault(lengths, []).append((line["start"] - origin, line["end"] - origin))
    for lengths, times in served.items():
        # Equal lengths: each request must have a turn of its own around it.
        assert fit(sorted(times), sorted(turns[lengths])), lengths


def fit(inner: list[tuple[int, int]], outer: list[tuple[int, int]]) -> bool:
    """Whether each inner interval lies in an outer one of its own."""
    free = list(outer)
    for start, end in inner:
        around = [span for span in free if span[0] <= start and end <= span[1]]
        if not around:
            return False
        free.remove(min(around, key=lambda span: span[1]))
    return True


@jobs()
def test_cached_tokens_and_time_in_the_queue_are_those_of_the_engine(run: Finished) -> None:
    recorded = sorted(
        (turn.prompt_tokens, turn.response_tokens, turn.cached_tokens, queued(turn))
        for batch in every_batch(run)
        for sample in rows(batch)
        for turn in sample.turns
    )
    told = sorted(
        (len(line["prompt"]), len(line["output"]), line["cached"], line["queue_s"])
        for line in run.truth.requests
    )
    assert [span[:3] for span in recorded] == [span[:3] for span in told]
    assert sum(span[3] for span in recorded) == pytest.approx(sum(span[3] for span in told))


def queued(turn: Turn) -> float:
    assert turn.request is not None
    assert turn.request.queue_s is not None
    return turn.request.queue_s


@jobs(*(name for name, span in SCENARIOS.items() if not span.model))
def test_rewards_are_those_that_were_given(run: Finished) -> None:
    values = [
        reward.value
        for batch in every_batch(run)
        for sample in rows(batch)
        for reward in sample.rewards
    ]
    recorded = sorted(value for value in values if value is not None)
    assert len(recorded) == len(values)  # none is unknown
    if run.scenario.agent:
        given = [sum(0.25 * (turn + 1) for turn in range(3))] * len(run.truth.trajectories)
    else:
        given = sorted(line["value"] for line in run.truth.rewards if line["value"] is not None)
    assert recorded == pytest.approx(given)


@jobs("service")
def test_who_waited_for_a_bad_service_and_how_often_it_was_asked_is_recorded(run: Finished) -> None:
    book = run.truth.rewards
    manners = Counter(line["manner"] for line in book)
    assert min(manners[manner] for manner in ("500", "hang", "slow", "good")) >= 3
    calls = [call for batch in every_batch(run) for shard in batch.shards for call in shard.calls]
    assert {call.function for call in calls} == {"reward_service"}
    again = [call for call in calls if call.attempts != 1]
    late = [call for call in calls if call.timeouts]
    assert sum(call.attempts or 0 for call in calls) == len(book)
    assert len(again) == manners["500"] + manners["hang"]
    assert sum(call.timeouts or 0 for call in calls) == len(late) == manners["hang"]
    # Each is of a trajectory, whose last turn was over before it began.
    assert all(call.row is not None for call in calls)
    for call in late:
        assert call.end_ns - call.start_ns >= PATIENCE_S * 1e9
    origin = monotonic_start(run)
    slow = [line for line in book if line["manner"] == "slow"]
    assert fit(
        [(line["start"] - origin, line["end"] - origin) for line in slow],
        [(call.start_ns, call.end_ns) for call in calls],
    )
    trained = [
        call
        for step in run.trace.steps()
        for batch in step.batches
        for shard in batch.shards
        for call in shard.calls
    ]
    [shown] = [
        reward for reward in summary_of(run.recording)["rewards"] if reward["retries"] is not None
    ]
    assert (shown["retries"], shown["timeouts"]) == (
        sum((call.attempts or 0) - 1 for call in trained),
        sum(call.timeouts or 0 for call in trained),
    )
    assert shown["retries"] > shown["timeouts"] > 0


@jobs("service")
def test_a_training_with_a_bad_service_is_the_one_without_a_probe(
    runner: Runner, run: Finished
) -> None:
    bare = runner.finished(run.scenario.bare)
    assert outcome(run) == outcome(bare)
    rewards = {
        step: pytest.approx(logged["rollout/reward_mean"])
        for step, logged in bare.truth.logged().items()
    }
    assert rewards == {
        step: logged["rollout/reward_mean"] for step, logged in run.truth.logged().items()
    }
    assert len(rewards) == run.scenario.steps


def outcome(run: Finished) -> tuple[Counter[Any], Counter[Any]]:
    """What does not depend on the order in which answers come: some prompts are waited for."""
    return (
        Counter(str((line["prompt"], line["output"])) for line in run.truth.requests),
        Counter((line["manner"], line["value"]) for line in run.truth.rewards),
    )


@jobs("async_filtered")
def test_groups_that_a_filter_threw_away_are_those_that_openrlhf_told(run: Finished) -> None:
    gone = Counter[str]()
    for step in run.trace.steps():
        [batch] = step.batches
        assert batch.kept == batch.used
        groups = {
            group.index: [f"{trajectory.rewards[0].value:.2f}" for trajectory in group.trajectories]
            for group in batch.groups()
        }
        passed = batch.kept or frozenset()
        gone.update(str(scores) for at, scores in groups.items() if at not in passed)
        logged = run.truth.logged()[step.number]["dynamic_filtering_pass_rate"]
        assert 100 * GROUP * len(passed) / len(groups) == pytest.approx(logged)
    assert gone == Counter(re.findall(r"Filtered out: .*scores=(\[.*\])", run.output))
    assert gone


@jobs("model")
def test_rewards_of_a_model_are_those_that_openrlhf_logged(run: Finished) -> None:
    for step in run.trace.steps():
        values = [
            reward.value
            for batch in step.batches
            for sample in rows(batch)
            for reward in sample.rewards
            if reward.value is not None
        ]
        assert len(values) == PROMPTS * GROUP
        logged = run.truth.logged()[step.number]
        assert fmean(values) == pytest.approx(logged["rollout/reward_mean"], rel=1e-4)
        assert stdev(values) == pytest.approx(logged["rollout/reward_std"], rel=1e-3)
        assert len(set(values)) > 1


@jobs("model")
def test_every_model_of_a_step_is_called(run: Finished) -> None:
    for step in run.trace.steps():
        assert {(rpc.group, rpc.method) for rpc in step.rpcs} >= {
            ("RewardModelActor", "forward"),
            ("ReferenceModelActor", "forward"),
            ("CriticModelActor", "forward"),
            ("CriticModelActor", "fit"),
        }


@jobs()
def test_what_logging_takes_is_recorded(run: Finished) -> None:
    # The book of metrics stands in the place of OpenRLHF's own logger, and is hooked like that.
    logged = Counter(f"Books.log_{line['mode']}" for line in run.truth.metrics)
    assert logged
    assert Counter(span.attributes["label"] for span in run.trace.user_spans) == logged


@jobs()
def test_stages_last_as_long_as_openrlhf_says(run: Finished) -> None:
    """To 2 % or 5 ms in most steps; in one of them a processor may be taken between both clocks."""
    logged = run.truth.logged()
    for timer, stages in TIMERS.items():
        apart = []
        for step in run.trace.steps():
            recorded = sum(sum(step.stage_seconds(stage).values()) for stage in stages)
            said = logged[step.number][timer]
            assert recorded == pytest.approx(said, rel=0.02, abs=0.1), (step.number, timer)
            apart.append(abs(recorded - said) / max(said, 0.25))
        assert median(apart) <= 0.02, (timer, apart)


@jobs()
def test_every_rank_took_part_in_every_call_of_its_group(run: Finished) -> None:
    for step in run.trace.steps():
        methods = Counter((rpc.group, rpc.method) for rpc in step.rpcs)
        assert methods["PolicyModelActor", "fit"] == 1
        assert methods["PolicyModelActor", "forward"] == 1
        assert methods["PolicyModelActor", "append"] == 1
        assert methods["PolicyModelActor", "broadcast_to_vllm"] == 1
        for rpc in step.rpcs:
            assert len(rpc.ranks) == run.scenario.ranks
    assert run.trace.unjoined_rpcs == 0


@jobs()
def test_nothing_is_lost_and_nothing_failed(run: Finished) -> None:
    trace = run.trace
    assert {
        process.pid: dict(process.faults) for process in trace.processes if process.faults
    } == {}
    assert (trace.lost, trace.notes, trace.unreached) == ({}, [], {})
    assert [step.number for step in trace.steps()] == list(range(1, run.scenario.steps + 1))
    assert [step.complete for step in trace.steps()] == [True] * run.scenario.steps


@jobs()
def test_every_actor_of_openrlhf_recorded(run: Finished) -> None:
    roles = Counter(process.role for process in run.trace.processes)
    assert roles["driver"] == 1
    assert roles["PolicyModelActor"] == run.scenario.ranks
    assert roles["RolloutRayActor"] == run.scenario.engines
    asynchronous = ("TrainingActor", "GenerateSamplesActor", "PPOTrainerAsync")
    controllers = asynchronous if run.scenario.asynchronous else ("PPOTrainer",)
    assert {name: roles[name] for name in controllers} == dict.fromkeys(controllers, 1)
    [session] = run.trace.attempts[0].sessions
    facts = (session.facts["framework"], session.facts["framework_version"])
    assert facts == ("openrlhf", run.scenario.openrlhf)
    assert session.facts["accelerators"] == run.scenario.ranks
    assert session.facts["model_type"] == "qwen2"


@jobs()
def test_as_many_gpus_are_characterized_as_ray_gave(run: Finished) -> None:
    ledger = characterized(run.recording).ledger
    assert ledger is not None
    assert [line["taken"] for line in run.truth.gpus] == [len(ledger.gpus)]


@jobs("one_rank")
def test_the_report_has_the_rows_that_it_has_of_every_framework(run: Finished) -> None:
    assert trainings.not_shown(run.recording) == []


@jobs("one_rank")
def test_losses_weights_and_tokens_are_those_of_the_job_without_a_probe(
    runner: Runner, run: Finished
) -> None:
    bare = runner.finished(run.scenario.bare)
    assert not (bare.folder / "recordings").exists()
    assert values(run) == values(bare)


def values(run: Finished) -> dict[str, Any]:
    """What must be the same in every run of a job."""
    return {
        "metrics": [
            {name: value for name, value in line["data"].items() if "timing/" not in name}
            for line in run.truth.metrics
        ],
        "weights": [line["digest"] for line in run.truth.weights],
        "served": [(line["prompt"], line["output"]) for line in run.truth.requests],
    }
