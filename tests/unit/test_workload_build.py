"""What of a run becomes a workload, what is left out, and which steps a batch feeds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.exceptions import WorkloadError
from rlvr_probe.model import names
from rlvr_probe.model.workload import LeftOut, Workload
from rlvr_probe.recording import read_run
from rlvr_probe.workload import build, build_workload
from rlvr_probe.workload.fed_steps import Reuse, fed_steps, linked
from rlvr_probe.workload.notes import REASONS, why_nothing
from tests.by_hand import tables_of
from tests.journals import EPOCH_NS, SECOND, JournalFile, Training, simple_run
from tests.summarized import summary_of


def workload(folder: Path, attempt: int | None = None) -> Workload:
    return build_workload(read_run(folder), attempt=attempt)


def left_out(found: Workload) -> list[tuple[str, str, int | None, int]]:
    return [(one.what, one.reason, one.step, one.count) for one in found.left_out]


def test_a_finished_run_becomes_one_batch_and_iteration_per_step(tmp_path: Path) -> None:
    simple_run(tmp_path, ranks=2, steps=3)
    found = workload(tmp_path)
    assert [(one.index, one.batch.step, dict(one.ranks)) for one in found.batches] == [
        (0, 1, {0: 0, 1: 1}),
        (1, 2, {0: 0, 1: 1}),
        (2, 3, {0: 0, 1: 1}),
    ]
    assert [(one.batches, one.steps) for one in found.iterations] == [
        ((0,), (1,)),
        ((1,), (2,)),
        ((2,), (3,)),
    ]
    assert found.iterations[0].stage_s == {
        "step": 1.0,
        "rollout": 0.25,
        "reward": 0.25,
        "update_actor": 0.5,
    }
    assert (found.framework, found.algorithm, found.world_size) == ("trl", "grpo", 2)
    assert (found.group_size, found.max_response_tokens, found.rollout_tp) == (4, 64, 1)
    assert (found.reward_functions, found.left_out, found.lost_records) == (("accuracy",), (), 0)


def test_a_batch_counts_its_times_from_its_first_rollout(tmp_path: Path) -> None:
    simple_run(tmp_path, ranks=2, steps=1)
    assert workload(tmp_path).batches[0].origin_ns == {0: 500_000_000, 1: 500_000_000}


def test_no_time_is_made_up_between_machines_whose_clocks_differ(tmp_path: Path) -> None:
    for number, epoch_s in ((1, 0), (2, 3)):
        header = {
            "boot": f"{number}",
            "host": f"node-{number}",
            "epoch_ns": EPOCH_NS + epoch_s * SECOND,
        }
        training = Training(JournalFile(tmp_path, number, header=header), rank=number - 1, ranks=2)
        # Steps too long to tell clocks 3 s apart from ranks that are not in step.
        training.step_s = 20.0
        training.begin()
        training.step(1)
        training.journal.close()
    trace = read_run(tmp_path)
    assert any("below" in note and "not resolved" in note for note in trace.notes)
    [taken] = build_workload(trace).batches
    starts = {shard.process: shard.start_ns for shard in taken.batch.shards}
    assert starts == taken.origin_ns
    [step] = trace.steps()
    assert step.stage_seconds("rollout") == {0: 5.0, 1: 5.0}


def test_stage_times_are_those_of_the_slowest_rank(tmp_path: Path) -> None:
    for rank, step_s in ((0, 1.0), (1, 2.0)):
        training = Training(JournalFile(tmp_path, rank + 1), rank=rank, ranks=2, step_s=step_s)
        training.begin()
        training.step(1)
        training.journal.close()
    assert workload(tmp_path).iterations[0].stage_s["step"] == 2.0


def test_an_unfinished_step_is_left_out_with_its_count(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin()
    training.step(1)
    training.step(2, finish=False)
    training.journal.close(end=False)
    found = workload(tmp_path)
    assert [one.batch.step for one in found.batches] == [1]
    assert left_out(found) == [("step", "incomplete", 2, 8)]


def test_a_step_that_one_rank_did_not_finish_is_left_out(tmp_path: Path) -> None:
    for rank in (0, 1):
        training = Training(JournalFile(tmp_path, rank + 1), rank=rank, ranks=2)
        training.begin()
        training.step(1)
        training.step(2, finish=rank == 0)
        training.journal.close(end=False)
    assert left_out(workload(tmp_path)) == [("step", "incomplete", 2, 16)]


def test_a_step_with_lost_lengths_is_left_out_as_such(tmp_path: Path) -> None:
    for rank in (0, 1):
        training = Training(JournalFile(tmp_path, rank + 1), rank=rank, ranks=2)
        training.begin()
        training.step(1, generate=rank == 0)
        training.step(2)
        training.journal.close()
    found = workload(tmp_path)
    assert [one.batch.step for one in found.batches] == [2]
    assert left_out(found) == [("step", "lost_records", 1, 8)]


def test_a_step_done_again_is_there_once(tmp_path: Path) -> None:
    for number, job, resumed, steps in ((1, "a", 0, range(1, 6)), (2, "b", 3, range(4, 7))):
        training = Training(JournalFile(tmp_path, number, start_s=99.0 * number))
        training.journal.header["job"] = job
        training.begin(resumed_step=resumed)
        for step in steps:
            training.step(step)
        training.journal.close(end=number == 2)
    found = workload(tmp_path)
    assert [one.batch.step for one in found.batches] == [1, 2, 3, 4, 5, 6]
    assert {one.session for one in found.batches} == {0}
    assert left_out(found) == [("step", "superseded", 4, 8), ("step", "superseded", 5, 8)]
    alone = workload(tmp_path, attempt=0)
    assert [one.batch.step for one in alone.batches] == [1, 2, 3, 4, 5]
    assert left_out(alone) == [("attempt", "not_chosen", None, 24)]


def test_evaluation_is_left_out_and_listed(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin()
    training.evaluate(0)
    training.step(1)
    training.evaluate(1)
    training.journal.close()
    found = workload(tmp_path)
    assert [one.batch.mode for one in found.batches] == ["train"]
    assert left_out(found) == [
        ("evaluation", "evaluation", 0, 8),
        ("evaluation", "evaluation", 1, 8),
    ]


def test_one_batch_that_feeds_two_steps_is_one_iteration(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin(steps_per_generation=2, iterations=1, accumulation=1)
    for step in range(1, 5):
        training.step(step, generate=step % 2 == 1)
    training.journal.close()
    found = workload(tmp_path)
    assert [(one.batches, one.steps) for one in found.iterations] == [
        ((0,), (1, 2)),
        ((1,), (3, 4)),
    ]
    assert found.iterations[0].stage_s["step"] == pytest.approx(2.0)
    assert found.left_out == ()


def test_several_batches_of_one_step_are_one_iteration(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin(accumulation=2)
    for step in (1, 2):
        training.generate(step)
        training.step(step)
    training.journal.close()
    found = workload(tmp_path)
    assert [(one.batches, one.steps) for one in found.iterations] == [
        ((0, 1), (1,)),
        ((2, 3), (2,)),
    ]


def test_a_whole_batch_stays_if_a_later_step_it_feeds_was_not_done(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin(steps_per_generation=2)
    training.step(1)
    where: dict[str, Any] = {"session": 0, "step": 2, "mode": "train"}
    training.journal.span(names.UPDATE_ACTOR, 2.0, 2.1, **where)
    training.journal.close(end=False)
    found = workload(tmp_path)
    assert [(one.batches, one.steps) for one in found.iterations] == [((0,), (1,))]
    assert left_out(found) == [("step", "incomplete", 2, 0)]


def test_a_step_that_trained_on_a_batch_that_is_gone_is_left_out(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin()
    training.step(1, generate=False)
    training.step(2)
    training.journal.close()
    assert left_out(workload(tmp_path)) == [("step", "no_batch", 1, 0)]


def test_why_there_is_nothing_to_convert_is_said_in_words_and_with_what_to_do() -> None:
    left = [LeftOut("samples", "unknown_rank", 0, 0, step, 8) for step in (1, 2)]
    left += [LeftOut("step", "no_batch", 0, 0, step, 0) for step in (1, 2)]
    left += [LeftOut("step", "incomplete", 0, 0, 3, 8)]
    assert why_nothing(left) == (
        "16 samples generated by a process that recorded no rank (RANK was not set, and the"
        " trainer was made before the recording started: call attach() first, or put rlvr-probe run"
        " in front of the command); 2 steps that trained on a batch which is lost or omitted; 1"
        " step that not every rank finished (convert when a step is done)"
    )


def test_every_reason_has_words() -> None:
    """Those of exporters have words of their own."""
    source = Path(build.__file__).read_text("utf-8")
    used = set(re.findall(r'return "(\w+)"', source))
    used |= set(re.findall(r'omit\(\s*"\w+", "(\w+)"', source))
    used |= {"lost_records", "no_batch"}
    assert used == REASONS.keys()


def test_jobs_at_once_need_a_choice(tmp_path: Path) -> None:
    for number, job in ((1, "a"), (2, "b")):
        training = Training(JournalFile(tmp_path, number))
        training.journal.header["job"] = job
        training.begin()
        training.step(1)
        training.journal.close()
    with pytest.raises(WorkloadError, match=r"--attempt: 0, 1"):
        workload(tmp_path)
    assert len(workload(tmp_path, attempt=1).batches) == 1
    with pytest.raises(WorkloadError, match=r"attempt 2 is not in this recording; it has 0 to 1"):
        workload(tmp_path, attempt=2)


def test_jobs_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    for number in range(4):
        training = Training(JournalFile(tmp_path, number + 1), rank=number % 2, ranks=2)
        training.begin()
        training.step(1)
        training.journal.close()
    for attempt in (None, 0):
        with pytest.raises(WorkloadError, match="cannot be told apart"):
            workload(tmp_path, attempt)


def test_two_trainings_are_numbered(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    for session in (0, 1):
        training.session = session
        training.ordinals.clear()
        training.begin()
        training.step(1)
    training.journal.close()
    found = workload(tmp_path)
    assert [(one.session, one.batch.step) for one in found.batches] == [(0, 1), (1, 1)]
    assert found.notes == ("2 training runs in one recording, one after the other",)


def test_settings_of_the_last_training_are_stated_as_show_and_characterize_do(
    tmp_path: Path,
) -> None:
    journal = JournalFile(tmp_path)
    training = Training(journal)
    for session, algorithm in enumerate(("grpo", "rloo")):
        training.session = session
        training.begin(
            algorithm=algorithm, reward_functions=[f"secret{session}"], max_response_tokens=64
        )
        training.step(1)
    journal.close()
    trace = read_run(tmp_path)
    found = build_workload(trace)
    with tables_of(trace) as tables:
        told = tables.sql.execute("SELECT algorithm, max_response_tokens FROM run").fetchall()
    assert told == [("rloo", 64)]
    assert (found.algorithm, found.max_response_tokens) == told[0]
    shown = summary_of(tmp_path)["training"]
    assert (shown["algorithm"], found.reward_functions) == ("rloo", ("secret1",))
    # Of what has aliases there is no name in a note.
    assert [note for note in found.notes if "differs" in note] == [
        f"{name} differs between training runs; the workload states that of the last one"
        for name in ("algorithm", "reward_functions")
    ]
    assert "secret" not in " ".join(found.notes)


def test_group_sizes_that_differ_are_refused(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin()
    training.step(1)
    training.group_size = 2
    training.step(2)
    training.journal.close()
    with pytest.raises(WorkloadError, match="group sizes 2, 4"):
        workload(tmp_path)


def test_a_recording_without_a_complete_step_says_why(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin()
    training.journal.close()
    with pytest.raises(WorkloadError, match="no training step was recorded at all"):
        workload(tmp_path)
    training = Training(JournalFile(tmp_path))
    training.step(1, finish=False)
    training.journal.close()
    with pytest.raises(WorkloadError, match="omitted: 1 step that not every rank finished"):
        workload(tmp_path)


def test_lost_records_are_stated(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin()
    training.step(1)
    training.journal.row("lost", 5, "queue_full", 7)
    training.journal.close()
    found = workload(tmp_path)
    assert (found.lost_records, found.notes) == (7, ("7 records of this run were lost",))


@pytest.mark.parametrize(
    ("generated", "reuse", "last", "expected"),
    [
        # One batch per step; a batch for two steps, by fact and without.
        ([1, 2, 3], None, 3, [[1], [2], [3]]),
        ([1, 3], Reuse(2, 1), 4, [[1, 2], [3, 4]]),
        ([1, 3], None, 5, [[1, 2], [3, 4, 5]]),
        # The last batch feeds no more than it can.
        ([1, 3], Reuse(2, 1), 9, [[1, 2], [3, 4]]),
        # Two batches in one step.
        ([1, 1, 2, 2], Reuse(1, 2), 2, [[1], [1], [2], [2]]),
        # Three micro steps per batch, two per step: the second batch begins inside step 2.
        ([1, 2], Reuse(3, 2), 3, [[1, 2], [2, 3]]),
        # A short last accumulation of an epoch shifts everything: what was recorded counts.
        ([1, 4], Reuse(4, 2), 9, [[1, 2, 3], [4, 5]]),
        # Three steps need three micro steps.
        ([1, 4], Reuse(2, 1), 9, [[1, 2], [4, 5]]),
        ([], None, 0, []),
    ],
)
def test_the_steps_a_batch_feeds(
    generated: list[int], reuse: Reuse | None, last: int, expected: list[list[int]]
) -> None:
    assert [list(steps) for steps in fed_steps(generated, reuse, 1, last)] == expected


@pytest.mark.parametrize(
    ("generated", "reuse", "last", "expected"),
    [
        # What was generated in steps 3 and 4 is gone.
        ([1, 2, 5], Reuse(1, 1), 6, [[1], [2], [5]]),
        ([1, 2, 5], None, 6, [[1], [2], [5]]),
        # The batch of steps 3 and 4 is gone.
        ([1, 5], Reuse(2, 1), 8, [[1, 2], [5, 6]]),
        # The batches of steps 1 to 3 are gone; those after still share the step they share.
        ([4, 5], Reuse(3, 2), 6, [[4, 5], [5, 6]]),
        # Which batch of a step that generates several is gone is not known, nor needed.
        ([1, 2, 2], Reuse(1, 2), 3, [[1], [2], [2]]),
        # A short accumulation shifted everything, so no number agrees.
        ([1, 4, 8], Reuse(4, 2), 9, [[1, 2], [4, 5], [8, 9]]),
    ],
)
def test_the_steps_a_batch_feeds_where_records_may_be_missing(
    generated: list[int], reuse: Reuse | None, last: int, expected: list[list[int]]
) -> None:
    fed = fed_steps(generated, reuse, 1, last, lossy=True)
    assert [list(steps) for steps in fed] == expected


def lose(
    journal: JournalFile, what: names.Name, step: int | None, ordinal: int | None = None
) -> None:
    """Take away the rows ``what`` of a step, None for those that carry none."""
    rows = [row for row in journal.rows if isinstance(row, list)]
    names_of = {row[1]: (row[3], row[4]) for row in rows if row[0] == "def"}
    kept = list[Any]()
    for row in rows:
        name, attributes = names_of.get(row[0], ("", []))
        values = dict(zip(attributes, row[3 if what.event else 6 :], strict=False))
        gone = name == what.name and values.get("step") == step
        if not gone or (ordinal is not None and values["ordinal"] != ordinal):
            kept.append(row)
    assert len(kept) < len(journal.rows)
    journal.rows[:] = kept


UNKNOWN: dict[str, Any] = {"steps_per_generation": None, "iterations": None, "accumulation": None}


@pytest.mark.parametrize("facts", [{}, UNKNOWN], ids=["reuse known", "reuse unknown"])
@pytest.mark.parametrize("spans", [True, False], ids=["spans kept", "spans lost too"])
def test_steps_whose_lengths_are_lost_in_mid_run_are_not_given_to_the_batch_before(
    tmp_path: Path, facts: dict[str, Any], spans: bool
) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin(**facts)
    for step in range(1, 7):
        training.step(step)
    for step in (3, 4):
        lose(training.journal, names.TRAJECTORIES, step)
        for name in () if spans else (names.EXPERIENCE, names.ROLLOUT, names.REWARD):
            lose(training.journal, name, step)
    training.journal.row("level", 5, "spans", "low_space 1 of 2")
    training.journal.row("level", 6, "full", "space 1 of 2")
    training.journal.close()
    found = workload(tmp_path)
    assert [(one.batches, one.steps) for one in found.iterations] == [
        ((0,), (1,)),
        ((1,), (2,)),
        ((2,), (5,)),
        ((3,), (6,)),
    ]
    assert {one.stage_s["step"] for one in found.iterations} == {1.0}
    assert left_out(found) == [("step", "lost_records", 3, 0), ("step", "lost_records", 4, 0)]
    assert "1 processes recorded less for some time" in found.notes


def test_lengths_that_stop_leave_out_every_step_after(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin(**UNKNOWN)
    for step in range(1, 6):
        training.step(step)
    for step in (3, 4, 5):
        lose(training.journal, names.TRAJECTORIES, step)
    training.journal.row("level", 5, "spans", "own_time 1")
    training.journal.close()
    found = workload(tmp_path)
    assert [(one.batches, one.steps) for one in found.iterations] == [((0,), (1,)), ((1,), (2,))]
    assert left_out(found) == [("step", "lost_records", step, 0) for step in (3, 4, 5)]


def test_what_a_lost_batch_fed_is_not_given_to_the_batch_before(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin(**UNKNOWN)
    for step in range(1, 7):
        training.step(step, generate=step % 2 == 1)
    lose(training.journal, names.TRAJECTORIES, 3)
    lose(training.journal, names.REWARDS, None)
    training.journal.close()
    found = workload(tmp_path)
    # Nothing was counted as lost: only the spans of step 3 tell.
    assert found.lost_records == 0
    assert [(one.batches, one.steps) for one in found.iterations] == [
        ((0,), (1, 2)),
        ((1,), (5, 6)),
    ]
    assert left_out(found) == [("step", "lost_records", 3, 0), ("step", "no_batch", 4, 0)]


@pytest.mark.parametrize("ordinal", [0, 1])
def test_a_step_of_which_one_of_two_batches_is_lost_is_left_out(
    tmp_path: Path, ordinal: int
) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin(accumulation=2)
    for step in (1, 2, 3):
        training.generate(step)
        training.step(step)
    lose(training.journal, names.TRAJECTORIES, 2, ordinal)
    training.journal.row("lost", 5, "queue_full", 1)
    training.journal.close()
    trace = read_run(tmp_path)
    assert [step.complete for step in trace.steps()] == [True, False, True]
    found = build_workload(trace)
    assert [one.steps for one in found.iterations] == [(1,), (3,)]
    assert left_out(found) == [("step", "lost_records", 2, 8)]


def test_a_gap_in_the_ordinals_of_a_step_is_a_lost_batch(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin(accumulation=2)
    training.ordinals[1, "train"] = 1
    training.step(1)
    training.step(2)
    training.journal.close()
    assert [step.complete for step in read_run(tmp_path).steps()] == [False, True]


def test_a_batch_that_is_lost_with_its_spans_is_missed_in_the_count(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin(accumulation=2)
    for step in (1, 2, 3):
        if step != 2:
            training.generate(step)
        training.step(step)
    training.journal.row("lost", 5, "damaged_rows", 9)
    training.journal.close()
    assert left_out(workload(tmp_path)) == [("step", "lost_records", 2, 8)]


@pytest.mark.parametrize("lossy", [True, False])
def test_a_stage_that_part_of_an_iteration_lacks_has_no_time(tmp_path: Path, lossy: bool) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin(steps_per_generation=4)
    for step in (1, 2, 3, 4):
        training.step(step, generate=step == 1)
    for step in (3, 4):
        lose(training.journal, names.UPDATE_ACTOR, step)
    if lossy:
        training.journal.row("muted", 5, "trl:training_step", "own_time 1 s in 30 s")
    training.journal.close()
    found = workload(tmp_path)
    [iteration] = found.iterations
    # What a step that generates nothing cannot have is known all the same.
    assert {"step", "rollout", "reward"} <= iteration.stage_s.keys()
    assert ("update_actor" in iteration.stage_s) is not lossy
    assert any("time of stage update_actor" in note for note in found.notes) is lossy
    assert any(note.startswith("1 hook points were passed over") for note in found.notes) is lossy


def test_a_stage_that_one_rank_lost_has_no_time(tmp_path: Path) -> None:
    for rank in (0, 1):
        training = Training(JournalFile(tmp_path, rank + 1), rank=rank, ranks=2)
        training.begin()
        training.step(1)
        if rank:
            lose(training.journal, names.UPDATE_ACTOR, 1)
            training.journal.row("lost", 5, "queue_full", 1)
        training.journal.close()
    found = workload(tmp_path)
    assert found.iterations[0].stage_s.keys() == {"step", "rollout", "reward"}


def test_turns_may_be_missing_where_anything_is(tmp_path: Path) -> None:
    for name, row in (("whole", None), ("reduced", ("level", 5, "stages", "budget 1 of 2"))):
        training = Training(JournalFile(tmp_path / name))
        training.begin()
        training.step(1)
        if row is not None:
            training.journal.row(*row)
        training.journal.close()
        assert workload(tmp_path / name).turns_lossy is (row is not None)


def test_batches_that_share_a_step_are_linked() -> None:
    fed = [range(1, 3), range(2, 4), range(4, 5)]
    assert linked(fed) == [([0, 1], range(1, 4)), ([2], range(4, 5))]
