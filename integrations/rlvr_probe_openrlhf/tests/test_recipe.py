"""The recipe, as its page in the documentation says it is run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(1500)]

RECIPE = Path(__file__).parents[1] / "recipe" / "run.sh"


def test_the_recipe_trains_records_and_writes_a_sound_workload() -> None:
    done = subprocess.run(
        [str(RECIPE), "--agent"], capture_output=True, text=True, check=False, timeout=1400
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "openrlhf 0.11.2" in done.stdout
    assert "polytrace workload, sound: 0 problems, 0 warnings" in done.stdout
