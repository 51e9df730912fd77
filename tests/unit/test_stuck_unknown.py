"""Where little is known of a run, nothing reassures: settings decide, and the text says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe import cli
from rlvr_probe.analysis.finding import Finding, standing_of
from rlvr_probe.analysis.limits import LEAST, Fallback
from rlvr_probe.analysis.stuck import examine, is_stuck
from rlvr_probe.cli import stuck
from rlvr_probe.cli.stacks import stacks_of
from rlvr_probe.model import names, schema
from rlvr_probe.recording.between_steps import AFTER, BEFORE, BETWEEN, UNSEEN
from rlvr_probe.recording.follow.activity import Activity
from rlvr_probe.recording.follow.member import Member
from rlvr_probe.report.stuck import lay_out_stuck
from tests.journals import BOOT, SECOND, JournalFile, Training, fake_proc
from tests.stuck_members import NOW, member, said, times, verdicts, work

# ---------------------------------------------------------------- the first of a kind


@pytest.mark.parametrize(
    ("age_s", "took_s", "verdict"),
    [
        (599, [], "unknown"),
        (601, [], "overdue"),
        (119, [1], "unknown"),  # so short that ten times as long is nothing
        (121, [1], "overdue"),
        (299, [1, 30], "unknown"),
        (301, [1, 30], "overdue"),
        (601, [150], "overdue"),
        (899, [300], "unknown"),  # a long rollout may take thrice as long
        (901, [300], "overdue"),
    ],
)
def test_the_first_of_a_kind_are_overdue_by_the_fallbacks(
    age_s: float, took_s: list[float], verdict: str
) -> None:
    one = member(0, work(1, "checkpoint", age_s))
    one.past["checkpoint", ""] = times(*took_s)
    assert verdicts(one) == [(0, verdict, "checkpoint")]


def test_what_speaks_is_said_with_its_setting() -> None:
    assert said(member(0, work(1, "checkpoint", 900))).splitlines()[1] == (
        "rank 0 (pid 100 on host) may be stuck: checkpoint open for 15.0 min; none ended before:"
        " limit 10.0 min (--unknown-after)"
    )
    one = member(0, work(1, "checkpoint", 900))
    one.past["checkpoint", ""] = times(10, 20)
    assert said(one).splitlines()[1] == (
        "rank 0 (pid 100 on host) may be stuck: checkpoint open for 15.0 min; 2 of 20 ended before,"
        " in 20.0 s at most: limit 3.3 min (--unknown-times, --unknown-after)"
    )


def test_what_is_not_known_does_not_reassure() -> None:
    text = said(member(0, work(1, "rollout", 40)))
    assert text.splitlines()[1:] == [
        "nothing is past its limit; usual durations are not known yet:",
        "rank 0 (pid 100 on host): rollout open for 40.0 s; none ended before: limit 10.0 min"
        " (--unknown-after)",
    ]


def test_the_fallbacks_are_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = member(0, work(1, "checkpoint", 40))
    assert not is_stuck(examine([one], BOOT, NOW))
    assert is_stuck(examine([one], BOOT, NOW, Fallback(after_s=30)))
    one.past["checkpoint", ""] = times(45, 45)
    one.work = [work(1, "checkpoint", 140)]
    assert is_stuck(examine([one], BOOT, NOW, Fallback(times=3)))
    assert Fallback(stuck._AFTER_S, stuck._TIMES) == Fallback()
    recorded(tmp_path / "run", steps=3, since_s=150.0)
    given = ["stuck", str(tmp_path / "run"), "--no-stacks"]
    assert cli.main(given) == cli.UNSOUND
    assert "limit 2.0 min" in capsys.readouterr().out.replace("\n ", "")
    assert cli.main([*given, "--unknown-times", "400"]) == cli.OK
    assert cli.main([*given, "--unknown-times", "400", "--unknown-after", "140"]) == cli.UNSOUND
    for wrong in ("0", "nan", "soon"):
        with pytest.raises(SystemExit):
            cli.main([*given, "--unknown-after", wrong])
        assert f"found {wrong}, expected 1 to 1e+09 seconds" in capsys.readouterr().err


def test_a_method_is_compared_with_itself_alone() -> None:
    """A thousand short calls say nothing of the first checkpoint."""
    one = member(0, work(1, "rpc", 100, detail="save"))
    one.past |= {("rpc", ""): times(*[0.1] * 1_000), ("rpc", "log_prob"): times(*[0.1] * 1_000)}
    assert verdicts(one) == [(0, "unknown", "rpc")]


@pytest.mark.parametrize(("ended_s", "verdict"), [(100.0, "overdue"), (900.0, "unknown")])
def test_a_first_rollout_goes_on_as_long_as_trajectories_do(ended_s: float, verdict: str) -> None:
    controller = member(None, work(1, "step", 950), work(2, "rollout", 900, 1), trained=True)
    worker = member(None, work(1, "turn", 3), turn=10, last_s=ended_s)
    worker.active_ns = round(ended_s * SECOND)
    found = {one.work.name: one.verdict for one in examine([controller, worker], BOOT, NOW)
             if one.work is not None}  # fmt: skip
    assert found == {"rollout": verdict, "turn": "open"}


def test_a_first_tool_call_does_not_go_on_because_others_do() -> None:
    busy = member(None, work(1, "trajectory", 700), work(2, "tool_call", 650, 1), last_s=999.0)
    busy.active_ns = 999 * SECOND
    assert verdicts(busy) == [(None, "overdue", "tool_call")]


# ---------------------------------------------------------------- what is around it


def test_a_step_that_does_not_end_is_told_though_all_in_it_does() -> None:
    one = member(0, work(1, "step", 400), work(2, "rollout", 20, 1), step=100, rollout=30)
    assert verdicts(one) == [(0, "overdue", "step")]
    assert said(one).splitlines()[1] == (
        "rank 0 (pid 100 on host) is stuck: step open for 6.7 min, in it rollout for 20.0 s;"
        " P99 of 100 before: 100.0 s"
    )


def test_of_a_step_that_is_overdue_with_what_is_in_it_the_inner_one_counts() -> None:
    one = member(0, work(1, "step", 400), work(2, "rollout", 390, 1), step=100, rollout=30)
    assert verdicts(one) == [(0, "overdue", "rollout")]


def test_a_trajectory_of_many_turns_is_not_overdue_while_they_end() -> None:
    one = member(None, work(1, "trajectory", 400), work(2, "turn", 20, 1), trajectory=100, turn=30)
    assert verdicts(one) == [(None, "open", "turn")]


def test_a_step_is_not_overdue_for_its_first_evaluation() -> None:
    one = member(0, work(1, "step", 400), work(2, "eval", 350, 1), step=100)
    assert verdicts(one) == [(0, "unknown", "eval")]


# ---------------------------------------------------------------- between two steps


def recorded(
    folder: Path, *, steps: int, since_s: float, rank: int = 0, pause_s: float = 0.5, **table: Any
) -> JournalFile:
    """A rank that ended so many steps, with pauses between them, and was seen for a while since."""
    journal = JournalFile(folder, rank + 1)
    training = Training(journal, rank=rank, ranks=2)
    training.begin()
    for step in range(1, steps + 1):
        training.step(step)
        training.now_s += pause_s
    journal.close(end=False)
    journal.open_table(beat_s=training.now_s - pause_s + since_s, **table)
    return journal


@pytest.mark.parametrize(
    ("steps", "since_s", "verdict"),
    [
        (5, 40.0, "unknown"),
        (5, 130.0, "overdue"),
        (LEAST + 1, 110.0, "open"),
        (LEAST + 1, 130.0, "overdue"),
    ],
)
def test_what_a_trainer_does_between_two_steps_is_open(
    tmp_path: Path, steps: int, since_s: float, verdict: str
) -> None:
    recorded(tmp_path / "run", steps=steps, since_s=since_s)
    pulse = Activity(tmp_path / "run", fake_proc(tmp_path / "proc", BOOT, p1001=("S", 77)))
    [one] = pulse.read()
    pulse.close()
    [found] = examine([one], BOOT, one.heartbeat_ns)
    assert found.work is not None
    assert (found.work.name, found.verdict, found.age_s) == (BETWEEN, verdict, since_s)
    assert (found.before, found.longest_s) == (steps - 1, 0.5 if steps > 1 else None)


def test_a_stage_between_two_steps_is_none_of_what_lies_around_it(tmp_path: Path) -> None:
    """A step ends at 2 s, an evaluation takes 4 s, and the next step begins at 8 s."""
    journal = JournalFile(tmp_path / "run")
    journal.event(names.SESSION, 0.0, session=0, rank=0)
    mine = journal.next_span()
    first, second = journal.next_span(), journal.next_span()
    journal.span(names.ROLLOUT, 1.1, 1.5, parent=first)
    journal.span(names.STEP, 1.0, 2.0, span=first, parent=mine)
    journal.span(names.EVAL, 3.0, 7.0, parent=mine)
    journal.span(names.ROLLOUT, 8.1, 8.5, parent=second)
    journal.span(names.STEP, 8.0, 9.0, span=second, parent=mine)
    journal.span(names.CHECKPOINT, 10.0, 11.0, parent=mine)
    journal.close(end=False)
    journal.open_table((mine, 0.5, "user", "main"), (99, 12.0, "user", "upload"), beat_s=15.0)
    pulse = Activity(tmp_path / "run")
    [one] = pulse.read()
    pulse.close()
    past = one.past[BETWEEN, ""]
    assert list(past.recent_ns) == [SECOND, SECOND]
    own = {work.name + work.detail: (work.id, work.parent) for work in one.work}
    assert own == {"usermain": (mine, 0), BETWEEN: (-1, mine), "userupload": (99, -1)}


def test_a_training_that_returned_is_not_between_two_steps(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "run")
    training = Training(journal)
    training.begin()
    training.step(1)
    journal.event(names.SESSION_END, training.now_s, session=0, step=1)
    training.evaluate(1)
    journal.close(end=False)
    journal.open_table(beat_s=5_000.0)
    pulse = Activity(tmp_path / "run", fake_proc(tmp_path / "proc", BOOT, p1001=("S", 77)))
    [one] = pulse.read()
    pulse.close()
    assert (one.returned, [work.name for work in one.work]) == (True, [AFTER])


@pytest.mark.parametrize(("age_s", "verdict"), [(40, "unknown"), (700, "overdue")])
def test_who_writes_no_table_is_neither_silent_nor_between_two_steps(
    tmp_path: Path, age_s: float, verdict: str
) -> None:
    """As on a network file system without a spool: what is open is not told."""
    journal = recorded(tmp_path / "run", steps=30, since_s=0.0)
    (tmp_path / "run" / f"p{journal.header['process']}{schema.OPEN_SUFFIX}").unlink()
    pulse = Activity(tmp_path / "run", fake_proc(tmp_path / "proc", BOOT, p1001=("S", 77)))
    [one] = pulse.read()
    pulse.close()
    [found] = examine([one], BOOT, one.last_ns + round(age_s * SECOND))
    assert found.work is not None
    assert (found.work.name, found.verdict, found.age_s) == (UNSEEN, verdict, age_s)


@pytest.mark.parametrize(("age_s", "verdict"), [(40, "unknown"), (700, "overdue")])
def test_what_is_before_the_first_step_is_not_known(age_s: float, verdict: str) -> None:
    """Of a training that began, and of a process of which nothing else is known."""
    begun = work(-1, BEFORE, age_s)
    assert verdicts(member(0, begun, trained=True)) == [(0, verdict, BEFORE)]
    assert verdicts(member(None, begun, begun_s=1_000.0 - age_s)) == [(None, verdict, BEFORE)]


def test_who_waits_to_be_used_is_not_before_a_step() -> None:
    waits = member(None, work(-1, BEFORE, 900))
    trainer = member(0, work(1, "step", 5), trained=True, step=5)
    assert verdicts(waits, trainer) == [(0, "open", "step"), (None, "idle", None)]
    server = member(None, turn=5)
    assert verdicts(waits, server) == [(None, "idle", None)] * 2
    assert said(waits, server).splitlines()[1] == ("nothing recorded is open: progress unknown")


# ---------------------------------------------------------------- who is missed


def updating(since_s: float, ranks: range) -> list[Member]:
    return [
        member(
            rank, work(1, "step", since_s + 1), work(2, "update_actor", since_s, 1), trained=True,
            last_s=1_000 - since_s, update_actor=1.0,
        )
        for rank in ranks
    ]  # fmt: skip


@pytest.mark.parametrize("others", [1, 3])
def test_a_rank_that_did_not_come_is_named_before_those_that_wait(others: int) -> None:
    """It hangs in a callback, of which nothing is known; they are at what they did before."""
    waiting = updating(60, range(1, others + 1))
    late = member(0, work(-1, BETWEEN, 63), trained=True, last_s=937.0)
    first, *rest = verdicts(*waiting, late)
    assert first == (0, "missing", BETWEEN)
    assert rest == [(rank, "overdue", "update_actor") for rank in range(1, others + 1)]
    line = (
        f"rank 0 (pid 100 on host) has not reached where {others} of its role wait unusually long"
    )
    assert said(*waiting, late).splitlines()[1].startswith(line)


def test_of_ranks_that_are_overdue_the_one_that_did_not_come_is_first() -> None:
    waiting = updating(690, range(1, 3))
    late = member(0, work(-1, BETWEEN, 700), trained=True, last_s=300.0)
    assert verdicts(*waiting, late)[0] == (0, "overdue", BETWEEN)
    assert "and 2 of its role wait for it" in said(*waiting, late)


def test_who_waits_for_the_function_of_one_rank_is_not_missed() -> None:
    """It is in the same stage, or did its part before that began."""
    hangs = member(
        0, work(1, "reward", 61), work(2, "reward_fn", 60, 1), trained=True, last_s=939, reward_fn=1
    )
    waits = member(1, work(1, "reward", 61.5), trained=True, last_s=938.5, reward=100)
    assert verdicts(waits, hangs) == [(0, "overdue", "reward_fn"), (1, "open", "reward")]
    alone = member(0, work(1, "checkpoint", 60), trained=True, last_s=935, checkpoint=1)
    others = member(1, work(-1, BETWEEN, 65), trained=True, last_s=935, between_steps=30)
    assert verdicts(alone, others) == [(0, "overdue", "checkpoint"), (1, "open", BETWEEN)]


def test_a_rank_that_died_or_is_silent_comes_before_who_waits() -> None:
    waiting = updating(300, range(1, 3))
    dead = member(0, work(-1, BETWEEN, 302), state="died", beat_s=700.0, trained=True)
    assert verdicts(*waiting, dead)[0] == (0, "died", BETWEEN)
    still = member(0, work(-1, BETWEEN, 302), beat_s=700.0, trained=True)
    assert verdicts(*waiting, still)[0] == (0, "silent", BETWEEN)


def test_a_rank_that_was_started_again_in_its_job_is_not_missed() -> None:
    """As torchrun does it, which keeps the id of the job; not before it trains."""
    dead = member(0, work(-1, BETWEEN, 402), state="died", beat_s=700.0, trained=True)
    again = member(0, begun_s=720.0, step=5)
    assert (0, "died", BETWEEN) in verdicts(dead, again)
    trains = member(0, work(1, "step", 3), begun_s=720.0, trained=True, step=5)
    assert verdicts(dead, trains) == [(0, "open", "step")]


def test_a_worker_that_died_with_nothing_open_is_not_overlooked() -> None:
    controller = member(None, work(1, "step", 5), trained=True, step=5)
    dead = member(1, state="died", beat_s=700.0, role="WorkerDict", rpc=1)
    helper = member(2, state="died", beat_s=700.0, role="task", user=1)
    assert verdicts(controller, dead, helper) == [(1, "died", None), (None, "open", "step")]
    controller.returned = True
    assert verdicts(controller, dead, helper) == [(None, "open", "step")]


# ---------------------------------------------------------------- runs that are over, or far away


def test_a_run_that_is_gone_without_an_end_is_not_calm() -> None:
    gone = [
        member(rank, work(-1, BETWEEN, 105), state="died", beat_s=900.0, trained=True)
        for rank in range(2)
    ]
    assert verdicts(*gone) == [(0, "gone", BETWEEN), (1, "gone", BETWEEN)]
    assert said(*gone).splitlines()[:3] == [
        "run · 2 died",
        "all processes are gone, last seen 100.0 s ago, and no training returned: killed, crashed,"
        " or out of sight of this machine",
        "rank 0 (pid 100 on host) was in between_steps for at least 5.00 s",
    ]


def test_what_ends_with_its_training_is_not_missed() -> None:
    trainer = member(None, state="exited", trained=True, beat_s=990.0)
    workers = [member(rank, state="died", beat_s=985.0, rpc=1) for rank in range(2)]
    trainer.returned = True
    assert examine([trainer, *workers], BOOT, NOW) == []
    assert said(trainer, *workers).splitlines() == [
        "run · 1 exited · 2 ended", "finished: training returned, last seen 10.0 s ago",
    ]  # fmt: skip
    trainer.returned = False
    assert said(trainer, *workers).splitlines()[1] == (
        "ended: every process has ended, last seen 10.0 s ago, and training did not"
        " return by itself"
    )


def test_a_worker_that_was_gone_before_its_training_failed_is_named() -> None:
    """As one that the kernel killed for its memory, of which the trainer's step failed."""
    trainer = member(None, state="exited", trained=True, last_s=980.0, beat_s=990.0)
    early = member(0, state="died", beat_s=700.0, rpc=1)
    late = member(1, state="died", beat_s=985.0, rpc=1)
    assert verdicts(trainer, early, late) == [(0, "gone", None)]


