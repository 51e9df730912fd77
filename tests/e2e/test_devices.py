"""A job on a node with GPUs, from the driver to the trace; the driver alone is scripted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr_probe.trace import read_run
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
