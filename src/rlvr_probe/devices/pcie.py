"""Bytes per second over PCIe where there is no GPM, from a counter that wraps.

NVML says of its fields 197 and 198 that they "can be wrapped", and users see values below 2^32
only. A fast link goes round that in 70 ms: what was counted between two readings is known only if
the link could not have carried so much in the time.
"""

from __future__ import annotations

from math import inf, nan
from typing import Any, Final

__all__ = ["FIELDS", "ROUND_B", "Meter", "fastest"]

FIELDS: Final = {"pcie_tx_b_per_s": 197, "pcie_rx_b_per_s": 198}
"""Field that counts the bytes of each counter."""

ROUND_B: Final = 1 << 32

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
    """One direction of one link."""

    def __init__(self, fastest_b_per_s: float | None) -> None:
        """Count from the first reading on.

        Args:
            fastest_b_per_s: What the link can carry, as :func:`fastest` tells.
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
        self._wide = self._wide or count_b >= ROUND_B
        if last is None:
            return None
        passed_s = (begin_ns + end_ns - last[1] - last[2]) / 2e9
        at_most_b = (self._fastest_b_per_s or inf) * (end_ns - last[1]) / 1e9
        grown_b = count_b - last[0]
        if not self._wide:
            # Once round at most is told from less than once by what is left.
            grown_b %= ROUND_B
        known = 0 <= grown_b <= at_most_b and (self._wide or at_most_b < ROUND_B) and passed_s > 0
        return grown_b / passed_s if known else nan, passed_s

    def forget(self) -> None:
        """Begin anew: the time until the next reading is not measured."""
        self._last = None
