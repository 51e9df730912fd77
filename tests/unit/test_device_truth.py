"""From a scripted GPU through NVML, sampler, journal and trace to the energy of a stage."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import mean

import pytest

from rlvr_probe.devices import Sampler
from rlvr_probe.devices.nvidia import NvidiaBackend
from rlvr_probe.model import names
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from tests.journals import JournalFile
from tests.nvml import Nvml, gpu_uuid, scripted
from tests.truth import STEP, Truth, errors
from tests.unit.test_device_series import AT_5_HZ

SECOND = 1_000_000_000
TRUTH = Truth(STEP, 4)


def script(gpus: int) -> list[str]:
    """What the GPUs do: all the same, from 0."""
    rows = [f"0 sys count {gpus}", "0 sys refresh_ms 100"]
    for gpu in range(gpus):
        for phase, start_ns, _ in TRUTH.spans:
            at = start_ns / 1e6
            rows += [
                f"{at:.3f} {gpu} power_mw {phase.watts * 1000:.0f}",
                f"{at:.3f} {gpu} gpm.2 {100 * phase.sm}",
                f"{at:.3f} {gpu} mem_used {phase.memory_b:.0f}",
            ]
    return rows


def read(nvml: Nvml, folder: Path, seed: int, seconds: float) -> Trace:
    """What a sidecar journals in so long, waking up a little late each time."""
    journal = JournalFile(folder, 90, header={"mono_ns": 0})
    journal.event(names.PROCESS, 0, role=names.SIDECAR)
    sampler = Sampler([NvidiaBackend(nvml.clock)], 5.0, journal.definition, 0, nvml.clock)
    rng = random.Random(seed)
    while nvml.now_ns < seconds * SECOND:
        journal.rows.extend(sampler.tick(nvml.now_ns))
        nvml.advance(max(sampler.next_ns - nvml.now_ns, 0) / SECOND + 0.02 * rng.random())
    sampler.close()
    journal.close()
    return read_run(folder)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder = tmp_path_factory.mktemp("truth")
    with scripted(folder, *script(2)) as nvml:
        return read(nvml, folder / "run", 1, TRUTH.end_ns / SECOND)


@pytest.mark.conformance
def test_the_errors_of_phases_are_those_of_the_method(trace: Trace) -> None:
    assert [device.uuid for device in trace.devices] == [gpu_uuid(0), gpu_uuid(1)]
    found = errors(TRUTH, trace.devices)
    for name, (energy, sm) in AT_5_HZ.items():
        assert mean(error.energy for error in found[name]) <= energy, name
        assert mean(error.sm for error in found[name]) <= sm, name
        assert all(error.energy_j <= error.bound_j for error in found[name]), name


def test_power_and_memory_are_those_of_the_script(trace: Trace) -> None:
    phase, start_ns, end_ns = next(
        span for span in TRUTH.spans[len(STEP) :] if span[0].name == "update_actor"
    )
    use = trace.devices[0].over(start_ns + SECOND, end_ns - SECOND)
    assert use.mean("power_w") == pytest.approx(phase.watts, rel=0.01)
    assert use.maximum("memory_b") == pytest.approx(phase.memory_b)
    assert use.quality == "ok"


def test_a_gpu_that_is_lost_for_a_while_is_absent_for_that_while(tmp_path: Path) -> None:
    rows = [*script(2), "10000 1 lost 15", "15000 1 lost 0"]
    with scripted(tmp_path, *rows) as nvml:
        trace = read(nvml, tmp_path / "run", 2, 25.0)
    one, lost = trace.devices
    assert [fault.what for fault in lost.faults] == ["lost"]
    assert one.faults == ()
    gone = lost.over(11 * SECOND, 14 * SECOND)
    assert (gone.quality, dict(gone.counters)) == ("absent", {})
    assert one.over(11 * SECOND, 14 * SECOND).quality == "ok"
    assert lost.over(9 * SECOND, 12 * SECOND).total("energy_j") is None
    back = lost.over(16 * SECOND, 19 * SECOND)
    assert back.quality == "ok"
    assert back.mean("power_w") == pytest.approx(450.0)


def test_a_gpu_without_profiling_tells_its_energy_and_why_not_more(tmp_path: Path) -> None:
    with scripted(tmp_path, *script(1), "0 0 gpm 0") as nvml:
        trace = read(nvml, tmp_path / "run", 3, 12.0)
    [one] = trace.devices
    use = one.over(2 * SECOND, 10 * SECOND)
    assert use.total("energy_j") == pytest.approx(450.0 * 8, rel=0.02)
    assert use.mean("sm_active") is None
    assert "sm_active" in one.facts.absent


@pytest.mark.parametrize("gpm", [True, False])
def test_traffic_of_a_link_whose_counter_wraps_is_right_or_absent(
    tmp_path: Path, gpm: bool
) -> None:
    # 25 GB/s, of which the counter forgets six sevenths between two readings.
    rows = ["0 0 fir.197 25e9", "0 0 ft.197 1", "0 0 gpm.2 50", f"0 0 gpm.20 {25e9 / (1 << 20)}"]
    with scripted(tmp_path, *rows, f"0 0 gpm {int(gpm)}") as nvml:
        [one] = read(nvml, tmp_path / "run", 4, 12.0).devices
    counters = one.over(2 * SECOND, 10 * SECOND).counters
    sent = counters.get("pcie_tx_b_per_s")
    if gpm:
        assert sent is not None
        assert sent.mean == pytest.approx(25e9)
        assert sent.quality == "ok"
    else:
        assert sent is None
    assert "pcie_tx_b" not in counters
