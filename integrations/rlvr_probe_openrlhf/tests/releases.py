"""Releases of OpenRLHF, each in a folder of its own without what it depends on."""

from __future__ import annotations

from pathlib import Path

from tests import wheels

__all__ = ["RELEASES", "unpacked"]

LIST = "openrlhf-releases.txt"
RELEASES = wheels.pinned(LIST, "openrlhf")
"""Line of the pinned list by version, oldest first."""

# Each is one wheel of pure Python that says it were for this one.
_PLATFORM = (
    *("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"),
    *("--platform", "manylinux1_x86_64"),
)


def unpacked(version: str) -> Path:
    """A folder with this release of OpenRLHF."""
    return wheels.unpacked(f"openrlhf-{version}", RELEASES[version], platform=_PLATFORM)
