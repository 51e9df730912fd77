"""What goes out of devices, against GPUs whose power and activity are known at every moment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rlvr_probe_otlp.planning import run_metrics
from rlvr_probe_otlp.planning.data_model import PlannedSpan, Point
from rlvr_probe_otlp.planning.device_metrics import (
    DEVICE_ATTRIBUTES,
    DEVICE_METRICS,
    PERIOD_NS,
    SPAN_USE,
)
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.tests.recordings import EPOCH_NS, PHASES, STEPS, gpu, gpus, read, text, truth

from rlvr_probe.model.trace import Trace


def recorded(folder: Path, tmp_path: Path, *, shared: bool = False) -> Trace:
    gpus(folder, shared=shared)
    return read(folder, tmp_path)


def of_ranks(trace: Trace) -> list[PlannedSpan]:
    return [
        span
        for unit in Plan(trace).units()
        for one in unit.traces
        for span in one.spans
        if span.name in PHASES and "rlvr.stage" in span.attributes
    ]


def points(trace: Trace, *, delta: bool = False) -> list[Point]:
    plan = Plan(trace, temporality="delta" if delta else "cumulative")
    return [p for unit in plan.units() for p in unit.points if p.metric in DEVICE_METRICS]


def test_a_span_says_what_the_gpu_of_its_process_did(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "run", tmp_path)
    spans = of_ranks(trace)
    assert len(spans) == 2 * STEPS * len(PHASES)
    for span in spans:
        phase, scale = PHASES[span.name], 1 + span.process
        said = span.attributes
        expected = phase.watts * phase.seconds * scale
        assert said["rlvr.gpu.energy_j"] == pytest.approx(expected, rel=0.06)
        # A straight line between two readings blurs its ends.
        assert said["rlvr.gpu.power_w"] == pytest.approx(phase.watts * scale, rel=0.15)
        assert said["rlvr.gpu.sm_active"] == pytest.approx(phase.sm, abs=0.03)
        memory_b = said["rlvr.gpu.memory_b"]
        assert isinstance(memory_b, float)
        assert memory_b >= phase.memory_b


def test_a_gpu_that_two_processes_work_on_is_not_divided(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "run", tmp_path, shared=True)
    assert [name for span in of_ranks(trace) for name in span.attributes if "gpu" in name] == []
    assert {point.attributes["hw.id"] for point in points(trace)} == {gpu(0), gpu(1)}


def test_a_span_shorter_than_three_readings_says_nothing_of_its_gpu(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "run", tmp_path)
    calls = [
        span
        for unit in Plan(trace).units()
        for one in unit.traces
        for span in one.spans
        if span.end_ns - span.start_ns < 600_000_000
    ]
    assert [span for span in calls if any("gpu" in name for name in span.attributes)] == []


def test_sums_and_means_of_points_are_those_of_the_gpu(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "run", tmp_path)
    for number in range(2):
        real = truth(1.0 + number)
        mine = [p for p in points(trace) if p.attributes["hw.id"] == gpu(number)]
        energy = [point for point in mine if point.metric == "hw.energy"]
        assert len(energy) == -(-real.end_ns // PERIOD_NS)
        values = [point.value for point in energy if isinstance(point.value, float)]
        assert values == sorted(values)
        assert len(values) == len(energy)
        for point in energy:
            start, end = point.start_ns - EPOCH_NS, point.time_ns - EPOCH_NS
            drawn = real.energy_j(end) - real.energy_j(start)
            assert point.value == pytest.approx(drawn, abs=1.0)
        for point in (point for point in mine if point.metric == "rlvr.gpu.sm.active"):
            end = point.time_ns - EPOCH_NS
            start = (
                energy[0].start_ns
                - EPOCH_NS
                + (end - 1 - (energy[0].start_ns - EPOCH_NS)) // PERIOD_NS * PERIOD_NS
            )
            assert point.value == pytest.approx(real.sm(start, end), abs=0.03)


def test_differences_add_up_to_the_sum(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "run", tmp_path)
    total, parts = dict[object, float](), dict[object, float]()
    for point in points(trace):
        if point.kind == "sum":
            assert isinstance(point.value, float)
            total[point.metric, point.attributes["hw.id"]] = point.value
    for point in points(trace, delta=True):
        if point.kind == "sum":
            assert isinstance(point.value, float)
            key = (point.metric, point.attributes["hw.id"])
            parts[key] = parts.get(key, 0.0) + point.value
    assert parts == pytest.approx(total)
    assert len(total) == 2


def test_names_of_devices_are_those_that_are_documented(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "run", tmp_path)
    found = points(trace)
    assert {name for point in found for name in point.attributes} <= set(DEVICE_ATTRIBUTES)
    said = {name for span in of_ranks(trace) for name in span.attributes if "gpu" in name}
    assert said <= SPAN_USE.keys()
    assert not DEVICE_METRICS.keys() & {one.name for one in run_metrics.METRICS}
    assert text(trace) == text(recorded(tmp_path / "again" / "run", tmp_path))


def test_bits_have_no_mean(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "run", tmp_path)
    device = next(one for one in trace.devices if one.uuid == gpu(0))
    assert device.over(0, 16 * 10**9).mean("throttle_reasons") == 4
    assert [point for point in points(trace) if "reasons" in point.metric] == []
    assert [point for point in points(trace) if point.metric == "rlvr.gpu.clock.sm"]


def test_a_running_job_has_points_of_whole_windows_only(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "run", tmp_path)
    whole = {(p.metric, p.time_ns, str(p.attributes)) for p in points(trace)}
    trace.processes[:] = [replace(one, state="running") for one in trace.processes]
    some = {(p.metric, p.time_ns, str(p.attributes)) for p in points(trace)}
    assert some < whole
