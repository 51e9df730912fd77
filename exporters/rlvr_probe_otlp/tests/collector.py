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
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc

__all__ = ["GONE", "Collector", "grpc_collector", "http_collector"]

Answer = Callable[[int], int]
"""HTTP status by the number of the request, from 0."""

GONE = 0
"""Over HTTP: it dies before it answers."""


@dataclass
class Collector:
    """What was received.

    Attributes:
        endpoint: Where it listens.
        answer: How it answers; what it does not take it does not keep.
        hang: Answers nothing until it is set.
        requests: Headers of every request.
    """

    endpoint: str = ""
    answer: Answer = lambda number: 200
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


def attributes(given: Any) -> dict[str, Any]:
    """Attributes as plain values."""
    return {one.key: _value(one.value) for one in given}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)


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
            if status == 200:
                encoding = headers.get("content-encoding")
                if encoding == "gzip":
                    body = gzip.decompress(body)
                elif encoding == "deflate":
                    body = zlib.decompress(body)
                if self.path.endswith("/v1/traces"):
                    collector.traces.append(traces.ExportTraceServiceRequest.FromString(body))
                else:
                    collector.metrics.append(metrics.ExportMetricsServiceRequest.FromString(body))
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
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


_CODES = {429: grpc.StatusCode.RESOURCE_EXHAUSTED, 503: grpc.StatusCode.UNAVAILABLE}


@contextmanager
def grpc_collector() -> Iterator[Collector]:
    """One that speaks gRPC; a status of 429 or 503 is said as gRPC says it."""
    collector = Collector()

    def taken(kept: list[Any], request: Any, context: Any, answer: Any) -> Any:
        status = collector.begin(dict(context.invocation_metadata()))
        if status != 200:
            context.abort(_CODES.get(status, grpc.StatusCode.INVALID_ARGUMENT), "as told")
        kept.append(request)
        return answer

    class Traces(traces_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            return taken(collector.traces, request, context, traces.ExportTraceServiceResponse())

    class Metrics(metrics_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            return taken(
                collector.metrics, request, context, metrics.ExportMetricsServiceResponse()
            )

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
