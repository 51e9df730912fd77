"""A job on a node with GPUs, from the driver to the trace; the driver alone is scripted."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from rlvr_probe.recording import read_run
from tests.e2e.test_sidecar import Run, clean, rows_of
from tests.jobs import wait_for
from tests.nvml import Nvml, gpu_uuid

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Run]:
    """A run whose sidecar is ended, if it is still there."""
    made = Run(tmp_path)
    yield made
    clean(made)


def told(run: Run, name: str, device: int) -> int:
    """Rows of an event of one device that are on the disk."""
    count = 0
    for path in run.path.glob("p*.jsonl"):
        rows = rows_of(path)
        numbers = {row[1] for row in rows if row[0] == "def" and row[3] == name}
        count += sum(row[0] in numbers and row[3] == device for row in rows)
    return count


def test_what_the_gpus_of_a_node_did_meanwhile_is_in_the_trace(one: Run) -> None:
    rows = ["0 sys count 2", "0 0 power_mw 100000", "0 1 power_mw 300000", "0 0 gpm.2 75"]
    nvml = Nvml(one.folder, *rows, virtual=False)
    process = one.start(**nvml.environ())
    # The host is device 0, as backends come by name.
    wait_for(lambda: told(one, "device_sample", 2) >= 5, 60)
    nvml.add("0 1 lost 15", "0 0 xid 31")
    wait_for(lambda: told(one, "device_fault", 1) + told(one, "device_fault", 2) == 2, 60)
    one.end(process)
    one.wait_for_its_end()
    trace = read_run(one.path)
    first, second = [one for one in trace.devices if one.facts.kind == "gpu"]
    assert (first.uuid, second.uuid) == (gpu_uuid(0), gpu_uuid(1))
    assert first.facts.model == "Scripted H200"
    assert first.facts.absent["tensor_active"] == "not supported (3)"
    assert [(fault.what, fault.code) for fault in first.faults] == [("xid", 31)]
    assert [(fault.what, fault.code) for fault in second.faults] == [("lost", 15)]
    assert second.facts.absent["energy_j"] == "lost"
    for device in (first, second):
        points = list(device.points("energy_j"))
        joules = device.over(points[0][0], points[4][0]).total("energy_j")
        assert joules
        assert joules == pytest.approx(points[4][1] - points[0][1])
    assert {value for _, value in first.points("sm_active")} == {0.75}
    assert [value for _, value in second.points("sm_active")] == []
    [host] = [one for one in trace.devices if one.facts.kind == "host"]
    assert host.uuid.startswith("host-")


def test_a_gpu_that_hangs_blinds_neither_the_others_nor_the_host(one: Run) -> None:
    rows = ["0 sys count 2", "0 0 power_mw 100000", "0 1 power_mw 300000"]
    rows += [f"0 sys since_ms {time.monotonic() * 1e3}", "0 1 err.DeviceGetClockInfo 4"]
    nvml = Nvml(one.folder, *rows, virtual=False)
    process = one.start(**nvml.environ())
    pid = one.wait_for_sidecar()
    wait_for(lambda: min(told(one, "device_sample", device) for device in (1, 2)) >= 5, 60)
    nvml.add("0 0 hang 1")
    wait_for(lambda: told(one, "device_fault", 1) == 1, 60)
    seen = told(one, "device_sample", 0), told(one, "device_sample", 2)
    wait_for(lambda: told(one, "device_sample", 2) >= seen[1] + 5, 60)
    one.end(process)
    one.wait_for_its_end()
    assert one.endings() == ["exit"], "it was the same sidecar all the time"
    trace = read_run(one.path)
    [sidecar] = trace.sidecars
    assert (sidecar.pid, dict(sidecar.faults)) == (pid, {"devices.reader: Unresponsive": 1})
    host, hung, other = sorted(trace.devices, key=lambda device: device.facts.number or 0)
    assert [fault.what for fault in hung.faults] == ["unresponsive"]
    assert hung.facts.absent["energy_j"] == "does not answer"
    assert (host.faults, other.faults) == ((), ())
    assert other.facts.absent["sm_clock_hz"] == "no permission (4)"
    times = [time_ns for time_ns, _ in host.points("cpu_s")]
    assert max(after - before for before, after in pairwise(times)) < 5e9, "as it hung for 10 s"
    # The counter of the other one went on while it was not read.
    points = list(other.points("energy_j"))
    gap_s = max(after[0] - before[0] for before, after in pairwise(points)) / 1e9
    assert gap_s > 8
    begin, end = points[1][0], points[-2][0]
    joules = other.over(begin, end).total("energy_j")
    assert joules == pytest.approx(300 * (end - begin) / 1e9, rel=0.01)
