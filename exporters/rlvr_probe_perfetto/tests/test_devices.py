"""Counters of devices against what the devices really did."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from rlvr_probe_perfetto.drawing import Limits
from rlvr_probe_perfetto.tests.reading import Timeline, drawn
from rlvr_probe_perfetto.tests.recordings import GPU, TRUTH, read, with_devices

from rlvr_probe.model import names
from rlvr_probe.model.device_series import DeviceSeries
from rlvr_probe.model.trace import Trace
from tests.journals import JournalFile, Training
from tests.truth import tell

SECOND = 1_000_000_000
PERIOD = SECOND // 5
TRACK = "GPU 0, NVIDIA H200"


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    with_devices(tmp_path / "run")
    return read(tmp_path / "run", tmp_path)


def at(points: Iterable[tuple[int, float]], time_ns: int) -> float:
    """What a viewer shows at a time: the last value until then."""
    return [value for when, value in points if when <= time_ns][-1]


def test_at_every_reading_the_counter_has_the_value_that_was_read(trace: Trace) -> None:
    [series] = trace.devices
    timeline = drawn(trace)
    for counter, title in (("power_w", "power W"), ("memory_b", "memory B")):
        points = timeline.points(TRACK, title)
        read = list(series.points(counter))
        assert len(read) > 40
        assert [(when, at(points, when)) for when, _ in read] == read
        assert {when for when, _ in points} <= {when for when, _ in read}


def test_a_share_is_drawn_from_where_its_window_begins(trace: Trace) -> None:
    [series] = trace.devices
    readings = series.readings["fast"]
    points = drawn(trace).points(TRACK, "sm active share")
    windows = zip(
        readings.times_ns, readings.windows_ns, readings.columns["sm_active"], strict=True
    )
    told = [(time_ns - window_ns, value) for time_ns, window_ns, value in windows if value == value]
    assert len(told) > 40
    assert [(begin, at(points, begin)) for begin, _ in told[1:]] == told[1:]


def test_what_counts_up_is_drawn_as_how_fast_it_went(trace: Trace) -> None:
    timeline = drawn(trace)
    points = timeline.points(TRACK, "energy J/s")
    [series] = trace.devices
    read = list(series.points("energy_j"))
    for (begin, _), (end, _) in pairwise(read):
        real = (TRUTH.energy_j(end) - TRUTH.energy_j(begin)) / (end - begin) * SECOND
        assert at(points, begin) == pytest.approx(real, abs=0.1)
    assert not timeline.points(TRACK, "energy_j")


def gap(folder: Path, tmp_path: Path) -> tuple[Trace, DeviceSeries]:
    """A GPU that nobody read from 3 s to 6 s."""
    training = Training(JournalFile(folder, 1))
    training.begin()
    for step in range(1, 10):
        training.step(step)
    training.journal.close()
    sidecar = JournalFile(folder, 90)
    sidecar.event(names.PROCESS, 0, role=names.SIDECAR)
    sidecar.event(names.DEVICE, 0, device=0, uuid=GPU, kind="gpu", hz=5.0)
    for tick in range(50):
        if not 15 < tick < 30:
            sidecar.event(
                names.DEVICE_SAMPLE, tick / 5, device=0, power_w=100.0 + tick, energy_j=20.0 * tick
            )
    sidecar.close()
    trace = read(folder, tmp_path)
    [series] = trace.devices
    return trace, series


def test_where_nobody_read_it_is_said_and_no_value_begins(tmp_path: Path) -> None:
    trace, _ = gap(tmp_path / "run", tmp_path)
    timeline = drawn(trace)
    bars = [bar for bar in timeline.of("device") if bar.times == (3 * SECOND, 6 * SECOND)]
    [bar] = bars
    assert bar.name == "not read"
    assert bar.arguments["counters"] == "energy_j, power_w"
    for counter in ("power W", "energy J/s"):
        points = timeline.points("GPU 0", counter)
        assert points
        assert not [when for when, _ in points if 3 * SECOND < when < 6 * SECOND]
    # Counted up while nobody looked: how fast is not known.
    assert {value for _, value in timeline.points("GPU 0", "energy J/s")} == {100.0}


def test_after_the_last_reading_nothing_is_known(trace: Trace) -> None:
    [series] = trace.devices
    bars = drawn(trace).of("device")
    last_ns = series.readings["fast"].times_ns[-1]
    end_ns = max(one.last_seen_ns for one in trace.processes)
    assert {bar.name for bar in bars} == {"not read"}
    assert any(bar.times == (last_ns, end_ns) for bar in bars)


def test_of_many_readings_means_are_drawn_and_it_is_said(trace: Trace) -> None:
    [series] = trace.devices
    timeline = drawn(trace, Limits(points=10))
    readings = series.readings["fast"]
    first, last = readings.times_ns[0], readings.times_ns[-1]
    for counter, title in (("power_w", "power W"), ("sm_active", "sm active share")):
        points = timeline.points(TRACK, title)
        assert 2 < len(points) <= 10
        for part in range(10):
            begin = first + (last - first) * part // 10
            end = first + (last - first) * (part + 1) // 10
            real = series.over(begin, end).mean(counter)
            assert real is not None
            assert at(points, begin) == pytest.approx(real)
    watts = timeline.points(TRACK, "energy J/s")
    drawn_j = sum(at(watts, first + (last - first) * part // 10) for part in range(10))
    joules = TRUTH.energy_j(last) - TRUTH.energy_j(first)
    assert drawn_j * (last - first) / 10 / SECOND == pytest.approx(joules, rel=1e-3)
    [note] = [bar.name for bar in timeline.of("note") if "counters" in bar.name]
    assert "more than 10 readings: means over equal times are drawn" in note


def test_a_reading_that_lost_the_device_ends_what_is_known(trace: Trace) -> None:
    [series] = trace.devices
    column = series.readings["fast"].columns["power_w"]
    for place in range(10, 30):
        column[place] = float("nan")
    times = series.readings["fast"].times_ns
    bars = [bar for bar in drawn(trace).of("device") if bar.arguments["counters"] == "power_w"]
    assert [bar.times for bar in bars] == [(times[9], times[30])]


def test_faults_are_marks_at_their_device(trace: Trace) -> None:
    timeline = drawn(trace)
    [mark] = [event for event in timeline.events if event["ph"] == "i"]
    assert (mark["name"], mark["ts"]) == ("xid 79", 6.5e6)
    assert timeline.tracks[mark["pid"]] == TRACK


def test_of_some_steps_the_readings_of_their_time_are_drawn(trace: Trace) -> None:
    timeline = drawn(trace, steps=(2, 3))
    [begin, *_] = sorted(bar.start_ns for bar in timeline.of("step"))
    end = max(bar.end_ns for bar in timeline.of("step"))
    points = timeline.points(TRACK, "power W")
    assert points
    assert all(begin <= when <= end for when, _ in points)
    assert at(points, begin) == pytest.approx(TRUTH.at(begin).watts)


def test_devices_are_numbered_on_each_node_and_named_without_uuid(tmp_path: Path) -> None:
    for number in (1, 2):
        journal = JournalFile(tmp_path / "run", number, header={"host": f"host-{number}"})
        training = Training(journal, rank=number - 1, ranks=2)
        training.begin()
        training.step(1)
        journal.close()
        sidecar = JournalFile(tmp_path / "run", 89 + number, header={"host": f"host-{number}"})
        sidecar.event(names.PROCESS, 0, role=names.SIDECAR)
        for place in range(2):
            tell(sidecar, place, GPU.replace("a", str(number * 2 + place)), TRUTH)
        tell(sidecar, 2, f"host-{number}", TRUTH, kind="host", model="Linux", gpm=False)
        sidecar.close()
    timeline: Timeline = drawn(read(tmp_path / "run", tmp_path))
    assert list(timeline.tracks.values())[3:] == [
        f"node {node} {name}"
        for node in (1, 2)
        for name in ("GPU 0, NVIDIA H200", "GPU 1, NVIDIA H200", "host")
    ]
