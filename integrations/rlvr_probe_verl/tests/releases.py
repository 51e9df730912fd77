"""Releases of verl, each in a folder of its own without what it depends on."""

from __future__ import annotations

from pathlib import Path

from tests import wheels

__all__ = ["LIST", "RELEASES", "unpacked"]

LIST = "verl-releases.txt"
RELEASES = wheels.pinned(LIST, "verl")
"""Line of the pinned list by version, oldest first."""


def unpacked(version: str) -> Path:
    """A folder with this release of verl; from 0.9 on with the queue of its default trainer."""
    pins = [RELEASES[version]]
    if wheels.numbers(version) >= (0, 9):
        pins += wheels.pinned(LIST, "transferqueue").values()
    return wheels.unpacked(f"verl-{version}", "\n".join(pins))
