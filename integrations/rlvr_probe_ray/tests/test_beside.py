"""A Ray job and its sidecar: neither keeps the other, and Ray is told nothing secret."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_otlp.tests.collector import Collector, http_collector
from rlvr_probe_ray.tests.runs import (
    PATIENCE_S,
    TESTS,
    Cluster,
    descendants,
    environment,
    python,
    temporary,
)

from rlvr_probe.probe.election import holder, lock_path, open_lock
from rlvr_probe.recording import find_run, read_run
from tests.jobs import wait_for

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3000)]

CANARY = "Canary-header-9Tw"
HANDED_OVER = "RLVR_PROBE_OTEL_EXPORTER_OTLP_ENDPOINT"


class Job:
    """A driver that works until it is told to stop; recorded, with a sidecar."""

    def __init__(self, folder: Path, short: Path, address: str, **variables: str) -> None:
        self.recordings = folder / "recordings"
        self._stop = folder / "stop"
        script = [str(python()), str(TESTS / "job.py"), "held", str(short), address]
        self.process = subprocess.Popen(
            [str(python().with_name("rlvr-probe")), "run", "--", *script],
            env=environment(
                RLVR_PROBE_OUT=str(self.recordings), RLVR_PROBE_SIDECAR="1", STOP=str(self._stop),
                **variables,
            ),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def sidecar(self) -> int | None:
        fd = open_lock(lock_path(self.run))
        with open(fd, "rb"):
            return holder(fd)

    @property
    def run(self) -> Path:
        return find_run(self.recordings)

    def wait_for_sidecar(self) -> int:
        """It has begun to write, and an actor works."""
        wait_for(lambda: len(list(self.recordings.glob("*/p*.open"))) >= 2, PATIENCE_S)
        wait_for(lambda: self.sidecar() is not None, PATIENCE_S)
        wait_for(lambda: len(read_run(self.run).sidecars) == 1, PATIENCE_S)
        result = self.sidecar()
        assert result
        return result

    def end(self) -> tuple[dict[str, Any], str]:
        """Tell it to stop; what it said, and what else was printed."""
        self._stop.touch()
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, err[-6000:]
        [line] = [line for line in out.splitlines() if line.startswith("{")]
        return json.loads(line), out + err

    def close(self) -> None:
        """Leave no process behind, whatever happened."""
        for pid in (self.process.pid, *descendants(self.process.pid)):
            if self.process.poll() is None:
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()
        if self.recordings.exists():
            sidecar = self.sidecar()
            if sidecar:
                os.kill(sidecar, signal.SIGKILL)
            lock_path(self.run).unlink()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with http_collector() as result:
        yield result


def started(pid: int) -> str:
    """When a process that is there began; empty if it is not, or is over."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def test_a_driver_returns_at_once_and_its_sidecar_leaves_nothing(tmp_path: Path) -> None:
    with temporary() as short:
        job = Job(tmp_path, short, "-")
        try:
            sidecar = job.wait_for_sidecar()
            children = {pid: started(pid) for pid in descendants(job.process.pid)}
            os.kill(sidecar, signal.SIGSTOP)  # it cannot leave
            said, _ = job.end()
            assert started(sidecar)
            assert sidecar not in children
            os.kill(sidecar, signal.SIGCONT)
            wait_for(lambda: job.sidecar() is None and not started(sidecar), PATIENCE_S)
            wait_for(
                lambda: not any(began and started(pid) == began for pid, began in children.items()),
                PATIENCE_S,
            )
        finally:
            job.close()
    assert said["results"] == [2, None]
    trace = read_run(job.run)
    assert [(process.pid, process.state) for process in trace.sidecars] == [(sidecar, "exited")]
    assert sorted(process.role for process in trace.processes) == ["Counter", "driver"]
    assert [dict(process.faults) for process in (*trace.processes, *trace.sidecars)] == [{}, {}, {}]


def test_a_header_is_known_to_the_sidecar_beside_the_driver_and_to_nobody_else(
    running: Cluster, collector: Collector, tmp_path: Path
) -> None:
    job = Job(
        tmp_path, running.folder, running.address, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
        OTEL_EXPORTER_OTLP_HEADERS=f"x-canary={CANARY}",
    )  # fmt: skip
    try:
        job.wait_for_sidecar()
        said, printed = job.end()
        wait_for(lambda: job.sidecar() is None, PATIENCE_S)
    finally:
        job.close()
    assert said["results"] == [2, None]
    assert [name for name in said["variables"] if "OTEL" in name] == []
    assert collector.requests
    assert {headers.get("x-canary") for headers in collector.requests} == {CANARY}
    assert CANARY not in printed
    places = [path for folder in (running.folder, job.recordings) for path in folder.rglob("*")]
    read = [path for path in places if path.is_file() and CANARY.encode() in path.read_bytes()]
    assert read == []


def test_an_endpoint_without_a_secret_is_told_to_every_node_under_a_name_of_ours(
    running: Cluster, collector: Collector, tmp_path: Path
) -> None:
    endpoint = collector.endpoint
    job = Job(tmp_path, running.folder, running.address, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    try:
        job.wait_for_sidecar()
        said, _ = job.end()
        wait_for(lambda: job.sidecar() is None, PATIENCE_S)
    finally:
        job.close()
    assert said["variables"][HANDED_OVER] == endpoint
    assert said["results"] == [2, None], "to the actor's own programs nothing changes"
    assert collector.requests
