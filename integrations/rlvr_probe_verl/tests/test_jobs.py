"""Real jobs of verl in all their processes, compared with what servers and verl itself wrote."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean
from typing import Any

import pytest
from rlvr_probe_verl.tests.runs import FULL, PROMPTS, SCENARIOS, Finished, Runner

from rlvr_probe.model.batch import Batch, Trajectory
from rlvr_probe.model.trace import Step
from tests import trainings
from tests.planted import characterized
from tests.summarized import summary_of
from tests.watched import GPUS, check_what_is_told_of_it, planned, received

# Jobs wait for one another, and one takes a minute or two on two cores.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3000)]


def jobs(*names: str) -> pytest.MarkDecorator:
    """Runs a test for each of these jobs, or for all."""
    chosen = names or SCENARIOS
    return pytest.mark.parametrize(
        "job",
        [pytest.param(name, marks=pytest.mark.full if name in FULL else ()) for name in chosen],
    )


SERVED = tuple(name for name, scenario in SCENARIOS.items() if not scenario.generates)
STAGES = {
    "gen": "rollout",
    "reward": "reward",
    "old_log_prob": "old_logprob",
    "ref": "ref_logprob",
    "adv": "advantage",
    "update_actor": "update_actor",
    "update_weights": "weight_sync",
    "testing": "eval",
    "step": "step",
}
"""Our word for each of verl's timers."""


def trained_on(step: Step) -> list[Trajectory]:
    """What the trainer computed its metrics of this step from."""
    return [
        sample
        for batch in step.batches
        for group in batch.groups()
        if batch.used is None or group.index in batch.used
        for sample in group.trajectories
    ]


def every_batch(run: Finished) -> Iterator[Batch]:
    for step in run.trace.steps():
        yield from (*step.batches, *step.evaluations)


def monotonic_start(run: Finished) -> int:
    """When the clock of the run began, as CLOCK_MONOTONIC has it, ns."""
    first = min(run.trace.processes, key=lambda process: process.start_ns)
    [header, *_] = [
        json.loads(path.read_text().partition("\n")[0])
        for path in run.recording.glob(f"*{first.key}*.jsonl")
    ]
    return int(header["mono_ns"]) - first.start_ns


@jobs()
def test_count_sum_mean_and_extremes_of_lengths_are_those_that_verl_logged(run: Finished) -> None:
    steps = list(run.trace.steps())
    assert [step.number for step in steps] == list(range(1, run.scenario.steps + 1))
    for step in steps:
        logged = run.truth.metrics[step.number]
        samples = trained_on(step)
        count = PROMPTS * run.scenario.group_size
        for name in ("prompt", "response"):
            lengths = [getattr(sample, f"{name}_tokens") for sample in samples]
            assert len(lengths) == count
            assert sum(lengths) == round(logged[f"{name}_length/mean"] * count)
            assert (min(lengths), max(lengths)) == (
                logged[f"{name}_length/min"],
                logged[f"{name}_length/max"],
            )


@jobs()
def test_what_logging_takes_is_recorded(run: Finished) -> None:
    labels = Counter(span.attributes["label"] for span in run.trace.user_spans)
    assert labels.keys() == {"Tracking.log"}
    assert labels.total() >= len(run.truth.metrics) >= run.scenario.steps


@jobs()
def test_every_stage_lasts_as_long_as_verl_says(run: Finished) -> None:
    longer: dict[str, list[float]] = {}
    for step in run.trace.steps():
        logged = run.truth.metrics[step.number]
        timed = {name: logged.get(f"timing_s/{name}") for name in STAGES}
        known = {name: seconds for name, seconds in timed.items() if seconds is not None}
        assert len(known) >= 5
        for name, seconds in known.items():
            recorded = sum(step.stage_seconds(STAGES[name]).values())
            # A span begins before verl's timer and ends after it, whatever the machine does.
            assert recorded > seconds - 1e-4, (step.number, name)
            longer.setdefault(name, []).append((recorded - seconds) / max(seconds, 1.0))
    # A busy machine may take the processor away between the two, but hardly at every step.
    bound = {name: 0.05 if len(shares) > 1 else 0.25 for name, shares in longer.items()}
    assert {name: shares for name, shares in longer.items() if min(shares) > bound[name]} == {}
    assert {name: shares for name, shares in longer.items() if max(shares) > 0.25} == {}


