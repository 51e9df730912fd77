"""Which run a command is about, and what of a folder of runs may not be looked at."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["choose_run"]


def choose_run(path: Path) -> Path:
    """The run folder that ``path`` means: itself, or the newest of the runs in it.

    Says on stderr which one may be newer, if the user may not read it.

    Raises:
        RecordingError: There is none, or none that the user may read.
    """
    from rlvr_probe.access import whose
    from rlvr_probe.recording import find_run, list_denied

    run = find_run(path)
    denied = list_denied(path, run)
    if denied:
        newest, *others = denied
        more = f" (and {len(others):,} more)" if others else ""
        said = (
            f"{newest.name}{more} may be newer and may not be read: it {whose(newest)}; this is"
            f" {run.name}"
        )
        line = "".join(c if c.isprintable() else " " for c in said)
        print(f"rlvr-probe: warning: {line}", file=sys.stderr)
    return run
