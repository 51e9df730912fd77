"""Plugins: what installed packages offer under a group of entry points.

One that is broken, or whose package is, hides no other: it is a value, for the caller to report.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

__all__ = ["EXPORTERS", "Plugin", "entries", "load", "load_all"]

EXPORTERS = "rlvr_probe.exporters"
"""Entry-point group of exporters, our own and third parties' alike."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point, loaded.

    Attributes:
        name: Of its entry point.
        source: What it names, and the package that it is of.
        made: What it made; None if it cannot be loaded.
        error: Why it cannot be loaded, or None.
    """

    name: str
    source: str
    made: object | None
    error: BaseException | None


def entries(group: str) -> list[metadata.EntryPoint]:
    """Every entry point of a group, as ``metadata.entry_points`` has them.

    That reads those of every package on the path, and one that is broken fails it for all others.
    """
    found: dict[str, list[metadata.EntryPoint]] = {}
    try:
        for distribution in metadata.distributions():
            try:
                points = [point for point in distribution.entry_points if point.group == group]
                # The first on the path is the one that is imported; others are hidden by it.
                if points:
                    found.setdefault(distribution.metadata["Name"], points)
            except Exception:  # noqa: BLE001, S112 - what is wrong with it is not for us to say
                continue
    except Exception:  # noqa: BLE001, S110 - somebody's finder failed; keep what others found
        pass
    return [point for points in found.values() for point in points]


def load(point: metadata.EntryPoint) -> Plugin:
    """What an entry point makes. One that ends the process when it is imported is broken, too."""
    owner = "an unknown package" if point.dist is None else point.dist.name
    source = f"{point.value} of {owner}"
    try:
        return Plugin(point.name, source, point.load()(), None)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a state of the plugin
        return Plugin(point.name, source, None, error)


def load_all(group: str, name: str | None = None) -> Iterator[Plugin]:
    """Every plugin of a group, by name, or those of one name."""
    seen = set[tuple[str, str]]()
    for point in sorted(entries(group), key=lambda point: point.name):
        if (point.name, point.value) not in seen and name in (None, point.name):
            seen.add((point.name, point.value))
            yield load(point)
