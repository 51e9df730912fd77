"""The vLLM adapter: what to hook when its engine is imported."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_probe.adapter import HookPoint
from rlvr_probe_vllm.asking import ASKING
from rlvr_probe_vllm.scheduling import SCHEDULING

__all__ = ["VllmAdapter"]


class VllmAdapter:
    """vLLM's V1 engine: the process that asks it, and the one that schedules its work.

    Nothing here is a plugin of vLLM's: one that logs statistics would turn them on, in every
    engine of an environment where rlvr-probe is installed, recorded or not.
    """

    name = "vllm"
    distribution = "vllm"
    tested = ">=0.8.3,<0.34"

    def hook_points(self, version: str) -> Sequence[HookPoint]:
        """The same functions in every release that is known."""
        return (*ASKING, *SCHEDULING)

    def expected(self, version: str) -> Sequence[HookPoint]:
        """The same: all of them are functions of vLLM's own modules."""
        return self.hook_points(version)
