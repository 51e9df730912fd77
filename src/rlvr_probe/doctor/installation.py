"""Python, rlvr-probe, its dependencies, and Ray."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

import rlvr_probe
from rlvr_probe.doctor.paths import tilde
from rlvr_probe.registry import inside, installed_version

__all__ = ["Dependency", "Installation", "examine_installation"]

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*\(?([^;()]*)\)?(?:;.*extra\s*==\s*['\"]([^'\"]+))?")


@dataclass(frozen=True, slots=True)
class Dependency:
    """A package that rlvr-probe declares.

    Attributes:
        name: Distribution.
        required: Version specifier, "" for any.
        extras: The extras that need it, empty for the core.
        version: Installed version, None if it is not installed.
        met: Whether that meets the specifier; None if it is not installed and only an extra's.
    """

    name: str
    required: str
    extras: tuple[str, ...]
    version: str | None
    met: bool | None


@dataclass(frozen=True, slots=True)
class Installation:
    """Versions.

    Attributes:
        rlvr_probe: Version of rlvr-probe, None if its metadata cannot be read.
        location: Folder it is loaded from.
        python: Version and implementation.
        executable: The Python that was examined.
        platform: Operating system and machine.
        dependencies: What rlvr-probe declares.
        ray: Version of Ray, None if it is not installed.
    """

    rlvr_probe: str | None
    location: str
    python: str
    executable: str
    platform: str
    dependencies: tuple[Dependency, ...]
    ray: str | None


def examine_installation() -> Installation:
    """Versions, from metadata."""
    return Installation(
        installed_version("rlvr-probe"),
        tilde(rlvr_probe.__path__[0]),
        f"{platform.python_version()} ({platform.python_implementation()})",
        tilde(sys.executable or "unknown"),
        platform.platform(),
        tuple(_dependencies()),
        installed_version("ray"),
    )


def _dependencies() -> Iterator[Dependency]:
    try:
        declared = metadata.requires("rlvr-probe") or []
    except (metadata.PackageNotFoundError, OSError, TypeError, ValueError):
        return
    extras: dict[tuple[str, str], list[str]] = {}
    for line in declared:
        found = _REQUIREMENT.match(line)
        if found is not None and found[1] != "rlvr-probe":
            needed_by = extras.setdefault((found[1], found[2].strip()), [])
            needed_by.extend([found[3]] if found[3] else [])
    for (name, required), needed_by in extras.items():
        version = installed_version(name)
        met = None if version is None and needed_by else version is not None
        if version is not None and required:
            met = inside(version, required)
        yield Dependency(name, required, tuple(needed_by), version, met)
