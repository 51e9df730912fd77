"""What a generator's samples become, which weights they saw, and which rewards a model gave."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest
from rlvr_probe_openrlhf.reading import Lengths, local, scores_of
from rlvr_probe_openrlhf.rollouts import groups_of
from rlvr_probe_openrlhf.samples import Sample, Samples
from rlvr_probe_openrlhf.weights import Weights


class Experience:
    """Can be referred to weakly, and not be hashed, as OpenRLHF's."""

    __hash__ = None  # type: ignore[assignment]


def sample(task: str | None, place: int) -> Sample:
    return Sample(task, place, None, Lengths(3, 4, None, False), 0, 1.0, True)


def test_a_sample_is_known_by_what_became_of_it_and_forgotten_with_it() -> None:
    samples = Samples()
    kept, gone = Experience(), Experience()
    first, other = sample("a", 0), sample("b", 0)
    samples.begin()
    samples.add(kept, first)
    samples.add(gone, other)
    assert samples.of(kept) is first
    assert samples.take_gone([kept]) == [other]
    assert samples.take_gone([kept]) == []
    assert samples.of(Experience()) is None
    del gone
    gc.collect()
    assert len(samples) == 1
    samples.begin()
    assert samples.take_gone([]) == []


def test_places_count_from_0_in_each_answer() -> None:
    samples = Samples()
    assert [samples.place(task) for task in ("a", "a", "b", "a")] == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("tasks", "groups", "size"),
    [
        ("aabb", None, 2),
        ("aaab", None, 3),
        ("abbb", [0, 1, 1, 1], 3),
        ("abc", None, 1),
    ],
)
def test_the_samples_of_an_answer_are_a_group(tasks: str, groups: Any, size: int) -> None:
    samples = [sample(task, at) for at, task in enumerate(tasks)]
    result = groups_of(samples, 7)
    assert (result.names, result.size) == (list(dict.fromkeys(tasks)), size)
    assert (None if result.even else result.of_rows) == groups


def test_samples_of_unknown_answers_are_told_apart_by_their_places() -> None:
    samples = [sample(None, place) for place in (0, 1, 0, 1)]
    result = groups_of(samples, 7)
    assert (result.even, result.names, result.size) == (True, ["7-0", "7-2"], 2)


def test_a_variable_of_a_caller_is_found_by_its_name() -> None:
    def _generate_vllm() -> Any:
        ref = "answer"
        return [local("_generate_vllm", "ref") for _ in range(len(ref))]

    assert _generate_vllm() == ["answer"] * 6
    assert local("_generate_vllm", "ref") is None


def moved(weights: Weights, parameters: int) -> None:
    for number in range(1, parameters + 1):
        weights.begin_move()
        weights.end_move(number == parameters)


def test_weights_are_those_of_the_steps_that_were_trained() -> None:
    weights = Weights(counted=True)
    assert (weights.oldest(), weights.newest()) == (0, 0)
    moved(weights, 3)
    assert (weights.oldest(), weights.newest()) == (1, 1)
    weights.begin_move()
    assert (weights.oldest(), weights.newest()) == (1, 2)


def test_weights_that_came_from_a_checkpoint_or_unseen_are_unknown() -> None:
    resumed = Weights(counted=True)
    moved(resumed, 1)
    assert (resumed.oldest(), resumed.newest()) == (None, None)
    unseen = Weights()
    assert (unseen.oldest(), unseen.newest()) == (None, None)


class Column:
    """A tensor of rewards in host memory."""

    device = SimpleNamespace(type="cpu")
    ndim = 1

    def __init__(self, *values: float) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def tolist(self) -> list[float]:
        return list(self._values)


def batch(index: Any, *rewards: float) -> Any:
    return SimpleNamespace(rewards=Column(*rewards), index=index)


def test_rewards_of_a_model_are_put_in_the_order_of_rows() -> None:
    assert scores_of([batch([2, 0], 0.2, 0.0), batch([1], 0.1)], 3) == [0.0, 0.1, 0.2]


@pytest.mark.parametrize(
    "unknown", [None, [batch(None, 1.0)], [batch([0], 1.0, 2.0)], [batch([1], 1.0)]]
)
def test_rewards_that_are_not_those_of_every_row_are_unknown(unknown: Any) -> None:
    assert scores_of(unknown, 1) is None
