"""Who was ended with the run, and who died: what a recording proves of either.

Ray kills the processes of a job when it ends. In each job here a controller does two steps, the
second from 10 s to 20 s; only who ``closes`` has closed its journal.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.analysis.finding import standing_of
from rlvr_probe.model import names
from rlvr_probe.recording import read_run
from rlvr_probe.recording.follow.activity import Activity
from rlvr_probe.recording.process_state import Machine
from rlvr_probe.report import render
from tests.journals import BOOT, JournalFile, fake_proc, key
from tests.summarized import summary_of

DRIVER, CONTROLLER = "driver", "TaskRunner"
LIVES = "lives"
RETURNS, STOPS, RAISES, CUT = "returns", "stops", "raises", "is cut"


@dataclass
class Job:
    """Processes by name, each with when it was last seen, s; None if it closed its journal.

    Attributes:
        training: How it ends: it returns, stops after a step, raises in one, or is cut in one.
        evaluates: How the evaluation ends that follows until 30 s; none if empty.
        tables: Whether there are tables of open spans, which tell when a process was last seen.
        roles: Role of a process where it is not its name.
        owners: Who started a process, where that is not the driver.
        again: The controller begins another training at the end of this one.
        apart: The controller runs on another machine.
        left_s: When the driver left, half a second after it began to; None if that was not seen.
        read_on: Boot id of the machine that reads it: another one than where it was recorded.
    """

    folder: Path
    training: str = RETURNS
    evaluates: str = ""
    tables: bool = True
    roles: Mapping[str, str] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)
    again: bool = False
    apart: bool = False
    left_s: float | None = None
    read_on: str = BOOT

    def states(self, **seen: float | str | None) -> dict[str, str]:
        """Write it; the state of every process."""
        run = self.folder / "run"
        numbers = {name: number for number, name in enumerate(seen, 1)}
        for name, last in seen.items():
            self._write(run, name, numbers, last)
        alive = {f"p{1000 + numbers[name]}": ("S", 77) for name in seen if seen[name] == LIVES}
        machine = fake_proc(self.folder / "proc", self.read_on, **alive)
        by_key = {
            process.key: process.state for process in read_run(run, machine=machine).processes
        }
        return {name: by_key[key(number)] for name, number in numbers.items()}

    def _write(
        self, run: Path, name: str, numbers: Mapping[str, int], last: float | str | None
    ) -> None:
        owner = self.owners.get(name, DRIVER)
        header = {"owner": key(numbers[owner])} if name != DRIVER and owner in numbers else {}
        if self.apart and name == CONTROLLER:
            header |= {"boot": "other", "host": "node-2"}
        journal = JournalFile(run, numbers[name], header=header)
        role = self.roles.get(name, name)
        if role:
            journal.event(names.PROCESS, 0.1, role=role)
        if role == DRIVER and self.left_s is not None:
            journal.event(names.LEFT, self.left_s, since_s=0.5)
        opened = self._train(journal) if name == CONTROLLER else []
        journal.close(end=last is None)
        if self.tables:
            beat_s = last if isinstance(last, float) else 100.0
            journal.open_table(*opened, beat_s=beat_s, ended=last is None)

    def _train(self, journal: JournalFile) -> list[tuple[int, float, str, str]]:
        where: dict[str, Any] = {"session": 0, "step": 2}
        journal.event(names.SESSION, 1.0, session=0, framework="verl", rank=0, world_size=1)
        journal.span(names.STEP, 2.0, 10.0, session=0, step=1)
        journal.span(names.REWARD_FN, 11.0, 12.0, error="TimeoutError", **where, function="math")
        if self.training == CUT:
            return [(90, 10.0, "step", "")]
        error = "ActorDiedError" if self.training == RAISES else None
        journal.span(names.UPDATE_ACTOR, 15.0, 20.0, error=error, **where, mode="train")
        journal.span(names.STEP, 10.0, 20.0, error=error, **where)
        if self.training in (STOPS, RAISES):
            return []
        journal.event(names.SESSION_END, 20.0, **where)
        if self.again:
            journal.event(names.SESSION, 20.0, session=1, framework="verl", rank=0, world_size=1)
        if self.evaluates == CUT:
            return [(91, 20.0, "eval", "")]
        if self.evaluates:
            error = "ActorDiedError" if self.evaluates == RAISES else None
            journal.span(names.EVAL, 20.0, 30.0, error=error, **where, mode="eval")
        return []


def shown(folder: Path, machine: Machine) -> str:
    drawn = io.StringIO()
    render(summary_of(folder, machine=machine), drawn)
    return drawn.getvalue()


ENDED = "ended_with_training"


def test_of_a_job_that_ray_ended_in_order_nobody_died(tmp_path: Path) -> None:
    # Of ranks, the last sign of life may be a moment older than the end.
    states = Job(tmp_path).states(driver=None, TaskRunner=20.3, rank_0=20.1, rank_1=19.9, task=24.0)
    assert states == {"driver": "exited"} | dict.fromkeys(
        ("TaskRunner", "rank_0", "rank_1", "task"), ENDED
    )
    drawn = shown(tmp_path / "run", Machine(tmp_path / "proc"))
    assert "5 processes: 4 ended with the run, 1 exited" in drawn
    assert "died" not in drawn


def test_nor_where_the_controller_closed_its_journal(tmp_path: Path) -> None:
    states = Job(tmp_path, evaluates=RETURNS).states(driver=None, TaskRunner=None, rank=30.1)
    assert states == {"driver": "exited", "TaskRunner": "exited", "rank": ENDED}


@pytest.mark.parametrize(("controller", "expected"), [(None, "exited"), (20.4, ENDED)])
def test_a_rank_that_was_killed_is_told_from_those_that_its_training_took_with_it(
    tmp_path: Path, controller: float | None, expected: str
) -> None:
    # The controller learns of it at once: no moment is too short.
    states = Job(tmp_path, RAISES).states(
        driver=None, TaskRunner=controller, rank_0=19.98, rank_1=20.2
    )
    assert states == {
        "driver": "exited", "TaskRunner": expected, "rank_0": "died", "rank_1": ENDED,
    }  # fmt: skip
    assert ": 1 died, " in shown(tmp_path / "run", Machine(tmp_path / "proc"))


def test_of_a_training_that_was_stopped_only_those_after_its_last_work_are_known_to_be_ended(
    tmp_path: Path,
) -> None:
    states = Job(tmp_path, STOPS).states(driver=None, TaskRunner=None, a=19.9, b=20.2)
    assert (states["a"], states["b"]) == ("died", ENDED)


@pytest.mark.parametrize("driver", [None, 16.0])
def test_whom_a_driver_takes_with_it_did_not_die(tmp_path: Path, driver: float | None) -> None:
    # Ctrl-C: 0.5 s later the driver disconnects, and Ray ends what is left of the job.
    job = Job(tmp_path, CUT, left_s=15.5)
    states = job.states(driver=driver, TaskRunner=15.4, rank_0=15.6, rank_1=15.1, helper=14.9)
    assert states == {
        "driver": "exited" if driver is None else "died",
        **dict.fromkeys(("TaskRunner", "rank_0", "rank_1"), ENDED),
        "helper": "died",
    }


def test_who_outlived_its_driver_was_not_taken_with_it(tmp_path: Path) -> None:
    states = Job(tmp_path, CUT, left_s=15.5).states(driver=None, TaskRunner=60.0, rank=61.0)
    assert states == {"driver": "exited", "TaskRunner": "died", "rank": "died"}


def test_on_another_machine_nobody_knows_who_left_first(tmp_path: Path) -> None:
    job = Job(tmp_path, CUT, left_s=15.5, apart=True)
    assert job.states(driver=None, TaskRunner=15.4)["TaskRunner"] == "unknown"


@pytest.mark.parametrize("training", [RETURNS, CUT])
def test_on_which_machine_it_is_read_is_nothing_to_a_job_whose_driver_left(
    tmp_path: Path, training: str
) -> None:
    job = Job(tmp_path, training, left_s=20.1, read_on="other")
    states = job.states(driver=None, TaskRunner=20.3, rank=20.2, helper=12.0)
    assert states == {
        "driver": "exited", "TaskRunner": ENDED, "rank": ENDED, "helper": "unknown",
    }  # fmt: skip
    with closing(Activity(tmp_path / "run", Machine(tmp_path / "proc"))) as activity:
        members = activity.read()
    told = standing_of([member for member in members if member.role != "helper"], [], 0).states
    assert told == {"ended": 2, "exited": 1}


def test_of_a_job_whose_driver_may_run_elsewhere_nobody_knows(tmp_path: Path) -> None:
    states = Job(tmp_path, read_on="other").states(driver=20.4, TaskRunner=20.3, rank=20.3)
    assert set(states.values()) == {"unknown"}


def test_who_is_gone_while_the_training_goes_on_died(tmp_path: Path) -> None:
    states = Job(tmp_path).states(driver=None, TaskRunner=None, rank=20.1, helper=12.0)
    assert states == {"driver": "exited", "TaskRunner": "exited", "rank": ENDED, "helper": "died"}


def test_a_controller_that_is_killed_died_and_those_that_outlive_it_did_not(tmp_path: Path) -> None:
    states = Job(tmp_path, CUT).states(driver=None, TaskRunner=15.0, rank=17.5)
    assert states == {"driver": "exited", "TaskRunner": "died", "rank": ENDED}


def test_of_those_killed_at_once_all_died(tmp_path: Path) -> None:
    states = Job(tmp_path, CUT).states(driver=15.1, TaskRunner=15.0, rank=15.2)
    assert set(states.values()) == {"died"}


def test_a_driver_that_is_killed_after_the_training_died_alone(tmp_path: Path) -> None:
    states = Job(tmp_path).states(driver=21.0, TaskRunner=21.1, rank=21.1)
    assert states == {"driver": "died", "TaskRunner": ENDED, "rank": ENDED}


def test_in_a_job_that_runs_who_is_gone_died(tmp_path: Path) -> None:
    states = Job(tmp_path, CUT).states(driver=LIVES, TaskRunner=LIVES, rank_0=LIVES, rank_1=17.0)
    running = dict.fromkeys(("driver", "TaskRunner", "rank_0"), "running")
    assert states == {**running, "rank_1": "died"}


def test_a_rank_that_is_killed_in_the_evaluation_after_the_last_step_died(tmp_path: Path) -> None:
    states = Job(tmp_path, evaluates=RAISES).states(driver=None, TaskRunner=None, a=29.5, b=30.2)
    assert (states["a"], states["b"]) == ("died", ENDED)


def test_a_controller_that_is_killed_in_that_evaluation_died(tmp_path: Path) -> None:
    states = Job(tmp_path, evaluates=CUT).states(driver=None, TaskRunner=25.0, rank=25.1)
    assert states == {"driver": "exited", "TaskRunner": "died", "rank": "died"}


def test_a_controller_that_is_killed_in_its_next_training_died(tmp_path: Path) -> None:
    states = Job(tmp_path, again=True).states(driver=None, TaskRunner=20.3, rank=20.3)
    assert states == {"driver": "exited", "TaskRunner": "died", "rank": "died"}


def test_what_an_actor_started_ends_with_it_and_what_the_driver_started_does_not(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path, roles={"engine": "", "tool": ""}, owners={"engine": "server"})
    states = job.states(driver=None, TaskRunner=None, server=20.2, engine=20.2, tool=20.2)
    assert (states["server"], states["engine"], states["tool"]) == (ENDED, ENDED, "died")


def test_a_training_without_a_job_around_it_that_is_killed_died(tmp_path: Path) -> None:
    states = Job(tmp_path, roles={CONTROLLER: "", "rank": ""}).states(TaskRunner=20.3, rank=20.3)
    assert states == {"TaskRunner": "died", "rank": "died"}


def test_of_a_job_without_a_training_nothing_says_when_it_was_over(tmp_path: Path) -> None:
    states = Job(tmp_path).states(driver=None, Counter=20.0)
    assert states == {"driver": "exited", "Counter": "died"}


@pytest.mark.parametrize(("training", "expected"), [(RETURNS, "unknown"), (RAISES, "died")])
def test_without_a_sign_of_life_it_is_unknown_how_long_a_process_was_there(
    tmp_path: Path, training: str, expected: str
) -> None:
    states = Job(tmp_path, training, tables=False).states(driver=None, TaskRunner=None, rank=20.1)
    assert states["rank"] == expected


@pytest.mark.parametrize(("training", "expected"), [(RETURNS, ENDED), (RAISES, "died")])
def test_moments_of_two_machines_do_not_tell_who_left_first(
    tmp_path: Path, training: str, expected: str
) -> None:
    states = Job(tmp_path, training, apart=True).states(driver=None, TaskRunner=None, rank=20.2)
    assert states["rank"] == expected


def test_of_many_processes_show_names_those_that_died_first(tmp_path: Path) -> None:
    ranks = {f"rank_{number:02}": 20.1 for number in range(30)} | {"rank_17": 12.0}
    Job(tmp_path).states(driver=None, TaskRunner=None, **ranks)
    drawn = shown(tmp_path / "run", Machine(tmp_path / "proc"))
    assert "32 processes: 1 died, 29 ended with the run, 2 exited" in drawn
    table = drawn[drawn.index("\nProcesses\n") :].splitlines()
    assert table[3].split()[:4] == ["19", "rank_17", "1020", "died"]
