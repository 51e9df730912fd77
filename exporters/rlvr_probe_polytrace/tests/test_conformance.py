"""PolyTrace's own code accepts what is written, and reads back every length in its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_polytrace.files import MULTITURN, of_group, step_file
from rlvr_probe_polytrace.tests.agents import Book, agents
from rlvr_probe_polytrace.tests.foreign import RUNS
from rlvr_probe_polytrace.tests.restored import packed_workload
from rlvr_probe_polytrace.tests.test_engines import served
from rlvr_probe_polytrace.tests.test_filtering import TWO_STEPS, filtered
from rlvr_probe_polytrace.tests.workloads import (
    STAGES,
    batch,
    lines,
    simple,
    suite,
    truth,
    workload,
    write,
)
from rlvr_probe_polytrace.validate_manifest import console_metrics

from rlvr_probe.model.workload import Iteration, Workload
from tests.published import JUDGE
from tests.published import WORKLOADS as PUBLISHED

SOURCE = os.environ.get("POLYTRACE_SRC", "")

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not JUDGE.is_file(), reason="POLYTRACE_JUDGE: no acceptance tool there"),
    pytest.mark.skipif(
        not (Path(SOURCE) / "suite.py").is_file(),
        reason="POLYTRACE_SRC names no PolyTrace checkout",
    ),
]


def several_batches_per_step() -> Workload:
    batches = [
        batch(index, (8, 8), 4, step=index // 2 + 1, ordinal=index % 2) for index in range(4)
    ]
    iterations = [Iteration((0, 1), 0, (1,), STAGES), Iteration((2, 3), 0, (2,), STAGES)]
    return workload(batches, iterations=iterations)


WORKLOADS = {
    "one rank": simple(rows=(16,), n=4),
    "two ranks": simple(rows=(16, 16), n=8),
    "a group straddles ranks": simple(rows=(4, 4), n=8),
    "groups straddle pairs of ranks": simple(rows=(4, 4, 4, 4), n=8),
    "unequal shares": simple(rows=(6, 6), n=4),
    "tensor parallel": simple(rows=(4, 4, 4, 4), n=4, rollout_tp=2),
    "several batches per step": several_batches_per_step(),
    "no reward times": workload([batch(0, (8, 8), 4, calls=False)]),
    "a filter": filtered(*TWO_STEPS, calls=True),
    "engines in order": workload([served(0, [0, 0, 1, 1]), served(1, [0, 1])], rollout_tp=2),
    "two functions": workload(
        [batch(0, (8,), 4, functions=("a", "b"))], reward_functions=("a", "b")
    ),
}


@pytest.mark.parametrize("made", WORKLOADS.values(), ids=WORKLOADS)
def test_polytrace_accepts_it_and_loses_nothing(made: Workload, tmp_path: Path) -> None:
    directory = write(made, tmp_path / "w")
    expected = {
        "packed": {
            str(step): [{"input": prompt, "output": output} for prompt, output in prompts]
            for step, prompts in truth(made).items()
        }
    }
    (tmp_path / "truth.json").write_text(json.dumps(expected))
    assert_accepted(directory, "--truth", str(tmp_path / "truth.json"), "--response-length", "4096")


def assert_accepted(directory: Path, *more: str) -> None:
    command = [sys.executable, str(JUDGE), str(directory), *more]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    assert "warn " not in found.stdout


AGENTS: dict[str, dict[str, Any]] = {
    "turns and tools": {"groups": 6, "n": 4, "seed": 1},
    "served by two engines": {"groups": 4, "n": 8, "seed": 2, "engines": 2, "rollout_tp": 2},
    "many": {"groups": 16, "n": 4, "seed": 3, "batches": 4},
}


@pytest.mark.parametrize("name", AGENTS)
def test_polytrace_accepts_turns_and_replays_every_length(name: str, tmp_path: Path) -> None:
    """Every trajectory is replayed by PolyTrace's own code, each turn and tool call of it."""
    made, books = agents(**AGENTS[name])
    directory = write(made, tmp_path / "w")
    order = [
        [one["x_rlvr"]["prompt_uid"] for one in lines(directory / step_file(MULTITURN, step))]
        for step in range(len(books))
    ]
    expected = {
        "multiturn": {
            str(step): [
                {
                    "group": row // AGENTS[name]["n"],
                    "sample": row % AGENTS[name]["n"],
                    "prompt_len": book.prompt,
                    "completion": [turn[1] for turn in book.turns],
                    "tool_latency_s": [call[3] for call in book.calls],
                }
                for row, book in enumerate(in_order(of_batch, order[step]))
            ]
            for step, of_batch in enumerate(books)
        }
    }
    (tmp_path / "truth.json").write_text(json.dumps(expected))
    assert_accepted(directory, "--truth", str(tmp_path / "truth.json"))


