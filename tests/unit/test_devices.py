"""When devices are read and what rows come of it; the host; which backends there are."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlvr_probe import guard, registry
from rlvr_probe.devices import Backend, Device, Failed, Fault, Reading, Sampler, load, survey
from rlvr_probe.devices.backend import Touch, touch_all
from rlvr_probe.devices.host import HostBackend
from rlvr_probe.devices.nvidia import NvidiaBackend
from rlvr_probe.devices.sampler import Rate
from rlvr_probe.model.counters import DEVICE_FAULT, DEVICE_SAMPLE, DEVICE_STATE, Pace
from rlvr_probe.model.names import DEVICE, Name
from tests.nvml import Nvml, gpu_uuid, scripted

SECOND = 1_000_000_000
ROOT = Path(__file__).parents[2]


@dataclass
class Clock:
    """A clock that stands still unless it is moved."""

    now_ns: int = 7 * SECOND

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND)


@dataclass
class OneBackend:
    """``count`` devices whose readings take ``cost_s`` on the clock; a test may change the rest.

    The contract's own double: it stands for another vendor's backend.
    """

    clock: Clock
    count: int = 1
    cost_s: float = 0.0
    name: str = "one"
    why: str | None = None
    is_here: bool = True
    values: dict[str, float] = field(default_factory=lambda: {"energy_j": 1.0})
    absent: dict[str, str] | None = None
    fault: Fault | None = None
    reported: list[Fault] = field(default_factory=list)
    asked: list[tuple[int, str, Pace]] = field(default_factory=list)
    closed: int = 0

    def devices(self, touch: Touch = touch_all) -> Sequence[Device]:
        return [Device(f"one-{i}", "gpu", "one", "One") for i in range(self.count)]

    def read(self, device: Device, pace: Pace) -> Reading:
        self.asked.append((self.clock.now_ns, device.uuid, pace))
        self.clock.advance(self.cost_s if pace == "fast" else 0)
        if self.fault is not None:
            return Reading(self.clock.now_ns, fault=self.fault)
        values = self.values if pace == "fast" else {"temperature_c": 50}
        return Reading(self.clock.now_ns, None, values, self.absent)

    def faults(self, timeout_s: float) -> Sequence[Fault]:
        found, self.reported = self.reported, []
        return found

    def close(self) -> None:
        self.closed += 1


class Layouts:
    """Layouts of rows, as a journal has them; reads rows back as (name, time, values by name)."""

    def __init__(self) -> None:
        self.made: list[tuple[str, tuple[str, ...]]] = []

    def define(self, name: Name, attributes: Sequence[str]) -> int:
        layout = (name.name, tuple(attributes))
        assert {*attributes} <= {attribute.name for attribute in name.attributes}
        if layout not in self.made:
            self.made.append(layout)
        return self.made.index(layout)

    def read(self, row: Sequence[Any]) -> tuple[str, int, dict[str, Any]]:
        number, time_ns, parent, *values = row
        name, attributes = self.made[number]
        assert parent == 0
        return name, time_ns, dict(zip(attributes, values, strict=True))


class Node:
    """A sampler with its clock, ticked as the sidecar does."""

    def __init__(self, *backends: Backend, clock: Any, hz: float = 5.0) -> None:
        self.layouts = Layouts()
        self.clock = clock
        self.sampler = Sampler(backends, hz, self.layouts.define, 5 * SECOND, clock)
        self.rows: list[tuple[str, int, dict[str, Any]]] = []

    def run(self, seconds: float, advance: Any) -> None:
        """Tick for so long, sleeping (``advance``) until there is something to do."""
        end = self.clock() + round(seconds * SECOND)
        while self.clock() <= end:
            self.rows.extend(map(self.layouts.read, self.sampler.tick(self.clock())))
            advance(max(self.sampler.next_ns - self.clock(), 0) / SECOND)

    def told(self, name: Name, device: int | None = None) -> list[dict[str, Any]]:
        return [
            values
            for kind, _, values in self.rows
            if kind == name.name and device in (None, values["device"])
        ]

    def times(self, name: Name, device: int = 0) -> list[int]:
        return [
            at for kind, at, values in self.rows if (kind, values["device"]) == (name.name, device)
        ]


def node(hz: float = 5.0, **settings: Any) -> tuple[Node, OneBackend, Clock]:
    clock = Clock()
    backend = OneBackend(clock, **settings)
    return Node(backend, clock=clock, hz=hz), backend, clock


def test_the_first_tick_tells_every_device() -> None:
    here, _, clock = node(count=2)
    assert here.sampler.devices == []
    rows = [here.layouts.read(row) for row in here.sampler.tick(clock())]
    assert [name for name, _, _ in rows] == ["device", "device"]
    _, at, first = rows[0]
    assert at == 2 * SECOND, "times are relative to the origin"
    assert first == {
        "device": 0,
        "uuid": "one-0",
        "kind": "gpu",
        "vendor": "one",
        "model": "One",
        "driver": None,
        "parent": None,
        "memory_limit_b": None,
        "hz": 5.0,
        "absent": [],
    }
    assert [device.uuid for device in here.sampler.devices] == ["one-0", "one-1"]


def test_fast_counters_are_read_at_the_rate_and_slow_and_rare_ones_more_rarely() -> None:
    here, backend, clock = node()
    here.run(119.9, clock.advance)
    paces = [pace for _, _, pace in backend.asked]
    assert (paces.count("fast"), paces.count("slow"), paces.count("rare")) == (600, 120, 2)
    assert len(here.told(DEVICE_SAMPLE)) == 600
    assert len(here.told(DEVICE_STATE)) == 120


@pytest.mark.parametrize("hz", [0.2, 1.0, 5.0, 9.0])
def test_slow_counters_keep_their_pace_though_turns_come_late(hz: float) -> None:
    here, backend, clock = node(hz)
    late = random.Random(7)
    here.run(120, lambda seconds: clock.advance(seconds + late.uniform(0, 0.02)))
    paces = [pace for _, _, pace in backend.asked]
    slow = paces.count("slow")
    assert 118 <= slow <= 122 if hz >= 1 else slow == paces.count("fast")


def test_devices_are_staggered_over_the_period() -> None:
    here, backend, clock = node(count=4)
    here.run(0.4, clock.advance)
    first = {uuid: at for at, uuid, pace in reversed(backend.asked) if pace == "fast"}
    starts = [first[f"one-{i}"] - first["one-0"] for i in range(4)]
    assert starts == [0, 50_000_000, 100_000_000, 150_000_000]
    assert here.times(DEVICE_SAMPLE, 3)[1] - here.times(DEVICE_SAMPLE, 3)[0] == 200_000_000


def test_many_devices_share_turns() -> None:
    here, backend, clock = node(count=56)
    here.run(0.19, clock.advance)
    times = [at for at, _, pace in backend.asked if pace == "fast"]
    assert len(times) == 56
    assert sorted({at - times[0] for at in times}) == [0, 50_000_000, 100_000_000, 150_000_000]


def test_turns_that_were_slept_through_are_not_made_up_for() -> None:
    here, backend, clock = node()
    here.run(0.2, clock.advance)
    backend.asked.clear()
    clock.advance(10)
    here.run(0.5, clock.advance)
    assert [pace for _, _, pace in backend.asked].count("fast") == 3


def test_a_row_holds_what_the_device_told_and_null_for_what_failed_once() -> None:
    here, backend, clock = node(values={"energy_j": 1.23456, "sm_active": 0.123456})
    here.run(0.1, clock.advance)
    backend.values = {"energy_j": 2}
    here.run(0.1, clock.advance)
    first, second = here.told(DEVICE_SAMPLE)
    assert first == {"device": 0, "window_s": None, "energy_j": 1.235, "sm_active": 0.1235}
    assert second == {"device": 0, "window_s": None, "energy_j": 2, "sm_active": None}


def test_a_device_is_told_again_when_it_turns_out_what_it_cannot_tell() -> None:
    here, backend, clock = node(values={"energy_j": 1.0, "power_w": 2.0})
    here.run(0.3, clock.advance)
    backend.values = {"energy_j": 1.0}
    backend.absent = {"power_w": "not supported (3)", "nvlink_tx_b": "no permission (4)"}
    here.run(0.5, clock.advance)
    assert [item["absent"] for item in here.told(DEVICE)] == [
        [],
        ["nvlink_tx_b: no permission (4)", "power_w: not supported (3)"],
    ]
    assert [*here.told(DEVICE_SAMPLE)[-1]] == ["device", "window_s", "energy_j"]
    backend.absent = {}
    here.run(0.3, clock.advance)
    assert here.told(DEVICE)[-1]["absent"] == []


def test_a_lost_device_is_one_fault_and_absent_until_it_is_back() -> None:
    here, backend, clock = node(count=2)
    here.run(0.3, clock.advance)
    before = len(here.told(DEVICE_SAMPLE))
    backend.fault = Fault("one-0", "lost", 15)
    here.run(1.5, clock.advance)
    assert len(here.told(DEVICE_SAMPLE)) == before
    assert here.told(DEVICE_FAULT, 0) == [{"device": 0, "what": "lost", "code": 15}]
    assert here.told(DEVICE, 0)[-1]["absent"] == ["energy_j: lost", "temperature_c: lost"]
    backend.fault = None
    here.run(0.3, clock.advance)
    assert here.told(DEVICE, 0)[-1]["absent"] == []
    assert len(here.told(DEVICE_SAMPLE, 0)) > 2
    assert len(here.told(DEVICE_FAULT, 0)) == 1


def test_what_a_driver_reports_is_asked_for_each_second() -> None:
    here, backend, clock = node(count=2)
    here.run(0.1, clock.advance)
    backend.reported = [Fault("one-1", "xid", 79), Fault("unknown", "xid", 1)]
    here.run(1.1, clock.advance)
    assert here.told(DEVICE_FAULT) == [{"device": 1, "what": "xid", "code": 79}]


def test_where_reading_takes_more_than_a_fifth_of_the_time_the_period_doubles() -> None:
    here, _, clock = node(cost_s=0.1)  # half of a period
    here.run(3, clock.advance)
    assert [item["hz"] for item in here.told(DEVICE)] == [5.0, 2.5, 1.25]
    times = here.times(DEVICE_SAMPLE)
    assert times[-1] - times[-2] == 800_000_000


def test_the_devices_of_a_node_share_the_fifth() -> None:
    here, _, clock = node(count=8, cost_s=0.01)
    here.run(3, clock.advance)
    assert {item["hz"] for item in here.told(DEVICE)} == {5.0, 2.5}
    assert here.told(DEVICE, 7)[-1]["hz"] == 2.5


def test_a_single_call_that_takes_long_changes_nothing() -> None:
    here, backend, clock = node()
    for _ in range(20):
        backend.cost_s = 0.19
        here.run(0.1, clock.advance)
        backend.cost_s = 0.0
        here.run(1, clock.advance)
    assert [item["hz"] for item in here.told(DEVICE)] == [5.0]


def test_the_rate_is_tried_again_after_a_while_and_then_ever_more_rarely() -> None:
    rate = Rate(5)
    now, periods, changes = 0, [], []
    rate.begin(now)
    for _ in range(3000):
        now += rate.period_ns
        # It is slow at the rate asked for, and quick at half of it.
        if rate.spent(60_000_000 if rate.hz == 5 else 1_000_000, now):
            changes.append(now / SECOND)
            periods.append(rate.hz)
            rate.begin(now)
    assert periods[:6] == [2.5, 5, 2.5, 5, 2.5, 5]
    waits = [round(up - down) for down, up in zip(changes[::2], changes[1::2], strict=False)]
    assert waits[:5] == [30, 60, 120, 240, 480]


def test_no_rate_is_below_the_lowest() -> None:
    rate = Rate(1)
    now = 0
    rate.begin(now)
    for _ in range(100):
        now += rate.period_ns
        rate.spent(rate.period_ns, now)
    assert rate.hz == 0.2


@pytest.mark.parametrize("hz", [0, 0.1, 9.1, 50, float("nan")])
def test_a_rate_outside_of_what_drivers_take_is_refused(hz: float) -> None:
    with pytest.raises(ValueError, match=r"expected 0\.2 to 9"):
        Rate(hz)


def test_a_backend_of_a_third_party_that_raises_costs_its_own_devices_only() -> None:
    class Broken(OneBackend):
        def read(self, device: Device, pace: Pace) -> Reading:
            raise ZeroDivisionError

        def faults(self, timeout_s: float) -> Sequence[Fault]:
            raise ZeroDivisionError

        def close(self) -> None:
            raise ZeroDivisionError

    class Hopeless(Broken):
        def devices(self, touch: Touch = touch_all) -> Sequence[Device]:
            raise ZeroDivisionError

    guard.set_strict(False)
    clock = Clock()
    good = OneBackend(clock)
    here = Node(Broken(clock), Hopeless(clock), good, clock=clock)
    here.run(1.1, clock.advance)
    here.sampler.close()
    assert {item["device"] for item in here.told(DEVICE_SAMPLE)} == {1}
    assert len(here.told(DEVICE_SAMPLE)) >= 5
    assert good.closed == 1
    assert {error for _, error in guard.faults()} == {"ZeroDivisionError"}


@pytest.mark.parametrize("value", [None, "5", float("nan"), float("inf"), [1]])
def test_what_is_no_number_is_not_in_a_row(value: Any) -> None:
    guard.set_strict(False)
    clock = Clock()
    wrong = OneBackend(clock, values={"energy_j": value})
    here = Node(wrong, OneBackend(clock), clock=clock)
    here.run(1, clock.advance)
    assert {item["device"] for item in here.told(DEVICE_SAMPLE)} == {1}
    assert {error for _, error in guard.faults()} == {"TypeError"}


def test_devices_that_are_none_cost_their_own_backend_only() -> None:
    class Wrong(OneBackend):
        def devices(self, touch: Touch = touch_all) -> Sequence[Device]:
            return ["device"]  # type: ignore[list-item]

        def read(self, device: Device, pace: Pace) -> Reading:
            raise AssertionError

    guard.set_strict(False)
    clock = Clock()
    here = Node(Wrong(clock), OneBackend(clock), clock=clock)
    here.run(1, clock.advance)
    assert [item["uuid"] for item in here.told(DEVICE)] == ["one-0"]


def test_a_node_without_devices_has_nothing_to_do_at_once() -> None:
    here, _, clock = node(count=0)
    assert here.sampler.tick(clock()) == []
    here.sampler.tick(clock())
    assert here.sampler.next_ns >= clock() + SECOND


def test_eight_gpus_are_sampled_with_exact_energy_and_windows(tmp_path: Path) -> None:
    rows = [f"0 {i} power_mw {100_000 * (i + 1)}" for i in range(8)]
    rows += [f"0 {i} gpm.2 {10 * i}" for i in range(8)]
    with scripted(tmp_path, "0 sys count 8", *rows) as nvml:
        here = Node(NvidiaBackend(nvml.clock), clock=nvml.clock)
        here.run(10, nvml.advance)
        here.sampler.close()
    for i in range(8):
        samples = here.told(DEVICE_SAMPLE, i)
        times = [at + 5 * SECOND for at in here.times(DEVICE_SAMPLE, i)]
        assert len(samples) >= 50
        truth = [100 * (i + 1) * at / SECOND for at in times]
        assert [sample["energy_j"] for sample in samples] == pytest.approx(truth, abs=0.002)
        assert {sample["sm_active"] for sample in samples[1:]} == {i / 10}
        windows = sum(sample["window_s"] for sample in samples[1:])
        assert windows == pytest.approx((times[-1] - times[0]) / SECOND, abs=0.01)
    uuids = {item["uuid"] for item in here.told(DEVICE)}
    assert uuids == {gpu_uuid(i) for i in range(8)}


def test_a_driver_whose_calls_take_200_ms_is_read_more_slowly(tmp_path: Path) -> None:
    rows = ("0 0 power_mw 100000", "0 0 delay_us.DeviceGetMemoryInfo_v2 200000")
    with scripted(tmp_path, *rows, virtual=False):
        here = Node(NvidiaBackend(), clock=time.monotonic_ns)
        deadline = time.monotonic() + 60
        while here.told(DEVICE)[-1:] == [] or here.told(DEVICE)[-1]["hz"] >= 2.5:
            assert time.monotonic() < deadline
            here.run(0.1, time.sleep)
        here.sampler.close()
    assert here.told(DEVICE_SAMPLE)[-1]["memory_b"] == 0
    assert here.told(DEVICE_FAULT) == []


def test_a_gpu_that_is_lost_and_comes_back_is_told_in_rows(tmp_path: Path) -> None:
    with scripted(tmp_path, "0 sys count 2", "0 0 power_mw 100000", "0 1 power_mw 100000") as nvml:
        here = Node(NvidiaBackend(nvml.clock), clock=nvml.clock)
        here.run(1, nvml.advance)
        nvml.add("0 0 lost 15", "0 0 xid 79")
        here.run(2, nvml.advance)
        seen = len(here.told(DEVICE_SAMPLE, 0))
        nvml.add("0 0 lost 0")
        here.run(6, nvml.advance)
        here.sampler.close()
    faults = sorted(here.told(DEVICE_FAULT), key=lambda item: str(item["what"]))
    assert faults == [
        {"device": 0, "what": "lost", "code": 15},
        {"device": 0, "what": "xid", "code": 79},
    ]
    assert seen < len(here.told(DEVICE_SAMPLE, 0)) < len(here.told(DEVICE_SAMPLE, 1))
    assert 0 not in [item["energy_j"] for item in here.told(DEVICE_SAMPLE, 0)[1:]]


def test_the_host_tells_its_processors_memory_disks_and_network() -> None:
    psutil = pytest.importorskip("psutil")
    backend = HostBackend()
    [host] = survey(backend, lambda _: None)
    assert (host.kind, host.vendor) == ("host", "host")
    assert host.uuid.startswith("host-")
    assert host.memory_limit_b == psutil.virtual_memory().total
    first, second = (backend.read(host, "fast").values for _ in range(2))
    assert second["cpu_s"] >= first["cpu_s"] > 0
    assert 0 < first["memory_b"] < (host.memory_limit_b or 0)
    slow = backend.read(host, "slow").values
    names = {"io_read_b", "io_write_b", "network_tx_b", "network_rx_b"}
    assert set(slow) | set(host.absent) >= names - set(slow)
    assert all(isinstance(value, int) for value in slow.values())
    assert backend.read(host, "rare").values == {}
    assert backend.faults(0.001) == ()
    backend.close()


def test_the_network_of_a_host_is_its_hardware_or_all_but_the_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    psutil = pytest.importorskip("psutil")
    interface = SimpleNamespace(bytes_sent=1, bytes_recv=10)

    def counters(pernic: bool) -> dict[str, Any]:
        return {"lo": interface, "eth0": interface, "docker0": interface}

    monkeypatch.setattr(psutil, "net_io_counters", counters)
    monkeypatch.setattr("rlvr_probe.devices.host._is_hardware", lambda name: name == "eth0")
    backend = HostBackend()
    [host] = backend.devices()
    assert backend.read(host, "slow").values["network_rx_b"] == 10
    monkeypatch.setattr("rlvr_probe.devices.host._is_hardware", lambda _: False)
    assert backend.read(host, "slow").values["network_tx_b"] == 2
    monkeypatch.setattr(psutil, "net_io_counters", lambda pernic: {"lo": interface})
    for _ in range(2):
        backend.read(host, "slow")
    slow = backend.read(host, "slow")
    assert slow.absent == {
        "network_tx_b": "the kernel lists none; asked again each minute",
        "network_rx_b": "the kernel lists none; asked again each minute",
    }


def test_a_host_without_disks_says_so_after_three_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    psutil = pytest.importorskip("psutil")
    monkeypatch.setattr(psutil, "disk_io_counters", lambda: None)

    def fail() -> None:
        raise FileNotFoundError

    monkeypatch.setattr(psutil, "cpu_times", fail)
    backend = HostBackend()
    [host] = backend.devices()
    for _ in range(2):
        backend.read(host, "slow"), backend.read(host, "fast")
    slow, fast = backend.read(host, "slow"), backend.read(host, "fast")
    assert fast.absent == {
        "io_read_b": "the kernel lists none; asked again each minute",
        "io_write_b": "the kernel lists none; asked again each minute",
        "cpu_s": "psutil: FileNotFoundError; asked again each minute",
    }
    assert "io_read_b" not in slow.values
    assert "cpu_s" not in fast.values


def test_without_psutil_a_host_is_a_device_that_tells_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    backend = HostBackend()
    [host] = backend.devices()
    assert set(host.absent.values()) == {"psutil is not installed"}
    assert host.memory_limit_b is None
    for pace in ("fast", "slow", "rare"):
        assert backend.read(host, pace).values == {}


def test_a_kernel_that_hides_its_boot_id_has_no_host_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rlvr_probe.probe.identity.boot_id", lambda: None)
    backend = HostBackend()
    assert (backend.devices(), backend.why) == ((), "the kernel does not report its boot id")


def test_our_backends_are_found_by_their_entry_points() -> None:
    backends, failed = load()
    assert {"host": HostBackend, "nvidia": NvidiaBackend}.items() <= {
        backend.name: type(backend) for backend in backends
    }.items()
    assert failed == []


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("nowhere_at_all:Backend", "ModuleNotFoundError"),
        ("builtins:dict", "TypeError"),
        ("builtins:nothing", "AttributeError"),
    ],
)
def test_a_backend_that_cannot_be_loaded_is_named_with_the_error(
    monkeypatch: pytest.MonkeyPatch, value: str, why: str
) -> None:
    entry = metadata.EntryPoint("acme", value, "rlvr_probe.devices")
    monkeypatch.setattr(registry, "entries", lambda group: [entry])
    assert load() == ([], [Failed("acme", why)])


def test_a_survey_tells_what_the_first_readings_show(tmp_path: Path) -> None:
    with scripted(tmp_path, "0 0 power_mw 100000", "0 0 gpm.2 5") as nvml:
        backend = NvidiaBackend(nvml.clock)
        [device] = survey(backend, nvml.advance)
        backend.close()
    assert device.absent["tensor_active"] == "not supported (3)"
    assert device.absent["nvlink_tx_b"] == "not supported (3)"
    assert "sm_active" not in device.absent
    assert "energy_j" not in device.absent


def test_rows_of_a_device_read_back_as_columns_whatever_it_tells(tmp_path: Path) -> None:
    """Each row has one value for each attribute of its layout, in all that may happen."""
    with scripted(tmp_path, "0 0 mig 2", "0 0 gpm.2 5", "0 0 power_mw 1") as nvml:
        here = Node(NvidiaBackend(nvml.clock), HostBackend(nvml.clock), clock=nvml.clock)
        for rows in ([], ["0 0 lost 16"], ["0 0 lost 0", "0 0 err.GpmSampleGet 999"], []):
            nvml.add(*rows)
            here.run(7, nvml.advance)
        here.sampler.close()
    assert {item["device"] for item in here.told(DEVICE)} == {0, 1, 2, 3}
    assert len(here.layouts.made) < 20


def test_the_scripted_library_is_found_by_a_process_of_its_own(tmp_path: Path) -> None:
    nvml = Nvml(tmp_path, "0 sys count 3", virtual=False)
    code = (
        "from rlvr_probe.devices.nvidia import NvidiaBackend; print(len(NvidiaBackend().devices()))"
    )
    environ = {**os.environ, **nvml.environ()}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ
    )
    assert done.stdout == "3\n"


def test_the_script_for_a_real_gpu_runs_on_a_scripted_one(tmp_path: Path) -> None:
    rows = ("0 0 power_mw 100000", "0 sys refresh_ms 20", "0 0 gpm.2 50", "0 0 held.0 0.5")
    nvml = Nvml(tmp_path, *rows, virtual=False)
    out = tmp_path / "gpu.json"
    command = [sys.executable, "-m", "tests.bench.gpu_real", f"--out={out}"]
    quick = ["--minutes=0", "--seconds=0.5", "--calls=3"]
    environ = {**os.environ, **nvml.environ(), "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([*command, *quick], check=True, capture_output=True, env=environ, cwd=ROOT)
    found = json.loads(out.read_text())
    assert found["as_this_user"]["devices"][0]["model"] == "Scripted H200"
    assert found["latency_idle"]["memory"]["median_us"] > 0
    assert found["counters_idle"]["types"]["83"] == 3
    assert set(found["windows_idle"]) == {"5", "9", "10", "20"}
    assert found["sampling"]["5"]["cpu_share"] > 0
