"""Arize Phoenix, where a person looks at traces, in an environment of its own.

It is installed from ``requirements/phoenix.txt``, and keeps what it gets in a folder of the test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import quote, urlencode

from tests import wheels
from tests.listening import listening

__all__ = ["Phoenix", "phoenix"]

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

    def start(ports: list[int], output: BinaryIO) -> subprocess.Popen[bytes]:
        http, grpc = map(str, ports)
        environment = {
            "PATH": os.defpath, "PYTHONPATH": str(installed), "HOME": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1", "PHOENIX_WORKING_DIR": str(folder),
            "PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": http,
            "PHOENIX_GRPC_PORT": grpc, "PHOENIX_TELEMETRY_ENABLED": "false",
        }  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "-m", "phoenix.server.main", "serve"],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip

    def named(ports: list[int]) -> Phoenix:
        return Phoenix(*(f"http://127.0.0.1:{port}" for port in ports))

    def answers(ports: list[int]) -> bool:
        return named(ports).answers()

    with listening(start, 2, folder / "phoenix.log", answers, _START_S) as ports:
        yield named(ports)
