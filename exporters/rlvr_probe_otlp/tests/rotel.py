"""Rotel, a collector that is not ours: what it gets it passes on, to a collector of the test.

It is one program, unpacked from ``requirements/rotel.txt``.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tests import wheels
from tests.listening import listening

__all__ = ["Rotel", "rotel"]

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

    def start(ports: list[int], output: BinaryIO) -> subprocess.Popen[bytes]:
        http, grpc = (f"127.0.0.1:{port}" for port in ports)
        options = {
            "otlp-http-endpoint": http,
            "otlp-grpc-endpoint": grpc,
            "exporter": "otlp",
            "otlp-exporter-protocol": "http",
            "otlp-exporter-endpoint": to,
            "pid-file": str(folder / "rotel.pid"),
        }
        chosen = [word for name, value in options.items() for word in (f"--{name}", value)]
        return subprocess.Popen(
            [program, "start", *chosen], cwd=folder, env={"PATH": os.defpath},
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip

    with listening(start, 2, folder / "rotel.log") as ports:
        yield Rotel(*(f"http://127.0.0.1:{port}" for port in ports))
