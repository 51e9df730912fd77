"""PolyTrace's own code accepts what is written, and reads back every length in its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_polytrace.tests.workloads import STAGES, batch, simple, truth, workload, write

from rlvr_probe.model.workload import Iteration, Workload
from tests.published import JUDGE

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
    command = [
        sys.executable, str(JUDGE), str(directory), "--truth", str(tmp_path / "truth.json"),
        "--response-length", "4096",
    ]  # fmt: skip
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    assert "warn " not in found.stdout


@pytest.mark.parametrize("name", ["two ranks", "several batches per step"])
def test_polytrace_pairs_the_formal_log_with_its_benchmark(name: str, tmp_path: Path) -> None:
    made = WORKLOADS[name]
    directory = write(made, tmp_path / "w")
    config = json.loads((directory / "suite.yaml").read_text())
    log = tmp_path / config["repo"] / "logs" / f"benchmark_{config['name']}.log"
    log.parent.mkdir(parents=True)
    groups = len(config["step_groups"].split(";"))
    metrics = {"timing_s/gen": 12.25 * 1.1, "timing_s/step": 20.5, "perf/total_num_tokens": 5}
    log.write_text(
        "".join(f"benchmark_repeat/1/group/{n + 1}/metrics: {metrics}\n" for n in range(groups))
    )
    command = [
        sys.executable, str(Path(SOURCE) / "suite.py"), "--validate", "--analyze", "--dry-run",
        "--out-dir", str(tmp_path / "out"), str(directory / "suite.yaml"),
    ]  # fmt: skip
    # The documented way: source the block, then start the suite from anywhere.
    script = '. "$1"; shift; exec "$@"'
    found = subprocess.run(
        ["bash", "-euc", script, "-", str(directory / "benchmark.env"), *command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "POLYTRACE_WORKSPACE": str(tmp_path)},
    )
    assert found.returncode == 0, found.stderr
    report: dict[str, Any] = json.loads(
        (tmp_path / "out" / f"{config['name']}.summary.json").read_text()
    )
    assert report["validation"]["ok"] is True
    assert report["formal_metrics_count"] == groups
    assert [round(one["gen_error_pct"], 6) for one in report["comparisons"]] == [10.0] * groups
    assert [one["step_error_pct"] for one in report["comparisons"]] == [0.0] * groups
    assert all(one["formal_total_tokens"] > 0 for one in report["comparisons"])
    assert f"WORKLOAD_PATH='{directory}'" in report["command"]
