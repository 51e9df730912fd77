"""The clock of every recorded time: CLOCK_MONOTONIC, one per boot of a machine."""

from __future__ import annotations

import time

__all__ = ["epoch_pair", "monotonic_ns"]

monotonic_ns = time.monotonic_ns
"""CLOCK_MONOTONIC, ns. Not stepped by NTP, the same in every process of one boot."""


def epoch_pair() -> tuple[int, int]:
    """(monotonic ns, wall clock ns since 1970) of one moment, within the time of one clock read."""
    before = time.monotonic_ns()
    epoch = time.time_ns()
    return (before + time.monotonic_ns()) // 2, epoch
