"""What a live export costs that begins anew: it reads the run from its beginning.

    python -m tests.bench.reread [MB ...]

Everything was sent already, so that nothing is sent: what is left is reading, and planning each
step once more.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

from rlvr_probe_otlp.live import LiveExport
from rlvr_probe_otlp.wire.offsets import Offsets

from rlvr_probe.recording.follow.window import Window
from tests.journals import BOOT, fake_proc
from tests.synthetic import write_recording

__all__ = ["measure"]

_READ_B = 8 << 20
_STEP_B = 270_000
"""About what a step of this recording takes."""


def measure(size_b: int) -> dict[str, Any]:
    """Processor time, bytes read and memory for a run of about ``size_b`` bytes."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        written = write_recording(
            place / "run", steps=max(1, size_b // _STEP_B), ranks=2, trajectories=64,
            fine_spans=2_000,
        )  # fmt: skip
        window = Window(place / "run", fake_proc(place / "proc", BOOT))
        window.finish()
        session = LiveExport(place / "run", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
        began, before_b = time.process_time(), _read_b()
        with mock.patch.object(Offsets, "has", return_value=True):
            steps = _hand_over(window, session)
        cpu_s = time.process_time() - began
        read_b = _read_b() - before_b
        window.close()
    return {
        "mb": round(written.journal_b / 1e6),
        "rows": written.rows,
        "steps": steps,
        "cpu_s": round(cpu_s, 1),
        "rows_per_s": round(written.rows / cpu_s),
        "read": round(read_b / written.journal_b, 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def _hand_over(window: Window, session: LiveExport) -> int:
    steps = 0
    while True:
        behind = window.read(_READ_B)
        over = window.over()
        if over is not None:
            session.steps(over.window, over.steps, over.until_ns)
            window.forget(over)
            steps += len(over.steps)
        elif not behind:
            return steps


def _read_b() -> int:
    """Bytes that this process has read, whether they were cached or not."""
    text = Path("/proc/self/io").read_text(encoding="ascii")
    return int(text.split()[1])


if __name__ == "__main__":
    for megabytes in map(int, sys.argv[1:] or ("20", "400")):
        print(measure(megabytes * 1_000_000), flush=True)
