"""Connections to a collector, over HTTP and gRPC, that say what became of each request.

A request is sent again where that may help.

The exporters of the SDK keep that to themselves, and what they do of the rest differs by release.
"""

from __future__ import annotations

import gzip
import logging
import random
import ssl
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import requests
from google.protobuf.message import DecodeError, EncodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from requests.auth import AuthBase

from rlvr_probe_otlp.planning.data_model import PlannedSpan, Point
from rlvr_probe_otlp.settings import GRPC, Destination
from rlvr_probe_otlp.wire.answers import Answer, Verdict, of_grpc, of_http, seconds_of
from rlvr_probe_otlp.wire.sdk_encoding import Encoder

__all__ = ["Items", "Sender", "quiet"]

Items = Sequence[PlannedSpan | Point]
"""Spans or points of one signal."""

Request = traces.ExportTraceServiceRequest | metrics.ExportMetricsServiceRequest

_ANSWERS: Final[dict[str, Any]] = {
    "traces": traces.ExportTraceServiceResponse,
    "metrics": metrics.ExportMetricsServiceResponse,
}
_AGENT: Final = "rlvr-probe"
_BODY_B: Final = 64 * 1024
"""What is read of an answer, bytes."""
_COMPRESS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
}


def _taken(signal: str, response: Any) -> Answer:
    """What an answer means by which a collector takes a request."""
    partial = response.partial_success
    rejected = partial.rejected_spans if signal == "traces" else partial.rejected_data_points
    return Answer(Verdict.TAKEN, "partial", partial.error_message, None, max(0, rejected))


