"""What counts up goes on where nobody reads it, and a fall of it is never counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import nan
from pathlib import Path

import pytest
from rlvr_probe_otlp.planning.data_model import Point
from rlvr_probe_otlp.planning.device_metrics import PERIOD_NS, DeviceUnits
from rlvr_probe_otlp.planning.identity import Context
from rlvr_probe_otlp.planning.kept_trajectories import Limits
from rlvr_probe_otlp.planning.run_metrics import Temporality
from rlvr_probe_otlp.tests.recordings import MADE, read

from rlvr_probe.model.device_series import DeviceFacts, DeviceSeries
from rlvr_probe.model.readings import Readings
from rlvr_probe.model.trace import Trace
from tests import today

SECOND = 1_000_000_000
PERIOD = SECOND // 5
LENGTH_S = 300
WATTS = 500.0
WHOLE_J = WATTS * (LENGTH_S - PERIOD / SECOND)

Counted = Callable[[float], float]

GAPS = {
    "none": (0.0, 0.0),
    "inside a window": (50.0, 52.0),
    "at an edge": (44.0, 47.0),
    "between two edges, from the one": (45.1, 59.9),
    "from an edge to an edge": (45.0, 60.0),
    "over a window": (40.0, 65.0),
    "over several windows": (50.0, 120.0),
    "at the first edge": (13.0, 16.0),
    "to the end but for a second": (280.0, 299.0),
}


def steady(time_s: float) -> float:
    return WATTS * time_s


def readings(
    gap_s: tuple[float, float], counted: Counted = steady, until_s: float = LENGTH_S,
    since_s: float = 0.0,
) -> Readings:  # fmt: skip
    """Of a GPU, whose energy is not read in the gap, from ``since_s`` until ``until_s``."""
    found = Readings(PERIOD)
    for place in range(LENGTH_S * SECOND // PERIOD):
        time_s = place * PERIOD / SECOND
        if since_s <= time_s < until_s and not gap_s[0] <= time_s < gap_s[1]:
            found.add(place * PERIOD, {"energy_j": counted(time_s)})
    return found


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    MADE["gpus"](tmp_path / "run")
    return read(tmp_path / "run", tmp_path)


def told(
    trace: Trace, units: DeviceUnits, found: Readings, until_ns: int | None = None
) -> Iterator[Point]:
    trace.devices[:] = [DeviceSeries(DeviceFacts("GPU-1", kind="gpu"), {"fast": found})]
    for unit in units.units(Context(trace, Limits()), trace, until_ns):
        yield from unit.points


def afterwards(
    trace: Trace, found: Readings, temporality: Temporality = "cumulative"
) -> list[Point]:
    return [*told(trace, DeviceUnits(temporality), found)]


def values(points: list[Point]) -> list[float]:
    return [point.value for point in points if isinstance(point.value, float)]


@pytest.mark.parametrize("gap_s", GAPS.values(), ids=GAPS)
def test_what_was_drawn_while_nobody_read_is_in_the_sum(
    gap_s: tuple[float, float], trace: Trace
) -> None:
    points = afterwards(trace, readings(gap_s))
    assert points[-1].value == pytest.approx(WHOLE_J)
    begin = points[0].start_ns
    for point in points:
        assert point.value == pytest.approx(WATTS * (point.time_ns - begin) / SECOND)


@pytest.mark.parametrize("gap_s", GAPS.values(), ids=GAPS)
def test_differences_lie_end_to_end_over_a_gap(gap_s: tuple[float, float], trace: Trace) -> None:
    points = afterwards(trace, readings(gap_s), "delta")
    assert sum(values(points)) == pytest.approx(WHOLE_J)
    assert [one.start_ns for one in points[1:]] == [one.time_ns for one in points[:-1]]
    for point in points:
        assert point.value == pytest.approx(WATTS * (point.time_ns - point.start_ns) / SECOND)


RESETS: dict[str, tuple[tuple[float, float], Counted]] = {
    "in a gap at an edge": ((44.0, 47.0), lambda time_s: WATTS * (time_s - 46 * (time_s > 46))),
    "in a gap over windows": ((50.0, 120.0), lambda time_s: WATTS * (time_s - 99 * (time_s > 99))),
    # At the end of the window it stands higher than before the gap.
    "overtaken at once": ((16.0, 28.0), lambda time_s: WATTS * (time_s - 14 * (time_s > 20))),
    "without a gap": ((0.0, 0.0), lambda time_s: WATTS * (time_s - 50 * (time_s > 50))),
}


@pytest.mark.parametrize(("gap_s", "counted"), RESETS.values(), ids=RESETS)
def test_windows_around_a_fall_are_left_out(
    gap_s: tuple[float, float], counted: Counted, trace: Trace
) -> None:
    found = readings(gap_s, counted)
    points, parts = afterwards(trace, found), afterwards(trace, found, "delta")
    for part in parts:
        assert part.value == pytest.approx(WATTS * (part.time_ns - part.start_ns) / SECOND)
    edges = [(one.time_ns, following.start_ns) for one, following in pairwise(parts)]
    [left_out] = [(end, begin) for end, begin in edges if end != begin]
    assert points[-1].value == pytest.approx(sum(values(parts)))
    lost_s = (left_out[1] - left_out[0]) / SECOND
    assert points[-1].value == pytest.approx(WHOLE_J - WATTS * lost_s)
    # No more than the windows that the gap and the fall touch.
    assert lost_s <= gap_s[1] - gap_s[0] + 2 * PERIOD_NS / SECOND


def test_a_counter_of_another_boot_is_no_difference_however_high(trace: Trace) -> None:
    found = readings((0.0, 0.0), until_s=44.0)
    found.follow(
        readings((0.0, 0.0), lambda time_s: 1e6 + steady(time_s), since_s=47.0), same=False
    )
    assert afterwards(trace, found)[-1].value == pytest.approx(WHOLE_J - WATTS * 30)


def test_a_counter_that_alone_was_not_read_goes_on(trace: Trace) -> None:
    found = readings((0.0, 0.0))
    found.columns["nvlink_tx_b"] = found.columns["energy_j"][:]
    for place in range(44 * 5, 47 * 5):
        found.columns["energy_j"][place] = nan
    last = {point.metric: point.value for point in afterwards(trace, found)}
    assert last == {name: pytest.approx(WHOLE_J) for name in ("hw.energy", "rlvr.gpu.nvlink.io")}


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
@pytest.mark.parametrize("kept_s", today.some([600.0, 30.0], 1))
@pytest.mark.parametrize(
    ("gap_s", "counted"),
    [*((gap_s, steady) for gap_s in GAPS.values()), *RESETS.values()],
    ids=[*GAPS, *(f"fell {name}" for name in RESETS)],
)
def test_while_a_run_goes_on_the_same_is_told(
    gap_s: tuple[float, float], counted: Counted, kept_s: float, temporality: Temporality,
    trace: Trace,
) -> None:  # fmt: skip
    live, seen = DeviceUnits(temporality), list[Point]()
    # What was read before the gap may be forgotten when the GPU is read again.
    for until_s in range(2, LENGTH_S, 7):
        found = readings(gap_s, counted, until_s, until_s - kept_s)
        seen += told(trace, live, found, until_s * SECOND)
    whole = afterwards(trace, readings(gap_s, counted), temporality)
    assert seen == whole[: len(seen)]
    assert len(seen) >= len(whole) - 6
