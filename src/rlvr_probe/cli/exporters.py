"""Finds the exporters that are installed: workload formats, and destinations of a trace."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.exporter import TraceExporter, WorkloadExporter, WorkloadReader

__all__ = ["all_exporters", "find_exporter", "find_reader", "find_trace_exporter"]

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


def find_reader(directory: Path) -> WorkloadReader | None:
    """The format of the workload in ``directory``; None if no installed one recognizes it.

    Raises:
        ProbeError: An exporter cannot be loaded, two share a name, or two recognize it.
    """
    found = _installed()
    loaded = (_load(name, found) for name in sorted(found))
    readers = [
        one for one in loaded if isinstance(one, WorkloadReader) and one.recognizes(directory)
    ]
    if len(readers) > 1:
        names = " and ".join(one.name for one in readers)
        raise ProbeError(f"{directory} looks like {names}: keep one workload per directory")
    return readers[0] if readers else None


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