def test_whom_a_driver_took_with_it_is_not_missed(tmp_path: Path) -> None:
    """As after Ctrl-C, in the middle of a step; who was gone before is."""
    driver = JournalFile(tmp_path / "run")
    driver.event(names.PROCESS, 0.0, role="driver", actor="", node="")
    driver.event(names.LEFT, 60.5, since_s=0.5)
    driver.close()
    for number, beat_s in ((2, 60.6), (3, 60.7), (4, 50.0)):
        journal = JournalFile(tmp_path / "run", number)
        journal.event(names.PROCESS, 0.0, role="TaskRunner", actor="", node="")
        journal.close(end=False)
        journal.open_table((1, 30.0, "rpc", "update"), beat_s=beat_s)
    pulse = Activity(tmp_path / "run", fake_proc(tmp_path / "proc", BOOT))
    members = pulse.read()
    pulse.close()
    found = examine(members, BOOT, NOW)
    assert [(one.member.header.pid, one.verdict) for one in found] == [(1004, "gone")]


def test_a_run_of_another_machine_is_not_called_calm() -> None:
    far = [
        member(rank, work(1, "rollout", 30), state="unknown", beat_s=990.0, rollout=30)
        for rank in range(2)
    ]
    assert said(*far, boot="another").splitlines()[:3] == [
        "run · 2 unknown",
        "nothing visible from here took unusually long",
        "2 processes on other machines, state unknown: run this there; last sign of life 10.0 s ago"
        " by wall clocks",
    ]
    far[0].heartbeat_ns = NOW + 3_600 * SECOND
    assert "life 60.0 min from now, as clocks differ, by wall" in said(*far, boot="another")


