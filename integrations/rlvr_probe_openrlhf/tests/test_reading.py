"""Lengths and settings are read, and what has another shape is unknown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlvr_probe_openrlhf.reading import lengths_of, reward_of

from rlvr_probe.reading import option


def response(total: int, *ranges: tuple[int, int]) -> dict[str, Any]:
    return {"observation_tokens": [7] * total, "action_ranges": list(ranges)}


@pytest.mark.parametrize(
    ("given_response", "most", "prompt", "answer", "runs", "cut"),
    [
        (response(10, (4, 10)), None, 4, 6, None, False),
        (response(10, (4, 10)), 8, 4, 4, None, True),
        (response(20, (4, 8), (11, 20)), None, 4, 16, [4, 3, 9], False),
        (response(20, (4, 8), (11, 18)), None, 4, 16, [4, 3, 7, 2], False),
        (response(20, (4, 8), (11, 18)), 10, 4, 6, [4, 2], True),
        (response(20, (4, 8), (11, 18)), 8, 4, 4, None, True),
        (response(12, (4, 8), (8, 12)), None, 4, 8, None, False),
        (response(6, (4, 4)), None, 4, 2, [0, 2], False),
        (response(6), None, 6, 0, None, False),
        (response(6), 5, 5, 0, None, True),
        (response(6, (np.int64(4), np.int32(6))), None, 4, 2, None, False),
    ],
)
def test_lengths_are_those_that_openrlhf_keeps(
    given_response: Any, most: int | None, prompt: int, answer: int, runs: Any, cut: bool
) -> None:
    result = lengths_of(given_response, most)
    assert result is not None
    assert (result.prompt_tokens, result.response_tokens, result.runs, result.cut) == (
        prompt,
        answer,
        runs,
        cut,
    )


@given(st.lists(st.integers(0, 9), min_size=2, max_size=12), st.integers(0, 60))
def test_runs_add_up_to_the_response(parts: list[int], most: int) -> None:
    at, ranges = 3, list[tuple[int, int]]()
    for gap, length in zip(parts[::2], parts[1::2], strict=False):
        begin = at + (gap if ranges else 0)
        ranges.append((begin, begin + length))
        at = begin + length
    total = at + parts[0]
    result = lengths_of(response(total, *ranges), most)
    assert result is not None
    assert result.prompt_tokens + result.response_tokens == min(total, most)
    mask = [any(begin <= place < end for begin, end in ranges) for place in range(total)][:most]
    inside = sum(mask[result.prompt_tokens :])
    assert (sum(result.runs[::2]) if result.runs else result.response_tokens) == inside
    assert result.runs is None or sum(result.runs) == result.response_tokens


@pytest.mark.parametrize(
    "unknown",
    [
        None,
        {},
        {"observation_tokens": [1]},
        response(4, (2, 1)),
        {"observation_tokens": [1], "action_ranges": [(0,)]},
        response(4, (0, True)),
    ],
)
def test_what_has_another_shape_is_unknown(unknown: Any) -> None:
    assert lengths_of(unknown, None) is None


def test_a_setting_is_found_under_the_name_that_the_release_has() -> None:
    new = SimpleNamespace(rollout=SimpleNamespace(batch_size=8))
    old = SimpleNamespace(rollout_batch_size=8)
    for args in (new, old):
        assert option(args, "rollout.batch_size", "rollout_batch_size") == 8
    assert option(None, "rollout.batch_size") is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, 1.5),
        (2, 2.0),
        (None, None),
        (True, None),
        ("1", None),
        ([0.5], 0.5),
        ((2,), 2.0),
        ([0.5, 1.0], None),
        ([], None),
        ([[0.5]], None),
    ],
)
def test_a_reward_is_a_number(value: Any, expected: float | None) -> None:
    assert reward_of(value) == expected


def test_a_reward_that_is_nan_is_none_that_is_missing() -> None:
    assert str([reward_of(float("nan")), reward_of([float("-inf")])]) == "[nan, -inf]"
