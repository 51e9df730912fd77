"""Which release of TRL is in use, and the releases a hook point belongs to."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache
from importlib import metadata

from rlvr_probe.adapter import HookPoint
from rlvr_probe_trl.reading import attribute

__all__ = ["Dated", "Release", "installed", "release", "version"]

Release = tuple[int, ...]
"""The leading numbers of a version: (0, 29, 1)."""

_NEWEST: Release = (sys.maxsize,)


def release(version: object) -> Release:
    """The release of a version. What names none, a source checkout for example, is the newest."""
    numbers = re.match(r"\d+(\.\d+)*", version) if isinstance(version, str) else None
    if numbers is None or version == "0":
        return _NEWEST
    return tuple(int(number) for number in numbers[0].split("."))


def version() -> str | None:
    """Version of the TRL that runs in this process; None if nothing says which."""
    own = attribute(sys.modules.get("trl"), "__version__")
    return own if release(own) != _NEWEST else _from_metadata()


@cache
def _from_metadata() -> str | None:
    # TRL 0.22.0 is packaged without the file it reads its version from, and says "unknown".
    try:
        return metadata.version("trl")
    except metadata.PackageNotFoundError:
        return None


def installed() -> Release:
    """The release that runs in this process."""
    return release(version())


@dataclass(frozen=True, slots=True)
class Dated:
    """A hook point with the releases it belongs to.

    Attributes:
        point: What to hook.
        since: First release that has it in this form.
        until: First release that has not; None for the newest that is known.
    """

    point: HookPoint
    since: str = "0.17"
    until: str | None = None

    def holds(self, at: Release) -> bool:
        """Whether it belongs to release ``at``."""
        return release(self.since) <= at and (self.until is None or at < release(self.until))
