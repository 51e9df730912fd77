"""NVIDIA GPUs through the real ``pynvml``, over a scripted driver that knows the true answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlvr_probe.devices import Device, Reading, nvidia
from rlvr_probe.devices.gpm import METRICS, RATES, SHARES
from rlvr_probe.devices.nvidia import NvidiaBackend, doubt
from rlvr_probe.model.counters import BY_NAME, Pace
from tests.nvml import Nvml, gpu_uuid, mig_uuid, scripted

FULL = (
    "0 0 power_mw 100000",
    "2000 0 power_mw 600000",
    "0 0 fir.138 1000",
    "0 0 fir.139 500",
    "0 0 gpm.1 90",
    "0 0 gpm.2 80",
    "0 0 gpm.3 30",
    "0 0 gpm.5 40",
    "0 0 gpm.10 0",
    "0 0 gpm.20 10",
    "0 0 gpm.21 20000",
    "0 0 mem_used 4e10",
    "0 0 mem_total 1.5e11",
    "0 0 util 100",
    "0 0 memutil 25",
    "0 0 sm_clk 1755",
    "0 0 temp 61",
    "0 0 reasons 4",
    "0 0 held.0 0.5",
    "0 0 held.1 0.25",
    "0 0 ecc 3",
)
"""One GPU that can tell everything."""

PACES: dict[Pace, set[str]] = {
    pace: {name for name, item in BY_NAME.items() if item.pace == pace}
    - {"cpu_s", "io_read_b", "io_write_b", "network_tx_b", "network_rx_b"}
    for pace in ("fast", "slow", "rare")
}

MIB = 1 << 20
NO_GPM = "no GPM on this GPU: it starts with Hopper"
WRAPS = "its counter goes round too fast for so few readings"

Play = Callable[..., Nvml]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """Start a script; one per test."""
    open_scripts = []

    def start(*rows: str, virtual: bool = True) -> Nvml:
        manager = scripted(tmp_path, *rows, virtual=virtual)
        open_scripts.append(manager)
        return manager.__enter__()

    yield start
    for manager in open_scripts:
        manager.__exit__(None, None, None)


def opened(nvml: Nvml) -> tuple[NvidiaBackend, list[Device]]:
    backend = NvidiaBackend(nvml.clock)
    return backend, list(backend.devices())


def readings(nvml: Nvml, backend: NvidiaBackend, device: Device, times: int) -> list[Reading]:
    """Fast readings 0.2 s apart."""
    found = []
    for _ in range(times):
        found.append(backend.read(device, "fast"))
        nvml.advance(0.2)
    return found


def test_a_device_says_what_it_is(play: Play) -> None:
    backend, [device] = opened(play(*FULL))
    assert (device.uuid, device.kind, device.vendor) == (gpu_uuid(0), "gpu", "nvidia")
    assert (device.model, device.driver) == ("Scripted H200", "999.0-scripted")
    assert (device.parent, device.memory_limit_b) == (None, 150_000_000_000)
    assert device.absent == {}
    assert backend.why is None


def test_every_counter_of_a_gpu_is_told_in_its_unit(play: Play) -> None:
    nvml = play(*FULL)
    backend, [device] = opened(nvml)
    backend.read(device, "fast")
    nvml.advance(4)
    fast = backend.read(device, "fast")
    assert fast.values == {
        "energy_j": 1400.0,  # 2 s at 100 W, 2 s at 600 W
        "power_w": 600.0,
        "pcie_tx_b_per_s": 10 * MIB,
        "pcie_rx_b_per_s": 20_000 * MIB,
        "nvlink_tx_b": 4_096_000,
        "nvlink_rx_b": 2_048_000,
        "engine_active": 0.9,
        "sm_active": 0.8,
        "sm_occupancy": 0.3,
        "tensor_active": 0.4,
        "dram_active": 0.0,
        "memory_b": 40_000_000_000,
    }
    assert (fast.window_s, fast.time_ns) == (4.0, nvml.now_ns)
    assert backend.read(device, "slow").values == {
        "utilization": 1.0,
        "memory_utilization": 0.25,
        "sm_clock_hz": 1_755_000_000.0,
        "temperature_c": 61,
        "throttle_reasons": 4,
        "throttle_power_s": 2.0,
        "throttle_thermal_s": 1.0,
    }
    assert backend.read(device, "rare").values == {"ecc_errors": 3}
    told = {pace: set(backend.read(device, pace).values) for pace in PACES}
    told["fast"] |= set(METRICS)  # at the same moment there is no window
    assert told == PACES


def test_windows_touch_and_their_means_are_exact(play: Play) -> None:
    nvml = play("0 0 gpm.2 0", "300 0 gpm.2 100", "500 0 gpm.2 20")
    backend, [device] = opened(nvml)
    found = readings(nvml, backend, device, 5)
    assert [result.window_s for result in found] == [None, 0.2, 0.2, 0.2, 0.2]
    assert [result.values.get("sm_active") for result in found] == [None, 0.0, 0.5, 0.6, 0.2]


def test_a_window_that_would_be_too_short_goes_on(play: Play) -> None:
    nvml = play("0 0 gpm.2 0", "150 0 gpm.2 100")
    backend, [device] = opened(nvml)
    found = []
    for pause in (0.2, 0.09, 0.09, 0.2):
        found.append(backend.read(device, "fast"))
        nvml.advance(pause)
    assert [result.window_s for result in found] == [None, 0.2, None, 0.18]
    assert [result.values.get("sm_active") for result in found] == [None, 0.25, None, 1.0]


def test_an_empty_window_goes_on_and_is_not_0(play: Play) -> None:
    nvml = play("0 sys refresh_ms 400", "0 0 gpm.2 100")
    backend, [device] = opened(nvml)
    found = readings(nvml, backend, device, 6)
    assert [result.window_s for result in found] == [None, None, 0.4, None, 0.4, None]
    assert {result.values.get("sm_active") for result in found} == {None, 1.0}
    assert "sm_active" not in (found[-1].absent or {})


def test_windows_that_stay_empty_are_absent_and_asked_for_again(play: Play) -> None:
    nvml = play("0 sys refresh_ms 100000", "0 0 gpm.2 50")
    backend, [device] = opened(nvml)
    found = readings(nvml, backend, device, 40)
    assert {result.values.get("sm_active") for result in found} == {None}
    assert found[-1].absent is not None
    assert found[-1].absent["sm_active"] == "its windows are empty; asked again each minute"
    nvml.play("0 sys refresh_ms 100", "0 0 gpm.2 50")
    nvml.advance(60)
    found = readings(nvml, backend, device, 2)
    assert (found[1].values["sm_active"], found[1].window_s) == (0.5, 0.2)
    assert "sm_active" not in (found[1].absent or {})


CALLS: dict[str, tuple[Pace, set[str]]] = {
    "DeviceGetMemoryInfo_v2": ("fast", {"memory_b"}),
    "DeviceGetFieldValues": (
        "fast",
        {"energy_j", "power_w", "nvlink_tx_b", "nvlink_rx_b"},
    ),
    "GpmSampleGet": ("fast", set(METRICS)),
    "GpmMetricsGet": ("fast", set(METRICS)),
    "DeviceGetUtilizationRates": ("slow", {"utilization", "memory_utilization"}),
    "DeviceGetClockInfo": ("slow", {"sm_clock_hz"}),
    "DeviceGetTemperature": ("slow", {"temperature_c"}),
    "DeviceGetViolationStatus": ("slow", {"throttle_power_s", "throttle_thermal_s"}),
    "DeviceGetTotalEccErrors": ("rare", {"ecc_errors"}),
}


@pytest.mark.parametrize(
    ("code", "why"),
    [(3, "not supported (3)"), (4, "no permission (4)"), (13, "not in this driver (13)")],
)
@pytest.mark.parametrize("call", CALLS)
def test_what_a_call_is_refused_for_good_is_absent_with_the_reason_and_not_asked_for_again(
    play: Play, call: str, code: int, why: str
) -> None:
    pace, counters = CALLS[call]
    nvml = play(*FULL, f"0 0 err.{call} {code}")
    backend, [device] = opened(nvml)
    readings(nvml, backend, device, 3)
    reading = backend.read(device, pace)
    assert reading.absent == dict.fromkeys(counters, why)
    assert not counters & set(reading.values)
    nvml.advance(0.2)
    before = nvml.calls
    backend.read(device, pace)
    refused = nvml.calls - before
    nvml.play(*FULL)
    nvml.advance(100)
    reading = backend.read(device, pace)
    assert not counters & set(reading.values)
    assert reading.absent == dict.fromkeys(counters, why)
    assert nvml.calls - before == 2 * refused
    others = PACES[pace] - counters
    assert others <= set(reading.values)


def test_a_field_that_is_refused_leaves_the_others(play: Play) -> None:
    nvml = play(*FULL, "0 0 fe.186 3", "0 0 fe.139 4", "0 0 fe.204 4")
    backend, [device] = opened(nvml)
    reading = readings(nvml, backend, device, 3)[2]
    assert reading.absent == {"power_w": "not supported (3)", "nvlink_rx_b": "no permission (4)"}
    assert reading.values["energy_j"] == 40.0


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("0 0 gpm 0", NO_GPM),
        ("0 0 err.GpmQueryDeviceSupport 13", "no GPM: not in this driver (13)"),
        ("0 0 err.GpmQueryDeviceSupport 4", "no GPM: no permission (4)"),
    ],
)
def test_a_gpu_without_gpm_says_so_at_once(play: Play, row: str, why: str) -> None:
    nvml = play(*FULL, row)
    backend, [device] = opened(nvml)
    assert device.absent == dict.fromkeys(SHARES, why)
    reading = readings(nvml, backend, device, 2)[1]
    assert reading.window_s is None
    assert set(reading.values) == PACES["fast"] - set(METRICS)


def test_an_empty_window_of_rates_is_not_0(play: Play) -> None:
    nvml = play("0 sys refresh_ms 400", "0 0 gpm.2 100", "0 0 gpm.20 10")
    backend, [device] = opened(nvml)
    found = readings(nvml, backend, device, 6)
    rates = [result.values.get("pcie_tx_b_per_s") for result in found]
    assert rates == [None, None, 10 * MIB, None, 10 * MIB, None]


def test_rates_without_a_share_are_absent_as_an_empty_window_looks_the_same(play: Play) -> None:
    nvml = play("0 0 gpm.20 10", "0 0 gpm.21 0")
    backend, [device] = opened(nvml)
    found = readings(nvml, backend, device, 40)
    assert not set(RATES) & set().union(*(result.values for result in found))


SLOW_LINK = ("0 0 pcie_gen 3", "0 0 pcie_width 16", "0 0 gpm 0", "0 0 ft.197 1")
"""16 GB/s at most: 3.2 GB from reading to reading."""


def test_without_gpm_what_a_counter_that_wraps_counts_is_exact_where_the_link_is_slow(
    play: Play,
) -> None:
    nvml = play(*SLOW_LINK, "0 0 fir.197 15e9", "1000 0 fir.197 0", "0 0 fir.198 1e6")
    backend, [device] = opened(nvml)
    found = readings(nvml, backend, device, 10)
    assert [result.window_s for result in found] == [None, *[0.2] * 9]
    sent = [result.values.get("pcie_tx_b_per_s") for result in found]
    assert sent == [None, *[pytest.approx(15e9)] * 5, *[0.0] * 4]
    assert found[9].values["pcie_rx_b_per_s"] == pytest.approx(1e6)


def test_where_a_link_may_carry_more_than_its_counter_holds_nothing_is_said(play: Play) -> None:
    nvml = play("0 0 gpm 0", "0 0 ft.197 1", "0 0 fir.197 25e9")  # 64 GB/s
    backend, [device] = opened(nvml)
    found = readings(nvml, backend, device, 5)
    assert not any("pcie_tx_b_per_s" in result.values for result in found)
    assert found[-1].absent is not None
    assert found[-1].absent["pcie_tx_b_per_s"] == f"{WRAPS}; asked again each minute"


def test_a_reading_that_comes_late_tells_nothing_of_a_counter_that_wraps(play: Play) -> None:
    nvml = play(*SLOW_LINK, "0 0 fir.197 15e9")
    backend, [device] = opened(nvml)
    readings(nvml, backend, device, 2)
    nvml.advance(1.0)
    late, following = readings(nvml, backend, device, 2)
    assert "pcie_tx_b_per_s" not in late.values
    assert following.values["pcie_tx_b_per_s"] == pytest.approx(15e9)


@pytest.mark.parametrize("row", ["err.DeviceGetMaxPcieLinkWidth 3", "pcie_gen 9", "pcie_width 0"])
def test_of_a_link_whose_speed_is_unknown_a_wrap_cannot_be_excluded(play: Play, row: str) -> None:
    nvml = play(*SLOW_LINK, "0 0 fir.197 1e6", f"1 0 {row}")
    nvml.advance(0.01)
    backend, [device] = opened(nvml)
    found = readings(nvml, backend, device, 5)
    assert not any("pcie_tx_b_per_s" in result.values for result in found)


def test_a_counter_that_holds_more_than_32_bits_does_not_wrap(play: Play) -> None:
    nvml = play("0 0 gpm 0", "0 0 fir.197 25e9")
    nvml.advance(1)
    backend, [device] = opened(nvml)
    found = readings(nvml, backend, device, 3)
    assert found[2].values["pcie_tx_b_per_s"] == pytest.approx(25e9)


def test_a_counter_that_was_set_back_while_the_gpu_was_away_is_not_taken_for_a_wrap(
    play: Play,
) -> None:
    rows = ("0 0 pcie_gen 1", "0 0 pcie_width 1", "0 0 gpm 0", "0 0 fir.197 3e8")
    nvml = play(*rows)
    nvml.advance(10)
    backend, [device] = opened(nvml)
    readings(nvml, backend, device, 2)
    nvml.play(*rows, "0 0 lost 15")
    readings(nvml, backend, device, 2)
    nvml.play(*rows, "0 0 fi.197 5")
    nvml.advance(5)
    found = readings(nvml, backend, device, 2)
    assert "pcie_tx_b_per_s" not in found[0].values
    assert found[1].values["pcie_tx_b_per_s"] == 0.0


def test_a_link_that_is_read_too_seldom_is_told_again_once_it_is_read_more_often(
    play: Play,
) -> None:
    nvml = play(*SLOW_LINK, "0 0 fir.197 15e9")
    backend, [device] = opened(nvml)
    for _ in range(5):
        backend.read(device, "fast")
        nvml.advance(1.0)
    assert "pcie_tx_b_per_s" in (backend.read(device, "fast").absent or {})
    nvml.advance(60)
    last = readings(nvml, backend, device, 3)[-1]
    assert last.values["pcie_tx_b_per_s"] == pytest.approx(15e9)
    assert "pcie_tx_b_per_s" not in (last.absent or {})


def test_an_error_that_may_pass_is_tried_three_times_and_then_each_minute(play: Play) -> None:
    nvml = play(*FULL, "0 0 err.DeviceGetMemoryInfo_v2 999")
    backend, [device] = opened(nvml)
    found = readings(nvml, backend, device, 3)
    assert ["memory_b" in result.values for result in found] == [False] * 3
    assert [result.absent for result in found] == [
        {},
        {},
        {"memory_b": "NVML error 999; asked again each minute"},
    ]
    nvml.play(*FULL)
    assert "memory_b" not in backend.read(device, "fast").values
    nvml.advance(60)
    reading = backend.read(device, "fast")
    assert reading.values["memory_b"] == 40_000_000_000
    assert reading.absent == {}


@pytest.mark.parametrize(("code", "what"), [(15, "lost"), (16, "reset_required")])
def test_a_lost_gpu_is_a_fault_and_not_a_row_of_zeros_and_comes_back(
    play: Play, code: int, what: str
) -> None:
    nvml = play("0 sys count 2", *FULL)
    backend, [device, other] = opened(nvml)
    readings(nvml, backend, device, 2)
    nvml.add(f"0 0 lost {code}")
    before = nvml.calls
    lost = readings(nvml, backend, device, 3)
    assert [item.values for item in lost] == [{}] * 3
    for item in lost:
        assert item.fault is not None
        assert (item.fault.uuid, item.fault.what, item.fault.code) == (device.uuid, what, code)
    assert nvml.calls - before == 1, "a lost GPU is not asked at each turn"
    assert backend.read(other, "fast").fault is None
    nvml.add("0 0 lost 0")
    nvml.advance(5)
    back = readings(nvml, backend, device, 2)
    assert [item.fault for item in back] == [None, None]
    assert set(back[1].values) == PACES["fast"]
    assert back[1].window_s == 0.2, "no window reaches across the time it was away"


def test_a_lost_gpu_that_is_still_lost_is_looked_for_again_later(play: Play) -> None:
    nvml = play(*FULL)
    backend, [device] = opened(nvml)
    nvml.add("0 0 lost 15")
    backend.read(device, "fast")
    nvml.advance(5)
    assert backend.read(device, "fast").fault is not None
    assert backend.read(device, "slow").fault is not None


def test_an_xid_is_told_once_with_its_gpu(play: Play) -> None:
    nvml = play("0 sys count 2", "1000 1 xid 79", "1500 0 xid 31")
    backend, _ = opened(nvml)
    assert backend.faults(0.001) == []
    nvml.advance(2)
    found = backend.faults(0.001)
    assert [(result.uuid, result.what, result.code) for result in found] == [
        (gpu_uuid(1), "xid", 79),
        (gpu_uuid(0), "xid", 31),
    ]
    assert backend.faults(0.001) == []


@pytest.mark.parametrize("call", ["EventSetCreate", "DeviceRegisterEvents", "EventSetWait_v2"])
def test_a_driver_without_events_reports_no_faults(play: Play, call: str) -> None:
    nvml = play(*FULL, "0 0 xid 79", f"0 sys err.{call} 3", f"0 0 err.{call} 3")
    backend, [device] = opened(nvml)
    if call != "DeviceRegisterEvents":  # the script reports what is not registered
        assert backend.faults(0.001) == []
    assert backend.read(device, "fast").values


def test_parts_of_a_gpu_tell_memory_and_windows_and_leave_the_rest_to_the_whole(
    play: Play,
) -> None:
    rows = ["0 0 mig 2", "0 0:1 mem_used 5e9", "0 0:1 mem_total 1.8e10", "0 0:1 gpm.2 70"]
    nvml = play(*FULL, *rows)
    backend, [whole, first, second] = opened(nvml)
    assert [item.parent for item in (whole, first, second)] == [None, whole.uuid, whole.uuid]
    assert (second.uuid, second.memory_limit_b) == (mig_uuid(0, 1), 18_000_000_000)
    readings(nvml, backend, second, 1)
    reading = backend.read(second, "fast")
    assert reading.values == {"memory_b": 5_000_000_000, "sm_active": 0.7}
    assert reading.window_s == 0.2
    assert backend.read(second, "slow").values == backend.read(second, "rare").values == {}
    assert reading.absent is not None
    assert reading.absent["energy_j"] == "reported for the whole GPU only"
    assert set(reading.absent) | set(reading.values) == set().union(*PACES.values())
    assert backend.read(whole, "fast").values["energy_j"] == 20.0
    slow = backend.read(whole, "slow")
    assert slow.absent is not None
    assert slow.absent["utilization"] == "not supported (3)"


def test_links_that_are_counted_one_by_one_are_added_up(play: Play) -> None:
    # Blackwell: fields 202 and 204 of each link, in bytes.
    nvml = play("0 0 fir.202 1000", "0 0 fir.202.3 500", "0 0 fir.204 1")
    backend, [device] = opened(nvml)
    nvml.advance(10)
    assert "nvlink_tx_b" not in backend.read(device, "fast").values
    reading = backend.read(device, "fast")
    assert (reading.values["nvlink_tx_b"], reading.values["nvlink_rx_b"]) == (15000, 10)
    nvml.add("0 0 fe.202 999")
    assert "nvlink_tx_b" not in backend.read(device, "fast").values, "a term is missing"


def test_the_type_of_a_field_is_heeded(play: Play) -> None:
    nvml = play("0 0 power_mw 250000", "0 0 ft.186 1", "0 0 ft.83 0")
    backend, [device] = opened(nvml)
    nvml.advance(2)
    values = backend.read(device, "fast").values
    assert (values["power_w"], values["energy_j"]) == (250.0, 500.0)


@pytest.mark.parametrize("pace", ["fast", "slow", "rare"])
def test_the_time_of_a_reading_is_within_it(play: Play, pace: Pace) -> None:
    play(*FULL)
    now = 0

    def clock() -> int:
        nonlocal now
        now += 1_000_000
        return now

    backend = NvidiaBackend(clock)
    [device] = backend.devices()
    before = clock()
    reading = backend.read(device, pace)
    assert before < reading.time_ns < clock()


def test_eight_gpus_are_eight_devices(play: Play) -> None:
    nvml = play("0 sys count 8", *(f"0 {i} power_mw {1000 * (i + 1)}" for i in range(8)))
    backend, found = opened(nvml)
    nvml.advance(10)
    energies = [backend.read(device, "fast").values["energy_j"] for device in found]
    assert energies == [10.0 * (i + 1) for i in range(8)]


def test_a_gpu_that_cannot_be_opened_leaves_the_others(play: Play) -> None:
    nvml = play("0 sys count 3", "0 1 err.DeviceGetHandleByIndex_v2 4", "0 2 lost 15")
    backend, found = opened(nvml)
    assert [result.uuid for result in found] == [gpu_uuid(0)]
    assert backend.why == (
        "GPU 1 cannot be opened: no permission (4); GPU 2 cannot be opened: lost (15)"
    )


def test_a_machine_without_a_driver_has_no_devices_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pynvml = pytest.importorskip("pynvml")

    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)  # a stub: there may be a driver here
    monkeypatch.setattr(nvidia, "DRIVER", ())
    backend = NvidiaBackend()
    assert (list(backend.devices()), backend.why) == ([], "no NVIDIA driver here")
    assert not backend.is_here
    backend.close()
    # As in a container without the driver capability `utility`.
    monkeypatch.setattr(nvidia, "DRIVER", (__file__,))
    backend = NvidiaBackend()
    assert list(backend.devices()) == []
    assert backend.is_here
    assert backend.why is not None
    assert "driver capability 'utility'" in backend.why
    backend.close()


def test_without_nvidia_ml_py_there_are_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    backend = NvidiaBackend()
    assert (list(backend.devices()), backend.why) == ([], "nvidia-ml-py is not installed")


def package(folder: Path, name: str, version: str, *files: str) -> None:
    """An installed package that owns these files."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for file in (path for path in files if not (folder / path).exists()):
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).touch()
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


