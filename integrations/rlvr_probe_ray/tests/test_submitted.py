"""A job that real Ray unpacks, runs and throws away."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from rlvr_probe_ray.tests.runs import (
    PATIENCE_S,
    TESTS,
    Driver,
    cluster,
    environment,
    free_ports,
    python,
)

pytestmark = [pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(3000)]


def test_a_recording_of_a_submitted_job_outlives_its_working_directory(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "home").mkdir()
    shutil.copy(TESTS / "submitted_driver.py", tmp_path / "mine" / "driver.py")
    dashboard, agent = map(str, free_ports(2))
    options = ["--include-dashboard", "true", "--dashboard-port", dashboard]
    options += ["--dashboard-agent-listen-port", agent, "--node-ip-address", "127.0.0.1"]
    submit = [str(python()), "-m", "ray.scripts.scripts", "job", "submit"]
    submit += ["--address", f"http://127.0.0.1:{dashboard}", "--working-dir", "mine"]
    kept = {
        "HOME": str(tmp_path / "home"),
        # Else Ray empties the cache when 10 GB are in it.
        "RAY_RUNTIME_ENV_WORKING_DIR_CACHE_SIZE_GB": "0",
    }
    with cluster(*options, **kept):
        done = subprocess.run(
            [*submit, "--", str(python()), "driver.py"],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:]
        [(driver, worker)] = re.findall(r"WORKED IN (\S+) (\S+)", done.stdout)
        assert driver == worker
        assert "/runtime_resources/working_dir_files/_ray_pkg_" in driver
        until = time.monotonic() + PATIENCE_S
        while Path(driver).exists() and time.monotonic() < until:
            time.sleep(0.2)
        assert not Path(driver).exists()
    recordings = tmp_path / "home" / "rlvr-probe-runs"
    assert done.stdout.count("recording to ") == 1
    said = f"recording to {recordings}: the working directory is in Ray's package cache"
    assert said in done.stdout
    rows = [row for journal in Driver({}, recordings).journals for row in journal.of("user")]
    labels = sorted(str(row["label"]) for row in rows)
    assert labels == ["stage of a driver", "step of a worker"]