@jobs()
def test_every_rank_took_part_in_every_call_of_its_worker_group(run: Finished) -> None:
    for step in run.trace.steps():
        methods = Counter(rpc.method for rpc in step.rpcs)
        assert any("update_actor" in method or "train" in method for method in methods)
        for rpc in step.rpcs:
            assert len(rpc.ranks) == run.scenario.ranks
            for span in rpc.ranks:
                assert rpc.caller.start_ns <= span.start_ns


@jobs()
def test_nothing_is_lost_and_nothing_failed(run: Finished) -> None:
    trace = run.trace
    assert {
        process.pid: dict(process.faults) for process in trace.processes if process.faults
    } == {}
    assert (trace.lost, trace.notes, trace.unreached) == ({}, [], {})
    assert {process.state for process in trace.processes} <= {"exited", "ended_with_training"}
    assert [step.complete for step in trace.steps()] == [True] * run.scenario.steps


SIDECAR, LIVE = "rlvr_probe.sidecar.startup", "rlvr_probe.sidecar.live"
READER, COMPACTOR = "rlvr_probe.sidecar.device_reader", "rlvr_probe.sidecar.compactor"
RECORDED = ("rlvr_probe.sidecar.process", "rlvr_probe.sidecar.reader")
"""What the first and the last were called when the job of the corpus was recorded."""

# Of a job's Python processes these record nothing, or only of devices.
OF_RAY = (
    *("ray/dashboard/", "ray/autoscaler/", "_private/log_monitor", "_private/runtime_env/agent"),
    *("ray::DashboardAgent", "ray::RuntimeEnvAgent"),
)
OF_THE_PROBE = (
    *("signal-witness", "rlvr-probe run"),
    *(SIDECAR, LIVE, READER, COMPACTOR, *RECORDED),
)


def expected(run: Finished) -> dict[int, str]:
    """Last title of each Python process that should have recorded, by pid."""
    by_pid = {line["pid"]: line for line in run.truth.processes}
    result = {}
    for pid, line in by_pid.items():
        titles, parent = line["titles"], by_pid.get(line["parent"])
        words = " ".join(titles)
        if any(word in words for word in (*OF_RAY, *OF_THE_PROBE)):
            continue
        # Started by Ray, and not seen at any work: never used, or for a task that was soon over.
        if "default_worker.py" in words and not any(
            title.startswith("ray::") and "IDLE" not in title for title in titles
        ):
            continue
        # Forked by a process that records: workers of its data loader, which load rows.
        if parent is not None and set(titles) <= set(parent["titles"]):
            continue
        result[pid] = titles[-1]
    return result


@jobs()
def test_the_processes_that_recorded_are_the_python_processes_of_the_job(run: Finished) -> None:
    recorded = {process.pid: process.role for process in run.trace.processes}
    wanted = expected(run)
    assert {pid: wanted[pid] for pid in wanted if pid not in recorded} == {}
    # A task may be over before anybody looks: such a process is known, and as nothing else.
    known = {line["pid"] for line in run.truth.processes}
    unseen = {pid: role for pid, role in recorded.items() if pid not in wanted}
    assert {pid: role for pid, role in unseen.items() if role != "task" or pid not in known} == {}


@jobs()
def test_one_process_is_the_controller_and_each_rank_is_a_worker(run: Finished) -> None:
    roles = Counter(process.role for process in run.trace.processes)
    assert sum(count for role, count in roles.items() if "WorkerDict" in role) == run.scenario.ranks
    assert sum(count for role, count in roles.items() if role.startswith("TaskRunner")) == 1
    assert roles["driver"] == 1
    [sessions] = {len(attempt.sessions) for attempt in run.trace.attempts}
    assert sessions == 1
    facts = run.trace.attempts[0].sessions[0].facts
    assert (facts["framework"], facts["framework_version"]) == ("verl", run.scenario.verl)
    assert facts["accelerators"] == run.scenario.ranks
    assert facts["model_type"] == "qwen2"


@jobs("0.5")
def test_the_report_has_the_rows_that_it_has_of_every_framework(run: Finished) -> None:
    assert trainings.not_shown(run.recording) == []


