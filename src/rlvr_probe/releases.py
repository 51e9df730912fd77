"""Releases of a framework: which one a version names, and the hook points that belong to it.

For integrations; a framework's functions come, change and go between releases.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from rlvr_probe.adapter import HookPoint

__all__ = ["NEWEST", "Dated", "Release", "points_of", "release"]

Release = tuple[int, ...]
"""The leading numbers of a version: (0, 29, 1). Later releases compare greater."""

NEWEST: Release = (sys.maxsize,)
"""The release of what names none: a source checkout, for example."""


def release(version: object) -> Release:
    """The release of a version; :data:`NEWEST` of what names none.

    Args:
        version: As the framework or its metadata spells it, ``"1.0.0.dev0"``. ``"0"``, which stands
            for a version that nothing says, names none; so does what is not a string.
    """
    numbers = re.match(r"\d+(\.\d+)*", version) if isinstance(version, str) else None
    if numbers is None or version == "0":
        return NEWEST
    return tuple(int(number) for number in numbers[0].split("."))


@dataclass(frozen=True, slots=True)
class Dated:
    """A hook point with the releases it belongs to.

    Attributes:
        point: What to hook.
        since: First release that has it in this form: the oldest that is known, or a later one.
        until: First release that has not; None for the newest that is known.
    """

    point: HookPoint
    since: str
    until: str | None = None

    def holds(self, at: Release) -> bool:
        """Whether it belongs to release ``at``."""
        return release(self.since) <= at and (self.until is None or at < release(self.until))


def points_of(dated: Iterable[Dated], at: Release) -> tuple[HookPoint, ...]:
    """The hook points of ``dated`` that belong to release ``at``, in their order."""
    return tuple(change.point for change in dated if change.holds(at))
