"""Trajectories that a process generates for a queue get the step that trained on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.exceptions import WorkloadError
from rlvr_probe.model import names
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from rlvr_probe.workload import build_workload
from tests.journals import JournalFile, key
from tests.summarized import summary_of

WORKER = 2


def trainer(folder: Path, *taken: tuple[float, int, int, list[int]]) -> None:
    """A trainer of two steps per session that took groups: time, session, step, groups."""
    journal = JournalFile(folder, 1)
    sessions = {session for _, session, _, _ in taken} or {0}
    for session in sorted(sessions):
        journal.event(names.SESSION, 1 + 50 * session, session=session, rank=0, world_size=1)
        for step in (1, 2):
            begin = 10.0 * step + 50 * session
            journal.span(names.STEP, begin, begin + 5, session=session, step=step)
    for version, time_s in ((1, 1.5), (2, 16.0)):
        journal.span(
            names.WEIGHT_SYNC, time_s, time_s + 0.1, session=0, step=version - 1, mode="train",
            weight_version=version,
        )  # fmt: skip
    for time_s, session, step, groups in taken:
        journal.event(
            names.TRAINED, time_s, session=session, step=step, groups=groups,
            samples=[2] * len(groups),
        )  # fmt: skip
    journal.close()


def worker(
    folder: Path,
    *groups: tuple[float, int],
    number: int = WORKER,
    start_s: float = 0.0,
    owner: int = 1,
    keyed: bool = False,
    **changes: Any,
) -> None:
    """A process that generated groups of two: time, number; ``keyed`` ones tell their weights."""
    header = {"owner": key(owner), "job": "other"}
    journal = JournalFile(folder, number, start_s=start_s, header=header)
    for time_s, group in groups:
        spans = [journal.next_span(), journal.next_span()]
        batch = journal.next_span()
        for row, span in enumerate(spans):
            begin = time_s - 1 + 0.1 * row
            journal.span(
                names.TURN, begin, begin + 0.5, parent=span, batch=span, samples=1, turn=0,
                prompt_tokens=5, response_tokens=3 + row,
            )  # fmt: skip
            journal.span(
                names.TOOL_CALL, begin, begin + 0.1, parent=span, batch=span, turn=0,
                tool=f"tool-{row}", status="ok",
            )  # fmt: skip
            known: dict[str, Any] = {
                "key": f"{group}/{row}", "policy_version_min": 0, "policy_version_max": 0,
            }  # fmt: skip
            journal.span(
                names.TRAJECTORY, begin, begin + 0.7, span=span, weight_version=1,
                **(known if keyed else {}),
            )  # fmt: skip
        values = {
            "mode": "train", "batch": batch, "queue_group": group, "weight_version": 1,
            "spans": spans, "offset": 0, "total": 2, "group_size": 2, "prompt_tokens": [5, 5],
            "response_tokens": [3, 4], **changes,
        }  # fmt: skip
        if keyed:
            del values["spans"]
            values["keys"] = [f"{group}/{row}" for row in range(2)]
        journal.event(names.TRAJECTORIES, time_s, parent=batch, **values)
        journal.event(
            names.REWARDS, time_s + 0.1, batch=batch, function="f", index=0, values=[0.0, 1.0]
        )
        journal.span(names.REWARD, time_s, time_s + 0.2, span=batch, mode="train")
    journal.close()


def placed(trace: Trace) -> list[tuple[int, int, int]]:
    """Session, step and number of every group."""
    return [
        (step.session, step.number, batch.ordinal)
        for step in trace.steps()
        for batch in step.batches
    ]


def test_a_group_belongs_to_the_step_that_first_trained_on_it(tmp_path: Path) -> None:
    trainer(tmp_path, (11, 0, 1, [0, 1]), (21, 0, 2, [1, 2]))
    worker(tmp_path, (5, 1), (6, 0), (7, 2))
    trace = read_run(tmp_path)
    assert placed(trace) == [(0, 1, 0), (0, 1, 1), (0, 2, 2)]
    assert (trace.lost, trace.notes, len(trace.attempts)) == ({}, [], 1)
    assert all(step.complete for step in trace.steps() if step.started)
    assert [span.process for step in trace.steps() for span in step.spans
            if span.name == "reward"] == [1, 1, 1]  # fmt: skip


def test_its_trajectories_have_times_turns_tools_and_rewards_of_their_own(tmp_path: Path) -> None:
    trainer(tmp_path, (11, 0, 1, [4]))
    worker(tmp_path, (5, 4))
    [batch] = [batch for step in read_run(tmp_path).steps() for batch in step.batches]
    [group] = batch.groups()
    assert [trajectory.start_ns for trajectory in group.trajectories] == [
        4_000_000_000,
        4_100_000_000,
    ]
    assert [trajectory.turns[0].response_tokens for trajectory in group.trajectories] == [3, 4]
    assert [trajectory.tool_calls[0].tool for trajectory in group.trajectories] == [
        "tool-0",
        "tool-1",
    ]
    assert [trajectory.rewards[0].value for trajectory in group.trajectories] == [0.0, 1.0]
    assert (batch.policy_version, batch.queued, batch.shards[0].rank) == (0, True, 0)


def test_the_rank_is_that_of_the_trainer_also_where_a_driver_started_both(tmp_path: Path) -> None:
    trainer(tmp_path, (11, 0, 1, [4]))
    worker(tmp_path, (5, 4), owner=9)
    JournalFile(tmp_path, 9).close()
    trace = read_run(tmp_path)
    [batch] = [batch for step in trace.steps() for batch in step.batches]
    assert [shard.rank for shard in batch.shards] == [0]
    [taken] = build_workload(trace).batches
    assert taken.batch.rows == 2


def test_what_was_never_trained_on_is_said_and_loses_nothing(tmp_path: Path) -> None:
    trainer(tmp_path, (11, 0, 1, [0]))
    worker(tmp_path, (5, 0), (6, 1), (30, 2))
    trace = read_run(tmp_path)
    assert placed(trace) == [(0, 1, 0)]
    assert trace.lost == {}
    assert trace.notes == [
        "4 trajectories were generated for a queue and never trained on: not counted"
    ]


def test_it_counts_as_what_was_generated_and_is_never_old(tmp_path: Path) -> None:
    trainer(tmp_path, (11, 0, 1, [0]))
    worker(tmp_path, (5, 0), (6, 1), (30, 2), keyed=True)
    shown = summary_of(tmp_path)
    [step] = [step for step in shown["step_list"] if step["trajectories"]]
    assert (shown["trajectories"], shown["groups"], step["trajectories"]) == (6, 3, 2)
    assert (shown["rewards"][0]["values"], shown["turns"]["trajectories"]) == (6, 6)
    assert shown["staleness"]["trajectories"] == 2
    [note] = shown["notes"]
    assert note.startswith("4 trajectories were generated for a queue and never trained on: they ")


def test_what_is_not_whole_is_omitted_where_no_step_trained_on_what_is(tmp_path: Path) -> None:
    trainer(tmp_path, (11, 0, 1, [0]))
    worker(tmp_path, (5, 0), total=3, group_size=3)
    worker(tmp_path, (6, 1), number=3)
    shown = summary_of(tmp_path)
    assert (shown["trajectories"], shown["turns"]["trajectories"]) == (4, 2)
    assert shown["step_list"][0]["lengths"]["response_tokens"] is None
    assert any(note.startswith("1 generation batch is not whole") for note in shown["notes"])


def test_numbers_that_begin_anew_in_a_second_training_are_told_apart_by_time(
    tmp_path: Path,
) -> None:
    trainer(tmp_path, (11, 0, 1, [0]), (61, 1, 1, [0]), (71, 1, 2, [1]))
    worker(tmp_path, (5, 0), (6, 1))
    worker(tmp_path, (5, 0), (6, 1), number=3, start_s=50)
    trace = read_run(tmp_path)
    assert placed(trace) == [(0, 1, 0), (1, 1, 0), (1, 2, 1)]
    assert [span.process for step in trace.steps() for span in step.spans
            if span.name == "reward"] == [1, 2, 2]  # fmt: skip
    assert trace.lost == {}
    assert trace.notes[0].startswith("2 trajectories were generated")


def test_a_worker_without_a_trainer_is_no_training(tmp_path: Path) -> None:
    worker(tmp_path, (5, 0))
    trace = read_run(tmp_path)
    assert placed(trace) == []
    assert trace.notes[0].startswith("2 trajectories were generated")
    with pytest.raises(WorkloadError, match="no training step"):
        build_workload(trace)


@pytest.mark.parametrize(
    "changes",
    [{"spans": [1]}, {"spans": [1, -2]}, {"spans": "ab"}, {"queue_group": -1},
     {"queue_group": "0"}, {"weight_version": 1.5}],
)  # fmt: skip
def test_columns_that_contradict_each_other_are_counted(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    trainer(tmp_path, (11, 0, 1, [0]))
    worker(tmp_path, (5, 0), **changes)
    lost = read_run(tmp_path).lost
    assert lost == {"bad_row": 1, "unjoined_rewards": 1}


def test_a_trainer_that_says_nonsense_is_counted(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path, 1)
    journal.event(names.TRAINED, 1, session=0, step=1, groups="all", samples=[1])
    journal.event(names.TRAINED, 1, session=0, groups=[1], samples=[1])
    journal.close()
    assert read_run(tmp_path).lost == {"bad_row": 2}


def test_a_version_that_is_not_known_is_not_taken_for_the_first_one(tmp_path: Path) -> None:
    trainer(tmp_path, (12.0, 0, 1, [4]))
    journal = JournalFile(tmp_path, WORKER, header={"owner": key(1), "job": "other"})
    journal.span(names.WEIGHT_SYNC, 0.5, 0.6, session=0, step=0, mode="train", weight_version=0)
    in_two_parts(journal, 4, policy_version=7)
    journal.close()
    [batch] = [batch for step in read_run(tmp_path).steps() for batch in step.batches]
    assert batch.policy_version == 7


def test_a_group_recorded_in_two_parts_is_trained_on_as_a_whole(tmp_path: Path) -> None:
    trainer(tmp_path, (12.0, 0, 1, [4]))
    journal = JournalFile(tmp_path, WORKER, header={"owner": key(1), "job": "other"})
    in_two_parts(journal, 4)
    in_two_parts(journal, 5)
    journal.close()
    trace = read_run(tmp_path)
    [batch] = [batch for step in trace.steps() for batch in step.batches]
    assert (batch.rows, batch.total, batch.complete) == (2, 2, True)
    assert any("2 trajectories were generated" in note for note in trace.notes)


def in_two_parts(journal: JournalFile, group: int, **more: Any) -> None:
    """A group of two trajectories, of which each was recorded when it was finished."""
    batch = journal.next_span()
    for offset in (0, 1):
        journal.event(
            names.TRAJECTORIES, 3.0 + offset, session=0, step=0, mode="train", batch=batch,
            queue_group=group, offset=offset, total=2, group_size=2, prompt_tokens=[5],
            response_tokens=[3], **more,
        )  # fmt: skip


def test_what_was_never_trained_on_is_kept_apart_with_all_that_belongs_to_it(
    tmp_path: Path,
) -> None:
    trainer(tmp_path, (11, 0, 1, [0]))
    worker(tmp_path, (5, 1), (6, 0), (7, 2))
    [attempt] = read_run(tmp_path).attempts
    assert [batch.ordinal for batch in attempt.untrained] == [1, 2]
    assert all(batch.queued and batch.complete for batch in attempt.untrained)
    samples = [
        sample
        for batch in attempt.untrained
        for group in batch.groups()
        for sample in group.trajectories
    ]
    assert [
        [len(sample.turns), len(sample.tool_calls), len(sample.rewards)] for sample in samples
    ] == [[1, 1, 1]] * 4
    assert len(attempt.loose_calls) == 0


def test_what_a_filter_threw_away_is_that_of_the_step_that_trained_on_the_rest(
    tmp_path: Path,
) -> None:
    trainer(tmp_path, (11, 0, 1, [0]), (21, 0, 2, [1]))
    journal = JournalFile(tmp_path, WORKER, header={"owner": key(1), "job": "other"})
    for group, (time_s, kept) in enumerate(((5, ["a"]), (6, ["b", "c"]), (22, ["d"]))):
        batch, gone = journal.next_span(), f"gone-{group}"
        size = len(kept) + 1
        journal.event(
            names.TRAJECTORIES, time_s, parent=batch, mode="train", queue_group=group, offset=0,
            total=size, group_size=1, prompt_tokens=[5] * size, response_tokens=[3] * size,
            prompts=[*kept, gone],
        )  # fmt: skip
        journal.event(
            names.SELECTED, time_s, batch=batch, kept=kept, used=kept, discarded=[gone],
            reason="filter",
        )  # fmt: skip
    journal.close()
    trace = read_run(tmp_path)
    assert [
        (step.number, batch.rows, batch.kept, batch.used)
        for step in trace.steps()
        for batch in step.batches
    ] == [
        (1, 2, frozenset({0}), frozenset({0})),
        (2, 3, frozenset({0, 1}), frozenset({0, 1})),
    ]
    assert trace.lost == {}


@pytest.mark.parametrize("taken", [True, False])
def test_what_a_generator_threw_away_at_once_is_of_the_batch_that_it_grew_to(
    tmp_path: Path, taken: bool
) -> None:
    trainer(tmp_path, *([(11, 0, 1, [0])] if taken else []))
    journal = JournalFile(tmp_path, WORKER, header={"owner": key(1), "job": "other"})
    # A generation for which nothing was handed over has the number of the one after it.
    pieces = [(1, 0, "lost", 1), (5, 0, "gone", 1), (6, 1, "more", 1), (7, 2, "kept", 0)]
    for time_s, offset, prompt, grows in pieces:
        batch = journal.next_span()
        journal.event(
            names.TRAJECTORIES, time_s, parent=batch, mode="train", queue_group=0, offset=offset,
            total=offset + 1, grows=grows, group_size=1, prompt_tokens=[5], response_tokens=[3],
            prompts=[prompt],
        )  # fmt: skip
        journal.event(names.REWARDS, time_s, batch=batch, function="f", values=[float(time_s)])
        kept, gone = ([], [prompt]) if grows else ([prompt], [])
        journal.event(
            names.SELECTED, time_s, batch=batch, kept=kept, used=kept, discarded=gone,
            reason="filter",
        )  # fmt: skip
    journal.close()
    trace = read_run(tmp_path)
    [attempt] = trace.attempts
    batches = [batch for step in trace.steps() for batch in step.batches]
    left = [(batch.rows, batch.whole) for batch in attempt.untrained]
    assert sorted(left) == ([(1, True)] if taken else [(1, True), (3, True)])
    assert len(batches) == taken
    for made in batches:
        assert (made.rows, made.whole) == (3, True)
        assert made.kept == made.used == frozenset({2})
        values = [
            trajectory.rewards[0].value for g in made.groups() for trajectory in g.trajectories
        ]
        assert values == [5.0, 6.0, 7.0]
    assert trace.lost == {}
