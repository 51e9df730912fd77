"""Intervals are as wide as they say: by hand, and by drawing samples."""

from __future__ import annotations

import math
import random

import pytest

from rlvr_probe.analysis.statistics import (
    binomial_ranks,
    design_effect,
    jackknife,
    mean_interval,
    share_interval,
    student,
    theil_sen,
)
from tests.quantiles import quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (5, 2.5706), (10, 2.2281), (30, 2.0423), (10_000, 1.9602)],
)
def test_student_s_quantile_is_that_of_the_books(freedom: int, quantile: float) -> None:
    assert student(freedom) == pytest.approx(quantile, abs=2e-3)


def test_of_ten_samples_the_median_lies_between_the_second_and_the_ninth() -> None:
    # P(B(10, 1/2) <= 1) = 11 / 1024 = 1.07 %, P(B <= 2) = 5.5 %: the classic order statistics.
    assert binomial_ranks(10, 0.5) == (1 / 9, 8 / 9)


def test_of_a_hundred_samples_the_99th_percentile_has_no_upper_end() -> None:
    # All of them lie below it with probability 0.99^100 = 37 %.
    low, high = binomial_ranks(100, 0.99)

    assert low == pytest.approx(96 / 99)
    assert high is None


def test_of_one_sample_nothing_is_bounded() -> None:
    assert binomial_ranks(1.7, 0.5) == (None, None)


def test_ranks_of_very_many_samples_are_those_of_a_normal_distribution() -> None:
    low, high = binomial_ranks(1_000_000, 0.9)

    assert low is not None
    assert high is not None
    assert low == pytest.approx(0.9 - 1.96 * 0.0003, abs=3e-6)
    assert high == pytest.approx(0.9 + 1.96 * 0.0003, abs=3e-6)


def test_groups_of_copies_have_the_effect_of_their_size() -> None:
    # Four groups of five: in two of them all are below, in two none.
    squares = sum((below - 0.5 * 5) ** 2 for below in (5, 5, 0, 0))

    assert design_effect(squares, 4, 20, 0.5) == pytest.approx(5 * 4 / 3)


def test_a_design_effect_is_never_below_that_of_single_samples() -> None:
    assert design_effect(0.0, 4, 20, 0.5) == 1.0
    assert design_effect(7.0, 1, 20, 0.5) == 1.0
    assert design_effect(7.0, 4, 20, 1.0) == 1.0


def test_the_mean_of_two_groups_has_student_s_interval_of_one_degree_of_freedom() -> None:
    # Groups (1, 3) and (5, 7): mean 4, sums 4 and 12.
    low, high = mean_interval(4.0, (4 - 8) ** 2 + (12 - 8) ** 2, 2, 4)

    half = 12.706 * math.sqrt(32 * 2) / 4
    assert (low, high) == pytest.approx((4 - half, 4 + half))
    assert mean_interval(4.0, 0.0, 1, 4) == (None, None)


def test_the_interval_of_no_success_in_ten_is_wilson_s() -> None:
    low, high = share_interval(0.0, 10)

    assert low == 0.0
    assert high == pytest.approx(0.2775, abs=1e-4)
    assert share_interval(0.0, 0) == (None, None)


def test_the_slope_of_a_line_with_an_outlier_is_that_of_the_line() -> None:
    points = [(float(x), 2.0 * x) for x in range(20)]
    points[7] = (7.0, 1e6)

    slope, (low, high) = theil_sen(points)

    assert slope == 2.0
    assert low == 2.0
    assert high == 2.0


def test_two_points_have_a_slope_and_no_interval() -> None:
    assert theil_sen([(0.0, 1.0), (2.0, 5.0)]) == (2.0, (None, None))
    assert theil_sen([(1.0, 1.0)]) == (None, (None, None))


def test_a_long_series_is_averaged_and_keeps_its_slope() -> None:
    rng = random.Random(3)
    points = [(float(x), 0.25 * x + rng.gauss(0, 1)) for x in range(5_000)]

    slope, (low, high) = theil_sen(points)

    assert slope == pytest.approx(0.25, abs=1e-3)
    assert low is not None
    assert high is not None
    assert low < 0.25 < high


def test_a_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = [1.0, 4.0, 2.0, 8.0, 5.0]
    blocks = [(value, 1.0) for value in values]

    low, high = jackknife(blocks, lambda sums: sums[0] / sums[1])

    variance = sum((value - 4) ** 2 for value in values) / 4
    half = 2.776 * math.sqrt(variance / 5)
    assert (low, high) == pytest.approx((4 - half, 4 + half))


def test_a_jackknife_has_no_interval_where_a_part_has_no_figure() -> None:
    assert jackknife([(1.0,)], lambda sums: sums[0]) == (None, None)
    assert jackknife([], lambda sums: 1.0) == (None, None)


@pytest.mark.parametrize(("share", "groups"), [(0.5, 40), (0.9, 40), (0.9, 400)])
def test_quantiles_of_groups_that_are_alike_are_covered_as_often_as_is_said(
    share: float, groups: int
) -> None:
    rng, size, hits, runs = random.Random(groups), 8, 0, 300
    # Half of the variance is of the group: value = (g + e) / sqrt(2) is standard normal.
    true = {0.5: 0.0, 0.9: 1.2815515655}[share]
    for _ in range(runs):
        drawn = [
            [(own + rng.gauss(0, 1)) / math.sqrt(2) for _ in range(size)]
            for own in (rng.gauss(0, 1) for _ in range(groups))
        ]
        values = sorted(value for group in drawn for value in group)
        estimate = quantile(values, share)
        below = [sum(value <= estimate for value in group) for group in drawn]
        met = sum(below) / len(values)
        squares = sum((one - met * size) ** 2 for one in below)
        effect = design_effect(squares, groups, len(values), met)
        low, high = binomial_ranks(len(values) / effect, share)
        least = -math.inf if low is None else quantile(values, low)
        most = math.inf if high is None else quantile(values, high)
        hits += least <= true <= most

    assert 0.92 <= hits / runs <= 0.995
