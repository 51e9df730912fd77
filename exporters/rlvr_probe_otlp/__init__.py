"""Traces and metrics of a recorded run for any OpenTelemetry collector."""

from rlvr_probe_otlp.exporter import OTLPExporter, PrometheusEndpoint

__all__ = ["OTLPExporter", "PrometheusEndpoint"]
