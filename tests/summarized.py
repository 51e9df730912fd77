"""What ``rlvr-probe show --json`` says of a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlvr_probe.analysis.summary import summarize
from rlvr_probe.recording.process_state import Machine
from rlvr_probe.recording.tables import open_recording

__all__ = ["summary_of"]


def summary_of(run: Path, *, machine: Machine | None = None) -> dict[str, Any]:
    """The summary of the run in a folder; ``machine`` is where its processes may still run."""
    with open_recording(run, threads=1, machine=machine) as (trace, tables):
        return summarize(trace, tables)