def test_a_rank_of_another_machine_that_was_seen_long_before_others_is_silent() -> None:
    here = member(0, work(1, "rollout", 30), rollout=30, trained=True)
    far = member(1, work(1, "rollout", 930), state="unknown", beat_s=100.0, trained=True)
    assert verdicts(here, far)[0] == (1, "silent", "rollout")
    assert "its last sign of life 15.0 min before others" in said(here, far)


@pytest.mark.parametrize(("beats", "state"), [(True, "running"), (False, "died")])
def test_a_process_of_a_container_that_gives_signs_of_life_is_not_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beats: bool, state: str
) -> None:
    """Its pid is that of nobody, or of another process, where it is looked at from."""
    journal = recorded(tmp_path / "run", steps=3, since_s=1.0)
    machine = fake_proc(tmp_path / "proc", BOOT)
    pulse = Activity(tmp_path / "run", machine)
    [one] = pulse.read()
    assert (one.state, one.hidden) == ("died", False)
    seen_ns = one.heartbeat_ns
    monkeypatch.setattr(machine, "now_ns", lambda: seen_ns + SECOND)
    beat_s = (seen_ns - one.header.mono_ns) / SECOND + 0.2
    monkeypatch.setattr(
        "time.sleep", lambda _: journal.open_table(beat_s=beat_s) if beats else None
    )
    [one] = pulse.read()
    pulse.close()
    assert (one.state, one.hidden, one.heartbeat_ns > seen_ns) == (state, beats, beats)
    assert stacks_of(examine([one], BOOT, seen_ns + 60 * SECOND)) == ({}, "")


