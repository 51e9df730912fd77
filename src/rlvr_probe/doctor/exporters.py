"""Exporters: which of those that are installed can be loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rlvr_probe.exporter import LiveExporter, TraceExporter, WorkloadExporter, WorkloadReader
from rlvr_probe.plugins import EXPORTERS, load_all

__all__ = ["ExporterFinding", "examine_exporters"]

_CONTRACTS: Final = (WorkloadExporter, WorkloadReader, TraceExporter, LiveExporter)


@dataclass(frozen=True, slots=True)
class ExporterFinding:
    """An exporter.

    Attributes:
        name: Of its entry point.
        source: What that names, and the package that it is of.
        reason: Why it cannot be used, None if it can.
    """

    name: str
    source: str
    reason: str | None


def examine_exporters() -> Iterator[ExporterFinding]:
    """Every exporter, our own and third parties' alike."""
    for plugin in load_all(EXPORTERS):
        reason = None
        if plugin.error is not None:
            # Its message may hold a path.
            missing = getattr(plugin.error, "name", None) or ""
            reason = f"{type(plugin.error).__name__} {missing}".strip()
        elif not isinstance(plugin.made, _CONTRACTS):
            reason = "none of the contracts of rlvr_probe.exporter"
        yield ExporterFinding(plugin.name, plugin.source, reason)
