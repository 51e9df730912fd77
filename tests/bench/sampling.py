"""What reading devices takes of a core: ``python -m tests.bench.sampling``.

Over a scripted driver that answers at once, so without the time that calls of a real one take:
:mod:`tests.bench.gpu_real` measures those.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from rlvr_probe.devices import Sampler, load
from rlvr_probe.devices.gpm import METRICS
from tests.bench.report import main, table
from tests.nvml import scripted

__all__ = ["ONCE", "measure", "sampling", "script", "tables"]

ONCE = "NVML_SCRIPT_ONCE"
"""Where it is set the script is read but once."""

_GPUS = (0, 1, 8)
_RATES = (5, 9)
_TELLS = (
    "power_mw 500000",
    *(f"gpm.{number} 50" for number in METRICS.values()),
    *(f"fir.{field} 1e9" for field in (197, 198, 138, 139)),
)


def measure(quick: bool = False) -> dict[str, Any]:
    """Share of a core by number of GPUs, each of which tells everything, beside the host."""
    seconds = 1.0 if quick else 20.0
    rows = []
    for gpus in _GPUS:
        os.environ[ONCE] = "1"
        with tempfile.TemporaryDirectory() as folder:
            for hz in _RATES:
                with scripted(Path(folder), *script(gpus), virtual=False):
                    rows.append({"gpus": gpus, "hz": hz, **sampling(hz, seconds)})
        del os.environ[ONCE]
    return {"seconds": seconds, "rows": rows}


def script(gpus: int) -> list[str]:
    """Of a driver with so many GPUs, each of which tells everything."""
    tells = [f"0 {gpu} {one}" for gpu in range(gpus) for one in _TELLS]
    return [f"0 sys count {gpus}", *tells]


def sampling(hz: float, seconds: float) -> dict[str, float]:
    """Share of a core that sampling takes, all devices that are found here together."""
    backends, _ = load()
    sampler = Sampler(backends, hz, lambda name, attributes: 0, 0)
    sampler.tick(time.monotonic_ns())
    begin, cpu, rows = time.monotonic(), time.process_time(), 0
    end = begin + seconds
    while time.monotonic() < end:
        rows += len(sampler.tick(time.monotonic_ns()))
        time.sleep(max(sampler.next_ns - time.monotonic_ns(), 0) / 1e9)
    passed = time.monotonic() - begin
    share = (time.process_time() - cpu) / passed
    found = {"devices": len(sampler.devices), "cpu_share": share, "rows_per_s": rows / passed}
    sampler.close()
    return found


def tables(figures: dict[str, Any]) -> str:
    """One row per number of GPUs and rate."""
    heads = ("devices", "readings of each per second", "rows per second", "CPU, share of a core")
    names = {0: "the host", 1: "1 GPU and the host"}
    return table(
        heads,
        (
            (
                names.get(row["gpus"], f"{row['gpus']} GPUs and the host"),
                f"{row['hz']}",
                f"{row['rows_per_s']:.0f}",
                f"{row['cpu_share']:.2%}",
            )
            for row in figures["rows"]
        ),
    )


if __name__ == "__main__":
    main(measure, tables)
