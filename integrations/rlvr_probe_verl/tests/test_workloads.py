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
from rlvr_probe_verl.tests.runs import FULL, PROMPTS, Finished

from rlvr_probe.model.batch import Group
from tests.published import JUDGE

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3000)]


def jobs(*names: str) -> pytest.MarkDecorator:
    """Runs a test for each of these jobs."""
    return pytest.mark.parametrize(
        "job",
        [pytest.param(name, marks=pytest.mark.full if name in FULL else ()) for name in names],
    )


PACKED = ("0.5", "0.5_two_ranks", "0.9_v1", "0.7", "0.9_v0", "0.9_filtered")
TOOLS = ("0.9_tools", "0.9_v1_tools")
Lines = list[dict[str, Any]]


def training(run: Finished) -> list[list[Lines]]:
    """Requests of each trajectory, by step."""
    trajectories = run.truth.trajectories
    if run.scenario.filtered:
        versions = range(run.scenario.steps)
        return [
            [trajectory for trajectory in trajectories if trajectory[0]["version"] == at]
            for at in versions
        ]
    size = PROMPTS * run.scenario.group_size
    return [trajectories[at * size : (at + 1) * size] for at in range(run.scenario.steps)]


def recorded(run: Finished) -> list[list[Group]]:
    return [[*batch.groups()] for step in run.trace.steps() for batch in step.batches]


def packed(run: Finished) -> dict[str, Any]:
    """In the form that ``polytrace_accept.py --truth`` reads.

    Servers know neither the order of prompts in a batch nor that of the samples of a prompt: both
    are those of the recording, once what was served is the same but for them. PolyTrace reads
    prompts by data-parallel rank, which a workload may take from the servers (``test_jobs`` holds
    that a recording has them right): then they come server by server.
    """
    if run.scenario.generates:
        return {"packed": generated(run)}
    truth = {}
    for number, (trajectories, groups) in enumerate(zip(training(run), recorded(run), strict=True)):
        served = defaultdict(list)
        for (request,) in trajectories:
            served[len(request["prompt"])].append(len(request["output"]))
        records = {
            group.trajectories[0].prompt_tokens: [
                sample.response_tokens for sample in group.trajectories
            ]
            for group in groups
        }
        assert {length: sorted(lengths) for length, lengths in records.items()} == {
            length: sorted(lengths) for length, lengths in served.items()
        }
        truth[str(number)] = [
            {"input": length, "output": records[length]}
            for length in (group.trajectories[0].prompt_tokens for group in as_written(run, groups))
        ]
    return {"packed": truth}


def as_written(run: Finished, groups: list[Group]) -> list[Group]:
    """``groups`` in the order that the workload says it has."""
    manifest = json.loads((run.workload[1] / "manifest.json").read_text())
    if manifest["parallelism"]["prompt_order"] != "by engine":
        return groups
    return sorted(groups, key=lambda group: group.trajectories[0].engine or 0)


def lines_of(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text().splitlines()]


def generated(run: Finished) -> dict[str, Any]:
    """Where verl generates by itself: rank after rank, in the order of rows."""
    steps: dict[str, Any] = {}
    for number in range(run.scenario.steps):
        rows = [
            {"input": prompt, "output": [len(output)]}
            for rank in range(run.scenario.ranks)
            for line in [
                [
                    generation
                    for generation in run.truth.generations
                    if generation["rank"] == rank and generation["sampled"]
                ][number]
            ]
            for prompt, output in zip(line["prompts"], line["outputs"], strict=True)
        ]
        steps[str(number)] = rows
    return steps


def multiturn(run: Finished) -> dict[str, Any]:
    """The same for turns and tool calls.

    A latency is that of the recording, which lies around the one in the book of the tool:
    ``test_jobs`` holds that they belong together.
    """
    truth = {}
    for number, (trajectories, groups) in enumerate(zip(training(run), recorded(run), strict=True)):
        # Two servers that are asked the same for the first time give the same.
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


def judged(run: Finished, truth: dict[str, Any], folder: Path, *options: str) -> None:
    """PolyTrace's own readers and replay functions accept the workload and give the truth back."""
    written = folder / "truth.json"
    written.write_text(json.dumps(truth))
    tool = [sys.executable, str(JUDGE), str(run.workload[1]), "--truth", str(written), *options]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


polytrace = pytest.mark.skipif(
    "POLYTRACE_SRC" not in os.environ or not JUDGE.is_file(), reason="no PolyTrace checkout"
)


@jobs(*PACKED)
def test_the_workload_holds_what_servers_and_models_generated(run: Finished) -> None:
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


@polytrace
@jobs(*PACKED)
def test_polytrace_accepts_packed_lengths_rewards_and_filters(
    run: Finished, tmp_path: Path
) -> None:
    judged(run, packed(run), tmp_path)


@jobs(*TOOLS)
def test_the_workload_holds_every_turn_that_was_served(run: Finished) -> None:
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


@polytrace
@jobs(*TOOLS)
def test_polytrace_accepts_turns_and_tool_calls(run: Finished, tmp_path: Path) -> None:
    judged(run, multiturn(run), tmp_path)


@jobs("0.9_filtered")
def test_groups_whose_rewards_are_all_the_same_are_the_ones_that_were_filtered(
    run: Finished,
) -> None:
    written = run.workload[1]
    [path] = written.rglob("dapo_filter_indices.jsonl")
    lines = lines_of(path)
    spread = kept_by_rewards(run)
    assert len(lines) == run.scenario.steps
    for line, groups, wanted in zip(lines, recorded(run), spread, strict=True):
        inputs = [group.trajectories[0].prompt_tokens for group in groups]
        kept = {inputs[at] for at in line["kept_prompt_indices"]}
        assert line["prompt_count"] == len(inputs) > PROMPTS
        assert line["used_prompt_count"] == PROMPTS
        assert kept <= wanted
        assert not kept & {length for length in inputs if length not in wanted}


def kept_by_rewards(run: Finished) -> list[set[int]]:
    """Lengths of the prompts whose rewards differ, by step."""
    moved = sorted(line["end"] for line in run.truth.weights if line["version"])
    lengths = sorted({len(trajectory[0]["prompt"]) for trajectory in run.truth.trajectories})
    values: list[dict[int, list[float]]] = [defaultdict(list) for _ in range(run.scenario.steps)]
    for line in run.truth.rewards:
        if line["split"] == "train":
            step = sum(end < line["end"] for end in moved)
            values[step][line["index"]].append(line["value"])
    first = min(line["index"] for line in run.truth.rewards)
    assert first == 0
    # Prompts are the longer the later they come, each by the same number of tokens.
    shortest, each = lengths[0], lengths[1] - lengths[0]
    return [
        {
            shortest + each * index
            for index, given in step.items()
            if len(given) == run.scenario.group_size and len(set(given)) > 1
        }
        for step in values
    ]
