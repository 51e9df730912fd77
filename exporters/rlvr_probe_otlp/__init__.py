"""Traces and metrics of a recorded run for any OpenTelemetry collector."""

from rlvr_probe_otlp.exporter import OTLPExporter

__all__ = ["OTLPExporter"]
