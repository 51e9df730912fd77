"""How much longer a real TRL training takes with a sidecar: ``python -m tests.bench.beside``.

As :mod:`tests.bench.slowdown`, with all that runs beside a training that is recorded: the sidecar
reads eight GPUs of a scripted driver, and sends every step to a collector on this machine. In the
blocks that are off nothing is recorded, and the sidecar and what it started stand still. The
collector is a third party, but works only while it is sent something, so its time is in here, too.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from rlvr_probe_otlp.tests.collector import http_collector

from tests.bench import sampling, slowdown
from tests.bench.report import main
from tests.nvml import Nvml

__all__ = ["measure", "tables"]

_GPUS = 8


def measure(quick: bool = False, minutes: float = slowdown.MINUTES) -> dict[str, Any]:
    """Ratio and added time per step, and what the sidecar and its children took of a core."""
    seconds = 8.0 if quick else minutes * 60
    with tempfile.TemporaryDirectory() as scratch, http_collector() as collector:
        nvml = Nvml(Path(scratch), *sampling.script(_GPUS), virtual=False)
        environ = {
            **nvml.environ(),
            sampling.ONCE: "1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
        }
        small = slowdown.training(seconds, ("--sidecar", *slowdown.SMALL), environ)
        spans = sum(1 for _ in collector.spans())
        points = sum(1 for _ in collector.points())
    return {"trainings": {"small": small}, "gpus": _GPUS, "spans": spans, "points": points}


def tables(figures: dict[str, Any]) -> str:
    """The figures as a table."""
    beside = figures["trainings"]["small"]["beside"]
    return "\n\n".join((
        slowdown.tables(figures),
        f"The sidecar and what it started took {beside['core']:.1%} of a core while they ran, and"
        f" sent {figures['spans']:,} spans and {figures['points']:,} points; blocks that were on"
        f" without them: {beside['missing']}.",
    ))  # fmt: skip


if __name__ == "__main__":
    main(measure, tables, minutes=slowdown.MINUTES)
