"""The process that began a run knows best where it is to be sent, whoever started the sidecar."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.e2e.test_sidecar import Run, clean
from tests.jobs import wait_for

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")

FAMILY = """
work({fork!r})  # what is started from here on belongs to this process
child = os.fork()
if not child:
    {child}
    work()
    os._exit(0)
work()
os.waitpid(child, 0)
"""
SECRET = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    "OTEL_EXPORTER_OTLP_HEADERS": "key=canary",
    "RLVR_PROBE_LIVE": "0",
}


@pytest.fixture(autouse=True)
def nothing_of_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    clean(made)


class Taken(BaseHTTPRequestHandler):
    """Takes everything, so that nobody waits at the end of a run for a collector that is away."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[str]:
    """Where one listens."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Taken) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def family(one: Run, child: str) -> str:
    """A process that begins the run, and forks another one when it is told to."""
    return FAMILY.format(fork=str(one.folder / "fork"), child=child)


def role(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2].decode()


def environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it ended
        return []


def taken_over_by_the_child(one: Run, process: subprocess.Popen[str]) -> int:
    """A sidecar that the child has started, while its parent could not."""
    first = one.wait_for_sidecar()
    assert role(first) == "first"
    one.wait_for_journal(first)
    (one.folder / "fork").touch()
    wait_for(lambda: len(list(one.path.glob("p*.open"))) == 3, 60)  # and the sidecar's
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(first, signal.SIGKILL)
    later = one.wait_for_sidecar(other_than=first)
    assert role(later) == "later"
    one.wait_for_journal(later)
    os.kill(process.pid, signal.SIGCONT)
    return later


def test_a_sidecar_that_knows_less_is_relieved_by_the_process_that_began_the_run(one: Run) -> None:
    child = 'del os.environ["OTEL_EXPORTER_OTLP_HEADERS"]'
    process = one.start(family(one, child), **SECRET)
    later = taken_over_by_the_child(one, process)
    assert not any(b"canary" in line for line in environ(later))
    last = one.wait_for_sidecar(other_than=later)
    assert role(last) == "first"
    assert b"OTEL_EXPORTER_OTLP_HEADERS=key=canary" in environ(last)
    one.wait_for_journal(last)
    one.end(process)
    one.wait_for_its_end()
    assert one.endings() == ["", "exit", "signal"]
    assert not any(b"canary" in path.read_bytes() for path in one.path.iterdir())


def test_what_was_handed_over_to_another_node_is_where_its_sidecar_sends(
    one: Run, collector: str
) -> None:
    # As a worker has it that Ray started: of its own it knows nothing.
    told = {"RLVR_PROBE_OTEL_EXPORTER_OTLP_ENDPOINT": collector}
    process = one.start(RLVR_PROBE_OWNER="0123456789abcdef", RLVR_PROBE_GPU_HZ="0", **told)
    pid = one.wait_for_sidecar()
    assert role(pid) == "later"

    def sends() -> bool:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return any(
            f"OTEL_EXPORTER_OTLP_ENDPOINT={collector}".encode() in environ(int(child))
            for child in children
        )

    wait_for(sends, 60)
    one.end(process)
    one.wait_for_its_end()


def test_one_that_knows_as_much_stays(one: Run) -> None:
    process = one.start(family(one, "pass"), **SECRET)
    taken_over_by_the_child(one, process)
    one.end(process)
    one.wait_for_its_end()
    assert one.endings() == ["", "exit"]
