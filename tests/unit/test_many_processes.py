"""Jobs of many processes with one controller: who is who, what is joined, what a report says."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.model import names
from rlvr_probe.model.batch import Batch
from rlvr_probe.recording import read_run
from rlvr_probe.report import render
from rlvr_probe.workload import build_workload
from tests.actors import SECOND, Job
from tests.journals import JournalFile, key, simple_run
from tests.summarized import summary_of


def report(folder: Path) -> tuple[dict[str, Any], str]:
    summary = summary_of(folder)
    drawn = io.StringIO()
    render(summary, drawn)
    return summary, drawn.getvalue()


def test_only_the_controller_trains_although_ranks_have_a_rank(tmp_path: Path) -> None:
    Job(tmp_path).write()
    trace = read_run(tmp_path)
    [attempt] = trace.attempts
    assert [(step.number, step.ranks_done, step.ranks) for step in attempt.steps] == [
        (step, 1, 1) for step in (1, 2, 3, 4)
    ]
    assert not attempt.mixed
    assert all(step.complete for step in attempt.steps)
    roles = {one.role: one.rank for one in trace.processes if one.role != "WorkerDict"}
    assert roles == {"driver": None, "TaskRunner": 0, "AgentLoopWorker": None}
    assert sorted(one.rank or 0 for one in trace.processes if one.role == "WorkerDict") == [0, 1]


def test_two_drivers_on_one_node_are_two_jobs_and_share_no_process(tmp_path: Path) -> None:
    Job(tmp_path).write()
    Job(tmp_path, number=100, begin_ns=3 * SECOND, seed=1).write()
    trace = read_run(tmp_path)
    assert [len(attempt.processes) for attempt in trace.attempts] == [7, 7]
    assert all(attempt.concurrent and not attempt.mixed for attempt in trace.attempts)
    for attempt in trace.attempts:
        owners = {trace.processes[index].owner for index in attempt.processes}
        assert len(owners - {None}) == 1
        assert [len(step.rpcs) for step in attempt.steps] == [3] * 4
    assert trace.lost == {}


def test_a_resumed_job_supersedes_what_it_does_again(tmp_path: Path) -> None:
    Job(tmp_path, steps=3, end=False).write()
    Job(tmp_path, number=100, begin_ns=60 * SECOND, seed=1, resumed=2, steps=3).write()
    trace = read_run(tmp_path)
    assert [len(attempt.processes) for attempt in trace.attempts] == [7, 7]
    assert [(step.attempt, step.number) for step in trace.redone] == [(0, 3)]
    assert [step.number for step in trace.steps()] == [1, 2, 3, 4, 5]


def test_processes_of_a_driver_that_left_nothing_stay_together(tmp_path: Path) -> None:
    job = Job(tmp_path)
    books = job.write()
    driver = next(key for key, begun in books.begun.items() if begun == 0)
    (tmp_path / f"p{driver}.0000.jsonl").unlink()
    trace = read_run(tmp_path)
    [attempt] = trace.attempts
    assert len(attempt.processes) == 6


def test_an_actor_that_never_told_of_itself_was_not_reached(tmp_path: Path) -> None:
    books = Job(tmp_path).write()
    worker = next(one.process for one in books.trajectories.values())
    (tmp_path / f"p{worker}.0000.jsonl").unlink()
    summary, drawn = report(tmp_path)
    assert summary["unreached"] == {"AgentLoopWorker": 1}
    assert "1 actors were started and recorded nothing: 1 AgentLoopWorker;" in drawn
    assert summary["lost"]["unjoined_trajectories"] == sum(
        one.process == worker for one in books.trajectories.values()
    )


def test_a_process_is_what_it_told_first_without_what_its_class_was_made_in(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    journal.event(names.PROCESS, 1, role="create.<locals>.WorkerDict", actor="a")
    journal.event(names.PROCESS, 2, role="Server", actor="a")
    journal.event(names.STARTED, 3, role="create.<locals>.WorkerDict", actor="b")
    journal.close()
    trace = read_run(tmp_path)
    assert [one.role for one in trace.processes] == ["WorkerDict"]
    assert trace.unreached == {"WorkerDict": 1}


@pytest.mark.parametrize(
    ("said", "told", "known"),
    [
        (None, ["qwen2", "qwen2"], "qwen2"),
        (None, ["qwen2", "llama"], None),  # nobody tells which training each was of
        (None, [], None),
        ("gemma", ["qwen2"], "gemma"),
    ],
)
def test_the_model_that_workers_tell_is_that_of_the_training(
    tmp_path: Path, said: str | None, told: list[str], known: str | None
) -> None:
    leader = JournalFile(tmp_path)
    facts: dict[str, Any] = {"session": 0} | ({"model_type": said} if said else {})
    leader.event(names.SESSION, 1, **facts)
    leader.close()
    for number, model in enumerate(told, 2):
        worker = JournalFile(tmp_path, number)
        worker.event(names.PROCESS, 1, model_type=model)
        worker.event(names.PROCESS, 2, role="WorkerDict", actor="a")
        worker.close()
    trace = read_run(tmp_path)
    [session] = trace.attempts[0].sessions
    assert session.facts.get("model_type") == known
    assert [one.role for one in trace.processes[1:]] == ["WorkerDict"] * len(told)


def test_show_says_who_did_what_and_keeps_calls_out_of_the_stages(tmp_path: Path) -> None:
    Job(tmp_path, v1=True).write()
    summary, drawn = report(tmp_path)
    assert [one["stage"] for one in summary["stages"]] == [
        "step", "rollout", "old_logprob", "update_actor", "weight_sync",
    ]  # fmt: skip
    assert "processes: 1 TaskRunner (trains), 3 AgentLoopWorker, 2 WorkerDict, 1 driver" in drawn
    assert "of 24 groups 16 passed the filter, 16 were trained on" in drawn
    assert "used stale weights" in drawn
    assert (summary["rpcs"]["calls"], summary["rpcs"]["unjoined"]) == (12, 0)
    methods = {one["method"]: one for one in summary["rpcs"]["methods"]}
    assert methods["update_weights"]["caller_s"] is None
    assert methods["update_actor"]["caller_s"] == pytest.approx(0.5)
    assert methods["update_actor"]["ranks"] == 2
    assert [one["selection"]["used"] for one in summary["step_list"]] == [4] * 4


def test_a_run_of_one_kind_of_process_says_nothing_of_roles(tmp_path: Path) -> None:
    simple_run(tmp_path)
    summary, drawn = report(tmp_path)
    found = [summary[name] for name in ("roles", "unreached", "rpcs", "selection", "staleness")]
    assert found == [[], {}, None, None, None]
    assert "processes:" not in drawn


def test_a_workload_has_the_ranks_of_the_model_and_the_groups_of_the_filter(tmp_path: Path) -> None:
    Job(tmp_path, v1=True, ranks=4).write()
    workload = build_workload(read_run(tmp_path))
    assert workload.world_size == 4
    assert workload.notes == ("groups differ in size: the group size is what was asked for",)
    for taken in workload.batches:
        assert taken.batch.kept == taken.batch.used == frozenset(range(2, 6))
        groups = list(taken.batch.groups())
        assert [group.index for group in groups] == list(range(6))
        assert all(group.complete for group in groups)
        assert taken.batch.count_groups() == (6, 6)
        assert [one.sample for group in groups for one in group.trajectories] == [
            sample for group in groups for sample in range(group.size)
        ]


def test_what_is_known_of_some_trajectories_only_is_listed(tmp_path: Path) -> None:
    books = Job(tmp_path).write()
    worker = next(one.process for one in books.trajectories.values())
    (tmp_path / f"p{worker}.0000.jsonl").unlink()
    workload = build_workload(read_run(tmp_path))
    samples = [
        sample
        for taken in workload.batches
        for group in taken.batch.groups()
        for sample in group.trajectories
    ]
    assert sum((one.start_ns, one.end_ns) == (None, None) for one in samples) == 32
    assert "the rollout engine is not known of 32 of 96 trajectories" in workload.notes
    assert "when it started and ended is not known of 32 of 96 trajectories" in workload.notes
    assert "1 processes of the job recorded nothing" in workload.notes


def test_times_of_another_machine_are_said_to_be_as_good_as_its_clock(tmp_path: Path) -> None:
    Job(tmp_path, other_machine=SECOND // 100).write()
    notes = build_workload(read_run(tmp_path)).notes
    assert notes[-1].startswith("times of trajectories that another machine generated")


@pytest.mark.conformance
def test_memory_is_some_hundred_bytes_per_trajectory_with_its_turns(tmp_path: Path) -> None:
    peaks = []
    for steps in (1, 5):
        folder = tmp_path / str(steps)
        folder.mkdir()
        Job(folder, steps=steps, prompts=32, group_size=8, workers=4, v1=False).write()
        tracemalloc.start()
        trace = read_run(folder)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert trace.lost == {}
    more = 4 * 256 + 2 * 256
    assert (peaks[1] - peaks[0]) / more < 1_200


class Chosen:
    """One batch of three groups named a, b, c, and what is said of them."""

    def __init__(self, folder: Path, facts: dict[str, int] | None = None, **columns: Any) -> None:
        self.folder = folder
        self.journal = JournalFile(folder)
        facts = {"group_size": 2, **(facts or {})}
        self.journal.event(names.SESSION, 0.1, session=0, rank=0, world_size=1, **facts)
        self.journal.event(
            names.TRAJECTORIES, 1, session=0, step=1, mode="train", offset=0, total=6, group_size=2,
            prompt_tokens=[1] * 6, response_tokens=[2] * 6,
            **{"prompts": ["a", "b", "c"], **columns},
        )  # fmt: skip

    def say(self, **lists: Any) -> None:
        self.journal.event(names.SELECTED, 2, session=0, step=1, **lists)

    def batch(self) -> tuple[Batch, dict[str, int]]:
        self.journal.close()
        trace = read_run(self.folder)
        [batch] = [batch for step in trace.steps() for batch in step.batches]
        return batch, trace.lost


@pytest.mark.parametrize(
    ("said", "kept", "used", "lost"),
    [
        ([], None, None, {}),
        ([{"kept": ["a", "b"], "used": ["a"]}], {0, 1}, {0}, {}),
        ([{"kept": ["a"]}, {"kept": ["c"]}], {0, 2}, None, {}),
        ([{"used": ["c"], "discarded": ["a", "b"], "reason": "filter"}], {2}, {2}, {}),
        ([{"used": ["c"], "discarded": ["a"], "reason": "filter"},
          {"discarded": ["b"], "reason": "surplus"}], {1, 2}, {2}, {}),
        ([{"used": ["b"]}], None, {1}, {}),
        ([{"used": ["c"], "discarded": ["a"]}], None, None, {"unjoined_prompts": 1}),
        ([{"kept": ["a"], "used": ["a"], "discarded": ["b"]}], None, None, {"unjoined_prompts": 1}),
        ([{"kept": ["a", "x"]}], {0}, None, {"unjoined_prompts": 1}),
        ([{"kept": ["x"]}], None, None, {"unjoined_prompts": 4}),
        ([{"kept": "ab"}], None, None, {"bad_row": 1}),
        ([{"kept": ["a", 1]}], None, None, {"bad_row": 1}),
    ],
)  # fmt: skip
def test_a_filter_keeps_the_groups_that_it_names(
    tmp_path: Path,
    said: list[dict[str, Any]],
    kept: set[int] | None,
    used: set[int] | None,
    lost: dict[str, int],
) -> None:
    chosen = Chosen(tmp_path)
    for one in said:
        chosen.say(**one)
    batch, found = chosen.batch()
    assert (batch.kept, batch.used, found) == (kept, used, lost)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("filters", [1, 0, None])
@pytest.mark.parametrize("told", [True, False])
def test_a_trainer_that_filters_and_tells_of_no_selection_is_noted(
    tmp_path: Path, filters: int | None, told: bool, done: bool
) -> None:
    chosen = Chosen(tmp_path, {} if filters is None else {"filters": filters})
    if told:
        chosen.say(kept=["a", "b", "c"], used=["a", "b", "c"])
    if done:  # else it may tell yet
        chosen.journal.span(names.STEP, 0.2, 3, session=0, step=1)
    chosen.journal.close()
    trace = read_run(tmp_path)
    [batch] = [batch for step in trace.steps() for batch in step.batches]
    assert batch.unselected == (filters == 1 and done and not told)
    note = "what a filter threw away of 1 batches is unknown"
    assert [text.startswith(note) for text in trace.notes] == [True] * batch.unselected


@pytest.mark.parametrize("taken", [True, False])
def test_what_a_filter_throws_away_is_there_while_a_step_waits_for_what_passes(
    tmp_path: Path, taken: bool
) -> None:
    journal = JournalFile(tmp_path)
    where = {"session": 0, "step": 1}
    journal.event(names.SESSION, 0.1, session=0, rank=0, world_size=1, filters=1)
    journal.event(
        names.TRAJECTORIES, 1, **where, mode="train", offset=0, total=4, grows=1, group_size=2,
        prompts=["a", "b"], prompt_tokens=[1] * 4, response_tokens=[2] * 4,
    )  # fmt: skip
    journal.event(names.SELECTED, 1, **where, discarded=["a", "b"], reason="filter")
    journal.event(
        names.TRAJECTORIES, 2, **where, mode="train", offset=4, total=7, grows=1, group_size=2,
        groups=[2, 2, 2], prompts=["c"], prompt_tokens=[1] * 3, response_tokens=[2] * 3,
    )  # fmt: skip
    journal.event(names.SELECTED, 2, **where, discarded=["c"], reason="filter")
    if taken:
        journal.event(
            names.TRAJECTORIES, 3, **where, mode="train", offset=7, total=9, group_size=2,
            groups=[3, 3], prompts=["d"], prompt_tokens=[1] * 2, response_tokens=[2] * 2,
        )  # fmt: skip
        journal.event(names.SELECTED, 3, **where, kept=["d"], used=["d"])
    journal.close()
    trace = read_run(tmp_path)
    [batch] = [batch for step in trace.steps() for batch in step.batches]
    assert trace.lost == {}
    assert (batch.rows, batch.total, batch.whole) == (9 if taken else 7, batch.rows, True)
    assert [group.index for group in batch.groups()] == list(range(4 if taken else 3))
    assert batch.kept == (frozenset({3}) if taken else frozenset())
    assert batch.used == (frozenset({3}) if taken else None)
    assert summary_of(tmp_path)["trajectories"] == batch.rows


@pytest.mark.parametrize("used", [True, False])
def test_a_generation_that_nothing_was_selected_of_yet_is_not_lost(
    tmp_path: Path, used: bool
) -> None:
    """As in the recipe of DAPO, which selects of each of the generations of a step."""
    journal = JournalFile(tmp_path)
    where = {"session": 0, "step": 1}
    journal.event(names.SESSION, 0.1, session=0, rank=0, world_size=1, filters=1)
    for ordinal, prompts in enumerate((["a", "b"], ["c", "d"])):
        journal.event(
            names.TRAJECTORIES, 1 + ordinal, **where, mode="train", ordinal=ordinal, offset=0,
            total=4, group_size=2, prompts=prompts, prompt_tokens=[1] * 4, response_tokens=[2] * 4,
        )  # fmt: skip
    journal.event(names.SELECTED, 2, **where, kept=["a"], discarded=["b"], reason="filter")
    if used:  # then an event is missing
        journal.event(names.SELECTED, 3, **where, used=["a"])
    journal.close()
    trace = read_run(tmp_path)
    told = [(batch.kept, batch.used) for step in trace.steps() for batch in step.batches]
    assert told == [(frozenset({0}), frozenset({0}) if used else None), (None, None)]
    assert trace.lost == ({"unjoined_prompts": 2} if used else {})


def test_a_group_that_failed_may_have_no_trajectory_and_nothing_of_it_is_lost(
    tmp_path: Path,
) -> None:
    chosen = Chosen(tmp_path)
    chosen.say(discarded=["x", "b"], reason="failed")
    chosen.say(kept=["a", "c"], used=["a"])
    batch, lost = chosen.batch()
    assert batch.kept == frozenset((0, 2))
    assert batch.used == frozenset((0,))
    assert lost == {}


def test_a_span_that_ends_beyond_all_time_moves_no_other(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    journal.event(names.SESSION, 0.1, session=0, rank=0, world_size=1, group_size=1)
    row_of_batch: dict[str, Any] = {"session": 0, "step": 1, "mode": "train", "keys": ["after"]}
    row_of_batch |= {"offset": 0, "total": 1, "group_size": 1}
    row_of_batch |= {"prompt_tokens": [1], "response_tokens": [2]}
    journal.span(names.TRAJECTORY, 1, 2, span=7, key="before", prompt_tokens=1, response_tokens=2)
    [definition, *row] = journal.rows[-1]
    row[0], row[1], row[2] = (1 << 62) - 1, (1 << 62) - 1, 8
    journal.rows.append([definition, *row])
    journal.span(names.TRAJECTORY, 3, 4, span=9, key="after", prompt_tokens=1, response_tokens=2)
    journal.event(names.TRAJECTORIES, 5, **row_of_batch)
    journal.close()
    trace = read_run(tmp_path)
    [sample] = [
        sample
        for step in trace.steps()
        for batch in step.batches
        for group in batch.groups()
        for sample in group.trajectories
    ]
    assert (sample.start_ns, sample.end_ns) == (3 * SECOND, 4 * SECOND)
    assert trace.lost == {"bad_row": 1}


def test_a_prompt_of_two_groups_says_nothing_of_either(tmp_path: Path) -> None:
    chosen = Chosen(tmp_path, prompts=["a", "a", "c"])
    chosen.say(kept=["a"])
    batch, lost = chosen.batch()
    assert (batch.kept, lost) == (None, {"unjoined_prompts": 1})


@pytest.mark.parametrize(
    "columns",
    [
        {"groups": [0, 0, 1, 1, 3, 3]},
        {"groups": [1, 1, 2, 2, 3, 3]},
        {"groups": [0, 1, 0, 1, 0, 1]},
        {"groups": [0, 0, 1]},
        {"prompts": ["a", "b"]},
        {"groups": [0, 0, 0, 0, 0, 1]},
        {"engines": [0, 1]},
        {"engines": [0, 1, 0, 1, 0, -1]},
        {"keys": ["a"]},
        {"keys": [1, 2, 3, 4, 5, 6]},
    ],
)
def test_columns_that_do_not_fit_the_rows_are_counted(
    tmp_path: Path, columns: dict[str, Any]
) -> None:
    chosen = Chosen(tmp_path, **columns)
    chosen.journal.close()
    assert read_run(tmp_path).lost == {"bad_row": 1}


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        (names.RPC, {"side": "caller", "group": "g", "method": "m", "call": -1, "ranks": 1}),
        (names.RPC, {"side": "caller", "group": "g", "method": "m", "call": 0, "ranks": 0}),
        (names.RPC, {"side": "neither", "group": "g", "method": "m", "call": 0, "ranks": 1}),
        (names.RPC, {"side": "worker", "group": "g", "method": "m", "call": 0, "ranks": 1}),
        (names.RPC, {"side": "worker", "group": "g", "method": "m", "call": 0, "ranks": 1,
                     "rank": 1}),
        (names.RPC, {"side": "worker", "group": ["g"], "method": "m", "call": 0, "ranks": 1,
                     "rank": 0}),
        (names.RPC, {"side": "caller", "group": "g", "method": "m", "call": 1 << 70, "ranks": 1}),
        (names.TRAJECTORY, {"key": 7}),
        (names.TRAJECTORY, {"key": "k", "engine": -1}),
        (names.TRAJECTORY, {"key": "k", "engine": 1 << 63}),
        (names.TRAJECTORY, {"key": "k", "policy_version_min": 2, "policy_version_max": 1}),
        (names.TRAJECTORY, {"key": "k", "policy_version_min": 2}),
        (names.TRAJECTORY, {"key": "k", "truncated": 2}),
        (names.TRAJECTORY, {"key": "k", "response_tokens": 1 << 32}),
        (names.TRAJECTORY, {"key": "k", "response_tokens": 5, "loss_runs": [4]}),
        (names.TRAJECTORY, {"key": "k", "loss_runs": [4]}),
        (names.VERIFY, {"batch": 1, "function": "f", "value": "1"}),
        (names.VERIFY, {"batch": 1, "function": 1, "value": 1}),
        (names.VERIFY, {"batch": -1, "function": "f", "value": 1}),
        (names.TURN, {"turn": 0, "prompt_tokens": 1 << 32, "response_tokens": 1, "samples": 1}),
        (names.TURN, {"turn": -1, "prompt_tokens": 1, "response_tokens": 1, "samples": 1}),
        (names.PROCESS, {"role": 1}),
        (names.PROCESS, {"model_type": 1}),
        (names.STARTED, {"role": "WorkerDict"}),
        (names.SELECTED, {"session": 0, "kept": []}),
    ],
)  # fmt: skip
def test_a_row_that_breaks_the_schema_is_counted(
    tmp_path: Path, name: names.Name, attributes: dict[str, Any]
) -> None:
    journal = JournalFile(tmp_path)
    if name.event:
        journal.event(name, 1, **attributes)
    else:
        journal.span(name, 1, 2, **attributes)
    journal.close()
    assert read_run(tmp_path).lost == {"bad_row": 1}


def test_a_key_that_two_processes_tell_is_joined_with_neither(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path, 1)
    journal.event(names.SESSION, 0.1, session=0, rank=0, world_size=1)
    journal.event(
        names.TRAJECTORIES, 5, session=0, step=1, mode="train", offset=0, total=2, group_size=2,
        prompt_tokens=[1, 1], response_tokens=[2, 2], keys=["a", "b"],
    )  # fmt: skip
    journal.close()
    for number in (2, 3):
        worker = JournalFile(tmp_path, number, header={"owner": key(1)})
        for told in ("a", "b")[: 4 - number]:
            worker.span(names.TRAJECTORY, 1, 2 + number, key=told)
        worker.close()
    trace = read_run(tmp_path)
    [batch] = [batch for step in trace.steps() for batch in step.batches]
    times = [None, (SECOND, 4 * SECOND)]
    assert list(batch.shards[0].times_ns or ()) == times
    assert trace.lost == {"unjoined_trajectories": 1}


@pytest.mark.parametrize(
    ("key_of_both", "start_s", "end_s", "joined"),
    [
        # Its clock is a little ahead, or behind: it ends after its lengths were told.
        ("-/0/1", 2, 5.01, True),
        ("-/0/1", 0.99, 3, True),
        # It is of another rollout, which has the same key.
        ("-/0/1", 5.1, 7, False),
        ("-/0/1", 0.1, 0.9, False),
        ("a/0/1", 5.1, 7, True),
    ],
)
def test_a_key_of_one_rollout_is_joined_across_clocks_if_most_of_it_was_in_it(
    tmp_path: Path, key_of_both: str, start_s: float, end_s: float, joined: bool
) -> None:
    journal = JournalFile(tmp_path, 1)
    journal.event(names.SESSION, 0.1, session=0, rank=0, world_size=1)
    where: dict[str, Any] = {"session": 0, "step": 1, "mode": "train"}
    journal.event(
        names.TRAJECTORIES, 5, parent=9, **where, batch=9, offset=0, total=1, group_size=1,
        prompt_tokens=[1], response_tokens=[2], keys=[key_of_both],
    )  # fmt: skip
    journal.span(names.ROLLOUT, 1, 5.1, span=9, **where)
    journal.close()
    boot = "00000000-0000-4000-8000-000000000002"
    worker = JournalFile(tmp_path, 2, header={"owner": key(1), "boot": boot})
    worker.span(names.TRAJECTORY, start_s, end_s, key=key_of_both)
    worker.close()
    assert read_run(tmp_path).lost == ({} if joined else {"unjoined_trajectories": 1})


def test_trajectories_that_no_trainer_told_of_are_noted_and_not_lost(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path, 1)
    journal.event(names.SESSION, 0.1, session=0, rank=0, world_size=1)
    journal.span(names.STEP, 1, 2, session=0, step=1)
    journal.close()
    worker = JournalFile(tmp_path, 2, header={"owner": key(1)})
    worker.span(names.TRAJECTORY, 1, 2, key="a", prompt_tokens=1, response_tokens=1)
    worker.close()
    trace = read_run(tmp_path)
    assert trace.lost == {}
    assert trace.notes == [
        "1 trajectories were generated and no trainer recorded them: not counted"
    ]


def test_a_call_that_one_rank_did_not_record_is_not_joined_and_said(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path, 1)
    journal.event(names.SESSION, 0.1, session=0, rank=0, world_size=1)
    both: dict[str, Any] = {"group": "g", "method": "m", "ranks": 2}
    journal.span(names.RPC, 1, 2, side="caller", call=0, waits=1, **both)
    journal.close()
    worker = JournalFile(tmp_path, 2, header={"owner": key(1)})
    worker.span(names.RPC, 1.2, 1.4, side="worker", call=0, rank=0, **both)
    worker.close()
    trace = read_run(tmp_path)
    assert (trace.unjoined_rpcs, trace.lost) == (1, {})
    assert trace.notes[0].startswith(
        "1 calls of worker groups were recorded by the caller or its ranks alone"
    )


def test_a_call_that_claims_any_number_of_ranks_takes_no_memory(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path, 1)
    every: dict[str, Any] = {"group": "g", "method": "m", "call": 0, "ranks": 1 << 61}
    journal.span(names.RPC, 1, 2, side="caller", **every)
    journal.span(names.RPC, 1.2, 1.4, side="worker", rank=1 << 60, **every)
    journal.close()
    trace = read_run(tmp_path)
    assert (trace.unjoined_rpcs, trace.lost) == (1, {})
