"""A job of verl with its own servers of vLLM, whose engine is real and runs without a GPU."""

from __future__ import annotations

import pytest
from rlvr_probe_verl.tests.runs import PROMPTS, Finished, Runner, Scenario

from tests.answers import TestAnswers

__all__ = ["TestAnswers"]

pytestmark = [pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(3000)]

SCENARIO = Scenario("0.9.1", how="launcher", vllm=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("verl-vllm")
    return Runner(folder).run(SCENARIO, folder / "job")


@pytest.fixture
def samples() -> tuple[int, int]:
    """That it trained on, and that it evaluated."""
    return SCENARIO.steps * PROMPTS * SCENARIO.group_size, PROMPTS
