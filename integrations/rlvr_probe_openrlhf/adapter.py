"""The OpenRLHF adapter: what to hook when its modules are imported, in whatever process."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_probe.adapter import HookPoint
from rlvr_probe.releases import release
from rlvr_probe_openrlhf.points import looked_up, points

__all__ = ["OpenRLHFAdapter"]


class OpenRLHFAdapter:
    """OpenRLHF's PPO trainer through Ray, synchronous and asynchronous."""

    name = "openrlhf"
    distribution = "openrlhf"
    tested = ">=0.9.1,<0.12"

    def hook_points(self, version: str) -> Sequence[HookPoint]:
        """All of them: which process a module is imported in tells which ones come into effect."""
        return points(release(version))

    def expected(self, version: str) -> Sequence[HookPoint]:
        """The methods as well that are hooked once an object of theirs is made."""
        return (*self.hook_points(version), *looked_up(release(version)))
