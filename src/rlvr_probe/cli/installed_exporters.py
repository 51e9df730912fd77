"""Finds the exporters that are installed: workload formats, and destinations of a trace."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TypeVar

from rlvr_probe.cli import complain
from rlvr_probe.exceptions import ProbeError
from rlvr_probe.exporter import TraceExporter, WorkloadExporter, WorkloadReader
from rlvr_probe.registry import EXPORTERS, entries, load

__all__ = ["find_exporter", "find_format", "find_reader", "find_trace_exporter"]

_Format = TypeVar("_Format", WorkloadExporter, WorkloadReader)


def find_exporter(name: str) -> WorkloadExporter:
    """The workload format called ``name``; no other exporter is loaded.

    Raises:
        ProbeError: There is none, it cannot be loaded, or two installed packages offer one.
    """
    exporter = _load(name, _installed())
    if isinstance(exporter, WorkloadExporter):
        return exporter
    more = "; use rlvr-probe export" if isinstance(exporter, TraceExporter) else ""
    raise ProbeError(f"exporter {name!r} does not convert workloads{more}")


def find_trace_exporter(name: str) -> TraceExporter:
    """The destination of traces called ``name``; raises as :func:`find_exporter` does."""
    exporter = _load(name, _installed())
    if isinstance(exporter, TraceExporter):
        return exporter
    more = "; use rlvr-probe convert" if isinstance(exporter, WorkloadExporter) else ""
    raise ProbeError(f"exporter {name!r} does not export traces{more}")


def find_format(directory: Path) -> WorkloadExporter:
    """The format of the workload in ``directory``.

    Raises:
        ProbeError: None that is installed recognizes it, or several do.
    """
    formats, fitting = _recognizing(directory, WorkloadExporter)  # type: ignore[type-abstract]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(exporter.name for exporter in fitting)
        raise ProbeError(f"{directory} looks like several formats; choose with --format: {names}")
    known = ", ".join(exporter.name for exporter in formats) or "none is installed"
    raise ProbeError(f"{directory} is not a workload of a known format ({known})")


def find_reader(directory: Path) -> WorkloadReader | None:
    """The format of the workload in ``directory``; None if none that can be read recognizes it.

    Raises:
        ProbeError: Two recognize it.
    """
    _, readers = _recognizing(directory, WorkloadReader)  # type: ignore[type-abstract]
    if len(readers) > 1:
        names = " and ".join(reader.name for reader in readers)
        raise ProbeError(f"{directory} looks like {names}: keep one workload per directory")
    return readers[0] if readers else None


def _recognizing(directory: Path, contract: type[_Format]) -> tuple[list[_Format], list[_Format]]:
    """Exporters of a contract, and those of them that recognize a directory.

    What is wrong with others, or with one of them, is a warning.
    """
    installed = _installed()
    formats, fitting, broken = list[_Format](), list[_Format](), list[str]()
    for name in sorted(installed):
        try:
            exporter = _load(name, installed)
        except ProbeError as error:
            broken.append(str(error))
            continue
        if not isinstance(exporter, contract):
            continue
        formats.append(exporter)
        try:
            fitting += [exporter] if exporter.recognizes(directory) else []
        except Exception as error:  # noqa: BLE001 - of no use here, as if it were not installed
            why = f"{type(error).__name__}: {error}"
            broken.append(f"exporter {name!r} cannot look at {directory}: {why}")
    if broken:
        complain(f"warning: {'; '.join(broken)}")
    return formats, fitting


def _installed() -> dict[str, list[EntryPoint]]:
    found = dict[str, list[EntryPoint]]()
    for point in entries(EXPORTERS):
        found.setdefault(point.name, []).append(point)
    return found


def _load(name: str, found: dict[str, list[EntryPoint]]) -> object:
    # One distribution that is on the path twice does not clash.
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
