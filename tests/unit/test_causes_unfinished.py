"""What was open when a recording ends is named, and its time is that of the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.analysis.causes import Cause, find_causes
from rlvr_probe.analysis.characterization import characterize
from rlvr_probe.analysis.ledger import make_ledger
from rlvr_probe.model import names
from rlvr_probe.recording.process_state import Machine
from rlvr_probe.recording.tables import open_tables
from rlvr_probe.report.blocks import Line
from rlvr_probe.report.characterize import lay_out_characterization
from tests import today
from tests.journals import MONO_NS, SECOND, JournalFile, fake_proc
from tests.unit.test_ledger_by_hand import Job, fake_machine

STEPS = 6
"""Steps that ended, of 10 s each: one of them for a reward function."""


class Rank(JournalFile):
    """One of two ranks that do everything, whose reward stage lasts until both have ended it."""

    ranks = 2

    def begin(self, rank: int, ranks: int = 2) -> None:
        self.ranks = ranks
        self.event(
            names.SESSION, 0.5, session=0, framework="trl", rank=rank, world_size=ranks,
            resumed_step=0,
        )  # fmt: skip

    def step(self, step: int, *, hangs: bool = False) -> None:
        """A step that begins at ten times its number, or its first five seconds."""
        at = 10.0 * step
        where: dict[str, Any] = {"session": 0, "step": step, "mode": "train"}
        batch, reward = self.next_span(), self.next_span()
        self.span(names.ROLLOUT, at, at + 5, parent=batch, **where)
        rank = self.number - 1
        self.event(
            names.TRAJECTORIES, at + 5, parent=batch, **where, batch=batch, ordinal=0,
            policy_version=step - 1, offset=4 * rank, total=4 * self.ranks, group_size=4,
            prompt_tokens=[10] * 4, response_tokens=[20, 30, 40, 50],
        )  # fmt: skip
        for function, begin, end in (("quick", at + 5, at + 5.2), ("slow", at + 5.2, at + 6.2)):
            if not hangs:
                self.span(
                    names.REWARD_FN, begin, end, parent=reward, batch=batch, function=function
                )
        if not hangs:
            self.span(names.REWARD, at + 5, at + 6.2, span=reward, parent=batch, **where)
            self.span(names.UPDATE_ACTOR, at + 6.2, at + 9.5, **where)
            self.span(names.STEP, at, at + 9.5, session=0, step=step)


def hung(folder: Path, until_s: float, hangs: bool = True) -> tuple[Path, Machine]:
    """A run of two ranks that was killed, and a machine on which nothing runs.

    Rank 1 was in the quick reward function of step 7 from second 75 on, and rank 0, which had ended
    it, waited for rank 1.
    """
    run = folder / "run"
    for rank in (0, 1):
        one = Rank(run, 1 + rank, header={"rank": rank, "world_size": 2})
        one.begin(rank)
        for step in range(1, 1 + STEPS):
            one.step(step)
        if hangs:
            one.step(STEPS + 1, hangs=True)
        one.close(end=not hangs)
        if hangs:
            slots = [(90, 70.0, "step", ""), (91, 75.0 - 0.5 * (rank == 0), "reward", "")]
            if rank == 1:
                slots.append((92, 75.1, "reward_fn", "quick"))
            one.open_table(*slots, parents={91: 90, 92: 91}, beat_s=until_s, step=STEPS + 1)
    (folder / "proc").mkdir()
    return run, fake_proc(folder / "proc")


class At(Machine):
    """This machine at a moment of the clock of a recording."""

    def __init__(self, proc: Path, s: float) -> None:
        super().__init__(proc)
        self._ns = MONO_NS + round(s * SECOND)

    def now_ns(self) -> int:
        return self._ns


def causes_of(run: Path, machine: Machine) -> tuple[list[Cause], dict[str, int]]:
    """Its causes, and GPU time of its ledger by category, ns."""
    with open_tables(run, machine=machine, threads=1) as tables:
        ledger = make_ledger(tables)
        assert ledger is not None
        return [one for one in find_causes(tables) if not one.natural], ledger.ns


def test_a_share_of_a_run_that_hung_is_of_all_its_time(tmp_path: Path) -> None:
    """Reward functions took a tenth of the steps that ended, and a hundredth of the run."""
    causes, _ = causes_of(*hung(tmp_path / "whole", 0.0, hangs=False))
    [slow] = [one for one in causes if one.kind == "slow_reward"]
    assert slow.where == {"function": "slow"}
    assert slow.share == pytest.approx(0.1, rel=0.05)
    causes, ns = causes_of(*hung(tmp_path / "hung", 675.0))
    assert sum(ns.values()) == 2 * 665 * 10**9
    assert [one for one in causes if one.kind == "slow_reward"] == []


def test_what_was_open_at_the_end_is_the_first_cause_with_the_time_of_the_ledger(
    tmp_path: Path,
) -> None:
    causes, ns = causes_of(*hung(tmp_path, 675.0))
    first, *others = causes
    assert (first.kind, first.where) == (
        "unfinished", {"rank": 1, "step": STEPS + 1, "function": "quick"}
    )  # fmt: skip
    assert first.title.startswith(
        "rank 1 was in reward function quick for 600 s, and the recording ends in it; it took"
        " 0.2 s before, in the median of 12: 90 % of "
    )
    # Both ranks waited, and what it takes by right is no loss.
    assert first.gpu_s == pytest.approx(2 * (675.0 - 75.1 - 0.2))
    assert first.share == pytest.approx(first.gpu_s * 1e9 / sum(ns.values()))
    assert ns["wait.reward"] == pytest.approx((2 * 600 + 12 * 1.2) * 1e9)
    assert others == []
    assert first.worst[0].startswith("rank 1 (process 1, pid 1002 on node-1) in reward function")


def test_who_was_ended_in_the_middle_of_what_takes_as_long_is_not_blamed(tmp_path: Path) -> None:
    """Three seconds in a stage of one second, by whoever ended it."""
    causes, ns = causes_of(*hung(tmp_path, 78.0))
    assert sum(ns.values()) == 2 * 68 * 10**9
    assert [one.kind for one in causes] == ["slow_reward"]


def test_a_rank_that_died_before_the_others_is_named_and_not_what_they_wait_in(
    tmp_path: Path,
) -> None:
    run, machine = hung(tmp_path, 675.0)
    # Rank 1 gave its last sign of life in the first second of what rank 0 then waits for.
    dead = Rank(tmp_path / "other", 2, header={"rank": 1, "world_size": 2})
    dead.folder = run
    slots = (90, 70.0, "step", ""), (91, 75.0, "reward", ""), (92, 75.1, "reward_fn", "quick")
    dead.open_table(*slots, parents={91: 90, 92: 91}, beat_s=75.2, step=STEPS + 1)
    first, *others = causes_of(run, machine)[0]
    assert first.title.startswith(
        "rank 1 died 600 s before the recording ends, in reward function quick, and no step ended"
        " after it: 90 % of "
    )
    assert first.where == {"rank": 1, "step": STEPS + 1, "function": "quick"}
    assert first.gpu_s == pytest.approx(2 * (675.0 - 75.2))
    assert others == []
    with open_tables(run, machine=machine, threads=1) as tables:
        blocks = lay_out_characterization(characterize(tables))
    lines = [one.text for one in blocks if isinstance(one, Line)]
    assert lines[lines.index("Why") + 1].startswith("1. rank 1 died 600 s before the recording")
    assert (
        "note: rank 1 and rank 0 died, as by a signal, and closed no journal: the first of them was"
        " last seen 75 s after its start, 600 s before the last sign of life of the recording"
    ) in lines
    # Where nobody can ask, that it gave no sign is all that is known.
    elsewhere = fake_proc(tmp_path / "elsewhere", boot="00000000-0000-4000-8000-000000000009")
    [first] = causes_of(run, elsewhere)[0]
    assert first.title.startswith("rank 1 was last seen 600 s before the recording ends, in reward")


def test_a_checkpoint_that_never_ends_after_its_step_is_in_the_ledger_and_named(
    tmp_path: Path,
) -> None:
    """No step is open in it, and none was written before."""
    run, machine = hung(tmp_path, 0.0, hangs=False)
    for rank in (0, 1):
        one = Rank(run, 1 + rank, header={"rank": rank, "world_size": 2})
        one.begin(rank)
        for step in range(1, 1 + STEPS):
            one.step(step)
        one.close(end=False)
        one.open_table((90, 69.5, "checkpoint", ""), beat_s=369.5, step=STEPS)
    causes, ns = causes_of(run, machine)
    assert sum(ns.values()) == 2 * 359.5e9
    assert ns["checkpoint"] == 2 * 300e9
    [first] = causes
    assert first.title.startswith(
        "rank 0 and rank 1 were in checkpoint for 300 s, and the recording ends in it; none had"
        " ended before: 83 % of "
    )
    assert first.where == {"rank": 0, "step": STEPS, "stage": "checkpoint"}


@pytest.mark.parametrize(("s", "named"), today.some([(8.0, False), (12.0, True)], 1))
def test_the_first_of_its_kind_is_compared_with_steps_while_it_runs(
    tmp_path: Path, s: float, named: bool
) -> None:
    """An evaluation of a training that goes on, after steps of 9.5 s."""
    one = Rank(tmp_path / "run", header={"rank": 0, "world_size": 1})
    one.begin(0, 1)
    for step in range(1, 1 + STEPS):
        one.step(step)
    one.close(end=False)
    one.open_table((90, 69.5, "eval", ""), beat_s=69.5 + s, step=STEPS)
    fake_proc(tmp_path / "proc", p1001=("S", 77))
    causes, ns = causes_of(tmp_path / "run", At(tmp_path / "proc", 69.5 + s))
    assert ns["eval"] == s * 1e9
    titles = [one.title for one in causes if one.kind == "unfinished"]
    assert [title.partition(";")[0] for title in titles] == (
        ["rank 0 is in eval for 12 s, until now"] if named else []
    )


def stepped(run: Path, rank: int = 0, ranks: int = 1) -> Rank:
    """A rank that ended its steps, the last one at second 69.5, half a second after each other."""
    one = Rank(run, 1 + rank, header={"rank": rank, "world_size": ranks})
    one.begin(rank, ranks)
    for step in range(1, 1 + STEPS):
        one.step(step)
    return one


@pytest.mark.parametrize("s", today.some([9.0, 119.0, 3_600.0], 1))
def test_a_run_that_hangs_between_two_steps_is_in_the_ledger_and_named(
    tmp_path: Path, s: float
) -> None:
    """As in a callback, of which no span tells; what is as rare as it is long is not blamed."""
    one = stepped(tmp_path / "run")
    one.close(end=False)
    one.open_table(beat_s=69.5 + s)
    machine = fake_machine(tmp_path)
    causes, ns = causes_of(tmp_path / "run", machine)
    assert sum(ns.values()) == (59.5 + s) * 1e9
    assert ns["bubble"] == pytest.approx((s + 0.5 * (STEPS - 1)) * 1e9)
    found = [one for one in causes if one.kind == "unfinished"]
    with open_tables(tmp_path / "run", machine=machine) as tables:
        made = characterize(tables)
    assert [note for note in made.notes if "s more after its last step" in note] == []
    lines = [one.text for one in lay_out_characterization(made) if isinstance(one, Line)]
    if s < 120:
        assert found == []
        [between] = [one for one in made.causes if one.kind == "slow_between_steps"]
        assert between.title.startswith("what lies between stages takes 0.5 s a step, up to ")
        assert between.gpu_s == pytest.approx(s + 2.5, rel=0.01)
        assert any(line.endswith(between.title) for line in lines)
        return
    [first] = found
    assert first.title.startswith(
        "rank 0 was in what no span covers between two steps for 3,600 s, and the recording ends in"
        " it; it took 0.5 s before, in the median of 5: 98 % of "
    )
    assert first.where == {"rank": 0, "step": STEPS, "stage": "between_steps"}
    assert first.gpu_s == pytest.approx(3_599.5)
    assert lines[lines.index("Why") + 1] == f"1. {first.title}"


def test_a_run_that_hangs_between_two_steps_does_so_until_now_while_it_runs(
    tmp_path: Path,
) -> None:
    """Its process is there, though it gives no sign of life: it may hold the interpreter's lock."""
    one = stepped(tmp_path / "run")
    one.close(end=False)
    one.open_table((90, 69.6, "user", "upload"), beat_s=70.0)
    fake_proc(tmp_path / "proc", p1001=("S", 77))
    causes, ns = causes_of(tmp_path / "run", At(tmp_path / "proc", 669.5))
    assert ns["bubble"] == pytest.approx((600 + 0.5 * (STEPS - 1)) * 1e9)
    [first] = [one for one in causes if one.kind == "unfinished"]
    # Inside of it is what somebody named.
    assert first.title.startswith("rank 0 is in span upload for 600 s, until now; none had ended")