class _Given(AuthBase):
    """No credentials but those of the headers: by default those of ``~/.netrc`` would win."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


class _Http:
    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._session = session = requests.Session()
        session.auth = _Given()
        session.headers.update(
            {
                "User-Agent": f"{_AGENT}/{version('rlvr-probe')}",
                **destination.headers,
                "Content-Type": "application/x-protobuf",
            }
        )
        if destination.compression in _COMPRESS:
            session.headers["Content-Encoding"] = destination.compression
        certificate, key = destination.client_certificate, destination.client_key
        # With every request: of a session, variables of requests would win.
        self._given: dict[str, Any] = {
            "verify": destination.certificate,
            "cert": (certificate, key) if certificate and key else certificate,
        }

    def post(self, request: Request, timeout_s: float) -> Answer:
        until_s = time.monotonic() + timeout_s
        data = _COMPRESS.get(self._destination.compression, bytes)(request.SerializeToString())
        try:
            # Other hosts than the one that was named get neither the headers nor the data.
            with self._session.post(
                self._destination.address, data=data, timeout=timeout_s, allow_redirects=False,
                stream=True, **self._given,
            ) as response:  # fmt: skip
                return self._answer(response, until_s)
        except (requests.RequestException, OSError, ValueError) as error:
            return Answer(Verdict.LATER, "unreachable", _why(error))

    def _answer(self, response: requests.Response, until_s: float) -> Answer:
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        body = bytearray()
        for piece in response.iter_content(4096):
            body += piece
            if len(body) >= _BODY_B or time.monotonic() > until_s:
                break
        if 200 <= response.status_code < 300:
            if kind == "text/html":
                said = f"HTTP {response.status_code} with a web page: no collector is there"
                return Answer(Verdict.NOWHERE, "no_collector", said)
            found = _ANSWERS[self._destination.signal]()
            if kind in ("", "application/x-protobuf") and not _parsed(found, bytes(body)):
                return Answer(Verdict.TAKEN)
            return _taken(self._destination.signal, found)
        wait_s = seconds_of(response.headers.get("Retry-After"), time.time())
        return of_http(response.status_code, _message(bytes(body), kind), wait_s)

    def close(self) -> None:
        self._session.close()


def _parsed(message: Any, body: bytes) -> bool:
    try:
        message.ParseFromString(body)
    except DecodeError:
        return False
    return True


def _message(body: bytes, kind: str) -> str:
    """What a collector says of an error: a status in protobuf, or text."""
    if kind == "application/x-protobuf":
        status = Status()
        return str(status.message) if _parsed(status, body) else ""
    return body.decode("utf-8", "replace") if kind in ("text/plain", "application/json") else ""


def _why(error: BaseException) -> str:
    """What kept a request from being answered, without an address: that may hold a secret."""
    seen = list[BaseException]()
    while error not in seen and len(seen) < 8:
        seen.append(error)
        inner = [argument for argument in error.args if isinstance(argument, BaseException)]
        following = [*inner, getattr(error, "reason", None), error.__cause__, error.__context__]
        error = next((cause for cause in following if isinstance(cause, BaseException)), error)
    for cause in seen:
        if isinstance(cause, ssl.SSLError):
            return f"TLS: {getattr(cause, 'verify_message', '') or cause.reason or 'no connection'}"
    for cause in seen:
        if isinstance(cause, requests.exceptions.ProxyError):
            return "the proxy of HTTP_PROXY or HTTPS_PROXY does not answer"
        if isinstance(cause, requests.Timeout | TimeoutError):
            return "no answer in time"
    for cause in reversed(seen):
        if (
            isinstance(cause, OSError)
            and cause.strerror
            and not isinstance(cause, requests.RequestException)
        ):
            return cause.strerror
    return f"no connection ({type(seen[-1]).__name__})"


class _Grpc:
    def __init__(self, destination: Destination) -> None:
        import grpc
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
            MetricsServiceStub,
        )
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

        gzipped = destination.compression == "gzip"
        given: dict[str, Any] = {
            "options": [("grpc.primary_user_agent", f"{_AGENT}/{version('rlvr-probe')}")],
            "compression": grpc.Compression.Gzip if gzipped else grpc.Compression.NoCompression,
        }
        if destination.secure:
            credentials = grpc.ssl_channel_credentials(
                _content(destination.certificate),
                _content(destination.client_key or destination.client_certificate),
                _content(destination.client_certificate),
            )
            self._channel = grpc.secure_channel(destination.address, credentials, **given)
        else:
            self._channel = grpc.insecure_channel(destination.address, **given)
        stub = TraceServiceStub if destination.signal == "traces" else MetricsServiceStub
        self._export: Any = stub(self._channel).Export
        self._signal = destination.signal
        self._headers = tuple(destination.headers.items())
        self._error: type[Exception] = grpc.RpcError

    def post(self, request: Request, timeout_s: float) -> Answer:
        try:
            response = self._export(request, timeout=timeout_s, metadata=self._headers)
        except self._error as error:
            call: Any = error
            return of_grpc(call.code().name, call.details() or "", _retry(call))
        return _taken(self._signal, response)

    def close(self) -> None:
        self._channel.close()


def _content(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()


def _retry(call: Any) -> float | None:
    """What a collector asks to wait by a RetryInfo, s; None if there is none."""
    info = RetryInfo()
    for key, value in call.trailing_metadata() or ():
        status = Status()
        if (key == "google.rpc.retryinfo-bin" and _parsed(info, value)) or (
            key == "grpc-status-details-bin"
            and _parsed(status, value)
            and any(detail.Unpack(info) for detail in status.details)  # False: of another kind
        ):
            delay = info.retry_delay
            return seconds_of(str(max(0, delay.seconds + round(delay.nanos / 1e9))), 0.0)
    return None


_FIRST_S: Final = 1.0
_LEAST_S: Final = 0.1
"""Between two requests, whatever a collector asks for, s."""


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what OpenTelemetry logs from log handlers of this process."""
    logger, silent = logging.getLogger("opentelemetry"), logging.NullHandler()
    propagated = logger.propagate
    logger.addHandler(silent)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(silent)
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
        self._signal = destination.signal
        self._encoder = encoder
        # Neither connects before the first request.
        self._transport = (_Grpc if destination.protocol == GRPC else _Http)(destination)

    def send(self, items: Items) -> Answer:
        """What the collector says to one request with spans or points of its signal.

        It is asked again for as long as OTEL_EXPORTER_OTLP_TIMEOUT says (10 s), where that may
        help.
        """
        try:
            request = self._encoded(items)
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

    def _encoded(self, items: Any) -> Request:
        if self._signal == "traces":
            return encode_spans([self._encoder.span(span) for span in items])
        return encode_metrics(self._encoder.metrics(items))

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()