def test_a_clock_that_is_ahead_makes_nobody_silent() -> None:
    """A process that was seen after now, by its clock, was seen now."""
    one = member(0, work(1, "rollout", -50), beat_s=1_500.0, rollout=1)
    [found] = examine([one], BOOT, NOW)
    assert (found.verdict, found.age_s, found.silent_s) == ("open", 0.0, 0.0)


# ---------------------------------------------------------------- a filter that passes nothing


def sifted(
    folder: Path, *, steps: int, rounds: int, updates: bool = False, **selected: Any
) -> Member:
    """A trainer in whose step so many rollouts ended, after two in each of the steps before.

    With ``updates`` an update follows each of them.
    """
    journal = JournalFile(folder)
    journal.event(names.SESSION, 0.0, session=0, rank=3, group_size=4)
    step = 0
    for at in range(steps + 1):
        step = journal.next_span()
        for number in range(2 if at < steps else rounds):
            begin = 100.0 * at + 2.0 * number
            journal.span(names.ROLLOUT, begin, begin + 1.0, parent=step, mode="train")
            if updates:
                journal.span(names.UPDATE_ACTOR, begin + 1.0, begin + 2.0, parent=step)
        if at < steps:
            journal.event(names.SELECTED, 100.0 * at + 50.0, kept=["a"], discarded=["b"],
                          reason="filter")  # fmt: skip
            journal.span(names.STEP, 100.0 * at, 100.0 * at + 60.0, span=step)
    if selected:
        journal.event(names.SELECTED, 100.0 * steps + 5.0, **{"reason": "filter", **selected})
    journal.close(end=False)
    slots = (step, 100.0 * steps, "step", ""), (900, 100.0 * steps + 300.0, "rollout", "")
    journal.open_table(*slots, beat_s=100.0 * steps + 700.0, step=steps + 1)
    pulse = Activity(
        folder, fake_proc(folder.parent / f"proc-{folder.name}", BOOT, p1001=("S", 77))
    )
    [found] = pulse.read()
    pulse.close()
    [around, inner] = found.work
    found.work = [around, replace(inner, parent=around.id)]
    return found


