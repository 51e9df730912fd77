"""Means over windows that touch: GPU performance monitoring (GPM) of NVML, Hopper and newer.

Of older ones the bytes over PCIe are counted, and made such means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from math import inf, nan
from typing import Any, Final

__all__ = ["METRICS", "PCIE_FIELDS", "RATES", "SHARES", "Meter", "Windows", "fastest"]

SHARES = {
    "engine_active": 1,
    "sm_active": 2,
    "sm_occupancy": 3,
    "tensor_active": 5,
    "dram_active": 10,
}
"""Number of the metric (``NVML_GPM_METRIC_*``, percent) of each counter that is a share."""

RATES = {"pcie_tx_b_per_s": 20, "pcie_rx_b_per_s": 21}
"""The same of those that are MiB per second."""

METRICS = {**SHARES, **RATES}
"""All of them."""

_MIB = 1 << 20

_APART_NS = 101_000_000
"""NVML wants samples more than 100 ms apart."""

_EMPTY_NS = 2_000_000_000
"""A window that stays empty is given up after this long."""


class Windows:
    """The windows of one device: each starts at the sample that the one before it ended with."""

    def __init__(
        self,
        nvml: Any,
        take: Callable[[Any], object],
        shortest_ns: int = _APART_NS,
        metrics: Mapping[str, int] = METRICS,
    ) -> None:
        """Allocate two samples, which :meth:`close` frees.

        Args:
            nvml: The module ``pynvml``.
            take: Fills a sample of this device.
            shortest_ns: No window is shorter.
            metrics: Number of each counter that is asked for.

        Raises:
            NVMLError: There is no memory for them, or no GPM in this driver.
        """
        self._nvml = nvml
        self._take = take
        self._shortest_ns = shortest_ns
        self._older = nvml.nvmlGpmSampleAlloc()
        self._newer = nvml.nvmlGpmSampleAlloc()
        self._older_ns: int | None = None
        self._newer_ns: int | None = None
        # Made once: a new one for each reading costs twice the time.
        self._request = nvml.c_nvmlGpmMetricsGet_t()
        self._request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        self._metrics = metrics
        self._request.numMetrics = len(metrics)
        for slot, number in enumerate(metrics.values()):
            self._request.metrics[slot].metricId = number

    def sample(self, clock: Callable[[], int]) -> None:
        """End the window here, unless it would be too short: then it goes on.

        Raises:
            NVMLError: The device gives no samples.
        """
        before = clock()
        if self._older_ns is not None and before - self._older_ns < self._shortest_ns:
            return
        self._take(self._newer)
        self._newer_ns = (before + clock()) // 2

    def read(self) -> tuple[float, dict[str, float | int]] | None:
        """Length of the window that :meth:`sample` ended, seconds, and what is known of it.

        For each counter its mean (float), or why there is none (int: a code of NVML, 0 for an empty
        window); None if no window ended. One that is empty throughout goes on for two seconds.
        Of an empty window NVML says that no share is a number and that every rate is 0.

        Raises:
            NVMLError: The device gives no means.
        """
        end, start = self._newer_ns, self._older_ns
        if end is None:
            return None
        self._newer_ns = None
        if start is None:
            self._swap(end)
            return None
        self._request.sample1, self._request.sample2 = self._older, self._newer
        self._nvml.nvmlGpmMetricsGet(self._request)
        found: dict[str, float | int] = {}
        told = False
        for slot, name in enumerate(self._metrics):  # shares come first
            metric = self._request.metrics[slot]
            value = metric.value * _MIB if name in RATES else metric.value / 100
            holds = math.isfinite(value) and (told or name in SHARES)
            found[name] = int(metric.nvmlReturn) or (value if holds else 0)
            told = told or isinstance(found[name], float)
        if not told and 0 in found.values() and end - start < _EMPTY_NS:
            return None
        self._swap(end)
        return (end - start) / 1e9, found

    def restart(self) -> None:
        """Forget the window that is under way."""
        self._older_ns = self._newer_ns = None

    def close(self) -> None:
        """Free the samples."""
        for sample in (self._older, self._newer):
            self._nvml.nvmlGpmSampleFree(sample)

    def _swap(self, end_ns: int) -> None:
        self._older, self._newer = self._newer, self._older
        self._older_ns = end_ns


PCIE_FIELDS: Final = {"pcie_tx_b_per_s": 197, "pcie_rx_b_per_s": 198}
"""Field that counts the bytes of each counter."""

_ROUND_B: Final = 1 << 32

_LANE_B_PER_S: Final = {
    generation: transfers * 1e9 / 8
    for generation, transfers in {1: 2.5, 2: 5, 3: 8, 4: 16, 5: 32, 6: 64}.items()
}
"""What a lane can carry in one direction at most, by generation: each transfer is a bit."""


def fastest(nvml: Any, handle: Any) -> float | None:
    """Bytes per second that the link of a GPU can carry in one direction; None if unknown.

    Args:
        nvml: The module ``pynvml``.
        handle: Of the GPU.
    """
    try:
        lane_b_per_s = _LANE_B_PER_S.get(nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle))
        lanes = int(nvml.nvmlDeviceGetMaxPcieLinkWidth(handle))
    except nvml.NVMLError:
        return None
    return None if lane_b_per_s is None or not lanes else lanes * lane_b_per_s


class Meter:
    """Bytes per second of one direction of a link where there is no GPM, from a counter that wraps.

    NVML says of its fields 197 and 198 that they "can be wrapped", and users see values below 2^32
    only. A fast link goes round that in 70 ms: what was counted between two readings is known only
    if the link could not have carried so much in the time.
    """

    def __init__(self, fastest_b_per_s: float | None) -> None:
        """Count from the first reading on.

        Args:
            fastest_b_per_s: What the link can carry, as :func:`fastest` says.
        """
        self._fastest_b_per_s = fastest_b_per_s
        self._wide = False
        self._last: tuple[int, int, int] | None = None

    def read(self, count_b: int, begin_ns: int, end_ns: int) -> tuple[float, float] | None:
        """Mean since the reading before, bytes per second, and seconds that it is the mean of.

        None at the first reading. The mean is NaN where the counter was set back, or the link is
        so fast that it may have gone round.

        Args:
            count_b: The counter.
            begin_ns: CLOCK_MONOTONIC before it was read.
            end_ns: And after.
        """
        last, self._last = self._last, (count_b, begin_ns, end_ns)
        self._wide = self._wide or count_b >= _ROUND_B
        if last is None:
            return None
        passed_s = (begin_ns + end_ns - last[1] - last[2]) / 2e9
        at_most_b = (self._fastest_b_per_s or inf) * (end_ns - last[1]) / 1e9
        grown_b = count_b - last[0]
        if not self._wide:
            # Once round at most is distinguished from less than once by what is left.
            grown_b %= _ROUND_B
        known = 0 <= grown_b <= at_most_b and (self._wide or at_most_b < _ROUND_B) and passed_s > 0
        return grown_b / passed_s if known else nan, passed_s

    def forget(self) -> None:
        """Start anew: the time until the next reading is not measured."""
        self._last = None
