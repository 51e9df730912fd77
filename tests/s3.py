"""A real server of S3, which keeps its objects in a folder."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["BUCKET", "serve"]

BUCKET: Final = "bucket"
_KEY, _SECRET = "AKIDEXAMPLE", "canaryexamplesecret"
_PORT: Final = re.compile(rb"\[http://127\.0\.0\.1:(\d+)/\]")
_START_S: Final = 30


@contextmanager
def serve(folder: Path) -> Iterator[dict[str, str]]:
    """Start it, with one empty bucket; the variables that lead a client to it."""
    (folder / "objects" / BUCKET).mkdir(parents=True)
    log = folder / "log"
    command: list[str | Path] = [
        Path(sys.executable).with_name("rclone"), "serve", "s3", "--config", "",
        "--addr", "127.0.0.1:0", "--auth-key", f"{_KEY},{_SECRET}",
        "--vfs-cache-mode", "full", "--vfs-write-back", "0s", "--cache-dir", folder / "cache",
        folder / "objects",
    ]  # fmt: skip
    with log.open("wb") as file:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        until = time.monotonic() + _START_S
        while (found := _PORT.search(log.read_bytes())) is None:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(found[1])}",
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        server.terminate()
        server.wait()