def first(*members: Member) -> Finding:
    return examine(members, BOOT, max(one.heartbeat_ns for one in members))[0]


def test_a_step_that_generates_again_and_again_is_starved(tmp_path: Path) -> None:
    """As a recipe does that tells at the end which groups passed."""
    found = first(sifted(tmp_path / "many", steps=3, rounds=7))
    assert (found.verdict, found.work and found.work.name, found.at and found.at.name) == (
        "starved", "step", "rollout",
    )  # fmt: skip
    text = "\n".join(getattr(block, "text", "") for block in lay_out_stuck(
        "run", [found], standing_of([found.member], [found], 0), {}))  # fmt: skip
    assert (
        "generates without training: it generated 7 times in this step, at most 2 times in an"
        " earlier one: as when no group passes a filter: step open for 11.7 min, in it rollout for"
        " 6.7 min; 3 of 20 ended before, in 60.0 s at most: limit 10.0 min"
    ) in text
    assert (found.member.rank, found.member.group_size) == (3, 4)
    assert first(sifted(tmp_path / "few", steps=3, rounds=6)).verdict != "starved"
    enough = sifted(tmp_path / "enough", steps=LEAST, rounds=7)
    assert first(enough).verdict == "starved"
    enough.filters = 0
    assert first(enough).verdict == "overdue"


