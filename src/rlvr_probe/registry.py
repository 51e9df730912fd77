"""Which plugins are installed, and in what state each integration is in this process.

One that is broken, or whose package is, hides no other: it is a value, for the caller to report.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Literal, cast

from rlvr_probe import guard
from rlvr_probe.adapter import Adapter, HookPoint

__all__ = [
    "EXPORTERS",
    "Framework",
    "Plugin",
    "discover",
    "entries",
    "inside",
    "installed_version",
    "load",
    "load_all",
    "names",
    "none_called_so",
]

GROUP = "rlvr_probe.integrations"
"""Entry-point group of integrations, our own and third parties' alike."""

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


State = Literal["attached", "waiting", "absent", "failed"]


@dataclass(slots=True)
class Framework:
    """One framework, as ``attach()`` left it.

    Attributes:
        name: Name of its integration.
        version: Installed version, None if it is not installed.
        state: ``attached``: hook points are in effect. ``waiting``: they will be when it is
            imported. ``absent``: not installed. ``failed``: see ``reason``.
        hook_points: Hook points in effect so far. Some are found only when a trainer is made.
        reason: Why it is not attached, or a warning about the version.
    """

    name: str
    version: str | None = None
    state: State = "absent"
    hook_points: int = 0
    reason: str | None = None
    adapter: Adapter | None = None
    points: Sequence[HookPoint] = ()

    @guard.fail_open("registry.text", "a framework")
    def __str__(self) -> str:
        version = f" {self.version}" if self.version else ""
        count = f", {self.hook_points} hook points" if self.state == "attached" else ""
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.name}{version} {self.state}{count}{reason}"


def names() -> list[str]:
    """Names of every installed integration."""
    return sorted({entry.name for entry in entries(GROUP)})


def none_called_so(known: Iterable[str]) -> str:
    """Why a name is of no use: it is not among those that are ``known``."""
    listed = ", ".join(sorted(known)) or "none"
    return f"no integration of this name is installed; installed are: {listed}"


def discover(wanted: Sequence[str] | None = None) -> dict[str, Framework]:
    """Every installed integration by name, or those in ``wanted``, with what is known of each.

    No framework is imported; versions come from metadata.
    """
    installed = entries(GROUP)
    chosen: dict[str, list[metadata.EntryPoint]] = {}
    for entry in installed:
        if wanted is None or entry.name in wanted:
            same = chosen.setdefault(entry.name, [])
            if all(entry.value != other.value for other in same):
                same.append(entry)
    frameworks = {name: _load(name, found) for name, found in sorted(chosen.items())}
    for name in wanted or ():
        if name not in frameworks:
            reason = none_called_so({entry.name for entry in installed})
            frameworks[name] = Framework(name, state="failed", reason=reason)
    return frameworks


def installed_version(distribution: str) -> str | None:
    """Installed version of a distribution, None if there is none or nothing says which.

    The metadata of an uninstall that failed half-way has none, and may hide the real one.
    """
    try:
        for candidate in metadata.distributions(name=distribution):
            try:
                version: str | None = candidate.metadata["Version"]
            except Exception:  # noqa: BLE001, S112 - unreadable: as good as absent
                continue
            if version:
                return version
    except Exception:  # noqa: BLE001, S110 - as above
        pass
    return None


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        # Something was put into sys.modules under this name without having been imported.
        return False


def _load(name: str, entries: list[metadata.EntryPoint]) -> Framework:
    if len(entries) > 1:
        values = " and ".join(sorted(entry.value for entry in entries))
        return Framework(name, state="failed", reason=f"two integrations claim it: {values}")
    plugin = load(entries[0])
    if plugin.error is not None:
        # Not into the log of a thousand ranks, or of their pip: `doctor` and the attachment say it.
        guard.note("registry.load", plugin.error, log=False)
        why = f"its integration {entries[0].value} cannot be loaded ({type(plugin.error).__name__})"
        return Framework(name, state="failed", reason=why)
    adapter = cast("Adapter", plugin.made)
    version: str | None = None
    reason: str | None = None
    try:
        distribution, tested = adapter.distribution, adapter.tested
        version = installed_version(distribution)
        if version is None:
            if not _importable(name):
                return Framework(name, reason=f"{distribution} is not installed")
            version = "0"
        if not inside(version, tested):
            reason = f"tested with {distribution}{tested} only"
        points = tuple(adapter.hook_points(version))
        if not all(isinstance(point, HookPoint) for point in points):
            raise TypeError
    except Exception as error:  # noqa: BLE001 - a broken plugin is a state of its framework
        guard.note("registry.load", error, log=False)
        why = f"its integration has no hook points for it ({type(error).__name__})"
        return Framework(name, version, "failed", reason=why)
    return Framework(name, version, "waiting", 0, reason, adapter, points)


def inside(version: str, specifier: str) -> bool:
    """Whether ``version`` meets a specifier such as ``>=1.16,<1.17``, by its release numbers."""
    have = _release(version)
    for part in specifier.split(","):
        operator = part.strip().rstrip("0123456789.")
        bound = _release(part.strip()[len(operator) :])
        width = max(len(have), len(bound))
        left, right = (x + (0,) * (width - len(x)) for x in (have, bound))
        order = {">=": left >= right, "<": left < right, "<=": left <= right, ">": left > right}
        if not order.get(operator, left == right):
            return False
    return True


def _release(version: str) -> tuple[int, ...]:
    numbers = re.match(r"[0-9]+(\.[0-9]+)*", version)
    return () if numbers is None else tuple(map(int, numbers[0].split(".")))
