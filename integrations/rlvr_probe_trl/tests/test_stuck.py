"""A real TRL training that hangs: who, in what, for how long; live, and once all of it is dead."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rlvr_probe_trl.tests.runs import Scenario, environment

from tests.hanging import Hung, hung

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(2000)]

SCRIPT = Path(__file__).with_name("hangs.py")


@contextmanager
def training(folder: Path, hangs: str, rank: int) -> Iterator[Hung]:
    """Two ranks, of which one hangs in its fourteenth step."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(SCRIPT), "--out", str(folder / "books")]
    command += ["--attach", "before", "--steps", "40", "--max-tokens", "8"]
    variables = {"HANGS": f"{hangs}@14", "HANGS_RANK": str(rank)}
    given = environment(folder, Scenario()) | variables
    with hung(command, folder, given, seconds=600) as job:
        yield job


def test_a_reward_function_that_hangs_is_named_with_its_line(tmp_path: Path) -> None:
    with training(tmp_path, "reward", rank=0) as job:
        first, waiting = job.found()
        assert (first["pid"], first["rank"], first["step"]) == (job.pid, 0, 14)
        assert (first["span"], first["detail"]) == ("reward_fn", "keeper")
        assert first["inside"] == ["reward", "experience", "step"]
        frames = [(row["function"], row["file"]) for row in first["stack"][:2]]
        assert frames[0] == ("never_comes_back", "hangs.py")
        assert (waiting["rank"], waiting["span"]) == (1, "reward")
        dead, waited = job.found_dead()
        assert dead["pid"] == job.pid
        assert (dead["rank"], dead["span"], dead["detail"]) == (0, "reward_fn", "keeper")
        assert (waited["rank"], waited["span"]) == (1, "reward")


@pytest.mark.full
def test_a_rank_that_hangs_in_generation_comes_before_the_one_that_waits(tmp_path: Path) -> None:
    with training(tmp_path, "generation", rank=1) as job:
        first, waiting = job.found()
        assert (first["pid"], first["rank"], first["step"]) == (job.pid, 1, 14)
        assert (first["span"], first["inside"]) == ("turn", ["rollout", "experience", "step"])
        assert first["stack"][0]["function"] == "never_comes_back"
        assert (waiting["rank"], waiting["span"]) == (0, "rollout")
        dead, waited = job.found_dead()
        assert (dead["pid"], dead["rank"], dead["span"]) == (job.pid, 1, "turn")
        assert (waited["rank"], waited["span"]) == (0, "rollout")
