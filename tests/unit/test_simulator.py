"""The simulator of runs: its own truth is right, and its recordings are whole."""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.recording import read_run
from rlvr_probe.recording.tables import Tables
from tests.simulated import Corpus, brief
from tests.simulator import KINDS, Costs, Scenario, Truth, scenario, simulate
from tests.simulator.books import CATEGORIES, Books
from tests.simulator.devices import LOADS
from tests.simulator.draws import SECOND, Draws, Group, Lengths, Plan, Purpose
from tests.simulator.faults import (
    AggressiveFilter,
    ClockSkew,
    Fault,
    SerialReward,
    SlowRank,
    SlowTool,
    SlowWeightSync,
    StarvingTrainer,
    Straggler,
    ThermalThrottling,
    WaitingRollout,
)
from tests.simulator.setting import Fate
from tests.simulator.truth import play
from tests.simulator.volume import write_volume
from tests.summarized import summary_of

SHAPES = ("trl", "verl", "async")
FOLDER = Path(__file__).parents[1] / "simulator"


def small(shape: str, *faults: Fault, **changes: Any) -> Scenario:
    lengths = Lengths(median=200.0, turns=3, tool_s=(0.3, 0.3), reward_s=(0.4, 0.4))
    given: dict[str, Any] = {
        "steps": 4, "ranks": 4, "gpus_per_node": 2, "rollout_gpus": 2, "prompts": 8,
        "group_size": 4, "workers": 3, "reward_workers": 4, "inflight": 8, "queue": 8,
        "lengths": lengths, "checkpoint_every": 2, "eval_every": 0 if shape == "async" else 2,
    }  # fmt: skip
    return Scenario(5, shape=shape, faults=faults, **{**given, **changes})


def played(one: Scenario) -> Fate:
    return play(one, Draws(one.seed, one.lengths, one.group_size), one.faults)[0]


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_gpu_nanosecond_is_in_the_ledger_once(tmp_path: Path, shape: str) -> None:
    truth = simulate(small(shape, mask_truncated=True), tmp_path / "run")
    wall = truth.end_ns - truth.begin_ns
    assert sum(truth.ledger_ns.values()) == truth.gpus * wall
    assert sum(sum(one.values()) for one in truth.steps_ns.values()) == truth.gpus * wall
    assert [sum(one.values()) for one in truth.by_gpu_ns] == [wall] * truth.gpus
    assert list(truth.ledger_ns) == list(CATEGORIES)
    assert min(truth.ledger_ns.values()) == truth.ledger_ns["unaccounted"] == 0
    assert 0 < truth.hidden_ns <= truth.ledger_ns["wait.update"]


def test_somebody_was_waited_for_whenever_anybody_waited(tmp_path: Path, shape: str) -> None:
    truth = simulate(small(shape), tmp_path / "run")
    told = dict.fromkeys(("rollout", "reward", "update", "refit"), 0)
    for one in truth.waits:
        told[one["barrier"]] += one["gpu_ns"]
    assert told == {barrier: truth.ledger_ns[f"wait.{barrier}"] for barrier in told}


def test_the_books_take_no_time_twice() -> None:
    books = Books(1, 0)
    books.charge(0, 1, "bubble", 10)
    with pytest.raises(ValueError, match="ends 5 ns too early"):
        books.charge(0, 1, "bubble", 5)
    with pytest.raises(ValueError, match="holds less than 11 ns"):
        books.move(1, "bubble", "eval", 11)


