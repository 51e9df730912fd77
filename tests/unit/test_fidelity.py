"""``rlvr-probe fidelity``: what it says of runs whose times and lengths are known by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe import cli
from rlvr_probe.analysis.fidelity import Card, Likeness, Run, make_card, read_log, read_run
from rlvr_probe.analysis.fidelity.pairs import pair_steps
from rlvr_probe.analysis.fidelity.run import Batch
from rlvr_probe.analysis.statistics import block_bootstrap
from rlvr_probe.exceptions import RecordingError
from rlvr_probe.model import names
from rlvr_probe.model.replay_note import NOTE, ReplayNote, encode_note, read_note
from rlvr_probe.recording.tables import open_tables
from rlvr_probe.report.blocks import Line
from rlvr_probe.report.blocks_page import page
from rlvr_probe.report.fidelity import headline, lay_out_cards, to_document
from tests.synthetic import SECOND, Process

PROMPT = 5


@dataclass(frozen=True)
class Step:
    """Seconds of one step, and what its two samples generate: tokens per turn, and seconds.

    Each is one turn; with ``tool_s`` both call a tool in the middle of it, at the same time.
    """

    rollout: float = 4.0
    reward: float = 2.0
    update: float = 4.0
    samples: Sequence[tuple[int, float]] = ((40, 4.0), (10, 2.0))
    tool_s: float = 0.0


def write(folder: Path, steps: Sequence[Step], note: ReplayNote | None = None) -> Path:
    """A recording of one rank, whose steps are rollout, verification and update, nothing else."""
    process = Process(folder, 0, header={"rank": 0, "world_size": 1})
    process.event(
        names.SESSION, 0, session=0, framework="trl", algorithm="grpo", resumed_step=0, rank=0,
        world_size=1, group_size=2, max_response_tokens=64, steps_per_generation=1, iterations=1,
        accumulation=1,
    )  # fmt: skip
    now = SECOND
    for number, step in enumerate(steps, 1):
        now = _write_step(process, number, step, now)
    process.event(names.SESSION_END, now, session=0, step=len(steps))
    process.close(now)
    if note is not None:
        (folder / NOTE).write_bytes(encode_note(note))
    return folder


def _write_step(process: Process, number: int, step: Step, begin: int) -> int:
    where: dict[str, Any] = {"session": 0, "step": number, "mode": "train"}
    whole, batch, rollout, reward = (process.next_span() for _ in range(4))
    generated = begin + round(step.rollout * SECOND)
    verified = generated + round(step.reward * SECOND)
    done = verified + round(step.update * SECOND)
    for row, (tokens, seconds) in enumerate(step.samples):
        half, last = (begin + round(share * seconds * SECOND) for share in (0.5, 1.0))
        pause, own = round(step.tool_s * SECOND), process.next_span()
        turns = [(begin, half), (half + pause, last)] if pause else [(begin, last)]
        for turn, (start, end) in enumerate(turns):
            process.span(
                names.TURN, start, end, own, batch=own, samples=1, turn=turn,
                prompt_tokens=PROMPT, response_tokens=tokens // len(turns),
            )  # fmt: skip
        if pause:
            process.span(
                names.TOOL_CALL, half, half + pause, own, batch=own, turn=0, tool="search",
                status="ok",
            )  # fmt: skip
        process.span(
            names.TRAJECTORY, begin, last, rollout, own, key=f"{number}-{row}", engine=0,
            prompt_tokens=PROMPT, response_tokens=tokens, truncated=0,
        )  # fmt: skip
    lengths = [tokens for tokens, _ in step.samples]
    process.event(
        names.TRAJECTORIES, generated, rollout, **where, batch=batch, ordinal=0, offset=0, total=2,
        policy_version=number - 1, group_size=2, prompt_tokens=[PROMPT] * 2,
        response_tokens=lengths, truncated=[0, 0], keys=[f"{number}-0", f"{number}-1"],
    )  # fmt: skip
    process.span(names.ROLLOUT, begin, generated, batch, rollout, **where, samples=2)
    if step.reward:
        process.span(
            names.REWARD_FN, generated, verified, reward, batch=batch, function="f", samples=2
        )
        process.span(names.REWARD, generated, verified, batch, reward, **where)
    process.span(names.EXPERIENCE, begin, verified, whole, batch, **where)
    process.span(names.UPDATE_ACTOR, verified, done, whole, **where)
    process.span(names.STEP, begin, done, 0, whole, session=0, step=number)
    return done


def planned(*steps: int, **more: Any) -> ReplayNote:
    fields = {"cap": 64, "scale": None, "naive": False, "slept": ("reward",), **more}
    return ReplayNote(**{"source": "recorded", "steps": steps, **fields})


@cache
def read(folder: Path) -> Run:
    with open_tables(folder, threads=1) as tables:
        return read_run(tables, read_note(folder))


def carded(recorded: Run, run: Run) -> Card:
    return make_card(recorded, run, "replay", () if run.note is None else run.note.slept)


def stage(card: Card, name: str) -> Likeness:
    return {known.name: known for known in card.stages}[name]


EIGHT = range(1, 9)
ORIGINAL = [Step()] * 8
LIKE = Step(rollout=4.4, reward=3.0, update=4.0, samples=((40, 4.4), (10, 2.0)))


def made(times: Sequence[tuple[float, float, float]], **more: Any) -> Run:
    """A run whose steps take these seconds of rollout, verification and update."""
    stages = {
        name: {step: row[place] for step, row in enumerate(times, 1)}
        for place, name in enumerate(("rollout", "reward", "update"))
    }
    whole = {step: sum(row) for step, row in enumerate(times, 1)}
    batches = [Batch(step, [5, 5], [40, 10]) for step in whole]
    fields = {"starts": frozenset({1}), "verified": frozenset(whole), "batches": batches, **more}
    return Run("made", whole, stages, **fields)


RECORDED = made([(4.0, 2.0, 4.0)] * 8)


def test_accuracy_is_of_what_was_computed_and_not_of_what_slept() -> None:
    run = made([(4.4, 3.0, 4.0)] * 8, note=planned(*EIGHT))
    card = carded(RECORDED, run)
    # 4 + 4 s recorded, 4.4 + 4 s replayed.
    assert card.step.accuracy == pytest.approx(0.95)
    assert (card.step.recorded, card.step.replayed) == pytest.approx((8.0, 8.4))
    assert (card.step.bias, card.step.by_step) == pytest.approx((0.05, 0.05))
    assert (card.step.low, card.step.high) == pytest.approx((0.95, 0.95))
    assert stage(card, "rollout").accuracy == pytest.approx(0.9)
    assert stage(card, "update").accuracy == pytest.approx(1.0)
    assert [known.name for known in card.stages] == ["rollout", "update"]
    assert (card.waits.recorded, card.waits.replayed) == pytest.approx((2.0, 3.0))
    assert (card.step.steps, card.warm_up) == (7, 1)


def test_verification_that_did_not_sleep_is_a_stage_like_others() -> None:
    run = made([(4.4, 3.0, 4.0)] * 8, note=planned(*EIGHT, slept=()))
    card = carded(RECORDED, run)
    assert card.step.accuracy == pytest.approx(1 - 1.4 / 10)
    assert stage(card, "reward").accuracy == pytest.approx(0.5)
    assert card.slept == ()


@pytest.mark.parametrize(("times", "accuracy"), [(2.0, 0.0), (3.0, -1.0), (0.5, 0.5)])
def test_a_replay_of_other_times_has_the_accuracy_of_these(times: float, accuracy: float) -> None:
    run = made([(4.0 * times, 2.0, 4.0 * times)] * 8, note=planned(*EIGHT))
    assert carded(RECORDED, run).step.accuracy == pytest.approx(accuracy)


def test_errors_of_steps_that_cancel_show_step_by_step_and_in_the_interval() -> None:
    rows = [(4.0 * by, 2.0, 4.0 * by) for by in (1.0, 1.1, 1.1, 0.9, 0.9, 1.1, 0.9)]
    card = carded(made([(4.0, 2.0, 4.0)] * 7), made(rows, note=planned(*range(1, 8))))
    assert card.step.accuracy == pytest.approx(1.0)
    assert card.step.by_step == pytest.approx(0.1)
    assert card.step.low is not None
    assert 0.9 < card.step.low < 0.99
    assert card.step.high == pytest.approx(1.0)


def test_the_bootstrap_of_equal_ratios_is_that_ratio_and_of_others_within_them() -> None:
    assert block_bootstrap([(1.0, 1.5), (4.0, 6.0)] * 5) == pytest.approx((1.5, 1.5))
    low, high = block_bootstrap([(1.0, 1.0), (1.0, 2.0)] * 20)
    assert 1.2 < low < 1.5 < high < 1.8


def test_neighbours_that_are_alike_make_a_wider_interval() -> None:
    mixed = [(1.0, value) for value in (1.0, 2.0) * 32]
    alike = sorted(mixed)
    widths = []
    for pairs in (mixed, alike):
        low, high = block_bootstrap(pairs)
        widths.append(high - low)
    assert widths[1] > 3 * widths[0]


def test_too_few_steps_have_no_interval_and_two_are_left_of_those_that_warm_up() -> None:
    two = made([(4.0, 2.0, 4.0)] * 2)
    card = carded(two, replace(two, note=planned(1, 2)))
    assert (card.step.steps, card.warm_up, card.step.low) == (2, 0, None)
    assert "fewer than six steps" in text_of(card)
    three = made([(4.0, 2.0, 4.0)] * 3)
    assert carded(three, replace(three, note=planned(1, 2, 3))).warm_up == 1


def test_how_long_something_slept_is_never_taken_for_0() -> None:
    run = made([(4.4, 3.0, 4.0)] * 8, note=planned(*EIGHT))
    for pair in ((replace(RECORDED, verified=frozenset({1, 2})), run),
                 (RECORDED, replace(run, verified=frozenset({1, 2})))):  # fmt: skip
        with pytest.raises(RecordingError, match="verification took in step 3 of made is unknown"):
            carded(*pair)


def test_tools_that_slept_are_taken_out_of_the_rollout() -> None:
    tools = dict.fromkeys(EIGHT, 1.0)
    recorded = replace(RECORDED, tools=tools)
    run = made([(5.0, 2.0, 4.0)] * 8, note=planned(*EIGHT, slept=("reward", "tool_call")),
               tools=dict.fromkeys(EIGHT, 2.0))  # fmt: skip
    card = carded(recorded, run)
    assert stage(card, "rollout").accuracy == pytest.approx(1.0)
    assert card.step.accuracy == pytest.approx(1.0)
    assert (card.waits.recorded, card.waits.replayed) == pytest.approx((3.0, 4.0))


# ---------------------------------------------------------------- which steps belong together


def of(steps: Sequence[int], batches: Sequence[int], note: ReplayNote | None = None) -> Run:
    found = [Batch(step, [5, 5], [40, 10]) for step in batches]
    return Run("of", dict.fromkeys(steps, 1.0), {}, batches=found, note=note)


@pytest.mark.parametrize(
    ("planned_steps", "steps", "batches", "pairs"),
    [
        ((5, 6, 7), (1, 2, 3), (1, 2, 3), [(5, 1), (6, 2), (7, 3)]),
        # A batch feeds two steps.
        ((3, 5), (1, 2, 3, 4), (1, 3), [(3, 1), (4, 2), (5, 3), (6, 4)]),
        # A step takes two batches.
        ((3, 3, 4, 4), (1, 2), (1, 1, 2, 2), [(3, 1), (4, 2)]),
        # The replay ended early.
        ((3, 4, 5), (1, 2), (1, 2), [(3, 1), (4, 2)]),
    ],
)
def test_batch_k_of_a_replay_is_batch_k_of_its_plan(
    planned_steps: tuple[int, ...], steps: tuple[int, ...], batches: tuple[int, ...],
    pairs: list[tuple[int, int]],
) -> None:  # fmt: skip
    assert (
        pair_steps(of(range(1, 9), range(1, 9)), of(steps, batches, planned(*planned_steps)))
        == pairs
    )


@pytest.mark.parametrize(
    ("planned_steps", "steps", "batches"),
    [
        ((3, 3, 4, 4), (1, 2, 3, 4), (1, 2, 3, 4)),
        ((3, 5), (1, 2), (1, 2)),
        ((41, 42), (1, 2), (1, 2)),
    ],
)
def test_steps_that_do_not_do_the_same_are_no_pair(
    planned_steps: tuple[int, ...], steps: tuple[int, ...], batches: tuple[int, ...]
) -> None:
    with pytest.raises(RecordingError, match="no step of the one belongs to a step of the other"):
        pair_steps(of(range(1, 9), range(1, 9)), of(steps, batches, planned(*planned_steps)))


def test_runs_that_are_no_replay_are_paired_by_number() -> None:
    assert pair_steps(of((3, 4, 5), ()), of((4, 5, 6), ())) == [(4, 4), (5, 5)]
    with pytest.raises(RecordingError, match="has steps 7 to 8, and of has steps 1 to 2"):
        pair_steps(of((1, 2), ()), of((7, 8), ()))


# ---------------------------------------------------------------- lengths


def with_lengths(*batches: tuple[int, list[int]], note: ReplayNote | None = None) -> Run:
    found = [Batch(step, [6] * len(responses), responses) for step, responses in batches]
    return replace(made([(4.0, 2.0, 4.0)] * 2), batches=found, note=note)


def test_every_sample_with_its_recorded_lengths_counts() -> None:
    recorded = with_lengths((1, [8, 3]), (2, [2, 9]))
    note = planned(1, 2)
    exact = carded(recorded, with_lengths((1, [8, 3]), (2, [2, 9]), note=note)).lengths
    other = carded(recorded, with_lengths((1, [8, 3]), (2, [9, 2]), note=note)).lengths
    short = carded(recorded, with_lengths((1, [8]), (2, [2, 9]), note=note)).lengths
    assert [(known.exact, known.samples) for known in (exact, other, short) if known] == [
        (4, 4), (2, 4), (3, 4),
    ]  # fmt: skip


def test_groups_are_compared_wherever_they_are_in_the_batch() -> None:
    recorded = replace(made([(4.0, 2.0, 4.0)] * 2), batches=[
        Batch(1, [6, 6, 7, 7, 8, 8], [1, 2, 3, 4, 5, -1], [0, 0, 1, 1, 2, 2])])  # fmt: skip

    def exact(prompts: list[int], responses: list[int], of_rows: list[int]) -> int:
        batches = [Batch(1, prompts, responses, of_rows)]
        run = replace(recorded, batches=batches, note=planned(1))
        lengths = carded(recorded, run).lengths
        assert lengths is not None
        assert lengths.samples == 6
        return lengths.exact

    # What is unknown is not exact, and the sample beside it is.
    assert exact([8, 8, 6, 6, 7, 7], [5, -1, 1, 2, 3, 4], [0, 0, 1, 1, 2, 2]) == 5
    # Samples of a group are in their order; of two groups that differ one sample each is exact.
    assert exact([6, 6, 7, 7, 8, 8], [2, 1, 3, 9, 5, -1], [0, 0, 1, 1, 2, 2]) == 2
    # The same samples in other groups are others.
    assert exact([6, 7, 6, 7, 8, 8], [1, 3, 2, 4, 5, -1], [0, 0, 1, 1, 2, 2]) == 3


def test_lengths_that_were_scaled_are_compared_with_what_they_should_be() -> None:
    recorded = with_lengths((1, [8, 3]), (2, [2, 9]))
    run = with_lengths((1, [4, 2]), (2, [1, 4]), note=planned(1, 2, scale="1/2"))
    run = replace(
        run, batches=[Batch(known.step, [3, 3], known.responses) for known in run.batches]
    )
    lengths = carded(recorded, run).lengths
    assert lengths is not None
    assert (lengths.exact, lengths.samples) == (4, 4)
    assert "have the recorded prompt and response length times 1/2" in text_of(
        carded(recorded, run)
    )


@pytest.mark.parametrize(
    ("half", "slept", "times", "expected", "said"),
    [
        # Of 4, 2 and 4 s; the other half took no time.
        ("rollout", ("reward",), (4.4, 3.0, 0.0), {"rollout": 0.9}, "the rollout half"),
        ("training", (), (0.0, 0.0, 3.0), {"update": 0.75}, "the training half"),
    ],
)
def test_a_half_is_compared_by_its_own_stages_alone(
    half: Any, slept: tuple[str, ...], times: tuple[float, float, float],
    expected: dict[str, float], said: str,
) -> None:  # fmt: skip
    known: dict[str, Any] = {
        "last": dict.fromkeys(EIGHT, 4.0),
        "categories": {step: {"work.rollout": 4.0} for step in EIGHT},
        "profile": {step: dict.fromkeys(range(10), 2.0) for step in EIGHT},
    }
    run = made([times] * 8, note=planned(*EIGHT, slept=slept, half=half), **known)
    recorded = replace(RECORDED, **known)
    # Another run beside it may have slept.
    card = make_card(recorded, run, "replay", ("reward",))
    assert {own.name: own.accuracy for own in card.stages} == pytest.approx(expected)
    assert (card.step.recorded, card.step.replayed, card.step.accuracy) == (None,) * 3
    assert card.lengths is not None
    assert (card.lengths.exact, card.ledger) == (16, {})
    in_flight = half == "rollout"
    assert ((card.flight is not None), card.last.bias) == (in_flight, 0.0 if in_flight else None)
    waits = (card.waits.recorded, card.waits.replayed)
    assert waits == ((2.0, 3.0) if half == "rollout" else (None, None))
    assert headline(card) == f"accuracy: of stages alone, because {said} of each step was replayed"
    text = text_of(card)
    assert f"omitted: whole steps, the ledger, other stages: made did {said} of each step" in text
    assert "fewer than six steps" not in text
    [entry] = to_document([card])["runs"]
    assert (entry["half"], entry["step"]) == (half, None)
    whole = carded(RECORDED, made([(4.4, 3.0, 4.0)] * 8, note=planned(*EIGHT)))
    [entry] = to_document([whole])["runs"]
    assert (entry["half"], entry["step"]["steps"]) == (None, 7)


# ---------------------------------------------------------------- recordings


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write(folder / "recorded", ORIGINAL)
    write(folder / "replayed", [LIKE] * 4, planned(5, 6, 7, 8))
    write(folder / "again", ORIGINAL)
    flat = replace(LIKE, rollout=3.0, samples=((25, 3.0), (25, 3.0)))
    write(folder / "naive", [flat] * 8, planned(*EIGHT, naive=True))
    return folder


def test_a_recording_is_carded(runs: Path) -> None:
    card = carded(read(runs / "recorded"), read(runs / "replayed"))
    assert card.pairs == [(6, 2), (7, 3), (8, 4)]
    assert card.step.accuracy == pytest.approx(0.95)
    assert card.lengths is not None
    assert (card.lengths.exact, card.lengths.samples) == (8, 8)
    assert (card.waits.recorded, card.waits.replayed) == pytest.approx((2.0, 3.0))
    # Of 10 and of 11.4 s.
    shares = {"work.rollout": (0.4, 4.4 / 11.4), "wait.reward": (0.2, 3.0 / 11.4),
              "work.update_actor": (0.4, 4.0 / 11.4)}  # fmt: skip
    assert {name: pytest.approx(both) for name, both in card.ledger.items()} == shares
    assert card.elsewhere == pytest.approx(3.0 / 11.4 - 0.2)


def test_what_was_in_flight_is_compared(runs: Path) -> None:
    flight = carded(read(runs / "recorded"), read(runs / "naive")).flight
    assert flight is not None
    # Two samples for 2 s, then one for 2 s; and two for all of 3 s.
    assert [a for a, _ in flight.profile] == pytest.approx([2.0] * 5 + [1.0] * 5, abs=0.02)
    assert [b for _, b in flight.profile] == pytest.approx([2.0] * 10, abs=0.02)
    assert flight.off == pytest.approx(0.5 / 1.5, abs=0.02)
    assert flight.most == 2
    # 40 tokens in 4 s beside 10 in 2 s; then alone. 25 in 3 s, twice.
    assert flight.tokens_per_s[9] == pytest.approx((15.0, 50 / 3))
    alone, never = flight.tokens_per_s[4]
    assert alone == pytest.approx(10.0)
    assert never is None


def test_the_last_trajectory_has_its_time(runs: Path) -> None:
    last = carded(read(runs / "recorded"), read(runs / "naive")).last
    assert (last.recorded, last.replayed) == pytest.approx((4.0, 3.0))
    assert last.bias == pytest.approx(-0.25)


def test_time_in_which_nothing_but_tools_ran_is_read(tmp_path: Path) -> None:
    steps = [Step(samples=((40, 4.0), (10, 4.0)), tool_s=0.5), Step()]
    assert read(write(tmp_path / "tools", steps)).tools == {1: pytest.approx(0.5)}
    # One of them generates while the other waits for its tool.
    beside = Step(samples=((40, 4.0), (10, 2.5)), tool_s=0.5)
    assert read(write(tmp_path / "beside", [beside])).tools == {}


def test_what_has_no_times_of_its_own_is_omitted_with_the_reason(
    tmp_path: Path, runs: Path
) -> None:
    run = read(write(tmp_path / "bare", [LIKE] * 3))
    bare = replace(run, profile={}, last={}, speed={})
    card = carded(read(runs / "recorded"), bare)
    assert (card.flight, card.last.bias) == (None, None)
    text = text_of(card)
    assert (
        "what was in flight, and the last trajectory: requests of recorded and bare have no" in text
    )
    assert "Tokens per second" not in text


def test_two_trainings_in_a_run_and_lost_lengths_are_refused(tmp_path: Path, runs: Path) -> None:
    with open_tables(runs / "recorded", threads=1) as tables:
        tables.sql.execute("UPDATE step SET lost_batches = 1 WHERE number = 2")
        assert len(read_run(tables).batches) == 8
        with pytest.raises(RecordingError, match="lost the lengths of 1 batches"):
            read_run(tables, planned(1))
        tables.sql.execute("UPDATE step SET number = 1 WHERE number = 2")
        with pytest.raises(RecordingError, match="steps of the same number"):
            read_run(tables)


# ---------------------------------------------------------------- logs

VERL = """\
\x1b[36m(TaskRunner pid=7)\x1b[0m step:{} - actor/lr:1e-06 - timing_s/gen:4.0 - timing_s/reward:2.0\
 - timing_s/old_log_prob:0.5 - timing_s/ref:0.5 - timing_s/update_actor:3.0 - timing_s/step:10.5
(TaskRunner pid=7) nothing of interest: timing_s is not here
"""
POLYTRACE = (
    "benchmark_repeat/1/group/{0}/step/{0}/timing_s: {{'gen': 4.4, 'step': 11.0}}\n"
    "benchmark_repeat/1/group/{0}/step/{0}/metrics: {{'perf/mfu': nan, 'timing_s/gen':"
    " np.float64(4.4), 'timing_s/reward': nan, 'timing_s/step': 11.0}}\n"
)


def test_a_log_of_verl_has_times_by_step(tmp_path: Path) -> None:
    (tmp_path / "formal.log").write_text("".join(VERL.format(step) for step in (3, 4)))
    run = read_log(tmp_path / "formal.log")
    assert run.whole == {3: 10.5, 4: 10.5}
    assert run.stages == {
        "rollout": {3: 4.0, 4: 4.0}, "reward": {3: 2.0, 4: 2.0}, "logprob": {3: 1.0, 4: 1.0},
        "update": {3: 3.0, 4: 3.0},
    }  # fmt: skip
    assert not run.in_order


def test_a_log_of_a_replay_of_polytrace_is_paired_in_its_order(tmp_path: Path) -> None:
    (tmp_path / "formal.log").write_text("".join(VERL.format(step) for step in (3, 4)))
    (tmp_path / "benchmark.log").write_text("".join(POLYTRACE.format(at) for at in (1, 2)))
    formal, replayed = read_log(tmp_path / "formal.log"), read_log(tmp_path / "benchmark.log")
    card = make_card(formal, replayed, "replay", ())
    assert card.pairs == [(3, 1), (4, 2)]
    assert card.step.accuracy == pytest.approx(1 - 0.5 / 10.5)
    assert stage(card, "rollout").accuracy == pytest.approx(0.9)
    # Not a number: unknown.
    assert stage(card, "reward").replayed is None
    assert stage(card, "reward").accuracy is None
    assert (card.lengths, card.ledger, card.flight) == (None, {}, None)
    assert "omitted: lengths: not recorded in both" in text_of(card)
    (tmp_path / "long.log").write_text("".join(VERL.format(step) for step in (3, 4, 5)))
    with pytest.raises(RecordingError, match=r"has 2 steps and long\.log 3"):
        make_card(read_log(tmp_path / "long.log"), replayed, "replay", ())


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello\n")
    with pytest.raises(RecordingError, match="text has no line with timing_s/step"):
        read_log(tmp_path / "text")


# ---------------------------------------------------------------- what it says


def text_of(*cards: Card) -> str:
    return "\n".join(block.text for block in lay_out_cards(cards) if isinstance(block, Line))


def said(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    assert cli.main(["fidelity", *words]) == code
    found = capsys.readouterr()
    return " ".join((found.out + found.err).split())


def test_the_screen_says_it(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(runs / "recorded"), str(runs / "replayed")]
    more = ["--ceiling", str(runs / "again"), "--naive", str(runs / "naive")]
    assert cli.main(["fidelity", *words, *more]) == cli.OK
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    text = " ".join(" ".join(lines).split())
    assert "lengths: 8 of 8 samples have the recorded prompt and response length" in text
    assert (
        "accuracy 95.0%: 3 steps without what slept took 5.0% more time than recorded, all"
        " together; single steps are off by 5.0% in the mean"
    ) in text
    assert "verification slept in the replay, and is apart: 2.00 s of a recorded step" in text
    assert "the first step warms up and is omitted" in text
    # 8 and 7 s: 0.875, of the naive replay.
    assert "recorded recorded · steps 6 to 8 replayed replayed · steps 2 to 4" in text
    assert "replayed replay 3 95.0% 5.0% +5.0% 100.0%" in text
    assert "again A/A 7 100.0% 100.0 to 100.0% 0.0% +0.0% 100.0%" in text
    assert "naive naive 7 87.5% 87.5 to 87.5% 12.5% -12.5% 0.0%" in text
    assert "rollout 4.00 4.40 90.0% 10.0% +10.0% 100.0% 75.0%" in text


def test_the_json_and_the_page_have_it(
    runs: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = [str(runs / "recorded"), str(runs / "replayed"), "--html", str(tmp_path / "page")]
    said(capsys, cli.OK, *words, "--json", str(tmp_path / "a"))
    document: dict[str, Any] = json.loads((tmp_path / "a").read_text("utf-8"))
    assert document["schema_version"] == 1
    [run] = document["runs"]
    assert run["step"]["accuracy"] == pytest.approx(0.95)
    assert run["slept"]["what"] == ["reward"]
    assert run["steps"] == [[6, 2], [7, 3], [8, 4]]
    assert run["step"]["low"] is None
    written = (tmp_path / "page").read_text("utf-8")
    assert "accuracy 95.0%: 3 steps" in written
    assert "default-src 'none'" in written
    assert "<script" not in written
    assert json.loads(said(capsys, cli.OK, *words[:2], "--json", "-")) == document


def test_a_page_of_a_run_with_an_odd_name_is_no_html() -> None:
    run = replace(RECORDED, source="<b>", note=planned(*EIGHT, source="<script>"))
    text = page("<b>", lay_out_cards([carded(RECORDED, run)]))
    assert "<script>" not in text
    assert "it is a replay of &lt;script&gt;" in text


def test_every_key_of_the_json_is_documented(runs: Path) -> None:
    card = carded(read(runs / "recorded"), read(runs / "naive"))
    text = Path(__file__).parents[2].joinpath("docs/reference/fidelity-json.md").read_text("utf-8")

    def keys(value: Any) -> set[str]:
        if isinstance(value, dict):
            return {*value, *(key for inner in value.values() for key in keys(inner))}
        return {key for inner in value for key in keys(inner)} if isinstance(value, list) else set()

    document = to_document([card])
    document["runs"][0]["ledger"] = {}
    assert {key for key in keys(document) if f"`{key}`" not in text} == set()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["recorded", "nowhere"], "nowhere does not exist"),
        (["replayed", "naive"], "replayed has steps 1 to 4: no step of the one belongs"),
        (["recorded", "broken"], "broken/replay.json cannot be read"),
    ],
)
def test_what_cannot_be_carded_is_refused(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    write(tmp_path / "broken", [Step()])
    (tmp_path / "broken" / NOTE).write_text("{}")
    write(tmp_path / "far", [LIKE] * 2, planned(41, 42))
    places = {"naive": tmp_path / "far", "broken": tmp_path / "broken"}
    folders = [str(places.get(word, runs / word)) for word in words]
    assert message in said(capsys, cli.UNABLE, *folders)


# ---------------------------------------------------------------- the note of a replay


def test_a_note_is_read_as_it_was_written(tmp_path: Path) -> None:
    note = planned(3, 4, scale="1/64", naive=True)
    assert read_note(tmp_path) is None
    (tmp_path / NOTE).write_bytes(encode_note(note))
    assert read_note(tmp_path) == note


WRONG = (
    '{"schema": 1, "source": "a", "steps": [%s], "cap": 1, "scale": %s, "naive": true, "slept": []}'
)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"schema": 2}',
        '{"schema": 1}',
        WRONG % ('"x"', "null"),
        WRONG % (1, '"1/0"'),
        WRONG % (1, '"x"'),
    ],
)
def test_a_note_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / NOTE).write_text(text)
    with pytest.raises(RecordingError, match=r"replay\.json cannot be read"):
        read_note(tmp_path)


def test_the_headline_of_what_is_unknown_says_so() -> None:
    card = carded(RECORDED, made([(4.0, 2.0, 4.0)] * 8, note=planned(*EIGHT)))
    unknown = replace(card, step=replace(card.step, accuracy=None, bias=None))
    assert headline(unknown).startswith("accuracy: unknown")
