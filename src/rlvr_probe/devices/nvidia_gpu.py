"""One GPU, or one part of a GPU (MIG), as NVML reports it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlvr_probe.devices.backend import CounterSupport, Fault, Reading, What
from rlvr_probe.devices.gpm import METRICS, PCIE_FIELDS, SHARES, Meter, Windows, fastest
from rlvr_probe.model.counters import Pace

__all__ = ["Gpu", "explain"]

_LOST: dict[int, What] = {15: "lost", 16: "reset_required"}
_FINAL = {
    2: "not for this device",
    3: "not supported",
    4: "no permission",
    13: "not in this driver",
    22: "not supported on a virtual GPU",
    25: "not in this driver",
    26: "no longer in this driver",
}
"""Codes that will not change, with what they mean."""

_AGAIN_NS = 5_000_000_000
"""A lost GPU is looked for this often."""

_ALL_LINKS = 0xFFFFFFFF
_LINKS = 18


@dataclass(slots=True)
class _Sum:
    """A counter that is the sum of fields, each with its scope.

    Attributes:
        scale: Unit of the counter in units of the field.
        fields: Field and scope of each term.
        settled: The terms that there are were found, and none of them may be omitted.
    """

    scale: float
    fields: Sequence[tuple[int, int]]
    settled: bool = False


_FIELDS: Mapping[str, Sequence[_Sum]] = {
    "energy_j": [_Sum(1e-3, [(83, 0)])],
    "power_w": [_Sum(1e-3, [(186, 0)])],
    **{name: [_Sum(1, [(field, 0)])] for name, field in PCIE_FIELDS.items()},
    # KiB of all links; on Blackwell, bytes of each link.
    "nvlink_tx_b": [
        _Sum(1024, [(138, _ALL_LINKS)]),
        _Sum(1, [(202, link) for link in range(_LINKS)]),
    ],
    "nvlink_rx_b": [
        _Sum(1024, [(139, _ALL_LINKS)]),
        _Sum(1, [(204, link) for link in range(_LINKS)]),
    ],
}
"""By counter: the ways to read it, of which the first that is supported is used."""

_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of the union of a field's value, by its type."""

_WHOLE_ONLY = (
    *_FIELDS,
    "utilization",
    "memory_utilization",
    "sm_clock_hz",
    "temperature_c",
    "throttle_reasons",
    "throttle_power_s",
    "throttle_thermal_s",
    "ecc_errors",
)
"""Of a part, these are refused, or worse: fields come as 0 with "success" (driver 535)."""


class _Gone(Exception):
    """The GPU is lost; carries the code."""


def explain(code: int) -> str:
    """What a code of NVML means for a counter, in a few words."""
    words = _FINAL.get(code) or _LOST.get(code, "").replace("_", " ")
    return f"{words} ({code})" if words else f"NVML error {code}"


