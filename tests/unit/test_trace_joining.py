"""Attempts, clocks and open spans: what belongs together, when it was, what never ended."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.model import names
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from rlvr_probe.workload import build_workload
from tests.journals import BOOT, EPOCH_NS, SECOND, JournalFile, Training, fake_proc


def rank(
    folder: Path,
    number: int,
    *,
    start_s: float = 0.0,
    rank: int = 0,
    ranks: int = 1,
    steps: range = range(1, 4),
    unfinished: int | None = None,
    end: bool = True,
    resumed: int = 0,
    step_s: float = 1.0,
    **header: Any,
) -> Training:
    """One rank that did ``steps``, perhaps killed inside one more."""
    journal = JournalFile(folder, number, start_s=start_s, header=header)
    training = Training(journal, rank=rank, ranks=ranks, step_s=step_s)
    training.begin(resumed_step=resumed)
    for step in steps:
        training.step(step)
    if unfinished is not None:
        training.step(unfinished, finish=False)
    journal.close(end=end)
    return training


def steps(trace: Trace) -> list[tuple[int, int]]:
    return [(step.attempt, step.number) for step in trace.steps() if step.started]


def test_a_resumed_attempt_supersedes_what_was_done_after_its_checkpoint(tmp_path: Path) -> None:
    for number in (0, 1):
        rank(tmp_path, 1 + number, rank=number, ranks=2, steps=range(1, 5), unfinished=5, end=False)
        rank(tmp_path, 11 + number, rank=number, ranks=2, steps=range(4, 7), resumed=3,
             start_s=60, job="job-2")  # fmt: skip
    trace = read_run(tmp_path)
    assert steps(trace) == [(0, 1), (0, 2), (0, 3), (1, 4), (1, 5), (1, 6)]
    assert [(step.number, step.superseded_by) for step in trace.redone] == [(4, 1), (5, 1)]
    assert not any(attempt.concurrent for attempt in trace.attempts)


def test_a_step_thrown_away_by_a_resume_is_superseded_even_if_it_was_not_reached_again(
    tmp_path: Path,
) -> None:
    rank(tmp_path, 1, steps=range(1, 6), end=False)
    rank(tmp_path, 2, steps=range(4, 5), resumed=3, start_s=60, job="job-2", end=False)
    rank(tmp_path, 3, steps=range(4, 7), resumed=3, start_s=120, job="job-3")
    trace = read_run(tmp_path)
    assert [(s.attempt, s.number, s.superseded_by) for s in trace.redone] == [
        (0, 4, 1),
        (0, 5, 1),
        (1, 4, 2),
    ]
    assert steps(trace) == [(0, 1), (0, 2), (0, 3), (2, 4), (2, 5), (2, 6)]


def test_an_attempt_that_did_no_step_throws_nothing_away(tmp_path: Path) -> None:
    rank(tmp_path, 1, steps=range(1, 6), end=False)
    rank(tmp_path, 2, steps=range(0), resumed=3, start_s=60, job="job-2", end=False)
    trace = read_run(tmp_path)
    assert (len(trace.attempts), trace.redone) == (2, [])


def test_two_jobs_at_once_are_kept_apart_and_noted(tmp_path: Path) -> None:
    rank(tmp_path, 1)
    rank(tmp_path, 2, start_s=1.0, job="job-2")
    trace = read_run(tmp_path)
    assert [attempt.concurrent for attempt in trace.attempts] == [True, True]
    assert trace.redone == []
    assert steps(trace) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]
    assert trace.notes[0].startswith("two jobs ran at the same time under one run id")


def test_one_rank_twice_at_once_in_a_job_of_one_rank_is_two_attempts(tmp_path: Path) -> None:
    rank(tmp_path, 1)
    rank(tmp_path, 2, start_s=0.5)
    trace = read_run(tmp_path)
    assert [(attempt.concurrent, attempt.mixed) for attempt in trace.attempts] == [
        (True, False)
    ] * 2


def test_one_rank_twice_at_once_in_a_job_of_several_cannot_be_told_apart(tmp_path: Path) -> None:
    for number in range(4):
        rank(tmp_path, number + 1, rank=number % 2, ranks=2, start_s=0.1 * number)
    trace = read_run(tmp_path)
    assert all(attempt.mixed for attempt in trace.attempts)
    assert trace.notes[0].startswith("two processes claim the same rank")


def test_a_restart_inside_one_launch_continues_its_training(tmp_path: Path) -> None:
    for number in (0, 1):
        rank(tmp_path, 1 + number, rank=number, ranks=2, steps=range(1, 4), end=False)
        rank(tmp_path, 3 + number, rank=number, ranks=2, steps=range(3, 5), resumed=2, start_s=9)
    trace = read_run(tmp_path)
    assert steps(trace) == [(0, 1), (0, 2), (1, 3), (1, 4)]
    assert [attempt.lineage for attempt in trace.attempts] == [0, 0]


def test_a_second_training_of_one_script_supersedes_nothing(tmp_path: Path) -> None:
    rank(tmp_path, 1, steps=range(1, 3))
    rank(tmp_path, 2, steps=range(1, 4), start_s=200)
    trace = read_run(tmp_path)
    assert (len(trace.redone), len(steps(trace))) == (0, 5)
    assert [attempt.lineage for attempt in trace.attempts] == [0, 1]


def test_a_training_from_scratch_after_one_that_returned_is_another_one(tmp_path: Path) -> None:
    for number, returned in ((1, True), (2, False), (3, False)):
        journal = JournalFile(tmp_path, number, start_s=60.0 * number)
        journal.header["job"] = f"job-{number}"
        training = Training(journal)
        training.begin()
        training.step(1)
        if returned:
            journal.event(names.SESSION_END, 3.0, session=0, step=1)
        journal.close()
    trace = read_run(tmp_path)
    assert [attempt.lineage for attempt in trace.attempts] == [0, 1, 1]
    assert [(step.attempt, step.superseded_by) for step in trace.redone] == [(1, 2)]


def test_a_step_known_only_from_the_open_span_table_was_begun(tmp_path: Path) -> None:
    rank(tmp_path, 1, steps=range(1, 5), end=False)
    journal = JournalFile(tmp_path, 1)
    journal.open_table((99, 50.0, "step", ""), beat_s=51.0, step=5)
    rank(tmp_path, 2, steps=range(4, 7), resumed=3, start_s=60, job="job-2")
    trace = read_run(tmp_path)
    assert [(step.number, step.complete) for step in trace.redone] == [(4, True), (5, False)]


def test_two_trainings_of_one_process_are_two_sessions(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    for session in (0, 1):
        training.session = session
        training.ordinals.clear()
        training.begin()
        training.step(1)
    training.journal.close()
    [attempt] = read_run(tmp_path).attempts
    assert [(step.session, step.number) for step in attempt.steps] == [(0, 1), (1, 1)]


def test_a_process_may_go_back_to_a_checkpoint_without_a_restart(tmp_path: Path) -> None:
    for number in (0, 1):
        training = Training(JournalFile(tmp_path, 1 + number), rank=number, ranks=2)
        training.begin()
        for step in (1, 2, 3, 4):
            training.step(step)
        training.ordinals.clear()
        training.begin(resumed_step=2)
        for step in (3, 4, 5):
            training.step(step)
        training.journal.close()
    trace = read_run(tmp_path)
    assert trace.lost == {}
    assert [(step.life, step.number) for step in trace.redone] == [(0, 3), (0, 4)]
    assert [(step.life, step.number) for step in trace.steps()] == [
        (0, 1),
        (0, 2),
        (1, 3),
        (1, 4),
        (1, 5),
    ]
    for attempt in (None, 0):
        workload = build_workload(trace, attempt=attempt)
        assert [taken.batch.step for taken in workload.batches] == [1, 2, 3, 4, 5]
        assert [iteration.steps for iteration in workload.iterations] == [
            (1,),
            (2,),
            (3,),
            (4,),
            (5,),
        ]


def test_a_process_that_did_not_train_joins_its_owner_its_parent_or_the_only_job_at_the_time(
    tmp_path: Path,
) -> None:
    training = rank(tmp_path, 1)
    owned = JournalFile(
        tmp_path, 2, header={"job": "x", "owner": training.journal.header["process"]}
    )
    child = JournalFile(tmp_path, 3, header={"job": "y", "ppid": 1001})
    beside = JournalFile(tmp_path, 4, start_s=1.0, header={"job": "z"})
    for journal in (owned, child, beside):
        journal.span(names.USER, 0.1, 0.2, label="worker")
        journal.close()
    [attempt] = read_run(tmp_path).attempts
    assert attempt.processes == [0, 1, 2, 3]


def test_a_recording_without_training_has_an_attempt_without_steps(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    journal.span(names.USER, 1.0, 2.0, label="mine")
    journal.close()
    [attempt] = read_run(tmp_path).attempts
    assert (attempt.steps, attempt.processes) == ([], [0])


def test_rows_that_two_processes_claim_are_not_merged(tmp_path: Path) -> None:
    first = Training(JournalFile(tmp_path, 1), ranks=2)
    second = Training(JournalFile(tmp_path, 2), ranks=2)
    for number, training in enumerate((first, second)):
        training.begin(rank=number)
        training.step(1)
        training.journal.close()
    trace = read_run(tmp_path)
    [step] = trace.steps()
    assert (step.batches[0].rows, step.complete) == (8, False)
    assert trace.lost == {"overlapping_rows": 1}


def test_journals_of_one_boot_share_one_clock(tmp_path: Path) -> None:
    rank(tmp_path, 1, steps=range(1, 2))
    # Its wall clock was stepped by an hour in between; CLOCK_MONOTONIC was not.
    rank(tmp_path, 2, start_s=10, steps=range(2, 3), resumed=1, job="job-2",
         epoch_ns=EPOCH_NS + 3600 * SECOND)  # fmt: skip
    trace = read_run(tmp_path)
    assert [process.start_ns for process in trace.processes] == [0, 10 * SECOND]
    assert trace.notes == []


@pytest.mark.parametrize("apart_s", [-3.0, 3.0])
def test_wall_clocks_of_two_machines_apart_are_corrected_by_common_steps(
    tmp_path: Path, apart_s: float
) -> None:
    rank(tmp_path, 1, rank=0, ranks=2)
    rank(tmp_path, 2, rank=1, ranks=2, boot="other", host="node-2", mono_ns=123,
         epoch_ns=EPOCH_NS + round(apart_s * SECOND))  # fmt: skip
    trace = read_run(tmp_path)
    starts = sorted(process.start_ns for process in trace.processes)
    assert starts[0] == 0
    assert 0 <= starts[1] <= SECOND
    assert min(span.start_ns for step in trace.steps() for span in step.spans) >= 0
    # Whichever clock is behind is that of the run; a step of the other is put 2 s earlier.
    assert [process.corrected_s for process in trace.processes] == pytest.approx(
        [0.0, -2.0], abs=0.05
    )
    assert any("were at least 2.0 s apart" in note for note in trace.notes)
    assert any("not resolved" in note for note in trace.notes)


@pytest.mark.parametrize(
    ("processes", "boot", "expected"),
    [
        ({"p1001": ("R", 77)}, BOOT, "running"),
        ({"p1001": ("Z", 77)}, BOOT, "died"),
        ({"p1001": ("R", 78)}, BOOT, "died"),
        ({}, BOOT, "died"),
        ({"p1001": ("R", 77)}, "another", "unknown"),
    ],
)
def test_the_state_of_a_process_comes_from_its_start_in_proc(
    tmp_path: Path, processes: dict[str, tuple[str, int]], boot: str, expected: str
) -> None:
    rank(tmp_path / "run", 1, end=False)
    machine = fake_proc(tmp_path / "proc", boot, **processes)
    [process] = read_run(tmp_path / "run", machine=machine).processes
    assert process.state == expected


def test_a_running_process_has_no_torn_line_only_one_being_written(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "run")
    journal.close(b"[1,2", end=False)
    machine = fake_proc(tmp_path / "proc", p1001=("S", 77))
    assert read_run(tmp_path / "run", machine=machine).lost == {}


def test_open_spans_are_those_of_the_table_that_did_not_finish(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    journal.span(names.ROLLOUT, 1.0, 2.0, span=5)
    turn = journal.definition(names.TURN, ["batch"])
    journal.row("open", turn, 2 * SECOND, 6, 5)
    journal.row("open", turn, 2 * SECOND, 7, 5)
    journal.span(names.TURN, 2.0, 4.0, span=6, batch=1)
    journal.close(end=False)
    journal.open_table(
        (5, 1.0, "rollout", ""), (8, 3.0, "reward_fn", "accuracy"), beat_s=13.0, step=2
    )
    assert [
        (span.id, span.name, span.detail, span.step, span.age_s)
        for span in read_run(tmp_path).open_spans
    ] == [(7, "turn", "", None, 11.0), (8, "reward_fn", "accuracy", 2, 10.0)]


def test_an_open_span_of_a_running_process_is_open_until_now(tmp_path: Path) -> None:
    now = time.monotonic_ns()
    journal = JournalFile(tmp_path / "run", header={"mono_ns": now - 10 * SECOND})
    journal.close(end=False)
    journal.open_table((1, 0.0, "step", ""), beat_s=4.0)
    machine = fake_proc(tmp_path / "proc", p1001=("D", 77))
    trace = read_run(tmp_path / "run", machine=machine)
    assert trace.open_spans[0].age_s == pytest.approx(10.0, abs=5.0)
    assert trace.processes[0].silent_s == pytest.approx(6.0, abs=5.0)


def test_a_damaged_table_is_noted(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    journal.close(end=False)
    path = journal.open_table((1, 0.0, "\x1b[2J", ""), (2, 0.0, "step", ""), overflow=3)
    trace = read_run(tmp_path)
    assert [span.name for span in trace.open_spans] == ["step"]
    assert trace.notes == [
        "3 spans found no free slot in the table of open spans",
        "1 slots of the table of open spans are unreadable",
    ]
    path.write_bytes(b"short")
    assert read_run(tmp_path).open_spans == []


def test_times_count_from_the_start_of_the_first_process(tmp_path: Path) -> None:
    rank(tmp_path, 1, start_s=5.0)
    journal = JournalFile(tmp_path, 2, start_s=4.0)
    journal.close()
    trace = read_run(tmp_path)
    assert [process.start_ns for process in trace.processes] == [0, SECOND]