OLD = ("pynvml", "11.5.3", "pynvml/__init__.py", "pynvml/nvml.py")
NEW = ("nvidia-ml-py", "13.615.71", "pynvml.py", "example.py")
BOTH = (
    "pynvml 11.5.3 and nvidia-ml-py 13.615.71 both own the module pynvml, and that of {} is"
    " imported: uninstall pynvml, then install nvidia-ml-py again"
)


@pytest.mark.parametrize(
    ("packages", "imported", "said"),
    [
        ([NEW], "pynvml.py", None),
        ([NEW, ("pynvml", "13.0.1", "_pynvml_redirector.py")], "pynvml.py", None),
        ([NEW, OLD], "pynvml/__init__.py", BOTH.format("pynvml 11.5.3")),
        ([NEW, OLD], "pynvml.py", BOTH.format("nvidia-ml-py")),
        (
            [OLD],
            "pynvml/__init__.py",
            "the module pynvml is of pynvml 11.5.3: install nvidia-ml-py in its place",
        ),
    ],
)
def test_another_package_that_owns_the_module_is_named(
    packages: Sequence[tuple[str, ...]],
    imported: str,
    said: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, version, *files in packages:
        package(tmp_path, name, version, *files)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    module = ModuleType("pynvml")
    module.__file__ = str(tmp_path / imported)
    assert doubt(module) == said


def test_a_call_that_the_installed_module_lacks_costs_its_counter(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    pynvml: Any = pytest.importorskip("pynvml")
    # As of the package pynvml 11.5, which has the older name of it.
    monkeypatch.delattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons")
    backend, [device] = opened(play(*FULL))
    reading = backend.read(device, "slow")
    assert reading.absent == {"throttle_reasons": "not in the installed pynvml"}
    assert set(reading.values) == PACES["slow"] - {"throttle_reasons"}


def test_without_gpm_in_the_installed_module_there_are_no_shares(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    pynvml: Any = pytest.importorskip("pynvml")
    monkeypatch.delattr(pynvml, "nvmlGpmQueryDeviceSupport")
    _, [device] = opened(play(*FULL))
    assert device.absent == dict.fromkeys(SHARES, "no GPM: not in the installed pynvml")


def test_a_gpu_that_does_not_say_how_much_memory_it_has_is_read_all_the_same(play: Play) -> None:
    nvml = play(*FULL, "0 0 err.DeviceGetMemoryInfo 3")
    backend, [device] = opened(nvml)
    assert device.memory_limit_b is None
    assert backend.read(device, "fast").values["energy_j"] == 0


def test_a_gpu_older_than_mig_has_no_parts(play: Play) -> None:
    backend, [device] = opened(play(*FULL, "0 0 err.DeviceGetMigMode 3"))
    assert (device.parent, backend.why) == (None, None)


@pytest.mark.parametrize("call", ["DeviceGetMaxMigDeviceCount", "DeviceGetGpuInstanceId"])
def test_parts_that_cannot_be_asked_for_leave_the_whole(play: Play, call: str) -> None:
    nvml = play(*FULL, "0 0 mig 1", f"0 0 err.{call} 4", f"0 0:0 err.{call} 4")
    backend, [device] = opened(nvml)
    assert device.uuid == gpu_uuid(0)
    assert backend.why == "the parts of GPU 0 are not told: no permission (4)"


def test_a_driver_that_is_not_loaded_is_no_device_with_a_reason(play: Play) -> None:
    backend, found = opened(play("0 sys err.InitWithFlags 9"))
    assert (found, backend.why) == ([], "NVML does not answer (NVMLError_DriverNotLoaded)")


def test_a_driver_that_cannot_count_its_gpus_is_no_device_with_a_reason(play: Play) -> None:
    backend, found = opened(play("0 sys err.DeviceGetCount_v2 999"))
    assert (found, backend.why) == ([], "NVML does not count its GPUs: NVML error 999")


def test_after_closing_nothing_is_open_and_closing_again_does_no_harm(play: Play) -> None:
    nvml = play(*FULL)
    backend, [device] = opened(nvml)
    readings(nvml, backend, device, 2)
    backend.close()
    backend.close()
    pynvml: Any = pytest.importorskip("pynvml")
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


def test_a_library_that_fails_while_it_is_closed_does_no_harm(play: Play) -> None:
    backend, _ = opened(play(*FULL))
    pynvml: Any = pytest.importorskip("pynvml")
    pynvml.nvmlLib.nvmlShutdown()
    backend.close()


def test_importing_the_devices_loads_no_gpu_library() -> None:
    code = "import rlvr_probe.devices.nvidia, sys; print('pynvml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
