"""A collector of this process for the tests that send to one, by either protocol."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from rlvr_probe_otlp.tests.collector import Collector, grpc_collector, http_collector

from tests.actors import Job

MAKERS: dict[str, Callable[[], AbstractContextManager[Collector]]] = {
    "http/protobuf": http_collector,
    "grpc": grpc_collector,
}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of whoever runs the tests; a busy machine may answer late."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A recording of three steps, as small as one can be that has groups, turns and tools."""
    Job(tmp_path / "run", steps=3, prompts=2, group_size=3).write()
    return tmp_path / "run"


@pytest.fixture
def protocol() -> str:
    """HTTP; what each protocol has a way of its own to say is tested with ``EACH_PROTOCOL``."""
    return "http/protobuf"


@pytest.fixture
def start(protocol: str) -> Callable[[], AbstractContextManager[Collector]]:
    """Starts a collector for the protocol."""
    return MAKERS[protocol]


@pytest.fixture
def collector(
    protocol: str,
    start: Callable[[], AbstractContextManager[Collector]],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Collector]:
    """The one that the settings name, by the protocol."""
    with start() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        yield found


@pytest.fixture
def http(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """The one that the settings name, by HTTP."""
    with http_collector() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.endpoint)
        yield found
