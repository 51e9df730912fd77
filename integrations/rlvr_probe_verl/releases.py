"""Which release of verl is in use, and the releases a hook point belongs to."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from rlvr_probe.adapter import HookPoint

__all__ = ["Dated", "Release", "release"]

Release = tuple[int, ...]
"""The leading numbers of a version: (0, 9, 1)."""

_NEWEST: Release = (sys.maxsize,)


def release(version: object) -> Release:
    """The release of a version. What names none, a source checkout for example, is the newest."""
    numbers = re.match(r"\d+(\.\d+)*", version) if isinstance(version, str) else None
    if numbers is None or version == "0":
        return _NEWEST
    return tuple(int(number) for number in numbers[0].split("."))


@dataclass(frozen=True, slots=True)
class Dated:
    """A hook point with the releases it belongs to.

    Attributes:
        point: What to hook.
        since: First release that has it in this form.
        until: First release that has not; None for the newest that is known.
    """

    point: HookPoint
    since: str = "0.4.1"
    until: str | None = None

    def holds(self, at: Release) -> bool:
        """Whether it belongs to release ``at``."""
        return release(self.since) <= at and (self.until is None or at < release(self.until))
