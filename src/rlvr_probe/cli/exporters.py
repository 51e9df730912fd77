"""Finds the workload formats that are installed."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.exporter import WorkloadExporter

__all__ = ["all_exporters", "find_exporter"]

GROUP = "rlvr_probe.exporters"


def find_exporter(name: str) -> WorkloadExporter:
    """The exporter called ``name``.

    Raises:
        ProbeError: There is none, it cannot be loaded, or two installed packages offer one.
    """
    return _load(name, _installed())


def all_exporters() -> list[WorkloadExporter]:
    """Every installed workload format, by name.

    Raises:
        ProbeError: One cannot be loaded, or two share a name.
    """
    found = _installed()
    return [_load(name, found) for name in sorted(found)]


def _installed() -> dict[str, list[EntryPoint]]:
    found = dict[str, list[EntryPoint]]()
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    return found


def _load(name: str, found: dict[str, list[EntryPoint]]) -> WorkloadExporter:
    # One distribution that is on the path twice is no clash.
    points = {point.value: point for point in found.get(name, ())}
    if not points:
        known = ", ".join(sorted(found)) or "none: is rlvr-probe installed, or only on the path?"
        raise ProbeError(f"no exporter is called {name!r}; known are {known}")
    if len(points) > 1:
        owners = ", ".join(
            f"{value} of {point.dist.name if point.dist is not None else 'an unknown package'}"
            for value, point in sorted(points.items())
        )
        raise ProbeError(f"{len(points)} exporters are called {name!r}: {owners}; remove one")
    [point] = points.values()
    try:
        exporter = point.load()()
    except (ImportError, AttributeError) as error:
        raise ProbeError(f"exporter {name!r} ({point.value}) cannot be loaded: {error}") from None
    if not isinstance(exporter, WorkloadExporter):
        raise ProbeError(f"exporter {name!r} ({point.value}) does not convert workloads")
    return exporter
