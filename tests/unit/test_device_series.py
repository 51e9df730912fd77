"""What a device did over a span, against a GPU that is known at every moment."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from functools import cache
from math import nan
from statistics import mean

import pytest

from rlvr_probe.model.device_series import DeviceFacts, DeviceSeries
from rlvr_probe.model.readings import Readings
from tests.truth import STEP, Error, Truth, errors, read

SECOND = 1_000_000_000
PERIOD = SECOND // 5


def series(*rows: dict[str, float], period_ns: int = PERIOD, window: bool = True) -> DeviceSeries:
    """A device with a reading per period, from 0."""
    readings = Readings(period_ns)
    for place, row in enumerate(rows):
        readings.add(place * period_ns, row, period_ns if window and place else None)
    return device(readings)


def device(readings: Readings) -> DeviceSeries:
    return DeviceSeries(DeviceFacts("GPU-1"), {"fast": readings})


# Mean error of energy, share, and of SM activity, points, at 5 Hz.
AT_5_HZ = {
    "rollout": (0.003, 0.003),
    "update_actor": (0.005, 0.003),
    "old_logprob": (0.02, 0.02),
    "reward": (0.12, 0.04),
    "weight_sync": (0.50, 0.15),
}


@cache
def found(hz: float) -> Mapping[str, list[Error]]:
    truth = Truth(STEP, 6)
    return errors(truth, [device(read(truth, hz, seed)) for seed in range(8)])


def test_at_5_hz_the_errors_of_phases_are_those_of_the_method() -> None:
    for name, (energy, sm) in AT_5_HZ.items():
        assert mean(error.energy for error in found(5)[name]) <= energy, name
        assert mean(error.sm for error in found(5)[name]) <= sm, name


@pytest.mark.parametrize("hz", [1, 2, 5, 9])
def test_the_error_of_energy_is_within_the_bound_that_is_told(hz: float) -> None:
    every = [error for phase in found(hz).values() for error in phase]
    assert len(every) == 8 * 4 * len(STEP)
    assert all(error.energy_j <= error.bound_j for error in every)


def test_a_step_of_power_between_two_readings_of_an_up_to_date_counter_is_found() -> None:
    truth = Truth(STEP, 4)
    exact = errors(truth, [device(read(truth, 5, seed, refresh_ns=1)) for seed in range(4)])
    for name in ("rollout", "reward", "old_logprob", "update_actor"):
        # Two edges closer than two readings leave the rate between them unknown.
        beside_sync = name in ("rollout", "update_actor")
        limit = 0.01 if beside_sync else 1e-9
        assert max(error.energy for error in exact[name]) <= limit, name


def test_energy_of_phases_adds_up_to_that_of_the_run() -> None:
    truth = Truth(STEP, 6)
    series = device(read(truth, 5, 1))
    inner = truth.spans[1:-1]
    parts = [series.over(start, end).total("energy_j") for _, start, end in inner]
    whole = series.over(inner[0][1], inner[-1][2]).total("energy_j")
    assert sum(part for part in parts if part is not None) == pytest.approx(whole)


def test_a_constant_device_gives_its_constants() -> None:
    item = series(*({"energy_j": 20.0 * k, "sm_active": 0.5, "power_w": 100.0} for k in range(60)))
    use = item.over(1_050_000_000, 9_010_000_000)
    assert use.quality == "ok"
    assert use.total("energy_j") == pytest.approx(796.0)
    assert use.mean("sm_active") == pytest.approx(0.5)
    assert use.mean("power_w") == pytest.approx(100.0)
    assert use.maximum("power_w") == 100.0
    assert use.samples == 40
    assert use.counters["power_w"].covered == pytest.approx(1.0)


def test_windows_count_by_their_overlap_and_gauges_by_time() -> None:
    rows = [{"sm_active": float(k % 2), "power_w": 100.0 * k} for k in range(11)]
    use = series(*rows).over(PERIOD // 2, 3 * PERIOD)
    # Half of the window that ends at 1, all of those that end at 2 and 3.
    assert use.mean("sm_active") == pytest.approx((0.5 * 1 + 0 + 1) / 2.5)
    assert use.mean("power_w") == pytest.approx((50 + 300) / 2)
    assert use.maximum("power_w") == 300.0


def test_a_span_between_two_readings_is_interpolated_and_said_to_be_low() -> None:
    rows = [{"energy_j": 10.0 * k, "sm_active": 0.25, "power_w": 10.0 * k} for k in range(4)]
    use = series(*rows).over(PERIOD + PERIOD // 4, PERIOD + PERIOD // 2)
    assert use.quality == "low"
    assert use.samples == 0
    assert use.total("energy_j") == pytest.approx(2.5)
    assert use.mean("sm_active") == 0.25
    assert use.mean("power_w") == pytest.approx(13.75)
    assert use.maximum("power_w") is None


@pytest.mark.parametrize("periods", [2.9, 3.0])
def test_quality_is_low_below_three_periods(periods: float) -> None:
    rows = [{"energy_j": float(k), "sm_active": 0.5} for k in range(20)]
    use = series(*rows).over(PERIOD, PERIOD + round(periods * PERIOD))
    assert use.quality == ("low" if periods < 3 else "ok")
    assert {counter.quality for counter in use.counters.values()} == {use.quality}


def test_a_counter_that_was_never_told_is_absent() -> None:
    use = series({"energy_j": 1.0}, {"energy_j": 2.0}).over(0, PERIOD)
    assert use.total("energy_j") == 1.0
    assert use.mean("sm_active") is None
    assert use.mean("tensor_active") is None
    assert set(use.counters) == {"energy_j"}


def test_a_span_outside_of_what_was_read_is_absent() -> None:
    rows = [{"energy_j": float(k), "sm_active": 0.5, "power_w": 1.0} for k in range(20)]
    use = series(*rows).over(100 * SECOND, 110 * SECOND)
    assert (use.quality, dict(use.counters)) == ("absent", {})
    half = series(*rows).over(2 * SECOND, 10 * SECOND)
    assert half.total("energy_j") is None
    # What was read of it is said, and that it is little.
    assert half.mean("sm_active") == 0.5
    assert half.counters["sm_active"].covered == pytest.approx(1.8 / 8)
    assert half.quality == "low"


def gap() -> DeviceSeries:
    """Read from 0 to 2 s and from 6 to 8 s; the sidecar was away in between."""
    readings = Readings(PERIOD)
    for k in [*range(11), *range(30, 41)]:
        row = {"energy_j": 100.0 * k, "sm_active": 0.5 if k < 20 else 0.9, "power_w": 500.0}
        readings.add(k * PERIOD, row, PERIOD)
    return device(readings)


def test_nothing_is_said_of_the_time_in_which_nobody_read() -> None:
    use = gap().over(3 * SECOND, 5 * SECOND)
    assert (use.quality, dict(use.counters), use.samples) == ("absent", {}, 0)


def test_a_span_that_begins_while_nobody_read_has_no_energy() -> None:
    use = gap().over(4 * SECOND, 7 * SECOND)
    assert use.total("energy_j") is None
    assert use.energy_error_j is None
    assert use.mean("sm_active") == pytest.approx(0.9)
    assert use.mean("power_w") == 500.0
    assert use.counters["power_w"].covered == pytest.approx(1 / 3)
    assert use.quality == "low"


def test_a_counter_goes_on_while_nobody_reads_it() -> None:
    use = gap().over(SECOND, 7 * SECOND)
    assert use.total("energy_j") == pytest.approx(3000.0)
    assert use.counters["sm_active"].covered == pytest.approx(2.2 / 6)
    assert use.mean("sm_active") == pytest.approx((0.5 * 1 + 0.9 * 1.2) / 2.2)
    assert use.quality == "low"


@pytest.mark.parametrize("hidden", [False, True])
def test_across_a_counter_that_went_back_there_is_no_total(hidden: bool) -> None:
    values = [float(k) for k in range(20)] + [float(k) for k in range(20)]
    rows = [{"energy_j": value} for value in values]
    if hidden:
        rows[20] = {}
    item = series(*rows)
    assert item.over(SECOND, 7 * SECOND).total("energy_j") is None
    assert item.over(20 * PERIOD - 1, 20 * PERIOD + 1).total("energy_j") is None
    assert item.over(SECOND, 3 * SECOND).total("energy_j") == pytest.approx(10.0)
    assert item.over(5 * SECOND, 7 * SECOND).total("energy_j") == pytest.approx(10.0)


def test_readings_that_failed_now_and_then_are_passed_over() -> None:
    rows = [
        {"energy_j": 10.0 * k, "sm_active": 0.5, "power_w": 5.0} if k % 3 else {}
        for k in range(100)
    ]
    use = series(*rows).over(SECOND, 19 * SECOND)
    assert use.total("energy_j") == pytest.approx(900.0)
    assert use.mean("power_w") == pytest.approx(5.0)
    assert use.mean("sm_active") == pytest.approx(0.5)
    assert use.counters["sm_active"].covered == pytest.approx(2 / 3, abs=0.02)
    assert use.counters["power_w"].covered == pytest.approx(1.0)


def test_the_period_may_change_while_it_is_read() -> None:
    readings = Readings(PERIOD)
    now = 0
    for k in range(40):
        if k == 20:
            readings.pace(10 * PERIOD)
        readings.add(now, {"energy_j": now / SECOND, "power_w": 1.0})
        now += PERIOD if k < 20 else 10 * PERIOD
    series = device(readings)
    assert series.over(SECOND, 30 * SECOND).total("energy_j") == pytest.approx(29.0)
    assert series.over(10 * SECOND, 15 * SECOND).quality == "low"
    assert series.over(2 * SECOND, 3 * SECOND).quality == "ok"


def test_a_window_never_reaches_back_before_the_reading_before_it() -> None:
    readings = Readings(PERIOD)
    for k in range(10):
        readings.add(k * PERIOD, {"sm_active": 0.5}, 10 * PERIOD)
    use = device(readings).over(PERIOD, 9 * PERIOD)
    assert use.counters["sm_active"].covered == pytest.approx(1.0)


def test_readings_out_of_order_are_left_out() -> None:
    readings = Readings(PERIOD)
    for time_ns in (0, PERIOD, PERIOD, PERIOD // 2, 2 * PERIOD):
        readings.add(time_ns, {"power_w": 1.0})
    assert list(readings.times_ns) == [0, PERIOD, 2 * PERIOD]


def part(begin: int, end: int, level: float) -> Readings:
    readings = Readings(PERIOD)
    for k in range(begin, end):
        row = {"energy_j": level + 10.0 * k, "power_w": 50.0}
        readings.add(k * PERIOD, row if begin == 0 else {**row, "sm_active": 0.5}, PERIOD)
    return readings


def test_a_sidecar_that_took_over_continues_the_series() -> None:
    first = part(0, 50, 0.0)
    first.follow(part(45, 100, 0.0))  # for a while there were two
    series = device(first)
    assert series.samples == 100
    assert series.over(SECOND, 19 * SECOND).total("energy_j") == pytest.approx(900.0)
    assert series.over(SECOND, 19 * SECOND).counters["power_w"].covered == pytest.approx(1.0)
    assert series.over(SECOND, 5 * SECOND).mean("sm_active") is None
    assert series.over(12 * SECOND, 19 * SECOND).mean("sm_active") == 0.5


@pytest.mark.parametrize(("same", "level"), [(True, -400.0), (False, 5000.0)])
def test_counters_that_began_anew_give_no_total_across_it(same: bool, level: float) -> None:
    first = part(0, 50, 0.0)
    first.follow(part(50, 100, level), same=same)
    series = device(first)
    assert series.over(SECOND, 19 * SECOND).total("energy_j") is None
    assert series.over(11 * SECOND, 19 * SECOND).total("energy_j") == pytest.approx(400.0)
    assert series.over(SECOND, 19 * SECOND).mean("power_w") == 50.0


def test_nothing_that_leaves_a_series_is_nan() -> None:
    item = series({"power_w": 1.0}, {}, {"sm_active": 0.5}, {"power_w": 3.0})
    assert list(item.points("power_w")) == [(0, 1.0), (3 * PERIOD, 3.0)]
    for start in range(0, 4 * PERIOD, PERIOD // 4):
        for end in range(start, 4 * PERIOD, PERIOD // 4):
            for use in item.over(start, end).counters.values():
                assert nan not in (use.total, use.mean, use.maximum)
                assert all(v == v for v in (use.total, use.mean, use.maximum, use.covered))


def test_readings_take_the_room_of_their_numbers() -> None:
    names = ("energy_j", "sm_active", "tensor_active", "dram_active", "power_w", "memory_b")
    tracemalloc.start()
    try:
        readings = Readings(PERIOD)
        for k in range(20_000):
            readings.add(k * PERIOD, dict.fromkeys(names, 1.5), PERIOD)
        size_b, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A time, a window and a value per counter, 8 bytes each; arrays grow by an eighth.
    assert size_b < 20_000 * 8 * (2 + len(names)) * 1.2