def test_a_step_that_trains_on_each_of_its_rollouts_is_not_starved(tmp_path: Path) -> None:
    """As TRL does with gradient accumulation; it tells of no filter, nor that it has none."""
    trained = sifted(tmp_path / "trained", steps=0, rounds=12, updates=True)
    assert (trained.filters, first(trained).verdict) == (None, "overdue")
    assert first(sifted(tmp_path / "not", steps=0, rounds=12)).verdict == "starved"


def test_a_step_whose_groups_are_all_thrown_away_is_starved(tmp_path: Path) -> None:
    """As the queue of verl's V1 does it: one rollout is open, and what goes is told at once."""
    gone = [f"prompt {number}" for number in range(50)]
    trainer = sifted(tmp_path / "gone", steps=0, rounds=0, discarded=gone)
    worker = member(None, turn=5, job="job-1", begun_s=trainer.header.mono_ns / SECOND)
    worker.header = replace(worker.header, epoch_ns=trainer.header.epoch_ns)
    worker.heartbeat_ns = worker.active_ns = worker.last_ns = trainer.heartbeat_ns
    worker.trajectories.extend([trainer.heartbeat_ns - SECOND] * 210)
    found = first(trainer, worker)
    assert (found.verdict, found.member.sifting.discarded) == ("starved", 50)
    # Of twice as many that were generated, some passed.
    worker.trajectories.extend([trainer.heartbeat_ns - SECOND] * 210)
    assert first(trainer, worker).verdict == "unknown"
    passing = sifted(tmp_path / "kept", steps=0, rounds=0, discarded=gone, kept=["more"])
    assert first(passing).verdict != "starved"