class Gpu:
    """What is read of one device, and how it stands with its counters.

    Attributes:
        handle: Of NVML; another one after the GPU was lost.
        support: Of its counters.
    """

    def __init__(
        self, nvml: Any, uuid: str, handle: Any, clock: Callable[[], int], part: Any = None
    ) -> None:
        """Ask whether there is GPM, and nothing else yet.

        Args:
            nvml: The module ``pynvml``.
            uuid: Of the device.
            handle: Of the device.
            clock: CLOCK_MONOTONIC, ns.
            part: Of a part of a GPU: handle of the whole, and GPU instance id.
        """
        self.handle = handle
        self.support = CounterSupport()
        self._nvml = nvml
        self._uuid = uuid
        self._clock = clock
        self._ways = {name: [replace(way) for way in ways] for name, ways in _FIELDS.items()}
        self._gone = 0
        self._again_ns = 0
        self._windows: Windows | None = None
        # Parts share a link.
        self._metrics = METRICS if part is None else SHARES
        self._meters: dict[str, Meter] = {}
        if part is not None:
            for name in _WHOLE_ONLY:
                self.support.refuse(name, "reported for the whole GPU only")
        try:
            whole = handle if part is None else part[0]
            if nvml.nvmlGpmQueryDeviceSupport(whole).isSupportedDevice:
                self._windows = Windows(nvml, self._taker(part), metrics=self._metrics)
            else:
                self._refuse_windows("no GPM on this GPU: it starts with Hopper")
        except nvml.NVMLError as error:
            self._refuse_windows(f"no GPM: {explain(error.value)}")
        except AttributeError:
            self._refuse_windows("no GPM: not in the installed pynvml")
        if self._windows is not None:
            for name in PCIE_FIELDS:
                del self._ways[name]
        elif part is None:
            link_b_per_s = fastest(nvml, handle)
            self._meters = {name: Meter(link_b_per_s) for name in PCIE_FIELDS}

    def _taker(self, part: Any) -> Callable[[Any], object]:
        nvml = self._nvml
        if part is None:
            return lambda sample: nvml.nvmlGpmSampleGet(self.handle, sample)
        whole, instance = part
        return lambda sample: nvml.nvmlGpmMigSampleGet(whole, instance, sample)

    def _refuse_windows(self, why: str) -> None:
        for name in SHARES:
            self.support.refuse(name, why)

    def close(self) -> None:
        """Free what NVML allocated for it."""
        if self._windows is not None:
            self._windows.close()
            self._windows = None

    def read(self, pace: Pace) -> Reading:
        """The counters of one pace; a fault instead of them while the GPU is lost."""
        now = self._clock()
        if self._gone and now < self._again_ns:
            return Reading(now, fault=Fault(self._uuid, _LOST[self._gone], self._gone))
        try:
            if self._gone:
                self._find()
            reading = self._read(pace, now)
        except _Gone as gone:
            self._gone, self._again_ns = gone.args[0], now + _AGAIN_NS
            if self._windows is not None:
                self._windows.restart()
            for meter in self._meters.values():
                meter.forget()
            return Reading(now, fault=Fault(self._uuid, _LOST[self._gone], self._gone))
        self._gone = 0
        return reading

    def _find(self) -> None:
        """Get a handle again: the one from before may not be valid."""
        try:
            self.handle = self._nvml.nvmlDeviceGetHandleByUUID(self._uuid)
        except self._nvml.NVMLError as error:
            raise _Gone(error.value if error.value in _LOST else self._gone) from None

    def _read(self, pace: Pace, now: int) -> Reading:
        values: dict[str, float] = {}
        window_s, time_ns = None, now
        if pace == "fast":
            self._sample(now)
            self._read_fields(values, now)
            # The sample and the fields come one right after the other: this is the time of both.
            read_ns = self._clock()
            time_ns = (now + read_ns) // 2
            window_s = self._read_windows(values, now)
            if self._meters:
                window_s = self._read_meters(values, now, read_ns)
        for names, scale, call in self._calls(pace):
            if not any(self.support.wants(name, now) for name in names):
                continue
            try:
                numbers = call()
            except self._nvml.NVMLError as error:
                self._failed(names, error.value, now)
                continue
            except (AttributeError, TypeError):
                for name in names:
                    self.support.refuse(name, "not in the installed pynvml")
                continue
            for name, number in zip(names, numbers, strict=True):
                values[name] = number * scale
                self.support.gave(name)
        if pace != "fast":
            time_ns = (now + self._clock()) // 2
        return Reading(time_ns, window_s, values, dict(self.support.absent))

    def _calls(
        self, pace: Pace
    ) -> Sequence[tuple[tuple[str, ...], float, Callable[[], Sequence[float]]]]:
        """Every call of one pace: the counters it gives, their scale, and what makes it."""
        nvml, handle = self._nvml, self.handle
        if pace == "fast":
            return (
                (("memory_b",), 1, lambda: [nvml.nvmlDeviceGetMemoryInfo(handle, _MEMORY_V2).used]),
            )
        if pace == "rare":
            return ((("ecc_errors",), 1, lambda: [nvml.nvmlDeviceGetTotalEccErrors(handle, 1, 0)]),)

        def utilization() -> Sequence[float]:
            rates = nvml.nvmlDeviceGetUtilizationRates(handle)
            return rates.gpu, rates.memory

        def held(policy: int) -> Callable[[], Sequence[float]]:
            return lambda: [nvml.nvmlDeviceGetViolationStatus(handle, policy).violationTime]

        return (
            (("utilization", "memory_utilization"), 0.01, utilization),
            (("sm_clock_hz",), 1e6, lambda: [nvml.nvmlDeviceGetClockInfo(handle, 1)]),
            (("temperature_c",), 1, lambda: [nvml.nvmlDeviceGetTemperature(handle, 0)]),
            (
                ("throttle_reasons",),
                1,
                lambda: [nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)],
            ),
            # This call says ns; what unit the fields 74 and 75 have is said nowhere.
            (("throttle_power_s",), 1e-9, held(0)),
            (("throttle_thermal_s",), 1e-9, held(1)),
        )

    def _failed(self, names: Sequence[str], code: int, now: int) -> None:
        if code in _LOST:
            raise _Gone(code)
        for name in names:
            if code in _FINAL:
                self.support.refuse(name, explain(code))
            else:
                self.support.fail(name, explain(code), now)

    def _read_fields(self, values: dict[str, float], now: int) -> None:
        wanted = [name for name in self._ways if self.support.wants(name, now)]
        fields = [field for name in wanted for field in self._ways[name][0].fields]
        if not fields:
            return
        try:
            told = iter(self._nvml.nvmlDeviceGetFieldValues(self.handle, fields))
        except self._nvml.NVMLError as error:
            self._failed(wanted, error.value, now)
            return
        for name in wanted:
            way = self._ways[name][0]
            found = [(field, next(told)) for field in way.fields]
            good = [(field, value) for field, value in found if value.nvmlReturn == 0]
            bad = [value.nvmlReturn for _, value in found if value.nvmlReturn != 0]
            if good and not (bad and way.settled):
                way.fields, way.settled = [field for field, _ in good], True
                values[name] = way.scale * sum(_number(value) for _, value in good)
                if name not in self._meters:
                    self.support.gave(name)
            elif bad[0] in _FINAL and len(self._ways[name]) > 1:
                del self._ways[name][0]
            else:
                self._failed([name], bad[0], now)

    def _sample(self, now: int) -> None:
        if self._windows is None:
            return
        wanted = [name for name in self._metrics if self.support.wants(name, now)]
        if not wanted:
            self._windows.restart()
            return
        try:
            self._windows.sample(self._clock)
        except self._nvml.NVMLError as error:
            self._windows.restart()
            self._failed(wanted, error.value, now)

    def _read_windows(self, values: dict[str, float], now: int) -> float | None:
        """Put means into ``values``; length of the window, seconds, None if there is none."""
        if self._windows is None:
            return None
        try:
            ended = self._windows.read()
        except self._nvml.NVMLError as error:
            self._windows.restart()
            self._failed(tuple(self._metrics), error.value, now)
            return None
        if ended is None:
            return None
        window_s, found = ended
        for name, mean in found.items():
            if isinstance(mean, float):
                values[name] = mean
                self.support.gave(name)
            elif mean == 0:
                self.support.fail(name, "its windows are empty", now)
            else:
                self._failed([name], mean, now)
        return window_s if any(isinstance(mean, float) for mean in found.values()) else None

    def _read_meters(self, values: dict[str, float], begin_ns: int, end_ns: int) -> float | None:
        """Put rates into ``values`` in place of what was counted; length of the window, seconds."""
        window_s = None
        for name, meter in self._meters.items():
            count_b = values.pop(name, None)
            if count_b is None:
                meter.forget()
                continue
            found = meter.read(int(count_b), begin_ns, end_ns)
            if found is None:
                continue
            rate, passed_s = found
            if math.isnan(rate):
                self.support.fail(name, _WRAPS, begin_ns)
            else:
                values[name], window_s = rate, passed_s
                self.support.gave(name)
        return window_s


_WRAPS = "its counter goes round too fast for so few readings"

_MEMORY_V2 = 0x02000028
"""``nvmlMemory_v2``: what is used without what the driver has reserved."""


def _number(value: Any) -> float:
    """Of a field, by its type."""
    return getattr(value.value, _MEMBERS[value.valueType])  # type: ignore[no-any-return]
