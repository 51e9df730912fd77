"""A reward service that hangs, answers 500 or is slow, asked by OpenRLHF's own executor."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_openrlhf.tests.environments import python
from rlvr_probe_openrlhf.tests.runs import JOB

from tests.surroundings import surroundings

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(1500)]


def play(folder: Path, *, recorded: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the scene printed, and the rows of its ``verify`` spans."""
    dropped = ("OPENRLHF_", "PYTHONPATH")
    environ = surroundings(*dropped)
    environ |= {"OPENRLHF_CPU": "1", "PYTHONPATH": str(JOB), "DS_ACCELERATOR": "cpu"}
    environ |= {"OPENRLHF_CPU_BOOKS": str(folder), "PYTHONWARNINGS": "ignore"}
    environ |= {"RLVR_PROBE_OUT": str(folder / "out"), "OMP_NUM_THREADS": "1"}
    environ |= {"RLVR_PROBE_SIDECAR": "0"}
    environ |= {} if recorded else {"RLVR_PROBE_DISABLED": "1"}
    done = subprocess.run(
        [str(python("0.11.2")), str(JOB / "openrlhf_cpu_scene.py")],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed, rows_of(folder / "out") if recorded else []


def rows_of(out: Path) -> list[dict[str, Any]]:
    """Attributes, duration and error of every ``verify`` span."""
    result = list[dict[str, Any]]()
    for path in out.glob("*/*.jsonl"):
        definitions = dict[int, list[str]]()
        for row in map(json.loads, path.read_text().splitlines()[1:]):
            if row[0] == "def":
                if row[3] == "verify":
                    definitions[row[1]] = row[4]
            elif row[0] in definitions:
                values = dict(zip(definitions[row[0]], row[6:], strict=True))
                result.append({**values, "seconds": row[2] / 1e9, "error": row[5]})
    return result


def test_retries_and_timeouts_are_told_apart_and_the_rewards_are_those_without_the_probe(
    tmp_path: Path,
) -> None:
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    printed, rows = play(tmp_path / "with", recorded=True)
    bare, _ = play(tmp_path / "without", recorded=False)
    assert printed == bare
    assert printed["rewards"] == {
        **{manner: [0.5] for manner in ("good", "slow", "500", "hang", "half")},
        "dead": None,
    }
    assert printed["asked"] == {
        "good": 1,
        "slow": 1,
        "500": 2,
        "hang": 2,
        "half": 2,
        "dead": 5,
    }
    recorded = sorted(
        (row["attempts"], row["timeouts"], row["value"], row["error"])
        for row in rows
        if row["value"] is not None
    )
    late = [(2, 1, 0.5, None)] * 2
    assert recorded == [(1, 0, 0.5, None), (1, 0, 0.5, None), (2, 0, 0.5, None), *late]
    [dead] = [row for row in rows if row["value"] is None]
    assert (dead["attempts"], dead["timeouts"], dead["error"]) == (5, 0, "RuntimeError")
    assert {row["function"] for row in rows} == {"reward_service"}
    # OpenRLHF sleeps a second before it asks again.
    assert dead["seconds"] > 4
