"""A real job whose sessions have several outputs: each has the reward that verl gave it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rlvr_probe_verl.tests.runs import OUTPUTS, PROMPTS, Finished, Runner

from rlvr_probe import cli
from rlvr_probe.analysis.metrics.rewards import rewards as chapter
from rlvr_probe.model.batch import Batch
from rlvr_probe.recording.tables import open_tables
from tests.chaptered import said
from tests.summarized import summary_of

# It takes a minute on two cores.
pytestmark = [pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(1500)]

Rewarded = tuple[tuple[int, int, float | None], ...]
"""Lengths and reward of each output of a group, in the order of its sessions."""


@pytest.fixture(scope="module")
def job(runner: Runner) -> Finished:
    return runner.finished(OUTPUTS)


@pytest.fixture(scope="module")
def booked(job: Finished) -> list[Rewarded]:
    """What verl took to its queue, group by group."""
    groups = dict[str, list[tuple[int, int, int, int, float | None]]]()
    for line in job.truth.outputs:
        place = (line["session"], line["number"])
        given = (line["prompt"], line["response"], line["reward"])
        groups.setdefault(line["uid"], []).append((*place, *given))
    return [tuple(row[2:] for row in sorted(rows)) for rows in groups.values()]


def recorded(batch: Batch) -> list[Rewarded]:
    return [
        tuple(
            (trajectory.prompt_tokens, trajectory.response_tokens, reward.value)
            for trajectory in sorted(group.trajectories, key=lambda trajectory: trajectory.row)
            for reward in trajectory.rewards
        )
        for group in batch.groups()
    ]


def batches(job: Finished) -> list[Batch]:
    return [batch for step in job.trace.steps() for batch in step.batches]


def test_each_output_has_the_reward_that_verl_gave_it(
    job: Finished, booked: list[Rewarded]
) -> None:
    assert (job.trace.lost, job.trace.notes) == ({}, [])
    evaluated = [batch for step in job.trace.steps() for batch in step.evaluations]
    result = [group for batch in (*batches(job), *evaluated) for group in recorded(batch)]
    # Sessions of two, three, one and two outputs; of a validation the first alone.
    assert {len(group) for group in result} == {8, 2}
    left = list(booked)
    for group in result:
        assert group in left
        left.remove(group)
    assert len(result) >= PROMPTS * (job.scenario.steps + 1)


def test_a_session_is_verified_once_whatever_it_gives(job: Finished) -> None:
    sessions = job.scenario.group_size
    for batch in batches(job):
        calls = [call for shard in batch.shards for call in shard.calls]
        assert len(calls) == sessions * sum(1 for _ in batch.groups())
        given = [
            reward
            for group in batch.groups()
            for trajectory in group.trajectories
            for reward in trajectory.rewards
        ]
        took = [reward.verify_s for reward in given if reward.verify_s is not None]
        waited = [(call.end_ns - call.start_ns) / 1e9 for call in calls]
        assert sorted(took) == sorted(waited)


def test_show_and_characterize_agree(job: Finished) -> None:
    given = [reward for batch in batches(job) for group in recorded(batch) for *_, reward in group]
    calls = sum(len(shard.calls) for batch in batches(job) for shard in batch.shards)
    [shown] = summary_of(job.recording)["rewards"]
    assert (shown["values"], shown["missing"], shown["calls"]) == (len(given), 0, calls)
    with open_tables(job.recording) as tables:
        rows, verified = (
            tables.sql.execute(
                f"SELECT {what} FROM {table} JOIN trajectory USING (trajectory_id)"
                " WHERE mode = 'train' ORDER BY trajectory_id"
            ).fetchall()
            for what, table in (("value", "reward"), ("trajectory_id", "verification"))
        )
        result = said([chapter(tables)])
    assert [value for (value,) in rows] == given
    assert len(set(verified)) == len(verified) == calls
    function = shown["function"]
    assert result.value("rewards.value.finite", function=function) == len(given)
    assert result.value("rewards.value.missing", function=function) == 0


def test_traces_agree(job: Finished, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = {
        (step.number, batch.mode, batch.ordinal, trajectory.row): reward.value
        for step in job.trace.steps()
        for batch in (*step.batches, *step.evaluations)
        for group in batch.groups()
        for trajectory in group.trajectories
        for reward in trajectory.rewards
    }
    run, out = str(job.recording), tmp_path / "timeline.json"
    assert cli.main(["export", "--to", "perfetto", "--out", str(out), run]) == 0
    drawn = [event.get("args", {}) for event in json.loads(out.read_text())["traceEvents"]]
    assert expected == {
        tuple(row[name] for name in ("step", "mode", "batch", "row")): row["reward compute_score"]
        for row in drawn
        if "row" in row
    }
    capsys.readouterr()
    every = ["--share", "1", "--max-trajectories", "127"]
    assert cli.main(["export", "--to", "otlp", "--dry-run", "--json", *every, run]) == 0
    sent = [
        span["attributes"]
        for unit in json.loads(capsys.readouterr().out)["units"]
        for trace in unit["traces"]
        for span in trace["spans"]
        if span["name"] == "rlvr.trajectory"
    ]
    names = ("rl.loop.iteration", "rlvr.mode", "rlvr.batch", "rlvr.row")
    assert expected == {tuple(row[name] for name in names): row["rl.reward.score"] for row in sent}
