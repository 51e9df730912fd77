"""A collector in this process, over HTTP and gRPC, that keeps what it takes and fails as told.

It decodes with the protobuf classes of the specification, not with anything that encoded it.
"""

from __future__ import annotations

import gzip
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc

from tests import today

__all__ = ["EACH_PROTOCOL", "GONE", "Collector", "attributes", "grpc_collector", "http_collector"]

EACH_PROTOCOL = pytest.mark.parametrize("protocol", today.some(["http/protobuf", "grpc"], 1))
"""Marks what a protocol has a way of its own to say; one of them today."""

Answer = Callable[[int], int]
"""HTTP status by the number of the request, from 0."""

Judge = Callable[[Any], int]
"""HTTP status by what was sent."""

GONE = 0
"""Over HTTP: it dies before it answers."""


@dataclass
class Collector:
    """What was received.

    Attributes:
        endpoint: Where it listens.
        answer: How it answers; what it does not take it does not keep.
        judge: The same, by what is asked to be taken; asked where ``answer`` says 200.
        partial: How much of each request is not taken, and what is said to that.
        kind: Type of what it answers.
        says: Text of an answer that is an error.
        retry_after: When an answer that is none asks to be asked again.
        location: Where an answer sends on to.
        hang: Answers nothing until it is set.
        requests: Headers of every request.
    """

    endpoint: str = ""
    answer: Answer = lambda number: 200
    judge: Judge = lambda request: 200
    partial: tuple[int, str] = (0, "")
    kind: str = ""
    says: str = ""
    retry_after: str = ""
    location: str = ""
    hang: threading.Event | None = None
    requests: list[dict[str, str]] = field(default_factory=list)
    traces: list[traces.ExportTraceServiceRequest] = field(default_factory=list)
    metrics: list[metrics.ExportMetricsServiceRequest] = field(default_factory=list)

    def begin(self, headers: dict[str, str]) -> int:
        """Note a request and say how to answer it."""
        number = len(self.requests)
        self.requests.append(headers)
        if self.hang is not None:
            self.hang.wait()
        return self.answer(number)

    def response(self, kind: Any) -> Any:
        """What is said of something that was taken."""
        count, message = self.partial
        answer = kind()
        if count or message:
            partial = answer.partial_success
            name = "rejected_spans" if kind is TRACES.answer else "rejected_data_points"
            setattr(partial, name, count)
            partial.error_message = message
        return answer

    def spans(self) -> Iterator[tuple[dict[str, Any], Any]]:
        """Resource and span of everything that was taken."""
        for request in self.traces:
            for resource in request.resource_spans:
                said = attributes(resource.resource.attributes)
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        yield said, span

    def points(self) -> Iterator[tuple[Any, Any]]:
        """Metric and point of everything that was taken."""
        for request in self.metrics:
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        for point in getattr(metric, metric.WhichOneof("data")).data_points:
                            yield metric, point


@dataclass(frozen=True)
class _Signal:
    request: Any
    answer: Any


TRACES = _Signal(traces.ExportTraceServiceRequest, traces.ExportTraceServiceResponse)
METRICS = _Signal(metrics.ExportMetricsServiceRequest, metrics.ExportMetricsServiceResponse)


def attributes(given: Any) -> dict[str, Any]:
    """Attributes as plain values."""
    return {one.key: _value(one.value) for one in given}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Say nothing of a sender that was killed."""


@contextmanager
def http_collector() -> Iterator[Collector]:
    """One that speaks http/protobuf."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = collector.begin({**headers, ":path": self.path})
            if status == GONE:
                self.close_connection = True
                return
            answer = b""
            if status == 200:
                encoding = headers.get("content-encoding")
                if encoding == "gzip":
                    body = gzip.decompress(body)
                elif encoding == "deflate":
                    body = zlib.decompress(body)
                mine = self.path.partition("?")[0].endswith("/v1/traces")
                signal, kept = (TRACES, collector.traces) if mine else (METRICS, collector.metrics)
                request = signal.request.FromString(body)
                status = collector.judge(request)
                if status == 200:
                    kept.append(request)
                    answer = collector.response(signal.answer).SerializeToString()
            if status != 200 and collector.says:
                answer = collector.says.encode()
            self.send_response(status)
            if status == 429 or collector.retry_after:
                self.send_header("Retry-After", collector.retry_after or "0")
            if collector.location:
                self.send_header("Location", collector.location)
            kind = "application/x-protobuf" if status == 200 else "text/plain"
            self.send_header("Content-Type", collector.kind or kind)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    collector.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collector
    finally:
        if collector.hang is not None:
            collector.hang.set()
        server.shutdown()
        server.server_close()
        thread.join()


_CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.UNIMPLEMENTED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
}


@contextmanager
def grpc_collector() -> Iterator[Collector]:
    """One that speaks gRPC, and says as gRPC does what a status of HTTP means."""
    collector = Collector()

    def taken(kept: list[Any], request: Any, context: Any, kind: Any) -> Any:
        status = collector.begin(dict(context.invocation_metadata()))
        if status == 200:
            status = collector.judge(request)
        if status != 200:
            if status == 429:
                context.set_trailing_metadata((("grpc-status-details-bin", _at_once()),))
            code = _CODES.get(status, grpc.StatusCode.INVALID_ARGUMENT)
            context.abort(code, collector.says or "as told")
        kept.append(request)
        return collector.response(kind)

    class Traces(traces_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            return taken(collector.traces, request, context, TRACES.answer)

    class Metrics(metrics_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            return taken(collector.metrics, request, context, METRICS.answer)

    server = grpc.server(futures.ThreadPoolExecutor(2))
    traces_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    metrics_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    collector.endpoint = f"http://127.0.0.1:{port}"
    try:
        yield collector
    finally:
        if collector.hang is not None:
            collector.hang.set()
        server.stop(None).wait()


def _at_once() -> bytes:
    """The details of a status by which a collector asks to be asked again."""
    status = Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])
    status.details.add().Pack(RetryInfo())
    return bytes(status.SerializeToString())
