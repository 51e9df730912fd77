"""Odd environments are clear errors before anything is sent, and secrets stay where they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc
from rlvr_probe_otlp.settings import Destination, destinations
from rlvr_probe_otlp.tests.collector import Collector, http_collector
from rlvr_probe_otlp.tests.recordings import read
from rlvr_probe_otlp.tests.test_sending import check_all_there, export

from rlvr_probe import cli
from rlvr_probe.exceptions import ConfigError
from tests import today

SECRET = "Canary-secret-8Gh"
HTTP, GRPC = "http/protobuf", "grpc"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("OTEL_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def collector() -> Iterator[Collector]:
    with http_collector() as found:
        yield found


def found(endpoint: str, protocol: str = HTTP, **variables: str) -> Destination:
    given = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in variables.items()}
    return destinations(given, endpoint, protocol)[0]


@pytest.mark.parametrize(
    ("endpoint", "protocol", "address", "secure"),
    [
        ("http://h:4318", HTTP, "http://h:4318/v1/traces", False),
        ("http://h:4318/", HTTP, "http://h:4318/v1/traces", False),
        ("https://h/deep/", HTTP, "https://h/deep/v1/traces", True),
        ("http://[::1]:4318", HTTP, "http://[::1]:4318/v1/traces", False),
        ("http://me:pass@h:1", HTTP, "http://h:1/v1/traces", False),
        ("http://h:1/?token=abc", HTTP, "http://h:1/v1/traces?token=abc", False),
        ("http://h:4317", GRPC, "h:4317", False),
        ("https://h:4317/", GRPC, "h:4317", True),
        ("http://[::1]:4317", GRPC, "[::1]:4317", False),
        ("[::1]:4317", GRPC, "[::1]:4317", True),
        ("h:4317", GRPC, "h:4317", True),
        ("unix:///run/otel.sock", GRPC, "unix:///run/otel.sock", True),
        ("dns:///h:4317", GRPC, "dns:///h:4317", True),
    ],
)
def test_an_endpoint_is_taken_as_it_is_meant(
    endpoint: str, protocol: str, address: str, secure: bool
) -> None:
    one = found(endpoint, protocol)
    assert (one.address, one.secure) == (address, secure)
    assert found(endpoint, protocol, INSECURE="true").secure is (
        endpoint.startswith("https") and secure
    )


@pytest.mark.parametrize("protocol", [HTTP, GRPC])
@pytest.mark.parametrize(
    "endpoint",
    ["Canary", "Canary:", "Canary:port", "ftp://Canary:1", "http://", "http://[::1", "http://h:0",
     "http://h:99999", "http://h h", "http://h\n:1", "file:///etc/passwd", "//h:1", "h:1/path",
     "http://h\u0661", "unix:", "ipv6:"],
)  # fmt: skip
def test_what_is_no_endpoint_is_an_error_that_does_not_repeat_it(
    endpoint: str, protocol: str
) -> None:
    with pytest.raises(ConfigError, match=r"not a URL|Unix socket") as caught:
        found(endpoint, protocol)
    assert "Canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("endpoint", "protocol", "variables", "said"),
    [
        ("localhost:4318", HTTP, {}, "not a URL"),
        ("unix:///run/otel.sock", HTTP, {}, "--protocol grpc"),
        (f"http://me:{SECRET}@h:1", GRPC, {}, "OTEL_EXPORTER_OTLP_HEADERS"),
        ("http://h:1", "http/json", {}, "not spoken here"),
        ("http://h:1", HTTP, {"COMPRESSION": "zstd"}, "expected gzip or deflate or none"),
        ("http://h:1", GRPC, {"COMPRESSION": "deflate"}, "expected gzip or none"),
        ("http://h:1", HTTP, {"TIMEOUT": "-1"}, "expected seconds"),
        ("http://h:1", HTTP, {"TIMEOUT": "nan"}, "expected seconds"),
        ("http://h:1", HTTP, {"HEADERS": SECRET}, "entry 1 is not a header"),
        ("http://h:1", HTTP, {"HEADERS": f"a=b,c={SECRET}%0Ax: y"}, "entry 2 is not a header"),
        ("http://h:1", GRPC, {"HEADERS": f"a b={SECRET}"}, "entry 1 is not a header"),
        ("http://h:1", GRPC, {"TRACES_HEADERS": f"grpc-x={SECRET}"}, "TRACES_HEADERS: entry 1"),
    ],
)
def test_what_cannot_work_is_an_error_that_says_what_to_set_and_no_secret(
    endpoint: str, protocol: str, variables: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        found(endpoint, protocol, **variables)
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("protocol", [HTTP, GRPC])
@pytest.mark.parametrize("name", ["CERTIFICATE", "CLIENT_CERTIFICATE"])
@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_a_certificate_that_cannot_be_used_is_an_error_that_names_the_variable(
    content: str | None, name: str, protocol: str, tmp_path: Path
) -> None:
    path = tmp_path / "cert.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=f"OTEL_EXPORTER_OTLP_{name}.*expected a file of cert"):
        found("https://h:1", protocol, **{name: str(path)})
    assert not found("http://h:1", protocol, **{name: str(path)}).secure, "and so it is not read"


def test_what_is_said_of_a_destination_holds_no_secret() -> None:
    one = found(f"http://me:{SECRET}@h:1/?token={SECRET}", HEADERS=f"x-key={SECRET}")
    assert SECRET not in repr(one) + one.shown + one.key
    assert one.secrets >= {SECRET}


def test_a_user_and_a_password_arrive_as_a_header_that_those_of_the_environment_win_over(
    collector: Collector, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = Path(os.environ["HOME"]) / ".netrc"
    netrc.write_text("machine 127.0.0.1\nlogin other\npassword else\n")
    netrc.chmod(0o600)
    assert export(run, "--endpoint", collector.endpoint) == 0
    assert {one.get("authorization") for one in collector.requests} == {None}
    collector.requests.clear()
    endpoint = collector.endpoint.replace("http://", "http://me:a%20b@")
    assert export(run, "--endpoint", endpoint) == 0
    assert {one["authorization"] for one in collector.requests} == {"Basic bWU6YSBi"}
    collector.requests.clear()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20x")
    assert export(run, "--endpoint", endpoint, "--state", str(run / "other")) == 0
    assert {one["authorization"] for one in collector.requests} == {"Bearer x"}


def test_a_unix_socket_is_reached_over_grpc(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got = Collector()

    class Traces(traces_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            got.traces.append(request)
            return traces.ExportTraceServiceResponse()

    class Metrics(metrics_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            got.metrics.append(request)
            return metrics.ExportMetricsServiceResponse()

    # A path in an address of a socket has 107 bytes at most.
    monkeypatch.chdir(tmp_path)
    server = grpc.server(futures.ThreadPoolExecutor(2))
    traces_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    metrics_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)
    server.add_insecure_port("unix:otel.sock")
    server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_INSECURE", "true")
    assert export(run, "--endpoint", "unix:otel.sock", "--protocol", GRPC) == 0
    server.stop(None).wait()
    check_all_there(got, read(run, tmp_path))


@dataclass
class Ended:
    code: int
    printed: str


@pytest.fixture
def ended(
    run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """An export, of which the secret is nowhere in what it and its libraries printed."""

    def made(*more: str, **environ: str) -> Ended:
        with monkeypatch.context() as patched:
            for name, value in {"OTEL_EXPORTER_OTLP_TIMEOUT": "0.5", **environ}.items():
                patched.setenv(name, value)
            code = export(run, *more)
        done = capfd.readouterr()
        assert SECRET not in done.out + done.err
        assert "Traceback" not in done.err
        assert all(SECRET.encode() not in path.read_bytes() for path in run.iterdir())
        return Ended(code, done.out + done.err)

    return made


def test_a_proxy_of_the_environment_is_used_and_its_password_is_not_shown(
    collector: Collector, ended: Callable[..., Ended]
) -> None:
    with http_collector() as gone:
        proxy = gone.endpoint.replace("http://", f"http://me:{SECRET}@")
    away = ("--endpoint", "http://collector.invalid:1")
    done = ended(*away, HTTP_PROXY=proxy, http_proxy=proxy)
    assert done.code == cli.UNABLE
    assert "the proxy of HTTP_PROXY or HTTPS_PROXY does not answer" in done.printed
    around = {"HTTP_PROXY": proxy, "http_proxy": proxy, "NO_PROXY": "127.0.0.1"}
    patient = {"OTEL_EXPORTER_OTLP_TIMEOUT": "60"}
    assert ended("--endpoint", collector.endpoint, **around, **patient).code == 0
    before = len(collector.requests)
    through = {"HTTP_PROXY": collector.endpoint, "http_proxy": collector.endpoint}
    assert ended(*away, **through, **patient).code == 0
    assert len(collector.requests) > before


@pytest.mark.parametrize("protocol", today.some([HTTP, GRPC], 1))
def test_a_secret_is_not_shown_whatever_goes_wrong(
    protocol: str, ended: Callable[..., Ended]
) -> None:
    with http_collector() as gone:
        closed = gone.endpoint
    proxies = {"http_proxy": f"ftp://me:{SECRET}@127.0.0.1:1", "grpc_proxy": f"x://a:{SECRET}@h"}
    secure = closed.replace("http://", "https://")
    for endpoint, more in ((f"{closed}/?token={SECRET}", {}), (closed, proxies), (secure, {})):
        given = {**more, "OTEL_EXPORTER_OTLP_HEADERS": f"x-key={SECRET}"}
        done = ended("--endpoint", endpoint, "--protocol", protocol, **given)
        assert done.code == cli.UNABLE
        assert "repeat the command" in done.printed


def test_tls_that_does_not_come_about_says_so(
    collector: Collector, ended: Callable[..., Ended]
) -> None:
    secure = collector.endpoint.replace("http://", "https://")
    done = ended("--endpoint", secure, OTEL_EXPORTER_OTLP_TIMEOUT="2")
    assert "TLS:" in done.printed


def test_a_web_page_is_no_collector(
    collector: Collector, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collector.kind = "text/html"
    assert export(run, "--endpoint", collector.endpoint) == cli.UNABLE
    assert "with a web page" in capsys.readouterr().err
    assert (run / "otlp.offsets").read_bytes() == b""


def test_an_answer_without_end_is_not_read_to_its_end(
    collector: Collector, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    collector.answer = lambda number: 400
    collector.says = "x" * 4_000_000
    assert export(run, "--endpoint", collector.endpoint) == cli.UNABLE
