"""Commands of verl that end before a training begins, and what the launcher says of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from rlvr_probe_verl.tests.environments import python

from tests.surroundings import surroundings

# The first test may have to make the environment, a gigabyte.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3000)]

NOBODY = "127.0.0.1:1"
"""An address at which no Ray listens."""
REFUSED = "ConnectionError: Failed to connect to Ray cluster at "


def test_a_training_whose_ray_is_not_there_is_told_from_one_without_a_framework(
    tmp_path: Path,
) -> None:
    interpreter = python("0.9.1")
    command = [str(interpreter.with_name("rlvr-probe")), "run", "--"]
    command += [str(interpreter), "-m", "verl.trainer.main_ppo"]
    # What verl wants before it connects; no model is loaded.
    command += [
        "critic.enable=False",
        "actor_rollout_ref.model.path=none",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1",
        "actor_rollout_ref.rollout.name=vllm",
    ]
    # Else Ray asks for a quarter of an hour.
    quick = {"RAY_NUM_REDIS_GET_RETRIES": "1", "RAY_py_gcs_connect_timeout_s": "1"}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=surroundings("RAY_", "VERL_", "PYTHONPATH")
        | {"RAY_ADDRESS": NOBODY, "RAY_AUTH_MODE": "disabled", "HF_HUB_OFFLINE": "1"}
        | quick,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    *error, last = done.stderr.splitlines()
    assert any(line.startswith(REFUSED) for line in error), done.stderr[-6000:]
    assert re.fullmatch(
        r"rlvr-probe: nothing was recorded: 1 process imported ray [\d.]+ and verl 0\.9\.1, and the"
        " command ended with status 1 before its first stage",
        last,
    )
    assert done.returncode == 1
    assert not (tmp_path / "rlvr-probe-runs").exists()
