"""Reading journals: the sound is read, the rest counted, what must not be mixed raises."""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.exceptions import ProbeError, RecordingError
from rlvr_probe.model import names, schema
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import chunks, find_run, read_run
from rlvr_probe.recording.files import list_files
from rlvr_probe.recording.follow.window import Window
from rlvr_probe.recording.process_state import Machine
from rlvr_probe.recording.processes import load
from rlvr_probe.recording.tables import open_tables
from tests.actors import Job
from tests.journals import JournalFile, Training, key, simple_run, summed


def trajectories(trace: Trace) -> int:
    return sum(batch.rows for step in trace.steps() for batch in step.batches)


def test_a_finished_run_is_read_whole(tmp_path: Path) -> None:
    simple_run(tmp_path, ranks=2, steps=3)
    trace = read_run(tmp_path)
    assert trace.run == "run-1"
    assert [(process.rank, process.state) for process in trace.processes] == [
        (0, "exited"),
        (1, "exited"),
    ]
    assert [(step.number, step.ranks_done, step.complete) for step in trace.steps()] == [
        (1, 2, True),
        (2, 2, True),
        (3, 2, True),
    ]
    assert (trajectories(trace), trace.lost, trace.notes) == (48, {}, [])


def test_every_length_is_the_recorded_one(tmp_path: Path) -> None:
    simple_run(tmp_path, ranks=2, steps=2)
    training = [Training(JournalFile(tmp_path / "unused"), rank=rank, ranks=2) for rank in (0, 1)]
    expected = [
        pair
        for step in (1, 2)
        for item in training
        for pair in zip(*item.lengths(step), strict=True)
    ]
    actual = [
        (sample.prompt_tokens, sample.response_tokens)
        for step in read_run(tmp_path).steps()
        for batch in step.batches
        for group in batch.groups()
        for sample in group.trajectories
    ]
    assert actual == expected


def test_rewards_calls_and_rollout_times_join_their_batch(tmp_path: Path) -> None:
    simple_run(tmp_path, ranks=1, steps=1)
    [step] = read_run(tmp_path).steps()
    [shard] = step.batches[0].shards
    assert [(reward.function, list(reward.values)[:3]) for reward in shard.rewards] == [
        ("accuracy", [0.0, None, 0.25])
    ]
    assert [(call.function, call.samples) for call in shard.calls] == [("accuracy", 8)]
    assert (shard.start_ns, shard.end_ns) == (500_000_000, 750_000_000)


