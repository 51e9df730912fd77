"""What leaves a recording by ``rlvr-probe export``, for the tests that look for what must not."""

from __future__ import annotations

import contextlib
import io
import tempfile
from functools import cache
from pathlib import Path

from rlvr_probe import cli

__all__ = ["exported"]


@cache
def exported(run: Path) -> tuple[tuple[str, bytes], ...]:
    """Name and content of what each destination of traces gets of the run in ``run``."""
    plan = io.StringIO()
    with contextlib.redirect_stdout(plan), tempfile.TemporaryDirectory() as folder:
        timeline = Path(folder) / "timeline.json"
        everything = ("--dry-run", "--json", "--share", "1", "--max-trajectories", "127")
        assert cli.main(["export", str(run), "--to", "otlp", *everything]) == cli.OK
        printed = plan.getvalue().encode()
        assert cli.main(["export", str(run), "--to", "perfetto", "--out", str(timeline)]) == cli.OK
        return ("plan of otlp", printed), ("timeline of perfetto", timeline.read_bytes())
