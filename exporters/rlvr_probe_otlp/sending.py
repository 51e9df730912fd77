"""Sends by the exporters of the OpenTelemetry SDK, and hears what they complain of."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from rlvr_probe_otlp.encoding import Encoder
from rlvr_probe_otlp.settings import Destination
from rlvr_probe_otlp.telemetry import PlannedSpan, Point

if TYPE_CHECKING:
    from grpc import Compression

__all__ = ["Complaints", "Sender", "listening", "sender"]


class Sender(Protocol):
    """A connection to a collector for one signal."""

    def send(self, spans: Sequence[PlannedSpan], points: Sequence[Point]) -> bool:
        """Whether the collector took what is of its signal.

        It tries again for as long as OTEL_EXPORTER_OTLP_TIMEOUT says (10 s), where that may help.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Complaints(logging.Handler):
    """Keeps the last thing that was logged.

    Attributes:
        last: Its text; empty if there was none.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        self.last = record.getMessage()


@contextmanager
def listening() -> Iterator[Complaints]:
    """Hear what the SDK logs, in place of whoever else would."""
    logger = logging.getLogger("opentelemetry")
    heard, propagated = Complaints(), logger.propagate
    logger.addHandler(heard)
    logger.propagate = False
    try:
        yield heard
    finally:
        logger.removeHandler(heard)
        logger.propagate = propagated


def sender(destination: Destination, encoder: Encoder) -> Sender:
    """A connection to ``destination``.

    Raises:
        ImportError: The exporter for its protocol is not installed.
    """
    if destination.signal == "traces":
        return _Spans(_span_exporter(destination), encoder)
    return _Points(_metric_exporter(destination), encoder)


class _Spans:
    def __init__(self, exporter: SpanExporter, encoder: Encoder) -> None:
        self._exporter, self._encoder = exporter, encoder

    def send(self, spans: Sequence[PlannedSpan], points: Sequence[Point]) -> bool:
        encoded: list[ReadableSpan] = [self._encoder.span(span) for span in spans]
        return self._exporter.export(encoded) is SpanExportResult.SUCCESS

    def close(self) -> None:
        self._exporter.shutdown()


class _Points:
    def __init__(self, exporter: MetricExporter, encoder: Encoder) -> None:
        self._exporter, self._encoder = exporter, encoder

    def send(self, spans: Sequence[PlannedSpan], points: Sequence[Point]) -> bool:
        encoded: MetricsData = self._encoder.metrics(points)
        return self._exporter.export(encoded) is MetricExportResult.SUCCESS

    def close(self) -> None:
        self._exporter.shutdown()


def _span_exporter(destination: Destination) -> SpanExporter:
    if destination.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc

        return Grpc(endpoint=destination.endpoint, compression=_grpc_compression(destination))
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http

    return Http(endpoint=destination.endpoint)


def _metric_exporter(destination: Destination) -> MetricExporter:
    if destination.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
            OTLPMetricExporter as Grpc,
        )

        return Grpc(endpoint=destination.endpoint, compression=_grpc_compression(destination))
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as Http

    return Http(endpoint=destination.endpoint)


def _grpc_compression(destination: Destination) -> Compression:
    # The SDK's exporters for gRPC refuse the word "none", which the specification has.
    from grpc import Compression

    return Compression.Gzip if destination.compressed else Compression.NoCompression
