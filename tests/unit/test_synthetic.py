"""The writer of synthetic recordings: reader and workload count what it says it wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr_probe.recording import read_run
from rlvr_probe.workload import build_workload
from tests.synthetic import write_recording


@pytest.mark.parametrize("segment_b", [20_000, 64 * 1024 * 1024])
def test_everything_written_is_read_and_nothing_else(tmp_path: Path, segment_b: int) -> None:
    books = write_recording(
        tmp_path / "run", steps=5, ranks=2, trajectories=480, fine_spans=3, segment_b=segment_b
    )
    assert (len(list(books.folder.glob("*.jsonl"))) > 2) == (segment_b == 20_000)

    trace = read_run(books.folder)
    assert trace.lost == {}
    assert trace.notes == []
    assert [process.state for process in trace.processes] == ["exited", "exited"]
    (attempt,) = trace.attempts
    assert [step.complete for step in attempt.steps if step.started] == [True] * books.steps
    assert trace.totals["turn"][0] == 3 * 2 * books.steps

    workload = build_workload(trace)
    rows = [
        row
        for taken in workload.batches
        for group in taken.batch.groups()
        for row in group.trajectories
    ]
    assert workload.left_out == ()
    assert len(rows) == books.trajectories
    assert sum(row.prompt_tokens for row in rows) == books.prompt_tokens
    assert sum(row.response_tokens for row in rows) == books.response_tokens
    assert sum(bool(row.truncated) for row in rows) == books.truncated > 0
    assert sum(len(row.rewards) for row in rows) == 2 * books.trajectories


def test_trajectories_that_fill_no_whole_groups_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="62 trajectories in groups of 8"):
        write_recording(tmp_path / "run", steps=1, trajectories=62)