@jobs("0.5", "0.5_two_ranks", "0.4")
def test_lengths_are_those_that_the_model_generated_row_by_row(run: Finished) -> None:
    recorded = [
        [(sample.prompt_tokens, sample.response_tokens) for sample in rows(batch)]
        for batch in every_batch(run)
    ]
    ranks = [
        [line for line in run.truth.generations if line["rank"] == rank]
        for rank in range(run.scenario.ranks)
    ]
    generated = [
        [
            (prompt, len(output))
            for line in parts
            for prompt, output in zip(line["prompts"], line["outputs"], strict=True)
        ]
        for parts in zip(*ranks, strict=True)
    ]
    assert recorded == generated


def rows(batch: Batch) -> list[Trajectory]:
    samples = [sample for group in batch.groups() for sample in group.trajectories]
    return sorted(samples, key=lambda sample: sample.row)


@jobs(*SERVED)
def test_every_request_of_a_server_is_a_turn_of_the_recording_and_lies_within_it(
    run: Finished,
) -> None:
    origin = monotonic_start(run)
    turns: dict[Any, list[tuple[int, int]]] = {}
    for batch in every_batch(run):
        for sample in rows(batch):
            assert sample.turns
            for turn in sample.turns:
                lengths = (sample.engine, turn.prompt_tokens, turn.response_tokens)
                assert turn.start_ns is not None
                assert turn.end_ns is not None
                turns.setdefault(lengths, []).append((turn.start_ns, turn.end_ns))
    served: dict[Any, list[tuple[int, int]]] = {}
    for line in run.truth.requests:
        lengths = (line["engine"], len(line["prompt"]), len(line["output"]))
        served.setdefault(lengths, []).append((line["start"] - origin, line["end"] - origin))
    counts = {lengths: len(times) for lengths, times in turns.items()}
    assert counts == {lengths: len(times) for lengths, times in served.items()}
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


@jobs(*(name for name in SERVED if name.startswith("0.9")))
def test_cached_tokens_are_those_that_the_server_found(run: Finished) -> None:
    recorded = Counter(
        (turn.prompt_tokens, turn.response_tokens, turn.cached_tokens)
        for batch in every_batch(run)
        for sample in rows(batch)
        for turn in sample.turns
    )
    assert recorded == Counter(
        (len(line["prompt"]), len(line["output"]), line["cached"]) for line in run.truth.requests
    )


@jobs()
def test_rewards_are_those_that_the_function_gave(run: Finished) -> None:
    recorded = [
        sample.rewards[0].value
        for step in run.trace.steps()
        for batch in step.batches
        for sample in rows(batch)
        if sample.rewards
    ]
    given = [line["value"] for line in run.truth.rewards if line["split"] == "train"]
    assert len(given) >= PROMPTS * run.scenario.group_size * run.scenario.steps
    assert sorted(value for value in recorded if value is not None) == pytest.approx(sorted(given))


@jobs("0.9_v1")
def test_the_wait_for_the_reward_function_is_apart_where_its_book_has_begin_and_end(
    run: Finished,
) -> None:
    calls = [call for batch in every_batch(run) for shard in batch.shards for call in shard.calls]
    book, origin = run.truth.rewards, monotonic_start(run)
    assert len(calls) == len(book)
    wait = fmean(call.end_ns - call.start_ns for call in calls)
    before = fmean(line["start"] - origin for line in book) - fmean(call.start_ns for call in calls)
    after = fmean(call.end_ns for call in calls) - fmean(line["end"] - origin for line in book)
    recorded = {
        figure.id: figure.value
        for chapter in characterized(run.recording).chapters
        for figure in chapter.figures
        if figure.id.startswith("rewards.function.")
    }
    assert recorded["rewards.function.before_share"] == pytest.approx(before / wait, abs=0.01)
    # The book is written behind the end that it holds, which takes longer on a busy machine.
    assert recorded["rewards.function.after_share"] == pytest.approx(after / wait - 0.02, abs=0.03)


