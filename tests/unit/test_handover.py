"""What other nodes are told of where to send a run: enough to do it, and nothing secret."""

from __future__ import annotations

import os

import pytest
from rlvr_probe_otlp.settings import destinations

import rlvr_probe
from rlvr_probe.config import OWNER
from rlvr_probe.probe.otel_environ import HANDED_OVER, effective, handed_over, received

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.svc:4318"}
SECRETS = {
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer canary",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x-key=canary",
    "OTEL_EXPORTER_OTLP_CERTIFICATE": "/home/canary/ca.pem",
    "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/home/canary/key.pem",
    "OTEL_EXPORTER_OTLP_METRICS_CLIENT_CERTIFICATE": "/home/canary/client.pem",
}
SECRET_ENDPOINTS = (
    "https://canary:canary@collector:4318",
    "https://canary@collector",
    "https://collector/?key=canary",
    "https://collector#canary",
    "https://collector/ingest/Canary1234567890",
    "https://collector/glc_eyJvIjoiY2FuYXJ5In0=/v1/traces",
    "https://collector/0123456789abcdef",
    "not a URL at all: canary",
)


def test_another_node_sends_where_this_one_would() -> None:
    here = {
        **ENDPOINT,
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "https://metrics.example.org/api/v2/otlp",
        "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_SERVICE_NAME": "training",
    }
    told = handed_over(here)
    assert told.keys() == {f"RLVR_PROBE_{name}" for name in here}
    there = {"PATH": "/bin", **told}
    assert received(there) == here
    assert destinations(effective(there)) == destinations(here)


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://10.0.0.1:4318",
        "https://otlp-gateway.example.org/otlp",
        "http://collector:4318/v1/traces",
        "collector:4317",
        "http://collector/",
    ],
)
def test_an_endpoint_without_a_secret_is_told(endpoint: str) -> None:
    name = "OTEL_EXPORTER_OTLP_ENDPOINT"
    assert handed_over({name: endpoint}) == {f"RLVR_PROBE_{name}": endpoint}


@pytest.mark.parametrize("endpoint", SECRET_ENDPOINTS)
def test_an_endpoint_that_may_hold_a_secret_is_not_told(endpoint: str) -> None:
    for name in ("", "TRACES_", "METRICS_"):
        assert handed_over({**ENDPOINT, f"OTEL_EXPORTER_OTLP_{name}ENDPOINT": endpoint}) == {}


@pytest.mark.parametrize("name", SECRETS)
def test_where_a_secret_is_needed_nothing_is_told(name: str) -> None:
    assert handed_over({**ENDPOINT, name: SECRETS[name]}) == {}


def test_what_anything_may_be_written_into_is_not_told() -> None:
    said = {**ENDPOINT, "OTEL_RESOURCE_ATTRIBUTES": "team=canary", "OTEL_PYTHON_LOG": "canary"}
    assert handed_over(said) == handed_over(ENDPOINT)


def test_without_an_endpoint_there_is_nothing_to_tell() -> None:
    assert handed_over({"OTEL_SERVICE_NAME": "training"}) == {}
    assert handed_over({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}) == {}


@pytest.mark.parametrize("own", [*ENDPOINT, *SECRETS])
def test_a_node_with_a_connection_of_its_own_takes_nothing_from_another(own: str) -> None:
    there = {**handed_over(ENDPOINT), own: "of this node"}
    assert received(there) == {}
    assert effective(there) == {own: "of this node"}


def test_what_a_node_says_itself_stays() -> None:
    there = {**handed_over({**ENDPOINT, "OTEL_SERVICE_NAME": "here"}), "OTEL_SERVICE_NAME": "there"}
    assert received(there) == ENDPOINT
    assert effective(there)["OTEL_SERVICE_NAME"] == "there"


def test_only_what_is_known_is_received() -> None:
    there = {**handed_over(ENDPOINT), "RLVR_PROBE_OTEL_RESOURCE_ATTRIBUTES": "team=x"}
    assert received({**there, "RLVR_PROBE_LD_PRELOAD": "x"}) == ENDPOINT


def test_a_process_that_began_a_job_tells_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in ENDPOINT.items():
        monkeypatch.setenv(name, text)
    before = dict(os.environ)
    rlvr_probe.attach(frameworks=[])
    assert {name for name in os.environ if name in HANDED_OVER} == handed_over(ENDPOINT).keys()
    rlvr_probe.detach()
    assert dict(os.environ) == before


def test_a_process_that_was_told_tells_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWNER, "0123456789abcdef")
    for name, text in ENDPOINT.items():
        monkeypatch.setenv(name, text)
    rlvr_probe.attach(frameworks=[])
    assert [name for name in os.environ if name in HANDED_OVER] == []
