"""Releases of TRL beside the installed one, each in a folder of its own.

To run a release, its folders go in front of the environment that runs the tests.
"""

from __future__ import annotations

from pathlib import Path

from tests import wheels

__all__ = ["RELEASES", "folders", "transformers4", "unpacked"]

RELEASES = wheels.pinned("trl-releases.txt", "trl")
"""Line of the pinned list by version, oldest first."""


def unpacked(version: str) -> Path:
    """A folder with this release of TRL, and nothing that it depends on."""
    return wheels.unpacked(f"trl-{version}", RELEASES[version])


def transformers4() -> Path:
    """A folder with transformers 4 and what goes with it."""
    return wheels.unpacked("transformers4", (wheels.REQUIREMENTS / "transformers4.txt").read_text())


def folders(version: str) -> list[Path]:
    """What to put in front of the environment to run this release."""
    # TRL 0.28 and older check the version of transformers, and refuse 5.
    older = [transformers4()] if wheels.numbers(version) < (0, 29) else []
    return [unpacked(version), *older]
