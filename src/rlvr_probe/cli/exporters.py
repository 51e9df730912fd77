"""Finds the exporters that are installed: workload formats, and destinations of a trace."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.exporter import TraceExporter, WorkloadExporter, WorkloadReader
from rlvr_probe.plugins import EXPORTERS, entries, load

__all__ = ["find_exporter", "find_format", "find_reader", "find_trace_exporter"]


def find_exporter(name: str) -> WorkloadExporter:
    """The workload format called ``name``; no other exporter is loaded.

    Raises:
        ProbeError: There is none, it cannot be loaded, or two installed packages offer one.
    """
    found = _load(name, _installed())
    if not isinstance(found, WorkloadExporter):
        more = "; use rlvr-probe export" if isinstance(found, TraceExporter) else ""
        raise ProbeError(f"exporter {name!r} does not convert workloads{more}")
    return found


def find_trace_exporter(name: str) -> TraceExporter:
    """The destination of traces called ``name``; no other exporter is loaded.

    Raises:
        ProbeError: There is none, it cannot be loaded, or two installed packages offer one.
    """
    found = _load(name, _installed())
    if not isinstance(found, TraceExporter):
        more = "; use rlvr-probe convert" if isinstance(found, WorkloadExporter) else ""
        raise ProbeError(f"exporter {name!r} does not export traces{more}")
    return found


def find_format(directory: Path) -> WorkloadExporter:
    """The format of the workload in ``directory``.

    Raises:
        ProbeError: None that is installed recognizes it, or several do.
    """
    found, broken = _load_all()
    formats = [exporter for exporter in found if isinstance(exporter, WorkloadExporter)]
    fitting = [exporter for exporter in formats if _recognizes(exporter, directory, broken)]
    _warn(broken)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = [exporter.name for exporter in fitting]
        raise ProbeError(
            f"{directory} looks like several formats; choose with --format: {', '.join(names)}"
        )
    known = ", ".join(exporter.name for exporter in formats) or "none is installed"
    raise ProbeError(f"{directory} is not a workload of a known format ({known})")


def find_reader(directory: Path) -> WorkloadReader | None:
    """The format of the workload in ``directory``; None if none that can be read recognizes it.

    Raises:
        ProbeError: Two recognize it.
    """
    found, broken = _load_all()
    readers = [
        exporter
        for exporter in found
        if isinstance(exporter, WorkloadReader) and _recognizes(exporter, directory, broken)
    ]
    _warn(broken)
    if len(readers) > 1:
        names = " and ".join(reader.name for reader in readers)
        raise ProbeError(f"{directory} looks like {names}: keep one workload per directory")
    return readers[0] if readers else None


def _load_all() -> tuple[list[object], list[str]]:
    """Every exporter that can be used, by name, and what is wrong with the others."""
    installed = _installed()
    found, broken = list[object](), list[str]()
    for name in sorted(installed):
        try:
            found.append(_load(name, installed))
        except ProbeError as error:
            broken.append(str(error))
    return found, broken


def _recognizes(
    exporter: WorkloadExporter | WorkloadReader, directory: Path, broken: list[str]
) -> bool:
    try:
        return exporter.recognizes(directory)
    except Exception as error:  # noqa: BLE001 - of no use for this directory, as if it were not there
        why = f"{type(error).__name__}: {error}"
        broken.append(f"exporter {exporter.name!r} cannot look at {directory}: {why}")
        return False


def _warn(broken: list[str]) -> None:
    if broken:
        print(f"rlvr-probe: warning: {'; '.join(broken)}", file=sys.stderr)


def _installed() -> dict[str, list[EntryPoint]]:
    found = dict[str, list[EntryPoint]]()
    for point in entries(EXPORTERS):
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
    plugin = load(point)
    if plugin.error is not None:
        why = f"{type(plugin.error).__name__}: {plugin.error}"
        raise ProbeError(
            f"exporter {name!r} ({plugin.source}) cannot be loaded: {why};"
            " install that package again, or uninstall it"
        )
    return plugin.made
