"""The verl adapter: what to hook when the modules of verl are imported, in whatever process."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_probe.adapter import HookPoint
from rlvr_probe.releases import release
from rlvr_probe_verl.points import looked_up, points

__all__ = ["VerlAdapter"]


class VerlAdapter:
    """verl's trainers through Ray: RayPPOTrainer and, from 0.9, the V1 trainers."""

    name = "verl"
    distribution = "verl"
    tested = ">=0.4.1,<0.10"

    def hook_points(self, version: str) -> Sequence[HookPoint]:
        """All of them: which process a module is imported in tells which ones come into effect."""
        return points(release(version))

    def expected(self, version: str) -> Sequence[HookPoint]:
        """The methods as well that are hooked once an object of theirs is made."""
        return (*self.hook_points(version), *looked_up(release(version)))
