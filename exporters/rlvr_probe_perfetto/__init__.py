"""A timeline of a recorded run, for the Perfetto UI and Firefox Profiler."""

from rlvr_probe_perfetto.exporter import PerfettoExporter

__all__ = ["PerfettoExporter"]