def test_who_does_not_come_to_the_next_step_is_named_and_not_who_waits_for_it(
    tmp_path: Path,
) -> None:
    waits, hangs = (stepped(tmp_path / "run", rank, 2) for rank in (0, 1))
    for one in (waits, hangs):
        one.close(end=False)
    opened = (90, 70.0, "step", ""), (91, 70.0, "rollout", "")
    waits.open_table(*opened, parents={91: 90}, beat_s=669.5, step=STEPS + 1)
    hangs.open_table(beat_s=669.5)
    machine = fake_machine(tmp_path)
    first, *others = causes_of(tmp_path / "run", machine)[0]
    assert first.title.startswith("rank 1 was in what no span covers between two steps for 600 s")
    assert others == []
    hangs.open_table(beat_s=69.9)
    first, *others = causes_of(tmp_path / "run", machine)[0]
    assert first.title.startswith(
        "rank 1 died 600 s before the recording ends, in what no span covers between two steps, and"
        " no step ended after it"
    )
    assert others == []


@pytest.mark.parametrize(
    "how", today.some(["returned", "failed", "ended", "no_table", "before"], 1)
)
def test_time_after_the_last_step_of_which_nothing_is_proven_is_in_no_ledger(
    tmp_path: Path, how: str
) -> None:
    one = stepped(tmp_path / "run")
    if how == "returned":
        one.event(names.SESSION_END, 69.6, session=0, step=STEPS)
    elif how == "failed":
        where: dict[str, Any] = {"session": 0, "step": STEPS, "mode": "train"}
        one.span(names.CHECKPOINT, 69.5, 69.6, error="OSError", **where)
    elif how == "before":
        one.event(names.SESSION, 69.6, session=1, rank=0, world_size=1, resumed_step=0)
    one.close(end=how == "ended")
    if how != "no_table":
        one.open_table(beat_s=3_669.5)
    causes, ns = causes_of(tmp_path / "run", fake_machine(tmp_path))
    assert sum(ns.values()) == pytest.approx(59.5e9, abs=0.21e9)
    assert [one.kind for one in causes if one.kind == "unfinished"] == []


