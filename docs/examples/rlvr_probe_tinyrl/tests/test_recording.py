"""A training keeps its own books; the recording must say the same."""

from __future__ import annotations

import random
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import tinyrl
from rlvr_probe_tinyrl import TinyRLAdapter

import rlvr_probe
from rlvr_probe import guard
from rlvr_probe.lookup import Sources
from rlvr_probe.recording import read_run

PROMPTS = [[7] * length for length in range(3, 11)]


@pytest.fixture(autouse=True)
def strict() -> Any:
    """What the probe would count and go on, fails here; and no test leaves it attached."""
    guard.set_strict(True)
    yield
    guard.set_strict(False)
    rlvr_probe.detach()


def train(fail_at: int | None = None) -> tuple[float, list[dict[str, Any]]]:
    """Parameter of the policy after five steps, and the books: lengths and scores of each."""
    books: list[dict[str, Any]] = []
    draw = random.Random(3)

    def score(prompts: list[list[int]], responses: list[list[int]]) -> list[float]:
        if fail_at == len(books) + 1:
            raise RuntimeError("a verifier broke")
        scores = [draw.random() for _ in responses]
        books.append(
            {
                "prompts": [len(prompt) for prompt in prompts],
                "responses": [len(response) for response in responses],
                "cut": [response[-1] != tinyrl.STOP for response in responses],
                "scores": scores,
            }
        )
        return scores

    trainer = tinyrl.Trainer(tinyrl.Policy(), PROMPTS, [score], steps=5)
    return trainer.fit().stop, books


def test_lengths_and_scores_are_those_of_the_training(tmp_path: Path) -> None:
    attachment = rlvr_probe.attach(out=tmp_path, frameworks=["tinyrl"])
    _, books = train()
    rlvr_probe.detach()

    trace = read_run(attachment.folder)
    steps = [step for attempt in trace.attempts for step in attempt.steps if step.started]
    recorded = []
    for step in steps:
        groups = [group for batch in step.batches for group in batch.groups()]
        rows = [row for group in groups for row in group.trajectories]
        recorded.append(
            {
                "prompts": [row.prompt_tokens for row in rows],
                "responses": [row.response_tokens for row in rows],
                "cut": [row.truncated for row in rows],
                "scores": [reward.value for row in rows for reward in row.rewards],
            }
        )
    assert recorded == books
    assert [step.number for step in steps] == [1, 2, 3, 4, 5]
    assert all(step.complete for step in steps)
    assert trace.lost == {}


def test_a_training_is_the_same_with_and_without_the_probe(tmp_path: Path) -> None:
    without = train()
    rlvr_probe.attach(out=tmp_path, frameworks=["tinyrl"])
    assert train() == without
    rlvr_probe.detach()
    assert train() == without


def test_an_error_of_a_verifier_arrives_as_it_was(tmp_path: Path) -> None:
    attachment = rlvr_probe.attach(out=tmp_path, frameworks=["tinyrl"])
    with pytest.raises(RuntimeError, match="a verifier broke"):
        train(fail_at=3)
    rlvr_probe.detach()
    (attempt,) = read_run(attachment.folder).attempts
    assert [step.number for step in attempt.steps if step.complete] == [1, 2]


def test_every_hook_point_is_in_the_installed_release() -> None:
    adapter = TinyRLAdapter()
    sources = Sources([Path(tinyrl.__file__).parents[1]])
    for point in adapter.expected(metadata.version("tinyrl")):
        assert sources.check(point) is None
