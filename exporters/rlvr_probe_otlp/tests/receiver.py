"""The receiver that the tests send to: ddapm-test-agent, in an environment of its own.

It is installed from ``requirements/otlp-receiver.txt``.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tests import wheels
from tests.listening import listening

__all__ = ["Receiver", "attributes", "identifier", "receiver"]


@dataclass(frozen=True)
class Receiver:
    """One that runs.

    Attributes:
        http, grpc: Its endpoints.
    """

    http: str
    grpc: str

    def spans(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Attributes of the resource, and span, of everything it got."""
        for request in self._got("traces"):
            for resource in request["resource_spans"]:
                said = attributes(resource["resource"])
                for scope in resource["scope_spans"]:
                    for span in scope["spans"]:
                        yield said, span

    def points(self) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
        """Attributes of the resource, metric and data point of everything it got."""
        for request in self._got("metrics"):
            for resource in request["resource_metrics"]:
                said = attributes(resource["resource"])
                for scope in resource["scope_metrics"]:
                    for metric in scope["metrics"]:
                        for kind in ("sum", "gauge", "exponential_histogram"):
                            for point in metric.get(kind, {}).get("data_points", ()):
                                yield said, metric, point

    def _got(self, what: str) -> list[dict[str, Any]]:
        url = f"{self.http}/test/session/{what}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return found


def attributes(given: dict[str, Any]) -> dict[str, Any]:
    """Attributes as plain values."""
    return {one["key"]: _value(one["value"]) for one in given.get("attributes", ())}


def _value(value: dict[str, Any]) -> Any:
    [(kind, held)] = value.items()
    if kind == "array_value":
        return [_value(one) for one in held.get("values", ())]
    return int(held) if kind == "int_value" else held


def identifier(text: str) -> str:
    """An id as hex: protobuf's JSON has bytes as base64."""
    return base64.b64decode(text).hex()


@contextmanager
def receiver(folder: Path) -> Iterator[Receiver]:
    """Start one; its output goes to ``folder``."""
    pins = (wheels.REQUIREMENTS / "otlp-receiver.txt").read_text()
    installed = wheels.installed("otlp-receiver", pins)

    def start(ports: list[int], output: BinaryIO) -> subprocess.Popen[bytes]:
        environment = {
            "PATH": os.defpath, "PYTHONPATH": str(installed), "HOME": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        options = ("--port", "--otlp-http-port", "--otlp-grpc-port")
        chosen = [word for pair in zip(options, map(str, ports), strict=True) for word in pair]
        return subprocess.Popen(
            [sys.executable, "-m", "ddapm_test_agent.agent", *chosen, "--host", "127.0.0.1"],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip

    with listening(start, 3, folder / "receiver.log") as ports:
        yield Receiver(*(f"http://127.0.0.1:{port}" for port in ports[1:]))
