"""Means over windows that touch: GPU performance monitoring (GPM) of NVML, Hopper and newer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["METRICS", "RATES", "SHARES", "Windows"]

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
    """The windows of one device: each begins at the sample that the one before it ended with."""

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