def test_a_group_may_straddle_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        training = Training(
            JournalFile(tmp_path, rank + 1), rank=rank, ranks=2, group_size=8, per_rank=4
        )
        training.begin()
        training.step(1)
        training.journal.close()
    [step] = read_run(tmp_path).steps()
    [group] = step.batches[0].groups()
    assert [(trajectory.sample, trajectory.process) for trajectory in group.trajectories] == [
        (sample, sample // 4) for sample in range(8)
    ]
    assert step.batches[0].count_groups() == (1, 1)


def test_evaluation_stays_apart_and_may_come_before_the_first_step(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin()
    training.evaluate(0)
    training.step(1)
    training.evaluate(1)
    training.journal.close()
    steps = list(read_run(tmp_path).steps())
    assert [(s.number, s.started, len(s.batches), len(s.evaluations)) for s in steps] == [
        (0, False, 0, 1),
        (1, True, 1, 1),
    ]
    assert steps[1].stage_seconds("rollout") == {0: 0.25}


def test_what_a_killed_process_was_writing_is_dropped_and_counted(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin()
    training.step(1)
    training.journal.close(b'[0,1,2,3,0,null]\n[3,12345,"ro', end=False)
    trace = read_run(tmp_path)
    assert (trace.lost, trajectories(trace)) == ({"torn_rows": 2}, 8)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\x00\xff\xfe", "bad_line"),
        (b"", "bad_line"),
        (b"{}", "bad_line"),
        (b"[]", "bad_line"),
        (b"[" * 5000, "bad_line"),
        (b'["nonsense", 1]', "bad_row"),
        (b'["end"]', "bad_row"),
        (b'["def", 0, "span", 5, []]', "bad_row"),
        (b"[999, 1, 2, 3, 0, null]", "unknown_definition"),
        (b"[1e5, 1]", "unknown_definition"),
        (b"[0, 1]", "bad_row"),
        (b"[0, " + b"9" * 50 + b", 1, 2, 0, null]", "bad_row"),
    ],
)
def test_a_bad_line_is_counted_and_the_rest_is_read(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin()
    training.step(1)
    training.journal.raw(line)
    training.step(2)
    training.journal.close()
    trace = read_run(tmp_path)
    assert (trace.lost, trajectories(trace)) == ({reason: 1}, 16)


@pytest.mark.parametrize(
    "change",
    [
        {"response_tokens": [1, 2]},
        {"prompt_tokens": [1, 2, 3, -4]},
        {"prompt_tokens": [1, 2, 3, 4.5]},
        {"prompt_tokens": [1, 2, 3, 1 << 40]},
        {"truncated": [0, 1]},
        {"truncated": 4},
        {"offset": 2},
        {"total": None},
        {"group_size": 0},
        {"mode": "both"},
        {"step": "1"},
    ],
)
def test_lengths_that_contradict_each_other_are_counted_not_guessed(
    tmp_path: Path, change: dict[str, object]
) -> None:
    journal = JournalFile(tmp_path)
    values: dict[str, Any] = {
        "session": 0, "step": 1, "mode": "train", "batch": 1, "ordinal": 0, "offset": 0,
        "total": 4, "group_size": 4, "prompt_tokens": [5, 5, 5, 5],
        "response_tokens": [1, 2, 3, 4], "truncated": [0, 0, 0, 1],
    } | change  # fmt: skip
    journal.event(names.TRAJECTORIES, 1.0, **values)
    journal.close()
    trace = read_run(tmp_path)
    assert (trace.lost, trajectories(trace)) == ({"bad_row": 1}, 0)


def test_rewards_of_another_length_are_not_joined(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    batch = training.generate(1)
    training.journal.event(
        names.REWARDS, 1.0, batch=batch, function="late", index=1, values=[1.0, 2.0]
    )
    training.journal.event(names.REWARDS, 1.0, batch=77, function="late", index=1, values=[1.0])
    training.journal.close()
    assert read_run(tmp_path).lost == {"bad_row": 1, "unjoined_rewards": 1}


def test_running_totals_count_by_their_last_row(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    journal.row("lost", 1, "queue_full", 3)
    journal.row("lost", 2, "queue_full", 9)
    journal.row("fault", 2, "hook", "ValueError", 2)
    journal.row("level", 3, "stages", "slow")
    journal.row("own", 4, 5_000_000)
    journal.close()
    trace = read_run(tmp_path)
    [process] = trace.processes
    assert (trace.lost, process.faults) == ({"queue_full": 9}, {"hook: ValueError": 2})
    assert (process.level, process.own_s) == ("stages", 0.005)


def test_segments_are_one_journal_and_a_missing_one_is_counted(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin()
    for step in (1, 2, 3):
        training.step(step)
        training.journal.rotate()
    training.journal.close()
    assert [step.number for step in read_run(tmp_path).steps()] == [1, 2, 3]
    (tmp_path / schema.segment_name(key(1), 1)).unlink()
    trace = read_run(tmp_path)
    assert ([s.number for s in trace.steps()], trace.lost) == ([1, 3], {"missing_segment": 1})


def test_rows_that_a_cut_or_deleted_file_lacks_are_known_from_the_open_table(
    tmp_path: Path,
) -> None:
    training = Training(JournalFile(tmp_path, chunk=5))
    training.begin()
    training.step(1)
    training.journal.rotate()
    training.step(2)
    path = training.journal.close(end=False)
    training.journal.open_table()
    assert read_run(tmp_path).lost == {}
    data = path.read_bytes()
    at_a_sum = data.index(b"\n", data.index(b'["sum",6,')) + 1
    path.write_bytes(data[:at_a_sum])
    left = data[at_a_sum:].count(b"\n") - data[at_a_sum:].count(b'["sum"')
    assert read_run(tmp_path).lost == {"missing_rows": left}
    path.unlink()
    lost = read_run(tmp_path).lost
    assert lost == {"missing_rows": data.count(b"\n") - data.count(b'["sum"')}


def test_a_process_whose_journal_is_gone_is_counted_by_its_open_table(tmp_path: Path) -> None:
    simple_run(tmp_path, ranks=1, steps=1)
    journal = JournalFile(tmp_path, 2)
    path = journal.close()
    journal.open_table()
    path.unlink()
    trace = read_run(tmp_path)
    assert trace.lost == {"missing_rows": 2}
    assert trace.notes == [f"journal of process {key(2)} is gone"]


def test_rows_that_a_process_writes_while_it_is_read_are_not_missing(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    path = journal.close(end=False)
    files = list_files(tmp_path)
    more = b'["own",1,2]\n'
    path.write_bytes(path.read_bytes() + more + schema.sum_row(2, zlib.crc32(more)))
    journal.lines += 1
    journal.open_table()
    [one] = load(files, Machine()).recorded
    assert (one.state, one.journal.skipped) == ("unknown", {})


@pytest.mark.parametrize("name", ["", "0001"])
def test_a_file_under_another_name_is_left_out_and_counted(tmp_path: Path, name: str) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin()
    training.step(1)
    path = training.journal.close()
    copy = tmp_path / (schema.segment_name(key(1), 1) if name else schema.segment_name(key(2), 0))
    copy.write_bytes(path.read_bytes())
    trace = read_run(tmp_path)
    assert (len(trace.processes), trajectories(trace)) == (1, 8)
    assert set(trace.lost) == {"foreign_rows"}
    assert trace.notes == [f"{copy.name} holds the journal of another file: skipped"]


def test_a_segment_without_its_header_borrows_that_of_another(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path))
    training.begin()
    training.journal.rotate()
    training.step(1)
    path = training.journal.close()
    path.write_bytes(b"#" + path.read_bytes())
    trace = read_run(tmp_path)
    assert ([s.number for s in trace.steps()], trace.lost) == ([1], {"damaged_rows": 1})


def test_a_journal_without_any_header_is_left_out_and_counted(tmp_path: Path) -> None:
    first, second = simple_run(tmp_path, ranks=2, steps=1)
    rows = second.read_bytes().splitlines(keepends=True)
    second.write_bytes(b"".join([b"x\n", *rows[1:]]))
    trace = read_run(tmp_path)
    assert len(trace.processes) == 1
    assert trace.lost == {
        "no_header": len([row for row in rows if not row.startswith(b'["sum"')]) - 1
    }
    assert first.exists()


def test_an_empty_journal_is_noted_and_not_a_process(tmp_path: Path) -> None:
    simple_run(tmp_path, ranks=1, steps=1)
    (tmp_path / schema.segment_name(key(9), 0)).touch()
    trace = read_run(tmp_path)
    assert (len(trace.processes), trace.lost) == (1, {})
    assert trace.notes == ["1 process started to record and left nothing: not counted"]


def test_files_that_are_not_ours_are_ignored_with_a_note(tmp_path: Path) -> None:
    simple_run(tmp_path, ranks=1, steps=1)
    (tmp_path / "packed_lengths_step_0.jsonl").write_text('{"input": 1}\n')
    (tmp_path / "notes.txt").write_text("mine")
    os.mkfifo(tmp_path / schema.segment_name(key(8), 0))
    trace = read_run(tmp_path)
    assert (len(trace.processes), trace.lost) == (1, {})
    assert [note.partition(":")[0] for note in trace.notes] == [
        "2 files ignored, not of a recording"
    ]


def test_a_newer_schema_is_refused_with_both_versions(tmp_path: Path) -> None:
    JournalFile(tmp_path, header={"schema": 99, "probe": "9.1"}).close()
    with pytest.raises(
        RecordingError, match=r"schema 99, written by rlvr-probe 9\.1.*schema 2: in"
    ):
        read_run(tmp_path)


def test_the_schema_before_sums_is_refused_with_what_to_do(tmp_path: Path) -> None:
    JournalFile(tmp_path, header={"schema": 1}).close()
    with pytest.raises(
        RecordingError, match=r"schema 1, .* read it with the version that wrote it"
    ):
        read_run(tmp_path)


def test_two_runs_in_one_folder_are_never_mixed(tmp_path: Path) -> None:
    JournalFile(tmp_path, number=1, run="a").close()
    JournalFile(tmp_path, number=2, run="b").close()
    with pytest.raises(RecordingError, match=r"holds 2 runs \(a, b\)"):
        read_run(tmp_path)


@pytest.mark.parametrize("endless", [b"x" * 10_000, b"\n" * 1_000], ids=["line", "lines"])
def test_what_has_no_sum_for_long_is_given_up_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endless: bytes
) -> None:
    monkeypatch.setattr(chunks, "_BLOCK_B", 64)
    monkeypatch.setattr(chunks, "CHUNK_LIMIT_B", 500)
    path = tmp_path / "file"
    path.write_bytes(summed([b"a"], 1) + endless + summed([b"b"], 1))
    with path.open("rb") as file:
        cut = chunks.Chunks()
        found = chunks.read_chunks(file, path.stat().st_size, cut)
        assert [chunk.body for chunk in found] == [b"a\n"]
        assert file.tell() < 1_000
    assert (cut.given_up, cut.lines, cut.torn) == (True, 1, 0)


def test_what_is_written_after_the_size_was_taken_is_left_for_later(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(summed([b"a", b"b"], 1))
    with path.open("rb") as file:
        found = chunks.read_chunks(file, len(summed([b"a"], 1)), chunks.Chunks())
        assert [chunk.body for chunk in found] == [b"a\n"]


def test_spans_without_a_step_inherit_it_from_what_is_around_them(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    outer = journal.span(names.STEP, 1.0, 3.0, session=0, step=4)
    middle = journal.span(names.OTHER, 1.0, 2.0, parent=outer)
    journal.span(names.WAIT, 1.0, 1.5, parent=middle, on="data")
    journal.span(names.OTHER, 5.0, 6.0)
    journal.close()
    trace = read_run(tmp_path)
    [step] = trace.steps()
    assert (step.number, step.stage_seconds("wait")) == (4, {0: 0.5})
    assert [span.start_ns for span in trace.unplaced] == [5_000_000_000]


def test_of_nested_spans_of_one_stage_the_outer_one_counts(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    where: dict[str, Any] = {"session": 0, "step": 1, "mode": "train"}
    outer = journal.span(names.ROLLOUT, 1.0, 3.0, **where)
    journal.span(names.ROLLOUT, 1.0, 2.5, parent=outer, **where)
    journal.span(names.ROLLOUT, 4.0, 5.0, **where)
    journal.span(names.ROLLOUT, 6.0, 9.0, **(where | {"mode": "eval"}))
    journal.close()
    [step] = read_run(tmp_path).steps()
    assert step.stage_seconds("rollout") == {0: 3.0}


def test_finer_spans_are_summed_not_kept(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    for index in range(5):
        journal.span(names.TURN, index, index + 0.5, batch=1, samples=1)
    journal.close()
    assert read_run(tmp_path).totals == {"turn": (5, 2.5)}


def test_user_spans_are_listed(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    journal.span(names.USER, 1.0, 2.0, label="prefetch")
    journal.close()
    [span] = read_run(tmp_path).user_spans
    assert (span.attributes, span.seconds) == ({"label": "prefetch"}, 1.0)


def test_the_newest_run_is_the_one_written_to_last(tmp_path: Path) -> None:
    for number, run in enumerate(("new", "old")):
        [path] = simple_run(tmp_path / run, ranks=1, steps=1)
        then = time.time() - 100 * (number + 1)
        os.utime(path, (then, then))
    assert find_run(tmp_path) == tmp_path / "new"
    assert find_run(tmp_path / "old") == tmp_path / "old"


def test_a_path_without_a_recording_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(json.dumps({}))
    for path, message in (
        (tmp_path / "gone", "does not exist"),
        (file, "is a file"),
        (tmp_path, "holds no recording"),
    ):
        with pytest.raises(RecordingError, match=message):
            find_run(path)
    with pytest.raises(RecordingError, match="holds no recording"):
        read_run(tmp_path)


def test_without_duckdb_what_is_coarse_is_read_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Job(tmp_path / "run", steps=2).write()
    whole = read_run(tmp_path / "run")
    expected = over_steps(tmp_path / "run")
    assert any(shard.turns for step in whole.steps() for b in step.batches for shard in b.shards)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ProbeError, match=r"takes duckdb, not installed here; .* pip install"):
        read_run(tmp_path / "run")
    trace = read_run(tmp_path / "run", strict=False)
    assert [note for note in trace.notes if note not in whole.notes] == [
        "turns, tool calls and verifications are omitted: duckdb not installed;"
        " pip install 'rlvr-probe[cli]'"
    ]
    assert (trace.lost, trace.totals) == (whole.lost, whole.totals)
    assert [step.spans for step in trace.steps()] == [step.spans for step in whole.steps()]
    shards = [shard for step in trace.steps() for b in step.batches for shard in b.shards]
    assert sum(len(shard.response_tokens) for shard in shards) > 0
    assert not any(shard.turns or shard.calls or shard.times_ns for shard in shards)
    assert over_steps(tmp_path / "run") == expected


@pytest.mark.parametrize("missing", ["duckdb", "nanoarrow"])
def test_what_is_missing_for_a_trace_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    Job(tmp_path / "run", steps=2).write()
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ProbeError, match=f"takes {missing}, not installed here"):
        read_run(tmp_path / "run")
    notes = read_run(tmp_path / "run", strict=False).notes
    assert any(f"are omitted: {missing} not installed" in note for note in notes)


def test_tables_need_nothing_that_hands_rows_to_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Job(tmp_path / "run", steps=2).write()
    monkeypatch.setitem(sys.modules, "nanoarrow", None)
    with open_tables(tmp_path / "run") as tables:
        assert tables.sql.execute("SELECT count(*) > 0 FROM turn").fetchall() == [(True,)]


def over_steps(run: Path) -> list[int]:
    """Numbers of the steps that are over, as a live export sees them."""
    window = Window(run)
    while window.read(1 << 20):
        pass
    over = window.over()
    window.close()
    assert over is not None
    return [step.number for step in over.steps]


def test_without_a_library_a_run_that_needs_none_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simple_run(tmp_path, ranks=1, steps=2)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert read_run(tmp_path).notes == read_run(tmp_path, strict=False).notes