def test_a_seed_gives_the_same_bytes_and_another_one_others(tmp_path: Path, shape: str) -> None:
    folders = [tmp_path / name / "run" for name in ("a", "b", "c")]
    for folder, seed in zip(folders, (5, 5, 6), strict=True):
        simulate(replace(small(shape), seed=seed), folder)
    first, second, third = (
        {path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders
    )
    assert first == second
    assert first != third


def of_size(kind: str, size: float) -> tuple[str, Fault]:
    """A shape, and a fault in it."""
    faults: dict[str, tuple[str, Fault]] = {
        "slow_rank": ("trl", SlowRank(size, 1)),
        "straggler": ("verl", Straggler(size * 4_000, 2, 3, 1)),
        "serial_reward": ("verl", SerialReward(size / 2)),
        "slow_tool": ("trl", SlowTool(size, 1)),
        "slow_weight_sync": ("verl", SlowWeightSync(size)),
        "aggressive_filter": ("verl", AggressiveFilter(size / 2)),
        "starving_trainer": ("async", StarvingTrainer(size)),
        "waiting_rollout": ("async", WaitingRollout(size)),
        "thermal_throttling": ("verl", ThermalThrottling(size, 2, 2)),
        "clock_skew": ("verl", ClockSkew(size)),
    }
    return faults[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_of_size_0_changes_nothing(kind: str) -> None:
    shape, fault = of_size(kind, 0.0)
    keep = 0.9 if kind == "aggressive_filter" else 1.0
    one = small(shape, keep=keep, generated=10)
    assert fault.kind == kind
    assert played(replace(one, faults=(fault,))).books.ns == played(one).books.ns


@pytest.mark.parametrize("kind", KINDS)
def test_more_of_a_fault_never_costs_less(kind: str) -> None:
    costs = []
    for size in (0.0, 0.5, 1.0, 1.9):
        shape, fault = of_size(kind, size)
        keep = 0.9 if kind == "aggressive_filter" else 1.0
        costs.append(played(small(shape, fault, keep=keep, generated=10)).gpu_ns)
    if kind == "clock_skew":
        assert len(set(costs)) == 1
        return
    assert costs[0] < costs[-1]
    if kind != "aggressive_filter":  # it trains on other groups, which may be shorter
        assert costs == sorted(costs)


def test_a_rerun_differs_by_its_fault_alone() -> None:
    one = small("verl", Straggler(4_000, 2, 3, 1))
    with_it, without = played(one), played(replace(one, faults=()))
    assert with_it.books.steps()[1] == without.books.steps()[1]
    assert with_it.books.steps()[2] != without.books.steps()[2]
    assert with_it.books.steps()[3] == without.books.steps()[3]


def test_two_faults_have_a_cost_each_and_one_together(tmp_path: Path) -> None:
    faults = (SlowRank(0.5, 1), SlowWeightSync(2.0))
    truth = simulate(small("verl", *faults), tmp_path / "run")
    each = [one["saved_gpu_ns"] for one in truth.faults]
    alone = [
        played(small("verl", *faults)).gpu_ns - played(small("verl", other)).gpu_ns
        for other in reversed(faults)
    ]
    assert each == alone
    assert truth.saved_gpu_ns > max(each) > 0
    assert [one["kind"] for one in truth.faults] == ["slow_rank", "slow_weight_sync"]


# ---------------------------------------------------------------- worked out by hand


def by_hand(shape: str, *tokens: int, reward_s: float = 2.0, **changes: Any) -> tuple[Any, Draws]:
    """One trajectory per group, at 80 tokens per second, with nothing random in it."""
    costs = Costs(
        logprob_s=0.0, update_s=0.01, fixed_s=1.0, sync_s=0.0, gap_s=0.0, dispatch_s=0.0,
        data_s=0.0, probe_s=0.0, rate=80.0, half=math.inf, rank_sd=0.0, noise_sd=0.0,
    )  # fmt: skip
    given: dict[str, Any] = {
        "steps": 1, "ranks": 2, "rollout_gpus": 1, "prompts": 2, "group_size": 1,
        "sources": ("math",), "reward_workers": 1,
        "costs": replace(costs, **changes.pop("costs", {})),
    }  # fmt: skip
    one = Scenario(0, shape=shape, **{**given, **changes})
    draws = Draws(0, one.lengths, 1)
    for number, count in enumerate(tokens):
        plan = Plan(0, [(count, 0.0, 0)], reward_s, 1.0)
        step = 0 if shape == "async" else 1
        draws.plain[Purpose.GROUP, step, number] = Group(number, 0, f"p{number}", 0.5, [plan])
    return one, draws


def seconds(fate: Fate) -> dict[str, float]:
    return {name: ns / SECOND for name, ns in fate.books.totals().items() if ns}


def test_one_step_with_a_controller_by_hand() -> None:
    one, draws = by_hand("verl", 800, 400, reward_workers=2)
    fate, _ = play(one, draws, ())
    # Rollout 10 s and 5 s, then 2 s of reward; updates 1 + 8 s and 1 + 4 s.
    assert seconds(fate) == {
        "work.rollout": 15.0, "wait.rollout": 5.0, "wait.reward": 4.02, "work.old_logprob": 2.0,
        "work.ref_logprob": 2.0, "overhead.advantage": 0.2, "work.update_actor": 14.0,
        "wait.update": 4.0,
    }  # fmt: skip
    assert (fate.end - fate.begin) / SECOND == 10 + 2 + 0.01 + 1 + 1 + 0.1 + 9
    assert fate.books.hidden_ns == 4 * SECOND
    waits = [(one.barrier, one.gpu_ns / SECOND, one.kind, one.group, one.rank)
             for one in fate.books.waits]  # fmt: skip
    assert waits == [
        ("rollout", 5.0, "turn", 0, None),
        ("reward", 4.0, "reward", 0, None),
        ("reward", 0.02, "reward", None, None),
        ("update", 4.0, "update_actor", None, 0),
    ]
    straggler = Straggler(1_600, 1, 0, 0)
    worse, _ = play(one, draws, (straggler,))
    # 10 s more rollout and 8 s more update, on two GPUs.
    assert worse.gpu_ns - fate.gpu_ns == 2 * 18 * SECOND


def test_serial_verification_by_hand() -> None:
    one, draws = by_hand("verl", 400, 400, reward_workers=2)
    parallel, _ = play(one, draws, ())
    serial, _ = play(one, draws, (SerialReward(1.0),))
    assert serial.gpu_ns - parallel.gpu_ns == 2 * 2 * SECOND


def test_what_the_filter_throws_away_by_hand() -> None:
    one, draws = by_hand("verl", 800, 400, 240, prompts=1, generated=3, keep=0.9, reward_s=0.0)
    group = draws.plain[Purpose.GROUP, 1, 0]
    draws.plain[Purpose.GROUP, 1, 0] = replace(group, keep=0.95)
    fate, _ = play(one, draws, ())
    # Engine 0 has 800 + 240 tokens and is busy for 10 s, engine 1 has 400 and is so for 5 s.
    found = seconds(fate)
    assert found["discarded.filtered"] == pytest.approx(10 * 800 / 1_040)
    assert found["discarded.surplus"] == pytest.approx(10 * 240 / 1_040)
    assert found["work.rollout"] == pytest.approx(5.0)


def test_one_step_of_ranks_that_do_everything_by_hand() -> None:
    one, draws = by_hand("trl", 800, 400)
    fate, _ = play(one, draws, ())
    assert seconds(fate) == {
        "work.rollout": 15.0, "wait.rollout": 5.0, "work.old_logprob": 2.0,
        "work.ref_logprob": 2.0, "wait.reward": 4.002, "overhead.advantage": 0.2,
        "work.update_actor": 14.1, "wait.update": 4.0,
    }  # fmt: skip
    assert (fate.end - fate.begin) / SECOND == 10 + 1 + 1 + 2.001 + 0.1 + 9 + 0.05


def test_a_queue_that_is_full_by_hand() -> None:
    one, draws = by_hand(
        "async", 80, 80, 80, reward_s=0.0, steps=2, ranks=1, prompts=1, inflight=1, queue=1,
        costs={"update_s": 0.0, "fixed_s": 3.0},
    )  # fmt: skip
    fate, _ = play(one, draws, ())
    # Groups are made until 1, 2 and 3 s; the first is scored at 1.001 s; the queue is full then.
    assert seconds(fate) == {
        "work.rollout": 3.0, "wait.update": 4.101, "wait.rollout": 1.001, "work.update_actor": 6.1,
    }  # fmt: skip
    assert (fate.end - fate.begin) / SECOND == 7.101


def test_a_group_that_is_too_old_by_hand() -> None:
    one, draws = by_hand(
        "async", *[80] * 6, reward_s=0.0, steps=2, ranks=1, prompts=1, inflight=1, queue=1,
        staleness=0, costs={"update_s": 0.0, "fixed_s": 3.0},
    )  # fmt: skip
    fate, _ = play(one, draws, ())
    # Groups 1 and 2 are older than the weights at 4.051 s, and are thrown away; group 3 is made
    # until 5.051 s and trained on 1 ms later; 4 and 5 fill the queue again until 7.051 s.
    assert seconds(fate) == {
        "work.rollout": 4.0, "discarded.stale": 2.0, "wait.rollout": 2.002, "wait.update": 2.102,
        "work.update_actor": 6.1,
    }  # fmt: skip
    assert (fate.end - fate.begin) / SECOND == 8.102


# ---------------------------------------------------------------- recordings


@pytest.mark.parametrize("turns", [1, 3])
def test_a_recording_is_read_whole(tmp_path: Path, shape: str, turns: int) -> None:
    one = small(shape)
    one = replace(one, lengths=replace(one.lengths, turns=turns))
    truth = simulate(one, tmp_path / "run")
    trace = read_run(tmp_path / "run")
    assert (trace.lost, trace.unjoined_rpcs, trace.unreached) == ({}, 0, {})
    assert {process.state for process in trace.processes} == {"exited"}
    assert len(trace.attempts) == 1
    steps = [step for step in trace.steps() if step.started]
    assert [step.number for step in steps] == [1, 2, 3, 4]
    assert all(step.complete for step in steps)
    assert len(trace.sidecars) == one.nodes
    assert len(trace.devices) == truth.gpus
    samples = [sample for step in steps for batch in step.batches for group in batch.groups()
               for sample in group.trajectories]  # fmt: skip
    generated = sum(turn.response_tokens or 0 for sample in samples for turn in sample.turns)
    if turns == 1:
        # One call of an engine in a rank of TRL tells the sum of its rows.
        assert {len(sample.turns) for sample in samples} == {0 if shape == "trl" else 1}
        generated = sum(sample.response_tokens for sample in samples)
    else:
        assert {len(sample.turns) for sample in samples} == {1, 2, 3}
        assert any(sample.tool_calls for sample in samples)
    if shape == "async":
        assert len(samples) == 4 * 8 * 4 <= truth.trajectories
    else:
        assert (len(samples), generated) == (truth.trajectories, truth.tokens)
    spans = [span for step in steps for span in step.spans if span.name != "rpc"]
    assert min(span.start_ns for span in spans if span.attributes.get("step")) == truth.begin_ns
    assert max(span.end_ns for span in spans) == truth.end_ns
    summary_of(tmp_path / "run")


@pytest.mark.parametrize("tp", [1, 2])
def test_the_recording_shows_the_rollout_work_that_the_books_hold(tmp_path: Path, tp: int) -> None:
    truth = simulate(small("verl", tp=tp, keep=0.7, generated=10, eval_every=0), tmp_path / "run")
    busy = 0
    for step in read_run(tmp_path / "run").steps():
        for batch in step.batches:
            calls = dict[int | None, list[tuple[int, int]]]()
            for group in batch.groups():
                for one in group.trajectories:
                    for turn in one.turns:
                        calls.setdefault(one.engine, []).append(
                            (turn.start_ns or 0, turn.end_ns or 0)
                        )
            for intervals in calls.values():
                at = 0
                for start, end in sorted(intervals):
                    busy += max(0, end - max(start, at))
                    at = max(at, end)
    discarded = sum(ns for name, ns in truth.ledger_ns.items() if name.startswith("discarded."))
    assert discarded > 0
    assert busy * tp == truth.ledger_ns["work.rollout"] + discarded


def test_a_filtered_run_says_what_it_trained_on(tmp_path: Path) -> None:
    simulate(small("verl", keep=0.7, generated=10), tmp_path / "run")
    trace = read_run(tmp_path / "run")
    assert trace.lost == {}
    for step in trace.steps():
        if step.started:
            assert sum(len(batch.used or ()) for batch in step.batches) == 8


def test_clocks_that_are_apart_are_in_the_recording_and_cost_nothing(tmp_path: Path) -> None:
    truth = simulate(small("verl", ClockSkew(2.0)), tmp_path / "run")
    assert truth.saved_gpu_ns == 0
    trace = read_run(tmp_path / "run")
    assert trace.lost == {}
    assert any("at least 2.0 s apart: corrected" in note for note in trace.notes)


def test_heat_shows_in_the_counters_of_its_gpu_alone(tmp_path: Path) -> None:
    simulate(small("verl", ThermalThrottling(1.0, 3)), tmp_path / "run")
    hot = {
        series.facts.uuid: max(series.readings["slow"].columns["throttle_thermal_s"])
        for series in read_run(tmp_path / "run").devices
    }
    assert [value > 0 for _, value in sorted(hot.items())] == [False, False, False, True]


def test_ranks_that_wait_inside_an_update_show_it_in_their_tensor_cores_alone(
    tmp_path: Path,
) -> None:
    truth = simulate(small("trl", SlowRank(1.0, 2), hz=5.0), tmp_path / "run")
    assert truth.hidden_ns > 0
    trace = read_run(tmp_path / "run")
    updates = [
        (span.end_ns, span.end_ns - span.start_ns)
        for step in trace.steps()
        for span in step.spans
        if span.name == "update_actor" and step.number == 3
    ]
    assert len(updates) == 4
    assert len({end for end, _ in updates}) == 1
    for series, held in zip(trace.devices, truth.by_gpu_ns, strict=True):
        told = sum(series.readings["fast"].columns["tensor_active"]) / 5
        known = sum(LOADS[name].tensor * ns / SECOND for name, ns in held.items() if name in LOADS)
        assert told == pytest.approx(known, rel=0.02)


def test_who_was_late_is_in_the_truth(tmp_path: Path) -> None:
    truth = simulate(small("verl", Straggler(9_000, 2, 3, 1)), tmp_path / "run")
    late = [one for one in truth.waits if one["step"] == 2 and one["barrier"] == "rollout"]
    assert [(one["group"], one["sample"], one["kind"]) for one in late] == [(3, 1, "turn")]


# ---------------------------------------------------------------- scenarios


def test_scenarios_have_every_fault_none_and_two() -> None:
    drawn = [scenario(seed) for seed in range(300)]
    assert {fault.kind for one in drawn for fault in one.faults} == set(KINDS)
    assert {len(one.faults) for one in drawn} == {0, 1, 2}
    assert {one.shape for one in drawn} == set(SHAPES)
    assert scenario(7) == scenario(7)
    assert all(one.nodes > 1 for one in drawn if any(f.kind == "clock_skew" for f in one.faults))


def test_the_command_writes_a_recording_and_its_truth(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.simulator", "--seed", "7", "--out", str(tmp_path)]
    sizes = ["--steps", "2", "--prompts", "8", "--group-size", "4", "--ranks", "4"]
    done = subprocess.run(
        [*command, *sizes], cwd=FOLDER.parents[1], capture_output=True, text=True, check=True
    )
    assert "GPU-seconds" in done.stdout
    truth = json.loads((tmp_path / "truth.json").read_text())
    wall = truth["end_ns"] - truth["begin_ns"]
    assert sum(truth["ledger_ns"].values()) == truth["gpus"] * wall
    assert truth.keys() == Truth.__dataclass_fields__.keys()
    assert read_run(tmp_path / "run").lost == {}


def test_the_judge_shares_nothing_with_what_it_judges() -> None:
    readers = {"analysis", "report", "recording", "workload", "cli"}
    imported = {
        module
        for path in FOLDER.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for module in (
            [node.module or ""] if isinstance(node, ast.ImportFrom)
            else [one.name for one in node.names] if isinstance(node, ast.Import) else []
        )
    }  # fmt: skip
    ours = {module.split(".")[1] for module in imported if module.startswith("rlvr_probe.")}
    assert ours.isdisjoint(readers)
    assert ours == {"model"}


@pytest.mark.parametrize("count", [64, 200])
def test_a_recording_of_any_size_is_read_whole(tmp_path: Path, count: int) -> None:
    books = write_volume(tmp_path / "run", count, per_step=64, workers=2)
    trace = read_run(tmp_path / "run")
    assert (trace.lost, books.trajectories) == ({}, count)
    batches = [batch for step in trace.steps() for batch in step.batches]
    samples = [one for batch in batches for group in batch.groups() for one in group.trajectories]
    assert len(samples) == count
    assert sum(one.response_tokens for one in samples) == books.response_tokens
    assert {name: number for name, (number, _) in trace.totals.items()} == {
        "trajectory": count, "turn": count, "verify": count,
    }  # fmt: skip


# ---------------------------------------------------------------- what tests share of them


def count_steps(tables: Tables) -> int:
    [[count]] = tables.sql.execute("SELECT count(*) FROM step WHERE number > 0").fetchall()
    tables.sql.execute("CREATE TEMP TABLE numbered AS SELECT number FROM step")
    tables.sql.execute("CREATE TEMP VIEW counted AS SELECT count(*) AS rows FROM numbered")
    return int(count)


def test_what_is_done_to_shared_tables_is_gone_afterwards(corpus: Corpus) -> None:
    one = small("trl", steps=1)
    with corpus.tables(one) as tables:
        tables.sql.execute("DELETE FROM step")
    assert corpus.asked(one, count_steps) == 1
    with corpus.after(one, count_steps) as (tables, count):
        assert (count, tables.source) == (1, "run")
        [[rows]] = tables.sql.execute("SELECT rows FROM counted").fetchall()
        assert rows > 0
        tables.sql.execute("DELETE FROM numbered")
    with corpus.after(one, count_steps) as (tables, _):
        assert tables.sql.execute("SELECT rows FROM counted").fetchall() == [(rows,)]


def test_a_shared_run_is_simulated_once_by_whoever_is_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = small("trl", steps=1)
    folder, truth = Corpus(tmp_path).run(one)
    monkeypatch.setattr("tests.simulated.simulate", None)
    assert Corpus(tmp_path).run(one) == (folder, truth)
    with pytest.raises(TypeError, match="NoneType"):
        Corpus(tmp_path).run(replace(one, steps=2))


def test_a_run_in_fewer_steps_has_its_faults_in_them() -> None:
    faults = Straggler(4_000, 9, 27, 1), ThermalThrottling(0.5, 1, 9), SlowRank(0.5, 1)
    one = brief(Scenario(5, faults=faults, generated=42), steps=8, prompts=16)
    assert one.faults == (
        Straggler(4_000, 8, 11, 1), ThermalThrottling(0.5, 1, 4), SlowRank(0.5, 1),
    )  # fmt: skip
    assert (one.steps, one.prompts, one.generated) == (8, 16, 21)
