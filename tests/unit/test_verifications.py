"""Verifications of single trajectories by a service that is asked again, and what is shown."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.analysis.tables import open_tables
from rlvr_probe.model import names
from rlvr_probe.report import render, summarize
from rlvr_probe.trace import read_run
from tests.journals import JournalFile

NS = 1_000_000_000


def record(folder: Path, *verifications: dict[str, Any]) -> None:
    """A step with a trajectory for each of these, made by another process."""
    journal = JournalFile(folder, 1)
    journal.event(names.SESSION, 0.1, session=0, rank=0, world_size=1)
    rows = [5] * len(verifications)
    keys = [f"a/{row}" for row in range(len(rows))]
    journal.event(
        names.TRAJECTORIES, 40, session=0, step=1, mode="train", offset=0, total=len(rows),
        group_size=1, prompt_tokens=rows, response_tokens=rows, keys=keys,
    )  # fmt: skip
    journal.span(names.STEP, 1, 50, session=0, step=1)
    journal.close()
    owner = read_run(folder).processes[0].key
    actor = JournalFile(folder, 2, header={"owner": owner})
    for name, verification in zip(keys, verifications, strict=True):
        span = actor.span(names.TRAJECTORY, 2, 30, key=name, prompt_tokens=5, response_tokens=5)
        actor.span(names.VERIFY, 5, 25, batch=span, function="service", **verification)
    actor.close()


def test_what_a_service_was_asked_again_is_known_of_each_trajectory_and_shown(
    tmp_path: Path,
) -> None:
    record(
        tmp_path,
        {"value": 1.0, "attempts": 1, "timeouts": 0},
        {"value": 0.5, "attempts": 4, "timeouts": 2},
        {"attempts": 5, "timeouts": 5},
    )
    trace = read_run(tmp_path)
    assert trace.lost == {}
    [batch] = [batch for step in trace.steps() for batch in step.batches]
    [shard] = batch.shards
    asked = {call.row: (call.attempts, call.timeouts) for call in shard.calls}
    assert asked == {0: (1, 0), 1: (4, 2), 2: (5, 5)}
    summary = summarize(trace)
    [shown] = summary["rewards"]
    assert (shown["values"], shown["retries"], shown["timeouts"]) == (2, 7, 7)
    text = io.StringIO()
    render(summary, text)
    assert "asked again" in text.getvalue()
    assert "timed out" in text.getvalue()


def test_a_function_of_ones_own_is_asked_by_nobody(tmp_path: Path) -> None:
    record(tmp_path, {"value": 1.0})
    summary = summarize(read_run(tmp_path))
    [shown] = summary["rewards"]
    assert (shown["retries"], shown["timeouts"]) == (None, None)
    text = io.StringIO()
    render(summary, text)
    assert "asked again" not in text.getvalue()


@pytest.mark.parametrize(
    "broken", [{"attempts": -1}, {"attempts": 1, "timeouts": 2}, {"timeouts": 1}]
)
def test_counts_of_requests_that_cannot_be_are_counted(
    tmp_path: Path, broken: dict[str, Any]
) -> None:
    journal = JournalFile(tmp_path)
    journal.span(names.VERIFY, 1, 2, batch=1, function="service", **broken)
    journal.close()
    assert read_run(tmp_path).lost == {"bad_row": 1}


def test_what_a_process_verified_for_others_is_summed_by_function(tmp_path: Path) -> None:
    record(tmp_path, {"value": 1.0})
    worker = JournalFile(tmp_path, 3, header={"owner": read_run(tmp_path).processes[0].key})
    worker.span(names.REWARD_FN, 5, 7, function="service", samples=1)
    worker.span(names.REWARD_FN, 8, 9, function="service", samples=1, error="TimeoutError")
    worker.span(names.REWARD_FN, 9, 13, function="other", samples=1)
    worker.close()

    trace = read_run(tmp_path)

    told = {one.function: (one.calls, one.seconds, one.errors) for one in trace.reward_work}
    assert told == {"service": (2, 3.0, 1), "other": (1, 4.0, 0)}
    assert {trace.processes[one.process].pid for one in trace.reward_work} == {
        max(process.pid for process in trace.processes)
    }
    with open_tables(trace) as tables:
        rows = tables.sql.execute(
            "SELECT function, calls, took_s, errors FROM reward_work ORDER BY function"
        ).fetchall()
    assert rows == [("other", 1, 4.0, 0), ("service", 2, 3.0, 1)]
