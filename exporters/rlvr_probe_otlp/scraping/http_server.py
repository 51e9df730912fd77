"""Serves one page over HTTP, to every client that may connect; requests are not used."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from rlvr_probe_otlp.scraping.exposition import CONTENT_TYPE

__all__ = ["PATH", "PageServer"]

PATH: Final = "/metrics"

_PATIENCE_S: Final = 10.0
_MOST: Final = 16


class PageServer:
    """A server of one page, in threads of its own.

    Attributes:
        address: Host and port it listens on.
    """

    def __init__(
        self, address: tuple[str, int], page: Callable[[], tuple[int, bytes] | None]
    ) -> None:
        """Listen.

        Args:
            address: Host and port; port 0 means a free one.
            page: Called for each request: the number of the page, which grows, and the page; None
                while there is none to be shown.

        Raises:
            OSError: The address cannot be had.
        """
        self._page = page
        self._served = threading.Condition()
        self._last = 0
        self._room = threading.BoundedSemaphore(_MOST)
        self._server = self._listening(address)
        self.address = (address[0], int(self._server.server_address[1]))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def wait(self, number: int, timeout_s: float) -> bool:
        """Wait until a page of this or a later number was served; whether it was."""
        with self._served:
            return self._served.wait_for(lambda: self._last >= number, timeout_s)

    def close(self) -> None:
        """Listen no longer."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_PATIENCE_S)

    def _listening(self, address: tuple[str, int]) -> ThreadingHTTPServer:
        ours = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _PATIENCE_S
            server_version = "rlvr-probe"
            sys_version = ""

            def do_GET(self) -> None:
                ours._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing: a sidecar has nowhere to."""

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            daemon_threads = True

            def process_request(self, request: object, client_address: object) -> None:
                if ours._room.acquire(blocking=False):
                    super().process_request(request, client_address)  # type: ignore[arg-type]
                else:
                    self.shutdown_request(request)  # type: ignore[arg-type]

            def process_request_thread(self, request: object, client_address: object) -> None:
                try:
                    super().process_request_thread(request, client_address)  # type: ignore[arg-type]
                finally:
                    ours._room.release()

            def handle_error(self, request: object, client_address: object) -> None:
                """Say nothing of who went away before the answer."""

        return Server(address, Handler)

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        if request.path.partition("?")[0] != PATH:
            request.send_error(HTTPStatus.NOT_FOUND)
            return
        found = self._page()
        if found is None:
            request.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        number, body = found
        request.send_response(HTTPStatus.OK)
        request.send_header("Content-Type", CONTENT_TYPE)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
        with self._served:
            self._last = max(self._last, number)
            self._served.notify_all()