def test_a_generator_whose_groups_for_a_queue_are_all_thrown_away_is_starved(
    tmp_path: Path,
) -> None:
    """As OpenRLHF's does beside the training: it is in no step, and has no sizes."""
    journal = JournalFile(tmp_path / "generator")
    journal.event(names.SELECTED, 1.0, batch=7, kept=["a"], used=["a"], discarded=["b"])
    journal.span(names.ROLLOUT, 0.0, 2.0, span=7, mode="train")
    for number in range(50):
        journal.event(names.SELECTED, 3.0, batch=10 + number, discarded=["c"], reason="filter")
    journal.close(end=False)
    journal.open_table((900, 2.5, "rollout", ""), beat_s=700.0)
    pulse = Activity(tmp_path / "generator", fake_proc(tmp_path / "proc", BOOT, p1001=("S", 77)))
    [generator] = pulse.read()
    pulse.close()
    trainer = member(None, job="job-1", begun_s=generator.header.mono_ns / SECOND)
    trainer.header = replace(trainer.header, epoch_ns=generator.header.epoch_ns)
    trainer.group_size = 4
    trainer.heartbeat_ns = trainer.last_ns = generator.heartbeat_ns
    trainer.trajectories.extend([generator.heartbeat_ns - SECOND] * 210)
    found = first(generator, trainer)
    assert (found.verdict, found.member.sifting.discarded) == ("starved", 50)
    assert found.work is not None
    assert found.work.name == "rollout"
    trainer.trajectories.extend([generator.heartbeat_ns - SECOND] * 210)
    assert first(generator, trainer).verdict != "starved"


def test_a_rollout_without_an_end_is_told_though_trajectories_end() -> None:
    controller = member(None, work(1, "step", 950), work(2, "rollout", 900, 1), trained=True)
    worker = member(None, turn=10, last_s=999.0)
    worker.active_ns = 999 * SECOND
    text = said(controller, worker)
    assert "the last thing in it ended 1.00 s ago; none ended before: limit 10.0 min after" in text
    found = examine([controller, worker], BOOT, NOW, Fallback(after_s=80))
    assert found[0].verdict == "overdue"
    assert found[0].limit is not None
    assert found[0].limit.seconds == 800.0


