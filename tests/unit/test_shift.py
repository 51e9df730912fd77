"""By which factor a stage takes longer: steps are drawn, and the factor is put into them."""

from __future__ import annotations

import math
import random

import pytest

from rlvr_probe.analysis.causes.baselines import ENOUGH
from rlvr_probe.analysis.comparison.shift import Shift, shift_of
from tests import today

PAIRS = 300
SIGMAS = 1.96


def steps(
    draw: random.Random, count: int, *, times: float = 1.0, lengths: float = 1.0, alike: float = 0.0
) -> tuple[list[float], list[float]]:
    """Seconds and tokens of steps: 2 s, and 1 s for 1,000 tokens, with 2 % of noise.

    Args:
        draw: Decides by chance.
        count: How many.
        times: By which factor all take longer.
        lengths: By which factor there are more tokens.
        alike: How much of the noise of a step is that of the step before.
    """
    taken, tokens, noise = list[float](), list[float](), 0.0
    for _ in range(count):
        noise = alike * noise + draw.gauss(0, 0.02) * math.sqrt(1 - alike**2)
        tokens.append(lengths * 4_000 * math.exp(draw.gauss(0, 0.2)))
        taken.append(times * (2 + tokens[-1] / 1_000) * math.exp(noise))
    return taken, tokens


def shift(draw: random.Random, count: int = 40, **after: float) -> Shift:
    first, then = steps(draw, count), steps(draw, count, **after)
    found = shift_of(first[0], then[0], [(first[1], then[1])])
    assert found is not None
    return found


def is_beyond(found: Shift, sigmas: float = SIGMAS) -> bool:
    low, high = found.interval(sigmas)
    return not low <= 1 <= high


def test_equal_runs_differ_beyond_chance_in_one_of_twenty() -> None:
    draw = random.Random(1)
    assert sum(is_beyond(shift(draw)) for _ in range(PAIRS)) <= 0.05 * PAIRS


def test_a_twentieth_longer_is_found() -> None:
    draw = random.Random(2)
    found = [shift(draw, times=1.05) for _ in range(PAIRS)]
    assert sum(map(is_beyond, found)) >= 0.95 * PAIRS
    assert sum(part.times for part in found) / PAIRS == pytest.approx(1.05, abs=0.005)


@pytest.mark.parametrize("lengths", today.some([0.6, 1.25, 1.6], 1))
def test_what_lengths_explain_is_no_difference(lengths: float) -> None:
    draw = random.Random(3)
    found = [shift(draw, lengths=lengths) for _ in range(PAIRS)]
    assert sum(map(is_beyond, found)) <= 0.05 * PAIRS
    expected = (2 + 4 * lengths) / 6
    assert sum(part.lengths for part in found) / PAIRS == pytest.approx(expected, rel=0.03)


def test_steps_that_resemble_each_other_say_less() -> None:
    draw = random.Random(4)
    pairs = [
        shift_of(steps(draw, 40, alike=0.8)[0], steps(draw, 40, alike=0.8)[0]) for _ in range(PAIRS)
    ]
    # Tokens are left out, so that the noise is theirs as well.
    assert sum(is_beyond(pair) for pair in pairs if pair is not None) <= 0.08 * PAIRS


def test_a_few_far_steps_do_not_shift_the_others() -> None:
    draw = random.Random(5)
    first, then = steps(draw, 40), steps(draw, 40)
    far = [taken * 20 if at in (7, 19, 31) else taken for at, taken in enumerate(then[0])]
    found = shift_of(first[0], far, [(first[1], then[1])])
    assert found is not None
    assert found.times == pytest.approx(1, abs=0.02)


def test_lengths_that_never_vary_within_a_run_leave_it_open_what_they_explain() -> None:
    """Twice the tokens in one and a half times the time may be all of it, or none."""
    draw = random.Random(6)
    first = [1 + draw.gauss(0, 0.01) for _ in range(40)]
    then = [1.5 + draw.gauss(0, 0.01) for _ in range(40)]
    found = shift_of(first, then, [([1_000.0] * 40, [2_000.0] * 40)])
    assert found is not None
    assert not is_beyond(found)
    assert is_beyond(shift_of(first, then) or found)


def token_times(draw: random.Random, times: float = 1.0, *, follows: float = 0.0) -> Shift:
    """Of 25 steps, of which the noise is 0.5 %, and tokens that differ by a tenth between runs."""
    first, then = steps(draw, 25)[1], steps(draw, 25, lengths=1.1)[1]
    before, after = (
        [factor * (count / 4_000) ** follows * math.exp(draw.gauss(0, 0.005)) for count in side]
        for factor, side in ((30.0, first), (30.0 * times, then))
    )
    found = shift_of(before, after, [(first, then)], of_a_token=True)
    assert found is not None
    return found


@pytest.mark.parametrize("follows", [0.0, 0.15])
def test_the_time_of_a_token_differs_by_little_beyond_chance(follows: float) -> None:
    """How many tokens there are says little of how long one takes, and of that runs say more."""
    draw = random.Random(7)
    same = [token_times(draw, follows=follows) for _ in range(PAIRS)]
    slower = [token_times(draw, 1.03, follows=follows) for _ in range(PAIRS)]
    assert sum(map(is_beyond, same)) <= 0.05 * PAIRS
    assert sum(map(is_beyond, slower)) >= 0.95 * PAIRS


def test_a_token_may_take_longer_because_responses_do() -> None:
    """Lengths that hardly vary within a run leave open how its time follows them."""
    draw = random.Random(8)
    found = list[Shift]()
    for _ in range(PAIRS):
        first, then = ([n * math.exp(draw.gauss(0, 0.02)) for _ in range(25)] for n in (1e3, 2e3))
        before, after = (
            [count**0.3 * math.exp(draw.gauss(0, 0.03)) for count in side] for side in (first, then)
        )
        pair = shift_of(before, after, [(first, then)], of_a_token=True)
        assert pair is not None
        found.append(pair)
    assert sum(is_beyond(pair, 2.6) for pair in found) <= 0.05 * PAIRS


def test_too_few_steps_say_nothing() -> None:
    few = [1.0 + step / 100 for step in range(ENOUGH - 1)]
    assert shift_of(few, [*few, 1.0]) is None
    assert shift_of([*few, 1.0], [*few, 1.0]) is not None


def test_steps_that_are_all_alike_are_equal() -> None:
    found = shift_of([2.0] * 8, [2.0] * 8, [([5.0] * 8, [5.0] * 8)])
    assert found is not None
    assert (found.times, found.lengths) == (1.0, 1.0)
