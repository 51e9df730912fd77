"""A reward service that misbehaves: what it does to a prompt follows from the prompt."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

__all__ = ["PATIENCE_S", "ServiceBook", "reward_service"]

PATIENCE_S = 10.0
"""How long a job waits for an answer; OpenRLHF waits three minutes."""
SLOW_S = 0.3

_ASKED = re.compile(r"what is \d+ plus (\d+)")
_MANNERS = ("500", "hang", "slow", "good")


class ServiceBook:
    """What a service was asked and did; handlers write from threads of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.over = Event()
        self._lock = Lock()
        self._prompts: Counter[str] = Counter()

    def manner(self, prompt: str) -> str:
        """What to do with a request: the first one for some prompts is treated badly."""
        result = _ASKED.search(prompt)
        assert result is not None
        manner = _MANNERS[int(result[1]) % len(_MANNERS)]
        with self._lock:
            self._prompts[prompt] += 1
            again = self._prompts[prompt] > 1
        return "good" if again and manner in ("500", "hang") else manner

    def write(self, **line: Any) -> None:
        """Add a line."""
        with self._lock, self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    """It waits for its handlers: what they did is in the book."""


@contextmanager
def reward_service(path: Path) -> Iterator[str]:
    """Its address, while it is there.

    Args:
        path: Where it keeps its book: ``manner`` of each request, ``value`` of each answer, and
            ``start`` and ``end`` as CLOCK_MONOTONIC has it, ns. The end of one that hung is when
            nobody could wait for it any more.
    """
    book = ServiceBook(path)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            start = time.monotonic_ns()
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            [query], [prompt] = given["query"], given["prompts"]
            manner = book.manner(prompt)
            if manner == "hang":
                book.over.wait()
            if manner == "slow":
                time.sleep(SLOW_S)
            value = 0.125 * (len(query) % 8) if manner in ("good", "slow") else None
            book.write(manner=manner, value=value, start=start, end=time.monotonic_ns())
            if manner != "hang":
                self._answer(value)

        def _answer(self, value: float | None) -> None:
            # A list, as the reward server of OpenRLHF answers.
            body = b"" if value is None else json.dumps({"rewards": [value]}).encode()
            self.send_response(500 if value is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

    server = _Server(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, name="reward-service", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        book.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