# ---------------------------------------------------------------- after the training


def after(
    folder: Path,
    since_s: float,
    *,
    command: str = "python\0train.py\0",
    other: str | None = None,
) -> tuple[str | None, str]:
    """What a rank is at whose training returned so long ago, and what is to be thought of it.

    Args:
        folder: Where it is made.
        since_s: Ago.
        command: Of the process, as in /proc.
        other: A second rank: ``trains``, ``served`` for others 10 s ago, or ``returned`` as well;
            or ``notebook``, the driver of both.
    """
    proc = fake_proc(folder / "proc", BOOT, p1001=("S", 77), p1002=("S", 77))
    (folder / "proc" / "1001" / "cmdline").write_text(command)
    journal = JournalFile(folder / "run")
    training = Training(journal, ranks=2 if other else 1)
    training.begin()
    training.step(1)
    journal.event(names.SESSION_END, training.now_s, session=0, step=1)
    over_s = training.now_s
    journal.close(end=False)
    journal.open_table(beat_s=over_s + since_s)
    if other is not None:
        second = JournalFile(folder / "run", 2)
        if other == "served":
            second.span(names.RPC, over_s + since_s - 20, over_s + since_s - 10, side="worker",
                        group="g", method="save", call=0, rank=0, ranks=1)  # fmt: skip
        elif other == "notebook":
            second.event(names.PROCESS, 0, role="driver")
            (folder / "proc" / "1002" / "cmdline").write_text("python\0-m\0ipykernel\0")
        else:
            own = Training(second, rank=1, ranks=2)
            own.begin()
            own.step(1)
        if other == "returned":
            second.event(names.SESSION_END, over_s, session=0, step=1)
        second.close(end=False)
        second.open_table(beat_s=over_s + since_s)
    pulse = Activity(folder / "run", proc)
    members = pulse.read()
    pulse.close()
    now_ns = members[0].heartbeat_ns
    found = next(one for one in examine(members, BOOT, now_ns) if one.member is members[0])
    return None if found.work is None else found.work.name, found.verdict


@pytest.mark.parametrize(
    ("since_s", "other", "expected"),
    [
        (599.0, None, (None, "idle")),  # it may save or upload what it trained
        (601.0, None, (AFTER, "overdue")),
        (601.0, "returned", (AFTER, "overdue")),
        (601.0, "trains", (None, "idle")),
        (601.0, "served", (None, "idle")),
        (601.0, "notebook", (None, "idle")),
    ],
)
def test_a_process_that_stays_after_its_training_is_told_at_some_time(
    tmp_path: Path, since_s: float, other: str | None, expected: tuple[str | None, str]
) -> None:
    assert after(tmp_path, since_s, other=other) == expected


@pytest.mark.parametrize(
    ("command", "waits"),
    [
        ("/usr/bin/python3\0-m\0ipykernel_launcher\0-f\0kernel.json\0", True),
        ("python3\0-m\0colab_kernel_launcher\0", True),
        ("/usr/bin/python3\0/usr/bin/ipython\0", True),
        ("python3.11\0", True),
        ("python\0-u\0-i\0train.py\0", True),
        ("python\0train.py\0-i\0", False),
        ("ray::TaskRunner.run\0\0\0\0", False),
        ("python\0-u\0train.py\0", False),
        ("", False),
    ],
)
def test_who_waits_for_what_somebody_types_may_do_so_after_its_training(
    tmp_path: Path, command: str, waits: bool
) -> None:
    assert after(tmp_path, 7_200.0, command=command)[1] == ("idle" if waits else "overdue")


def test_a_training_that_goes_on_after_it_returned_is_not_over(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "run")
    training = Training(journal)
    training.begin()
    training.step(1)
    journal.event(names.SESSION_END, training.now_s, session=0, step=1)
    training.step(2)
    journal.close(end=False)
    journal.open_table(beat_s=training.now_s + 30)
    pulse = Activity(tmp_path / "run", fake_proc(tmp_path / "proc", BOOT, p1001=("S", 77)))
    [one] = pulse.read()
    pulse.close()
    assert [work.name for work in one.work] == [BETWEEN]
