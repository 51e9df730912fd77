"""Finds the exporters that are installed: workload formats, and destinations of a trace."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.exporter import TraceExporter, WorkloadExporter

__all__ = ["all_exporters", "find_exporter", "find_trace_exporter"]

GROUP = "rlvr_probe.exporters"


def find_exporter(name: str) -> WorkloadExporter:
    """The workload format called ``name``.

    Raises:
        ProbeError: There is none, it cannot be loaded, or two installed packages offer one.
    """
    found = _load(name, _installed())
    if not isinstance(found, WorkloadExporter):
        more = "; use rlvr-probe export" if isinstance(found, TraceExporter) else ""
        raise ProbeError(f"exporter {name!r} does not convert workloads{more}")
    return found


def find_trace_exporter(name: str) -> TraceExporter:
    """The destination of traces called ``name``.

    Raises:
        ProbeError: There is none, it cannot be loaded, or two installed packages offer one.
    """
    found = _load(name, _installed())
    if not isinstance(found, TraceExporter):
        more = "; use rlvr-probe convert" if isinstance(found, WorkloadExporter) else ""
        raise ProbeError(f"exporter {name!r} does not export traces{more}")
    return found


def all_exporters() -> list[WorkloadExporter]:
    """Every installed workload format, by name.

    Raises:
        ProbeError: An exporter cannot be loaded, or two share a name.
    """
    found = _installed()
    loaded = (_load(name, found) for name in sorted(found))
    return [exporter for exporter in loaded if isinstance(exporter, WorkloadExporter)]


def _installed() -> dict[str, list[EntryPoint]]:
    found = dict[str, list[EntryPoint]]()
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    return found


def _load(name: str, found: dict[str, list[EntryPoint]]) -> object:
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
        exporter: object = point.load()()
    except (ImportError, AttributeError) as error:
        raise ProbeError(f"exporter {name!r} ({point.value}) cannot be loaded: {error}") from None
    return exporter
