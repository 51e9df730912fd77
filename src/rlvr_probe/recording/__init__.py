"""Reads a recording: journals of many processes in, one :class:`~rlvr_probe.model.trace.Trace` out.

Whatever a killed process, a full disk or a careless copy left behind is read as far as it is sound,
and the rest is counted. What must never be mixed (two runs in one folder, a newer format) raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr_probe.recording.files import check_readable, find_run, list_denied

if TYPE_CHECKING:
    from rlvr_probe.recording.trace import read_run

__all__ = ["check_readable", "find_run", "list_denied", "read_run"]


def __getattr__(name: str) -> object:
    # Loaded at first use: who lists a lake reads no recording.
    if name != "read_run":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rlvr_probe.recording.trace import read_run

    globals()[name] = read_run
    return read_run
