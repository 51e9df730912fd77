"""A recorded run as a timeline that Perfetto, Speedscope and the Firefox Profiler open."""

from rlvr_probe_perfetto.exporter import PerfettoExporter

__all__ = ["PerfettoExporter"]
