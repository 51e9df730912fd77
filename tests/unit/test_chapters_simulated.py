"""Chapters of simulated runs against their truth, and against plain Python over their traces."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest

from rlvr_probe.analysis.metrics import make_chapters
from rlvr_probe.analysis.metrics.occupancy import occupancy
from rlvr_probe.analysis.summary.devices import stage_devices
from rlvr_probe.model.batch import Trajectory
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from rlvr_probe.recording.tables import Tables
from tests import today
from tests.chaptered import Said, said
from tests.quantiles import quantile
from tests.simulated import Corpus, brief
from tests.simulator import Costs, Scenario, Truth, scenario
from tests.simulator.draws import Lengths


@dataclass(frozen=True)
class Judged:
    """A run, what is true of it, and what is said of it."""

    scenario: Scenario
    truth: Truth
    trace: Trace
    told: Said


SCENARIOS = {
    "verl": Scenario(11, steps=4, ranks=4, tp=2, prompts=12, hz=1, lengths=Lengths(turns=2)),
    "verl-filter": Scenario(
        12, steps=3, ranks=4, prompts=8, generated=12, keep=0.7, hz=1, reward_workers=2
    ),
    "trl": Scenario(13, shape="trl", steps=3, ranks=4, prompts=8, hz=1, lengths=Lengths(turns=2)),
    "async": Scenario(14, shape="async", steps=8, ranks=4, prompts=16, hz=1),
}


def told_with_the_slots_of_one(tables: Tables) -> Said:
    return said(make_chapters(tables, slots=Costs().slots))


def told_with_the_slots_of_all(tables: Tables) -> Said:
    one = SCENARIOS["async"]
    return said(make_chapters(tables, slots=one.costs.slots * one.rollout_gpus))


@pytest.fixture(scope="module", params=today.some(list(SCENARIOS), 2))
def judged(request: pytest.FixtureRequest, corpus: Corpus) -> Judged:
    one = SCENARIOS[request.param]
    folder, truth = corpus.run(one)
    ask = told_with_the_slots_of_all if one.shape == "async" else told_with_the_slots_of_one
    return Judged(one, truth, read_run(folder), corpus.asked(one, ask))


def trained(trace: Trace) -> list[tuple[tuple[int, int], Trajectory]]:
    """Every trajectory of training with what names its group."""
    untrained = [batch for attempt in trace.attempts for batch in attempt.untrained]
    batches = [batch for step in trace.steps() for batch in step.batches] + untrained
    return [
        ((number, group.index), one)
        for number, batch in enumerate(batches)
        for group in batch.groups()
        for one in group.trajectories
    ]


def spread(values: Iterable[float]) -> dict[str, float]:
    told = list(values)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    return {
        "n": len(told),
        "min": min(told),
        "mean": statistics.fmean(told),
        **{name: quantile(told, share) for name, share in shares.items()},
        "max": max(told),
    }


def test_every_trajectory_and_token_is_counted(judged: Judged) -> None:
    rows = trained(judged.trace)

    assert judged.told.value("lengths.response.count") == len(rows)
    if judged.scenario.shape != "async":
        # A rollouter has trajectories on their way when it ends.
        assert judged.truth.trajectories == len(rows)
    if judged.scenario.shape == "verl":
        assert judged.told.value("lengths.turn.generated") == judged.truth.tokens


def test_lengths_are_those_of_plain_python(judged: Judged) -> None:
    rows = trained(judged.trace)
    groups = defaultdict[tuple[int, int], list[int]](list)
    for name, one in rows:
        groups[name].append(one.response_tokens)
    told = judged.told

    responses = [one.response_tokens for _, one in rows]
    assert told.spread("lengths.response") == pytest.approx(spread(responses))
    ratios = [max(group) / statistics.fmean(group) for group in groups.values()]
    assert told.spread("lengths.group.max_over_mean") == pytest.approx(spread(ratios))
    between = statistics.variance(map(statistics.fmean, groups.values()))
    within = statistics.fmean(map(statistics.variance, groups.values()))
    size = judged.scenario.group_size
    expected = (size * between - within) / (size * between + (size - 1) * within)
    assert told.value("lengths.response.icc") == pytest.approx(expected)


def test_turns_and_tools_are_those_of_plain_python(judged: Judged) -> None:
    rows = [one for _, one in trained(judged.trace)]
    if max(len(one.turns) for one in rows) < 2:
        assert judged.told.value("tools.tool.time") is None
        return

    told = judged.told
    turns = [turn for one in rows for turn in one.turns]
    assert told.spread("lengths.turns") == pytest.approx(spread(len(one.turns) for one in rows))
    sent = spread(turn.prompt_tokens or 0 for turn in turns)
    assert told.spread("lengths.turn.prompt") == pytest.approx(sent)
    results = [
        (after.prompt_tokens or 0) - (before.prompt_tokens or 0) - (before.response_tokens or 0)
        for one in rows
        for before, after in zip(one.turns, one.turns[1:], strict=False)
    ]
    assert told.spread("lengths.observation") == pytest.approx(spread(results))
    calls = [call for one in rows for call in one.tool_calls]
    assert told.spread("tools.call_s") == pytest.approx(spread(one.latency_s for one in calls))
    for tool in {str(one.tool) for one in calls}:
        own = [one.latency_s for one in calls if one.tool == tool]
        assert told.value("tools.tool.calls", tool=tool) == len(own)
        assert told.value("tools.tool.time", tool=tool) == pytest.approx(math.fsum(own))


def test_slots_in_use_are_those_of_the_truth(judged: Judged) -> None:
    told, truth = judged.told, judged.truth

    if judged.scenario.shape == "trl":
        # Its turns come back together: that is bounded, not known.
        assert told.value("occupancy.mean") is None
        assert told.value("occupancy.least") <= truth.occupancy <= told.value("occupancy.most")
    elif judged.scenario.shape == "verl":
        assert told.value("occupancy.mean") == pytest.approx(truth.occupancy, rel=0.01)
    else:
        # The truth is of the training, the figure from the first turn to the end of the last.
        [row] = told.rows("occupancy.by_batch")
        slot_s = truth.occupancy * told.value("occupancy.slots") * (truth.end_ns - truth.begin_ns)
        # Turns that were open in the end were not recorded.
        assert 0.85 * slot_s / 1e9 <= row["slot_seconds"] <= 1.01 * slot_s / 1e9


def test_time_with_few_slots_in_use_is_that_of_a_sweep(judged: Judged) -> None:
    if judged.scenario.shape != "verl":
        pytest.skip("turns have no times of their own, or there is one rollout")
    total = judged.told.value("occupancy.slots")
    few = dict.fromkeys((0.1, 0.25, 0.5), 0)
    whole = 0
    for step in judged.trace.steps():
        for batch in step.batches:
            turns = [turn for group in batch.groups() for one in group.trajectories
                     for turn in one.turns]  # fmt: skip
            for length, active in sweep((one.start_ns, one.end_ns) for one in turns):
                whole += length
                for share in few:
                    few[share] += length * (active < share * total)

    for share, length in few.items():
        told = judged.told.value(f"occupancy.under_{round(share * 100)}")
        assert told == pytest.approx(length / whole, abs=3 / 256)


def sweep(intervals: Iterable[tuple[int | None, int | None]]) -> Iterator[tuple[int, int]]:
    """How long how many were open, one moment after another."""
    edges = sorted(
        (moment, sign)
        for start, end in intervals
        for moment, sign in ((start or 0, 1), (end or 0, -1))
    )
    active, last = 0, edges[0][0]
    for moment, sign in edges:
        yield moment - last, active
        active += sign
        last = moment


def test_imbalance_of_replicas_is_that_of_plain_python(judged: Judged) -> None:
    ratios = list[float]()
    for step in judged.trace.steps():
        for batch in step.batches:
            tokens = defaultdict[int | None, int](int)
            for group in batch.groups():
                for one in group.trajectories:
                    tokens[one.process if one.engine is None else one.engine] += one.response_tokens
            if len(tokens) > 1 and not batch.queued:
                ratios.append(max(tokens.values()) / statistics.fmean(tokens.values()) - 1)
    if not ratios:
        assert judged.told.value("imbalance.replica.tokens.mean") is None
        return

    assert judged.told.spread("imbalance.replica.tokens") == pytest.approx(spread(ratios))


def test_reward_functions_take_what_they_take_in_plain_python(judged: Judged) -> None:
    calls = defaultdict[str, list[tuple[int, int]]](list)
    untrained = [batch for attempt in judged.trace.attempts for batch in attempt.untrained]
    batches = [batch for step in judged.trace.steps() for batch in step.batches]
    units = [[batch] for batch in batches if not batch.queued]
    queue = [*untrained, *(batch for batch in batches if batch.queued)]
    busy = defaultdict[str, int](int)
    for unit in [*units, *([queue] if queue else [])]:
        own = defaultdict[str, list[tuple[int, int]]](list)
        for batch in unit:
            for shard in batch.shards:
                for call in shard.calls:
                    own[call.function].append((call.start_ns, call.end_ns))
        for function, intervals in own.items():
            calls[function] += intervals
            busy[function] += sum(length for length, active in sweep(intervals) if active)

    assert calls
    for function, intervals in calls.items():
        seconds = math.fsum(end - start for start, end in intervals) / 1e9
        of = {"function": function}
        assert judged.told.value("rewards.function.time", **of) == pytest.approx(seconds)
        assert judged.told.value("rewards.function.calls", **of) == len(intervals)
        together = judged.told.value("rewards.function.concurrency", **of)
        assert together == pytest.approx(seconds / (busy[function] / 1e9))


def test_queueing_for_reward_workers_is_told_from_their_work(judged: Judged) -> None:
    told = judged.told
    functions = {by["function"] for by in by_of(told, "rewards.function.calls")}
    for function in functions:
        work = [one for one in judged.trace.reward_work if one.function == function]
        if not work:
            assert judged.scenario.shape != "verl"
            assert told.value("rewards.function.queue_share", function=function) == 0
            continue
        calls, seconds = sum(one.calls for one in work), math.fsum(one.seconds for one in work)
        waited = told.value("rewards.function.mean", function=function)
        assert told.value("rewards.function.work", function=function) == pytest.approx(seconds)
        share = told.value("rewards.function.queue_share", function=function)
        assert share == pytest.approx(1 - seconds / calls / waited, abs=0.02)
        # In the simulator an answer is there at once: all that is not the function is the queue.
        assert told.value("rewards.function.before_share", function=function) == pytest.approx(
            share, abs=1e-6
        )


def by_of(told: Said, name: str) -> list[dict[str, str | int]]:
    return [dict(by) for one, by in told.figures if one == name]


def test_gpus_did_in_stages_what_the_trace_says(judged: Judged) -> None:
    found = [
        one
        for one in stage_devices(judged.trace)
        if one.kind == "gpu" and one.quality == "ok" and one.stage not in ("data", "wait")
    ]

    assert found
    for one in found:
        of = {"stage": one.stage}
        assert judged.told.value("devices.stage.gpus", **of) == one.devices
        assert judged.told.value("devices.stage.seconds", **of) == pytest.approx(one.seconds)
        for counter in ("sm_active", "tensor_active", "power_w"):
            told = judged.told.value(f"devices.stage.{counter}", **of)
            assert told == pytest.approx(one.means[counter], rel=1e-6)
    # Two counters that nothing but the power of the GPUs moves.
    whole = {"stage": "step"}
    power = judged.told.value("devices.stage.power_w", **whole)
    assert judged.told.value("devices.stage.watts", **whole) == pytest.approx(power, rel=0.02)


def test_halves_of_an_asynchronous_run_wait_as_the_books_say(judged: Judged) -> None:
    if judged.scenario.shape != "async":
        assert judged.told.value("asynchronous.trainer_wait") is None
        return
    ranks = judged.scenario.ranks

    def share(gpus: slice, *categories: str) -> float:
        books = judged.truth.by_gpu_ns[gpus]
        whole = sum(sum(one.values()) for one in books)
        return sum(one.get(name, 0) for one in books for name in categories) / whole

    trainer = share(slice(ranks), "wait.rollout", "overhead.data")
    assert judged.told.value("asynchronous.trainer_wait") == pytest.approx(trainer, abs=0.01)
    rollout = share(slice(ranks, None), "wait.rollout", "wait.update")
    assert judged.told.value("asynchronous.rollout_wait") == pytest.approx(rollout, abs=0.05)


@pytest.mark.parametrize("seed", today.some([4, 8, 10], 1))
def test_slots_in_use_of_drawn_runs_are_those_of_the_truth(seed: int, corpus: Corpus) -> None:
    one = brief(scenario(seed))
    assert one.shape == "verl"
    truth = corpus.run(one)[1]

    with corpus.tables(one) as tables:
        told = said([occupancy(tables, slots=one.costs.slots)])

    assert told.value("occupancy.mean") == pytest.approx(truth.occupancy, rel=0.01)
