"""``rlvr-probe show``: what a run did and what it is doing."""

from __future__ import annotations

import argparse
import json
import sys

from rlvr_probe.cli import Subparsers, add_run, orderly

__all__ = ["add_parser", "execute"]

_THREADS = 2
"""Of DuckDB: this is asked while the run trains."""


def add_parser(subparsers: Subparsers) -> None:
    """Add the arguments of ``show``."""
    parser = subparsers.add_parser(
        "show",
        help="show what a run did: steps, lengths, stage times, open spans, what was lost",
        description="Show what a recorded run did, or is doing: processes, attempts, steps, "
        "lengths, stage times, open spans and what was lost. Needs the extra analysis.",
    )
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="print JSON (documented, stable)")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Show the run and return the exit code."""
    from rlvr_probe.analysis.open_run import require

    require("duckdb", "show")
    from rlvr_probe.analysis.summary import summarize
    from rlvr_probe.cli.chosen_run import ReadingProgress, choose_run
    from rlvr_probe.recording.tables import open_recording
    from rlvr_probe.report import render

    folder = choose_run(args.run)
    with (
        orderly(),
        ReadingProgress() as progress,
        open_recording(folder, threads=_THREADS, progress=progress) as (trace, tables),
    ):
        summary = summarize(trace, tables)
    if args.json:
        print(json.dumps(summary, indent=2, allow_nan=False))
    else:
        render(summary, sys.stdout)
    return 0
