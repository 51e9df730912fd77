"""Workloads written from recorded jobs, judged by PolyTrace itself and by the books of the jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_openrlhf.tests.runs import FULL, GROUP, PROMPTS, Finished
from rlvr_probe_openrlhf.tests.truth import Lines

from rlvr_probe.model.batch import Group
from tests.published import JUDGE

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3000)]


def jobs(*names: str) -> pytest.MarkDecorator:
    """Runs a test for each of these jobs."""
    return pytest.mark.parametrize(
        "job",
        [pytest.param(name, marks=pytest.mark.full if name in FULL else ()) for name in names],
    )


def training(run: Finished) -> list[list[Lines]]:
    """Requests of each trajectory, by step; each second one may be followed by an evaluation."""
    left = run.truth.trajectories
    steps = []
    for number in range(1, run.scenario.steps + 1):
        steps.append(left[: PROMPTS * GROUP])
        left = left[PROMPTS * GROUP + (run.scenario.evaluated if number % 2 == 0 else 0) :]
    assert left == []
    return steps


def recorded(run: Finished) -> list[list[Group]]:
    return [[*batch.groups()] for step in run.trace.steps() for batch in step.batches]


def as_written(run: Finished, groups: list[Group]) -> list[Group]:
    """``groups`` in the order that the workload says it has."""
    manifest = json.loads((run.workload[1] / "manifest.json").read_text())
    if manifest["parallelism"]["prompt_order"] != "by engine":
        return groups
    return sorted(groups, key=lambda group: group.trajectories[0].engine or 0)


def packed(run: Finished) -> dict[str, Any]:
    """In the form that ``polytrace_accept.py --truth`` reads.

    Engines know neither the order of prompts in a batch nor that of the samples of a prompt: both
    are those of the recording, once what was served is the same but for them.
    """
    truth = {}
    for number, (trajectories, groups) in enumerate(zip(training(run), recorded(run), strict=True)):
        served, records = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        for (request,) in trajectories:
            served[len(request["prompt"])].append(len(request["output"]))
        for group in groups:
            lengths = [sample.response_tokens for sample in group.trajectories]
            records[group.trajectories[0].prompt_tokens] += lengths
        assert {length: sorted(lengths) for length, lengths in records.items()} == {
            length: sorted(lengths) for length, lengths in served.items()
        }
        truth[str(number)] = [
            {
                "input": group.trajectories[0].prompt_tokens,
                "output": [sample.response_tokens for sample in group.trajectories],
            }
            for group in as_written(run, groups)
        ]
    return {"packed": truth}


def multiturn(run: Finished) -> dict[str, Any]:
    """The same for turns, and for steps of the environment.

    A latency is that of the recording, which lies around the one in the book: ``test_jobs`` holds
    that they belong together.
    """
    truth = {}
    for number, (trajectories, groups) in enumerate(zip(training(run), recorded(run), strict=True)):
        # Two engines that are asked the same for the first time give the same.
        served: dict[Any, list[Lines]] = defaultdict(list)
        for requests in trajectories:
            turns = tuple((len(request["prompt"]), len(request["output"])) for request in requests)
            served[turns].append(requests)
        rows = []
        for at, group in enumerate(as_written(run, groups)):
            for sample in group.trajectories:
                turns = tuple(
                    (turn.prompt_tokens or 0, turn.response_tokens or 0) for turn in sample.turns
                )
                requests = served[turns].pop()
                rows.append(
                    {
                        "group": at,
                        "sample": sample.sample,
                        "prompt_len": len(requests[0]["prompt"]),
                        "completion": [len(request["output"]) for request in requests],
                        "tool_latency_s": [call.latency_s for call in sample.tool_calls],
                    }
                )
        assert not any(served.values())
        truth[str(number)] = rows
    return {"multiturn": truth}


def judged(run: Finished, truth: dict[str, Any], folder: Path) -> None:
    """PolyTrace's own readers and replay functions accept the workload and give the truth back."""
    written = folder / "truth.json"
    written.write_text(json.dumps(truth))
    tool = [sys.executable, str(JUDGE), str(run.workload[1]), "--truth", str(written)]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


polytrace = pytest.mark.skipif(
    "POLYTRACE_SRC" not in os.environ or not JUDGE.is_file(), reason="no PolyTrace checkout"
)


def lines_of(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text().splitlines()]


@jobs("one_rank", "two_ranks")
def test_the_workload_holds_what_engines_generated_and_how_long_rewards_took(
    run: Finished,
) -> None:
    truth = packed(run)["packed"]
    written, directory = run.workload
    assert written.groups == sum(len(groups) for groups in truth.values())
    files = sorted(directory.rglob("packed_lengths_step_*.jsonl"))
    assert len(files) == run.scenario.steps
    for path in files:
        rows = lines_of(path)
        rows.sort(key=lambda row: (row["dp_rank"], row["rank"], row["local_index"]))
        number = path.stem.rpartition("_")[2]
        assert [{"input": row["input"], "output": row["output"]} for row in rows] == truth[number]
        assert all(None not in row["x_rlvr"]["verify_s"] for row in rows)
    assert len([*directory.rglob("reward_timings_step_*.jsonl")]) == run.scenario.steps


@polytrace
@jobs("one_rank", "two_ranks")
def test_polytrace_accepts_packed_lengths_and_reward_times(run: Finished, tmp_path: Path) -> None:
    judged(run, packed(run), tmp_path)


@jobs("agent", "agent_evaluated")
def test_the_workload_holds_every_turn_and_when_the_reward_came(run: Finished) -> None:
    truth = multiturn(run)["multiturn"]
    directory = run.workload[1]
    for number, rows in truth.items():
        [path] = directory.rglob(f"multiturn_workload_step_{number}.jsonl")
        lines = lines_of(path)
        assert {
            (line["prompt_group_id"], line["sample_id"]): [
                turn["completion_tokens"] for turn in line["turns"]
            ]
            for line in lines
        } == {(row["group"], row["sample"]): row["completion"] for row in rows}
        assert all(line["x_rlvr"]["verify_s"] > 0 for line in lines)


@polytrace
@jobs("agent", "agent_evaluated")
def test_polytrace_accepts_turns_and_steps_of_the_environment(
    run: Finished, tmp_path: Path
) -> None:
    judged(run, multiturn(run), tmp_path)
