"""Rotel, a collector that is not ours: what it gets it passes on, to a collector of the test.

It is one program, unpacked from ``requirements/rotel.txt``, and listens on loopback, on ports that
were free a moment before: where one is taken meanwhile, others are tried.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlvr_probe_otlp.tests.receiver import free_ports, listens

from tests import wheels

__all__ = ["Rotel", "rotel"]

_ATTEMPTS = 5
_PROGRAM = "rotel-agent"


@dataclass(frozen=True)
class Rotel:
    """One that runs.

    Attributes:
        http, grpc: Its endpoints.
    """

    http: str
    grpc: str


@contextmanager
def rotel(folder: Path, to: str) -> Iterator[Rotel]:
    """Start one; its output goes to ``folder``, and what it gets to the HTTP endpoint ``to``."""
    pins = (wheels.REQUIREMENTS / "rotel.txt").read_text()
    program = wheels.unpacked("rotel", pins, only=_PROGRAM) / "rotel" / _PROGRAM
    program.chmod(0o700)
    log = folder / "rotel.log"
    for _ in range(_ATTEMPTS):
        found = Rotel(*(f"http://127.0.0.1:{port}" for port in free_ports(2)))
        options = {
            "otlp-http-endpoint": found.http.removeprefix("http://"),
            "otlp-grpc-endpoint": found.grpc.removeprefix("http://"),
            "exporter": "otlp",
            "otlp-exporter-protocol": "http",
            "otlp-exporter-endpoint": to,
            "pid-file": str(folder / "rotel.pid"),
        }
        chosen = [word for name, value in options.items() for word in (f"--{name}", value)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [program, "start", *chosen], cwd=folder, env={"PATH": os.defpath},
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        try:
            if listens(process, found.http, found.grpc):
                yield found
                return
        finally:
            process.terminate()
            process.wait()
    raise AssertionError(f"rotel does not start: {log.read_text()[-2_000:]}")
