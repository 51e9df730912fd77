"""Verifications of single trajectories by a service that is asked again, and what is shown."""

from __future__ import annotations

import io
from math import nan
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe import cli
from rlvr_probe.model import names
from rlvr_probe.recording import read_run
from rlvr_probe.recording.tables import open_tables
from rlvr_probe.report import render
from tests import today
from tests.by_hand import tables_of
from tests.journals import SECOND, JournalFile
from tests.summarized import summary_of

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
    summary = summary_of(tmp_path)
    [shown] = summary["rewards"]
    assert (shown["values"], shown["retries"], shown["timeouts"]) == (2, 7, 7)
    text = io.StringIO()
    render(summary, text)
    assert "retries" in text.getvalue()
    assert "timeouts" in text.getvalue()


def test_absurdly_many_requests_are_counted(tmp_path: Path) -> None:
    most = (1 << 62) - 1
    record(tmp_path, *[{"value": 1.0, "attempts": most, "timeouts": most}] * 4)
    [shown] = summary_of(tmp_path)["rewards"]
    assert (shown["retries"], shown["timeouts"]) == (4 * (most - 1), 4 * most)
    assert cli.main(["characterize", str(tmp_path)]) == cli.OK


def test_a_function_of_ones_own_is_asked_by_nobody(tmp_path: Path) -> None:
    record(tmp_path, {"value": 1.0})
    summary = summary_of(tmp_path)
    [shown] = summary["rewards"]
    assert (shown["retries"], shown["timeouts"]) == (None, None)
    text = io.StringIO()
    render(summary, text)
    assert "retries" not in text.getvalue()


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


def record_shared(folder: Path, *verifications: dict[str, Any]) -> None:
    """A step with four trajectories of one process; ``of`` and ``shared`` are rows of it."""
    record(folder, *[{}] * 4)
    actor = next(path for path in folder.glob("*.jsonl") if b'"verify"' in path.read_bytes())
    actor.unlink()
    owner = next(process.key for process in read_run(folder).processes)
    journal = JournalFile(folder, 2, header={"owner": owner})
    spans = [
        journal.span(names.TRAJECTORY, 2, 30, key=f"a/{row}", prompt_tokens=5, response_tokens=5)
        for row in range(4)
    ]
    for verification in verifications:
        given = {
            **verification,
            "shared": [spans[row] if row < 4 else 99 for row in verification["shared"]],
        }
        journal.span(names.VERIFY, 5, 25, batch=spans[given.pop("of")], **given)
    journal.close()


SHARED: dict[str, tuple[list[dict[str, Any]], list[tuple[Any, ...]]]] = {
    "all are given one value": (
        [{"function": "f", "value": 0.5, "of": 3, "shared": [0, 1, 2]}],
        [(0, 0.5, None), (1, 0.5, None), (2, 0.5, None), (3, 0.5, 20.0)],
    ),
    "some are": (
        [
            {"function": "f", "value": 0.5, "of": 1, "shared": [0]},
            {"function": "f", "value": 2.0, "of": 2, "shared": []},
        ],
        [(0, 0.5, None), (1, 0.5, 20.0), (2, 2.0, 20.0), (3, None, None)],
    ),
    "one of them is verified as well": (
        [
            {"function": "f", "value": 0.5, "of": 1, "shared": [0]},
            {"function": "f", "value": 2.0, "of": 0, "shared": []},
        ],
        [(0, None, None), (1, 0.5, 20.0), (2, None, None), (3, None, None)],
    ),
    "what was given is no number": (
        [{"function": "f", "not_finite": 1, "of": 1, "shared": [0]}],
        [(0, nan, None), (1, nan, 20.0), (2, None, None), (3, None, None)],
    ),
    "one of them is told by nobody": (
        [{"function": "f", "value": 0.5, "of": 1, "shared": [0, 4]}],
        [(0, 0.5, None), (1, 0.5, 20.0), (2, None, None), (3, None, None)],
    ),
    "its function has a name that SQL leaves to Python": (
        [{"function": 'f"', "value": 0.5, "of": 1, "shared": [0]}],
        [(0, 0.5, None), (1, 0.5, 20.0), (2, None, None), (3, None, None)],
    ),
}


@pytest.mark.parametrize("case", today.some(list(SHARED), 3))
def test_a_value_that_was_given_to_others_too_is_theirs_and_its_call_is_one(
    tmp_path: Path, case: str
) -> None:
    verifications, expected = SHARED[case]
    record_shared(tmp_path, *verifications)
    trace = read_run(tmp_path)
    assert trace.lost == {}
    [batch] = [batch for step in trace.steps() for batch in step.batches]
    calls = [call for shard in batch.shards for call in shard.calls]
    assert sorted(call.row or 0 for call in calls) == sorted(
        verification["of"] for verification in verifications
    )
    [shown] = summary_of(tmp_path)["rewards"]
    assert (shown["calls"], shown["total_s"]) == (len(calls), 20.0 * len(calls))
    assert shown["missing"] == sum(value is None for _, value, _ in expected)
    with open_tables(tmp_path, threads=1) as tables:
        rows = tables.sql.execute(
            "SELECT trajectory_id, value, verify_s FROM reward ORDER BY trajectory_id"
        ).fetchall()
        verified = tables.sql.execute("SELECT trajectory_id FROM verification").fetchall()
    assert repr(rows) == repr(expected)
    assert sorted(row for (row,) in verified) == sorted(call.row or 0 for call in calls)


@pytest.mark.parametrize("shared", [1, ["1"], [0], [-1], [True]])
def test_spans_that_cannot_be_are_no_row(tmp_path: Path, shared: Any) -> None:
    journal = JournalFile(tmp_path)
    journal.span(names.VERIFY, 1, 2, batch=1, function="service", value=1.0, shared=shared)
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

    told = {item.function: (item.calls, item.seconds, item.errors) for item in trace.reward_work}
    assert told == {"service": (2, 3.0, 1), "other": (1, 4.0, 0)}
    assert {trace.processes[item.process].pid for item in trace.reward_work} == {
        max(process.pid for process in trace.processes)
    }
    with tables_of(trace) as tables:
        rows = tables.sql.execute(
            "SELECT function, calls, mean_start_ns, took_s, errors FROM reward_work"
            " ORDER BY function"
        ).fetchall()
    assert rows == [("other", 1, 9 * SECOND, 4.0, 0), ("service", 2, 6.5 * SECOND, 3.0, 1)]
