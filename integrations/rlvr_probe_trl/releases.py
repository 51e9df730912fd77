"""Which release of TRL is in use."""

from __future__ import annotations

import sys
from functools import cache
from importlib import metadata

from rlvr_probe.reading import attribute
from rlvr_probe.releases import NEWEST, Release, release

__all__ = ["installed", "version"]


def version() -> str | None:
    """Version of the TRL that runs in this process; None if nothing says which."""
    own = attribute(sys.modules.get("trl"), "__version__")
    return own if release(own) != NEWEST else _from_metadata()


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
