"""Releases of a framework: which one a version names, and the hook points that belong to it.

For integrations; a framework's functions come, change and go between releases.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata

from rlvr_probe.adapter import HookPoint
from rlvr_probe.reading import attribute

__all__ = [
    "NEWEST",
    "Dated",
    "DatedAdapter",
    "Release",
    "points_of",
    "release",
    "version_of",
    "within",
]

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
    return tuple(candidate.point for candidate in dated if candidate.holds(at))


def within(
    owner: str, points: Iterable[HookPoint | Dated], since: str = "0.0", until: str | None = None
) -> tuple[Dated, ...]:
    """``points``, whose targets are names inside of ``owner``, with the releases they belong to.

    Args:
        owner: ``package.module:Class.`` of methods, ``package.module:`` of anything else.
        points: What to hook.
        since: As in :class:`Dated`; of points with releases of their own, none before it.
        until: The same, of points without releases of their own.
    """
    dated = (point if isinstance(point, Dated) else Dated(point, since, until) for point in points)
    return tuple(
        Dated(
            replace(entry.point, target=f"{owner}{entry.point.target}"),
            max(entry.since, since, key=release),
            entry.until,
        )
        for entry in dated
        if entry.until is None or release(since) < release(entry.until)
    )


class DatedAdapter:
    """What makes an :class:`~rlvr_probe.adapter.Adapter` of two tables; to be subclassed.

    Attributes:
        imported: Hooked when their modules are imported, in whatever process.
        methods: Hooked once an object is made, on its class, which may be the user's own; named
            here on the framework's.
    """

    imported: Sequence[Dated]
    methods: Sequence[Dated] = ()

    def hook_points(self, version: str) -> Sequence[HookPoint]:
        """See :class:`~rlvr_probe.adapter.Adapter`."""
        return points_of(self.imported, release(version))

    def expected(self, version: str) -> Sequence[HookPoint]:
        """See :class:`~rlvr_probe.adapter.Adapter`."""
        return points_of((*self.imported, *self.methods), release(version))


def version_of(package: str) -> str | None:
    """Version of the framework that runs in this process; None if nothing says which."""
    own = attribute(sys.modules.get(package), "__version__")
    return own if release(own) != NEWEST else _from_metadata(package)


@cache
def _from_metadata(package: str) -> str | None:
    # TRL 0.22.0 is packaged without the file it reads its version from, and says "unknown".
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a source checkout on the path
        return None