@pytest.mark.parametrize("steps", [0, STEPS])
def test_what_was_open_around_all_steps_holds_up_none(tmp_path: Path, steps: int) -> None:
    """As a mark that a user put around the whole training."""
    one = Rank(tmp_path / "run", header={"rank": 0, "world_size": 1})
    one.begin(0, 1)
    for step in range(1, 1 + steps):
        one.step(step)
    one.close(end=False)
    at = 10.0 * (steps + 1)
    slots = (90, 1.0, "user", "main"), (91, at, "step", ""), (92, at, "rollout", "")
    one.open_table(*slots, parents={91: 90, 92: 91}, beat_s=at + 9.9, step=steps + 1)
    causes, ns = causes_of(tmp_path / "run", fake_machine(tmp_path))
    assert sum(ns.values()) == (10 * steps + 9.9) * 1e9
    assert [one.kind for one in causes if one.kind == "unfinished"] == []


def test_a_rank_that_does_a_call_is_named_before_the_controller_that_made_it(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path / "run", 2)
    for number in range(1, 1 + STEPS):
        at = 10.0 * number
        job.step(
            number, at, at + 9,
            [("update", names.UPDATE_ACTOR, at, at + 9, {0: (at, at + 9), 1: (at, at + 9)})],
        )  # fmt: skip
    beat: dict[str, Any] = {"beat_s": 300.0}
    for one in (job.one, *job.ranks):
        one.close(end=False)
    slots = (990, 70.0, "step", ""), (991, 70.0, "update_actor", ""), (992, 70.0, "rpc", "update")
    job.one.open_table(*slots, parents={991: 990, 992: 991}, step=STEPS + 1, **beat)
    job.ranks[0].open_table(**beat)
    job.ranks[1].open_table((990, 70.0, "rpc", "update"), **beat)
    machine = fake_machine(tmp_path)
    first, *others = causes_of(tmp_path / "run", machine)[0]
    assert first.title.startswith("rank 1 was in call update for 230 s, and the recording ends")
    assert first.where == {"rank": 1, "step": STEPS + 1, "stage": "update"}
    assert others == []
    # What calls of other methods took says nothing of one that was never made before.
    job.ranks[1].open_table((990, 70.0, "rpc", "save"), **beat)
    first, *_ = causes_of(tmp_path / "run", machine)[0]
    assert first.title.startswith(
        "rank 1 was in call save for 230 s, and the recording ends in it; none had ended before"
    )
