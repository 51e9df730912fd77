"""Arize Phoenix, where a person looks at traces, in an environment of its own.

It is installed from ``requirements/phoenix.txt``, keeps what it gets in a folder of the test, and
listens on loopback, on ports that were free a moment before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

from rlvr_probe_otlp.tests.receiver import free_ports

from tests import wheels

__all__ = ["Phoenix", "phoenix"]

_ATTEMPTS = 3
_START_S = 300.0


@dataclass(frozen=True)
class Phoenix:
    """One that runs.

    Attributes:
        http, grpc: Its endpoints; pages and answers come from the first.
    """

    http: str
    grpc: str

    def spans(self, project: str) -> Iterator[dict[str, Any]]:
        """Every span of a project."""
        path, cursor = f"/v1/projects/{quote(project)}/spans", None
        while True:
            asked = {"limit": "1000"} | ({"cursor": cursor} if cursor else {})
            answer = self._get(f"{path}?{urlencode(asked)}")
            yield from answer["data"]
            cursor = answer["next_cursor"]
            if cursor is None:
                return

    def projects(self) -> set[str]:
        """Names of what traces were sent to."""
        return {one["name"] for one in self._get("/v1/projects?limit=100")["data"]}

    def answers(self) -> bool:
        """Whether it does."""
        try:
            self.projects()
        except OSError:
            return False
        return True

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.http}{path}", timeout=120) as answer:
            return cast(dict[str, Any], json.load(answer))


@contextmanager
def phoenix(folder: Path) -> Iterator[Phoenix]:
    """Start one; what it gets, and its output, goes to ``folder``."""
    installed = wheels.installed("phoenix", (wheels.REQUIREMENTS / "phoenix.txt").read_text())
    log = folder / "phoenix.log"
    for _ in range(_ATTEMPTS):
        http, grpc = free_ports(2)
        with log.open("wb") as output:
            process = _start(installed, (http, grpc), folder, output)
        try:
            found = Phoenix(f"http://127.0.0.1:{http}", f"http://127.0.0.1:{grpc}")
            if _answers(process, found):
                yield found
                return
        finally:
            process.terminate()
            process.wait()
    raise AssertionError(f"Phoenix does not start: {log.read_text()[-2_000:]}")


def _start(
    installed: Path, ports: tuple[int, int], folder: Path, output: Any
) -> subprocess.Popen[bytes]:
    environment = {
        "PATH": os.defpath, "PYTHONPATH": str(installed), "HOME": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1", "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(ports[0]),
        "PHOENIX_GRPC_PORT": str(ports[1]), "PHOENIX_TELEMETRY_ENABLED": "false",
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "phoenix.server.main", "serve"],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
    )  # fmt: skip


def _answers(process: subprocess.Popen[bytes], found: Phoenix) -> bool:
    """Whether it is up before it ends or time is up."""
    until = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < until:
        if found.answers():
            return True
        time.sleep(0.5)
    return False
