"""Line 1 of a journal: who wrote it, by allow-list."""

from __future__ import annotations

import os
import platform
import time
from importlib import metadata
from typing import Any

from rlvr_probe.model import names, schema
from rlvr_probe.probe import identity

__all__ = ["build_header", "epoch_pair"]


def epoch_pair() -> tuple[int, int]:
    """(CLOCK_MONOTONIC, ns since 1970) of one moment, within the time of one clock read."""
    before = time.monotonic_ns()
    epoch = time.time_ns()
    return (before + time.monotonic_ns()) // 2, epoch


def build_header(
    *,
    process: str,
    run: str,
    owner: str | None,
    mono_ns: int,
    epoch_ns: int,
) -> dict[str, Any]:
    """The header of this process, with every key of ``schema.HEADER_KEYS`` but ``segment``.

    Neither argv nor environment nor paths enter it, only ids that match a narrow pattern.
    """
    environ = os.environ
    pid = os.getpid()
    return {
        "journal": "rlvr-probe",
        "schema": schema.SCHEMA_VERSION,
        "names": names.NAMES_VERSION,
        "probe": _version(),
        "process": process,
        "run": run,
        "job": identity.job_key(environ),
        "owner": owner,
        "host": identity.host(),
        "boot": identity.boot_id(),
        "pid": pid,
        "ppid": os.getppid(),
        "start_ticks": identity.process_start_ticks(pid),
        "mono_ns": mono_ns,
        "epoch_ns": epoch_ns,
        "python": platform.python_version(),
        "rank": identity.rank(environ),
        "local_rank": identity.local_rank(environ),
        "world_size": identity.world_size(environ),
        "ids": identity.ids(environ),
    }


def _version() -> str:
    try:
        return metadata.version("rlvr-probe")
    except metadata.PackageNotFoundError:
        return "unknown"
