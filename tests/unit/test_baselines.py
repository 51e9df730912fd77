"""What a step should take: growth, slow steps and leaks are found, noise is not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest

from rlvr_probe.analysis.causes.baselines import (
    Excess,
    excess,
    excess_of_few,
    expected,
    noise_of,
    window,
)

DRAWS = 200


def noisy(generator: random.Random, steps: int, noise: float) -> list[float]:
    """Times of steps around 1."""
    return [math.exp(generator.gauss(0, noise)) for _ in range(steps)]


def found(times: Sequence[float], tokens: Sequence[Sequence[float]] = ()) -> Excess | None:
    return excess(times, expected(times, tokens))


def share(form: str, change: Callable[[int, int], float], noise: float = 0.03) -> float:
    """Of draws, those in which this form is found, and its excess within a tenth."""
    right = 0
    for draw in range(DRAWS):
        generator = random.Random(f"{form} {draw}")
        steps = generator.randint(12, 40)
        usual = noisy(generator, steps, noise)
        times = [time * change(step, steps) for step, time in enumerate(usual)]
        longer = found(times)
        if longer is not None and longer.form == form:
            true = sum(times) - sum(usual)
            right += abs(sum(longer.ns) - true) < 0.1 * true
    return right / DRAWS


def test_a_window_of_slow_steps_is_found_with_its_excess() -> None:
    def change(step: int, steps: int) -> float:
        return 2.0 if steps // 3 <= step < steps // 3 + max(3, steps // 6) else 1.0

    assert share("some", change) >= 0.95


def test_a_change_is_found_with_its_excess() -> None:
    assert share("since", lambda step, steps: 2.0 if step >= steps // 2 else 1.0) >= 0.95


def test_a_leak_is_found_with_its_excess() -> None:
    assert share("growing", lambda step, steps: 1 + 2 * (step + 1) / steps) >= 0.95


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.15])
def test_noise_is_no_cause(noise: float) -> None:
    """What noise exceeds by is below a hundredth of the time, in nearly all draws."""
    alarms = 0
    for draw in range(DRAWS):
        generator = random.Random(f"{noise} {draw}")
        times = noisy(generator, generator.randint(12, 40), noise)
        longer = found(times)
        alarms += longer is not None and sum(longer.ns) > 0.01 * sum(times)
    assert alarms <= 0.05 * DRAWS


def test_time_that_follows_tokens_is_no_cause() -> None:
    generator = random.Random(5)
    tokens = [generator.lognormvariate(0, 0.6) for _ in range(40)]
    longest = [generator.lognormvariate(0, 0.6) for _ in range(40)]
    times = [0.2 + count + 2 * most for count, most in zip(tokens, longest, strict=True)]
    assert expected(times, [tokens, longest]) == pytest.approx(times, rel=0.1)
    assert found(times, [tokens, longest]) is None


def test_a_change_is_found_beside_tokens() -> None:
    generator = random.Random(6)
    tokens = [generator.lognormvariate(0, 0.4) for _ in range(40)]
    times = [0.2 + count * (1.5 if step >= 20 else 1) for step, count in enumerate(tokens)]
    longer = found(times, [tokens])
    assert longer is not None
    assert (longer.form, longer.first) == ("since", 20)


@pytest.mark.parametrize(("noise", "least"), [(0.02, 0.95), (0.05, 0.95), (0.15, 0.8)])
def test_a_leak_is_found_beside_tokens(noise: float, least: float) -> None:
    """Of several kinds of tokens, one grows with the leak by chance in many runs."""
    right = 0
    for draw in range(DRAWS):
        generator = random.Random(f"leak {noise} {draw}")
        steps = generator.randint(11, 40)
        tokens = [noisy(generator, steps, 0.3) for _ in range(4)]
        works = [0.3 + tokens[0][step] for step in range(steps)]
        times = [
            (works[step] + 0.1 * step) * drawn
            for step, drawn in enumerate(noisy(generator, steps, noise))
        ]
        longer = found(times, tokens)
        right += longer is not None and longer.form in {"growing", "since"}
    assert right >= least * DRAWS


def test_a_rollout_of_a_real_training_that_leaked_is_no_slower_for_its_tokens() -> None:
    """Each step slept 0.05 s longer than the one before: 3.86 s in steps 2 to 12."""
    times = [0.208, 0.257, 0.307, 0.407, 0.449, 0.455, 0.533, 0.604, 0.620, 0.649, 0.753]
    tokens = [348, 406, 389, 380, 430, 307, 383, 386, 456, 381, 456]
    response = [280, 338, 325, 308, 358, 235, 311, 314, 384, 309, 384]
    sequence = [56, 58, 58, 57, 59, 55, 57, 57, 60, 57, 60]
    longer = excess(times, expected(times, [tokens, response, sequence]), 2)
    assert longer is not None
    assert longer.form == "growing"
    assert sum(longer.ns) == pytest.approx(3.86, rel=0.1)


def test_an_update_of_a_real_training_that_is_late_at_random_is_sound() -> None:
    """Nothing slept in it; 0.499 s is 1.3 times what most steps took."""
    times = [0.488, 0.452, 0.382, 0.499, 0.372, 0.382, 0.382, 0.355, 0.407, 0.405, 0.451]
    assert found(times) is None


def test_growth_does_not_hide_what_tokens_explain() -> None:
    generator = random.Random(10)
    tokens = [generator.lognormvariate(0, 0.2) for _ in range(32)]
    times = [
        (0.2 + count) * (1 + step / 80) * math.exp(generator.gauss(0, 0.01))
        for step, count in enumerate(tokens)
    ]
    assert noise_of(times, expected(times, [tokens])) < 0.06


def test_a_run_has_grown_by_its_end_beside_its_start() -> None:
    """Its last third is less than a tenth longer than its first."""
    usual = noisy(random.Random(11), 30, 0.005)
    longer = found([time * (1 + 0.12 * (step + 1) / 30) for step, time in enumerate(usual)])
    assert longer is not None
    assert longer.form == "growing"
    assert longer.times == pytest.approx(1.12, abs=0.02)


def test_a_few_steps_tell_nothing() -> None:
    assert found([1.0, 1.0, 9.0, 1.0, 1.0]) is None


def test_the_cost_of_many_steps_grows_with_them_alone() -> None:
    times = noisy(random.Random(7), 20_000, 0.05)
    assert found([time * (2 if step >= 9_000 else 1) for step, time in enumerate(times)])
    assert excess_of_few(times) is None


def test_a_window_may_be_hardly_slower_where_noise_is_small() -> None:
    """It is told where others join in: by 7 % here, which is no cause alone."""
    usual = noisy(random.Random(8), 22, 0.01)
    times = [time * (1.07 if 6 <= step < 12 else 1) for step, time in enumerate(usual)]
    assert found(times) is None
    slightly = window(times, [1.0] * len(times), 1.05)
    assert slightly is not None
    assert sum(slightly.ns) == pytest.approx(sum(times) - sum(usual), rel=0.2)


def test_noise_is_the_spread_by_what_is_expected() -> None:
    generator = random.Random(9)
    expectation = [generator.uniform(1, 9) for _ in range(400)]
    times = [value * math.exp(generator.gauss(0, 0.1)) for value in expectation]
    assert noise_of(times, expectation) == pytest.approx(0.1 * (1 + 3 / 20), rel=0.1)


@pytest.mark.parametrize(
    ("times", "form", "first", "over"),
    [
        ([8.1, 58.2, 59.3, 58.6, 58.6], "since", 1, 202.3),
        ([10, 11, 30, 32], "since", 2, 41),
        ([10, 41, 11, 10.5], "some", 1, 30.5),
        ([10, 20, 30.5, 40], "growing", 0, 60.5),
        ([10, 30, 11, 32, 10, 33, 11, 31], "some", 1, 84),
        ([10, 12, 13, 13, 14], None, 0, 0),  # not by half
        ([10, 30, 31, 11, 32], None, 0, 0),  # most are longer, and not the last
        ([10, 16, 22, 60, 70], None, 0, 0),  # they lie apart themselves
        ([126.0, 22.2, 22.1, 22.2], None, 0, 0),  # of a sound training: the first warms up
        ([10, 10, 40], None, 0, 0),  # too few
    ],
)
def test_few_occasions_show_what_is_far_from_the_others(
    times: Sequence[float], form: str | None, first: int, over: float
) -> None:
    longer = excess_of_few(times)
    if form is None:
        assert longer is None
    else:
        assert longer is not None
        assert (longer.form, longer.first) == (form, first)
        assert sum(longer.ns) == pytest.approx(over, rel=0.02)


@pytest.mark.parametrize(("noise", "most"), [(0.05, 0), (0.15, 5), (0.3, 40)])
def test_few_occasions_of_a_noisy_run_are_no_cause(noise: float, most: int) -> None:
    """Of a thousand draws."""
    generator = random.Random(f"few {noise}")
    found = [excess_of_few(noisy(generator, draw % 2 + 4, noise)) for draw in range(1_000)]
    assert len(found) - found.count(None) <= most
