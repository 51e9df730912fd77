"""Sends spans and points of one signal, and again where that may help."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from google.protobuf.message import EncodeError
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from rlvr_probe_otlp.planning.telemetry import PlannedSpan, Point
from rlvr_probe_otlp.wire.answers import Answer, Verdict
from rlvr_probe_otlp.wire.connection import Destination
from rlvr_probe_otlp.wire.encoding import Encoder
from rlvr_probe_otlp.wire.transport import Request, transport

__all__ = ["Sender", "quiet"]

_FIRST_S: Final = 1.0
_LEAST_S: Final = 0.1
"""Between two requests, whatever a collector asks for, s."""


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what OpenTelemetry logs from whoever listens in this process."""
    logger, nobody = logging.getLogger("opentelemetry"), logging.NullHandler()
    propagated = logger.propagate
    logger.addHandler(nobody)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(nobody)
        logger.propagate = propagated


class Sender:
    """A connection to a collector for one signal."""

    def __init__(self, destination: Destination, encoder: Encoder) -> None:
        """Connect later.

        Raises:
            ImportError: The library for its protocol is not installed.
        """
        self._timeout_s = destination.timeout_s
        self._secrets = destination.secrets
        self._encoder = encoder
        self._transport = transport(destination)

    def send(self, spans: Sequence[PlannedSpan], points: Sequence[Point]) -> Answer:
        """What the collector says to one request with what is of its signal.

        It is asked again for as long as OTEL_EXPORTER_OTLP_TIMEOUT says (10 s), where that may
        help.
        """
        try:
            request: Request = self._encoded(spans, points)
        except (EncodeError, OverflowError, TypeError, ValueError) as error:
            return Answer(Verdict.REJECTED, "no_encoding", f"no encoding ({type(error).__name__})")
        until_s, pause_s = time.monotonic() + self._timeout_s, _FIRST_S
        while True:
            left_s = until_s - time.monotonic()
            answer = self._transport.post(request, max(0.001, left_s)).without(self._secrets)
            wait_s = pause_s * random.uniform(0.8, 1.2) if answer.wait_s is None else answer.wait_s
            wait_s, pause_s = max(wait_s, _LEAST_S), 2 * pause_s
            if answer.verdict is not Verdict.LATER or time.monotonic() + wait_s >= until_s:
                return answer
            time.sleep(wait_s)

    def _encoded(self, spans: Sequence[PlannedSpan], points: Sequence[Point]) -> Request:
        if spans:
            return encode_spans([self._encoder.span(span) for span in spans])
        return encode_metrics(self._encoder.metrics(points))

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()
