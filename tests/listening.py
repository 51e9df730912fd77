"""Programs that listen on loopback, on ports that were free a moment before.

Where one is taken meanwhile, others are tried.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["listening"]

_ATTEMPTS = 5

Ports = list[int]


@contextmanager
def listening(
    start: Callable[[Ports, BinaryIO], subprocess.Popen[bytes]],
    count: int,
    log: Path,
    ready: Callable[[Ports], bool] | None = None,
    patience_s: float = 60.0,
) -> Iterator[Ports]:
    """The ports of a program that runs until this is left.

    Args:
        start: Starts it on ports, with a file for its output.
        count: How many ports it takes.
        log: Where its output goes.
        ready: Whether it serves on ports; without it, whether all of them are open.
        patience_s: It is ended if it does not serve by then.

    Raises:
        AssertionError: It does not start.
    """
    for _ in range(_ATTEMPTS):
        ports = _free_ports(count)
        with log.open("wb") as output:
            process = start(ports, output)
        try:
            until = time.monotonic() + patience_s
            while process.poll() is None and time.monotonic() < until:
                if (ready or _are_open)(ports):
                    yield ports
                    return
                time.sleep(0.05)
        finally:
            process.terminate()
            process.wait()
    raise AssertionError(f"{log.stem} does not start: {log.read_text()[-2_000:]}")


def _are_open(ports: Ports) -> bool:
    try:
        for port in ports:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def _free_ports(count: int) -> Ports:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
