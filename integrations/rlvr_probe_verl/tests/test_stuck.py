"""A real job of verl that hangs: who, in what, for how long; live, and once all of it is dead."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rlvr_probe_verl.tests.runs import Runner, Scenario

from tests.hanging import Hung, hung

# Another job may run, and one takes a minute or two on two cores.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3000)]

LONG = ("trainer.test_freq=-1",)


@contextmanager
def job(runner: Runner, scenario: Scenario, folder: Path) -> Iterator[Hung]:
    """A job until it is killed, from when one of its processes hangs."""
    ray = Path(tempfile.mkdtemp(prefix="rv", dir="/tmp"))
    try:
        command, environment = runner.prepared(scenario, folder, ray)
        with hung(command, folder, environment, seconds=scenario.timeout_s) as found:
            yield found
    finally:
        shutil.rmtree(ray, ignore_errors=True)


def test_a_worker_that_hangs_comes_before_the_controller_that_waits(
    runner: Runner, tmp_path: Path
) -> None:
    mischief = ("VERL_CPU_MISCHIEF=hang_rank_1@8",)
    scenario = Scenario("0.5.0", ranks=2, steps=20, overrides=LONG, environment=mischief)
    with job(runner, scenario, tmp_path) as hanging:
        first, waiting, *_ = hanging.found()
        assert (first["pid"], first["rank"]) == (hanging.pid, 1)
        assert (first["span"], first["detail"]) == ("rpc", "compute_log_prob")
        assert first["stack"][0]["function"] == "never_comes_back"
        assert (waiting["role"], waiting["detail"]) == ("TaskRunner", "compute_log_prob")
        assert waiting["inside"] == ["old_logprob", "step"]
        assert waiting["step"] == 9
        dead, waited, *_ = hanging.found_dead()
        assert (dead["pid"], dead["detail"]) == (hanging.pid, "compute_log_prob")
        assert (waited["role"], waited["step"]) == ("TaskRunner", 9)
