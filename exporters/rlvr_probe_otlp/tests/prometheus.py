"""A real Prometheus that scrapes pages of the tests."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.debian import program

__all__ = ["Pages", "Prometheus", "pages", "prometheus"]

_PATIENCE_S = 120.0


@dataclass
class Pages:
    """What is served to be scraped.

    Attributes:
        content: Type and body of each page, by its path.
        seen: How often each path was asked for since it was last changed.
        address: Host and port.
    """

    address: str = ""
    content: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def show(self, content: Mapping[str, tuple[str, bytes]], times: int) -> None:
        """Serve these pages until each was scraped so many times."""
        with self.changed:
            self.content.update(content)
            self.seen.clear()
            done = self.changed.wait_for(
                lambda: all(self.seen[path] >= times for path in content), _PATIENCE_S
            )
            assert done, f"scraped only {self.seen}"


@contextmanager
def pages() -> Iterator[Pages]:
    """A server of pages."""
    served = Pages()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with served.changed:
                kind, body = served.content.get(self.path, ("", b""))
            self.send_response(200 if kind else 404)
            self.send_header("Content-Type", kind or "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            with served.changed:
                served.seen[self.path] += bool(kind)
                served.changed.notify_all()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    served.address = f"127.0.0.1:{server.server_address[1]}"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Prometheus:
    """One that runs.

    Attributes:
        moment: All questions are about it, s since 1970; 0 until there is one.
    """

    base: str
    moment: float = 0.0

    def ask(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series of an answer.

        Raises:
            AssertionError: It refused the query, with its reason.
        """
        asked = urllib.parse.urlencode({"query": query, "time": self.moment})
        try:
            with urllib.request.urlopen(f"{self.base}/api/v1/query?{asked}", timeout=60) as reply:
                answer = json.load(reply)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from None
        data: dict[str, Any] = answer["data"]
        return [(one["metric"], float(one["value"][1])) for one in data["result"]]


@contextmanager
def prometheus(folder: Path, address: str, paths: Sequence[str]) -> Iterator[Prometheus]:
    """One that scrapes these paths of ``address`` every second."""
    binary = program("prometheus", "usr/bin/prometheus")
    jobs = [
        {
            "job_name": path.strip("/"),
            "metrics_path": path,
            "static_configs": [{"targets": [address]}],
        }
        for path in paths
    ]
    every = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    settings = folder / "prometheus.yml"
    # JSON is YAML.
    settings.write_text(json.dumps({"global": every, "scrape_configs": jobs}))
    log = folder / "prometheus.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [
                binary,
                f"--config.file={settings}",
                f"--storage.tsdb.path={folder / 'prometheus'}",
                "--web.listen-address=127.0.0.1:0",
                "--enable-feature=native-histograms",
            ],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
        )  # fmt: skip
        try:
            port = _until(lambda: _port(log, process))
            base = f"http://127.0.0.1:{port}"
            _until(lambda: _ready(base))
            yield Prometheus(base)
        finally:
            process.terminate()
            process.wait(30)


def _port(log: Path, process: subprocess.Popen[bytes]) -> str | None:
    text = log.read_text()
    assert process.poll() is None, text
    found = re.search(r'"Listening on".* address=127\.0\.0\.1:(\d+)', text)
    return found and found[1]


def _ready(base: str) -> bool:
    try:
        with urllib.request.urlopen(f"{base}/-/ready", timeout=5):
            return True
    except OSError:
        return False


def _until(check: Callable[[], Any]) -> Any:
    patience = time.monotonic() + _PATIENCE_S
    while time.monotonic() < patience:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("Prometheus did not start")