def in_order(books: Sequence[Book], uids: Sequence[str]) -> list[Book]:
    """Books of a batch in the order in which its prompts were written."""
    n = len(books) // len(set(uids))
    return [books[int(uid.rpartition("g")[2]) * n + row % n] for row, uid in enumerate(uids)]


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="POLYTRACE_DATA: no published workloads there")
@pytest.mark.parametrize("kind", ["verl", "rllm"])
def test_polytrace_accepts_a_published_run_that_was_written_again(
    kind: str, tmp_path: Path
) -> None:
    assert_accepted(write(packed_workload(PUBLISHED / RUNS[kind]), tmp_path / "w"))


@pytest.mark.parametrize("group", [0, 1])
def test_polytrace_pairs_the_log_of_each_group_that_is_launched_alone(
    group: int, tmp_path: Path
) -> None:
    directory = write(WORKLOADS["a filter"], tmp_path / "w")
    config, report = analyzed(directory, tmp_path, group)
    assert report["validation"]["ok"] is True
    assert report["validation"]["filter_indices"]["exists"] is True
    assert report["formal_metrics_count"] == 1
    assert [round(one["gen_error_pct"], 6) for one in report["comparisons"]] == [10.0]
    assert f"WORKLOAD_STEPS='{config['step_groups']}'" in report["command"]


@pytest.mark.parametrize("name", ["two ranks", "several batches per step", "turns and tools"])
def test_polytrace_pairs_the_formal_log_with_its_benchmark(name: str, tmp_path: Path) -> None:
    made = WORKLOADS[name] if name in WORKLOADS else agents(**AGENTS[name])[0]
    directory = write(made, tmp_path / "w")
    config, report = analyzed(directory, tmp_path)
    groups = len(config["step_groups"].split(";"))
    assert report["validation"]["ok"] is True
    assert report["formal_metrics_count"] == groups
    assert [round(one["gen_error_pct"], 6) for one in report["comparisons"]] == [10.0] * groups
    assert [one["step_error_pct"] for one in report["comparisons"]] == [0.0] * groups
    assert all(one["formal_total_tokens"] > 0 for one in report["comparisons"])
    assert f"WORKLOAD_PATH='{directory}'" in report["command"]


def analyzed(
    directory: Path, tmp_path: Path, group: int | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The suite config, and what PolyTrace reports of a replay that generated 10 % longer."""
    config = suite(directory, of_group("suite.yaml", group))
    log = tmp_path / config["repo"] / "logs" / f"benchmark_{config['name']}.log"
    log.parent.mkdir(parents=True)
    formal = (directory / of_group("formal.log", group)).read_text().splitlines()
    gen = console_metrics(formal[0])["timing_s/gen"]
    metrics = {"timing_s/gen": gen * 1.1, "timing_s/step": 20.5, "perf/total_num_tokens": 5}
    groups = len(config["step_groups"].split(";"))
    log.write_text(
        "".join(f"benchmark_repeat/1/group/{n + 1}/metrics: {metrics}\n" for n in range(groups))
    )
    command = [
        sys.executable, str(Path(SOURCE) / "suite.py"), "--validate", "--analyze", "--dry-run",
        "--out-dir", str(tmp_path / "out"), str(directory / of_group("suite.yaml", group)),
    ]  # fmt: skip
    # The documented way: source the block, then start the suite from anywhere.
    script = '. "$1"; shift; exec "$@"'
    block = directory / of_group("benchmark.env", group)
    found = subprocess.run(
        ["bash", "-euc", script, "-", str(block), *command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "POLYTRACE_WORKSPACE": str(tmp_path)},
    )
    assert found.returncode == 0, found.stderr
    report = json.loads((tmp_path / "out" / f"{config['name']}.summary.json").read_text())
    return config, report
