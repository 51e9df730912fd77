"""PolyTrace workloads: written from a recorded run, and judged as strictly as they are used."""

from rlvr_probe_polytrace.exporter import PolyTraceExporter

__all__ = ["PolyTraceExporter"]