@jobs("0.9_tools", "0.9_v1_tools")
def test_every_call_of_the_tool_is_there_with_its_outcome_and_time(run: Finished) -> None:
    origin = monotonic_start(run)
    recorded = sorted(
        (call.start_ns, call.end_ns, call.tool, call.status == "ok")
        for batch in every_batch(run)
        for sample in rows(batch)
        for call in sample.tool_calls
    )
    called = sorted(
        (line["start"] - origin, line["end"] - origin, line["tool"], not line["failed"])
        for line in run.truth.tools
    )
    assert len(called) > PROMPTS * run.scenario.group_size
    assert {line["failed"] for line in run.truth.tools} == {False, True}
    assert Counter(call[2:] for call in recorded) == Counter(call[2:] for call in called)
    assert fit([call[:2] for call in called], [call[:2] for call in recorded])


@jobs("0.9_tools", "0.9_v1_tools")
def test_the_turns_of_a_trajectory_continue_one_another(run: Finished) -> None:
    counts = Counter[int]()
    for batch in every_batch(run):
        for sample in rows(batch):
            counts[len(sample.turns)] += 1
            for turn, following in pairwise(sample.turns):
                assert turn.end_ns is not None
                assert following.start_ns is not None
                assert turn.end_ns <= following.start_ns
                assert following.prompt_tokens > turn.prompt_tokens + turn.response_tokens  # type: ignore[operator]
    assert len(counts) >= 2


@jobs("0.5", "0.9_v0")
def test_losses_weights_and_tokens_are_those_of_the_job_without_a_probe(
    runner: Runner, run: Finished
) -> None:
    bare = runner.finished(run.scenario.bare)
    assert not (bare.folder / "recordings").exists()
    assert values(run) == values(bare)


WATCHED = [name for name, span in SCENARIOS.items() if span.watched and not span.environment]


@jobs("0.5")
def test_of_a_killed_sidecar_a_second_is_missing_and_nothing_else(run: Finished) -> None:
    killed, last = sorted(run.trace.sidecars, key=lambda sidecar: sidecar.start_ns)
    assert (killed.state, last.state) == ("died", "exited")
    assert summary_of(run.recording)["devices"]["sidecars"][0]["state"] == "died"
    assert [dict(span.lost) for span in (killed, last)] == [{}, {}]
    assert received(run.folder).whole.keys() == planned(run.recording).keys()
    assert {device.uuid for device in run.trace.devices if device.facts.kind == "gpu"} == set(GPUS)
    assert [process["titles"] for process in run.truth.processes if process["left"]] == []


@jobs(*WATCHED)
def test_what_its_sidecar_read_is_recorded_and_told_and_is_no_part_of_the_job(
    run: Finished,
) -> None:
    check_what_is_told_of_it(run.trace, run.recording, run.folder)
    [sidecar] = run.trace.sidecars
    seen = {process["pid"] for process in run.truth.processes if titled(process, SIDECAR)}
    assert sidecar.pid in seen
    assert [process["titles"] for process in run.truth.processes if process["left"]] == []


@jobs(*WATCHED)
def test_each_rank_works_on_the_gpu_that_ray_gave_it(run: Finished) -> None:
    workers = [process for process in run.trace.processes if "WorkerDict" in process.role]
    given = Counter((worker.rank is None, worker.works_on) for worker in workers)
    assert given == {(False, (uuid,)): 1 for uuid in GPUS}
    assert {worker.rank for worker in workers} == set(range(run.scenario.ranks))


def titled(process: dict[str, Any], words: str) -> bool:
    return any(words in title for title in process["titles"])


MEASURED = ("timing_", "perf/", "timing_s", "throughput", "memory")


def values(run: Finished) -> dict[str, Any]:
    """What must be the same in every run of a job."""
    return {
        "metrics": {
            step: {
                name: value
                for name, value in logged.items()
                if not any(word in name for word in MEASURED)
            }
            for step, logged in run.truth.metrics.items()
        },
        "generated": [
            (line["rank"], line["weights"], line["prompts"], line["outputs"])
            for line in sorted(run.truth.generations, key=lambda line: line["rank"])
        ],
        "weights": sorted(
            (line["engine"], line["version"], line["weights"]) for line in run.truth.weights
        ),
        "served": sorted(
            (line["request"], line["prompt"], line["output"]) for line in run.truth.requests
        ),
    }
