"""``rlvr-probe show``: what a run did and what it is doing."""

from __future__ import annotations

import argparse
import json
import sys

from rlvr_probe.cli import Subparsers, add_run

__all__ = ["add_parser", "execute"]


def add_parser(subparsers: Subparsers) -> None:
    """Add the arguments of ``show``."""
    parser = subparsers.add_parser(
        "show",
        help="show what a run did: steps, lengths, stage times, open spans, what was lost",
        description="Show what a recorded run did, or is doing: processes, attempts, steps, "
        "lengths, stage times, open spans and what was lost.",
    )
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="print JSON (documented, stable)")
    parser.set_defaults(execute=execute, parser=parser)


def execute(args: argparse.Namespace) -> int:
    """Show the run and return the exit code."""
    from rlvr_probe.analysis.summary import summarize
    from rlvr_probe.cli.recordings import ReadingProgress, choose_run
    from rlvr_probe.recording import read_run
    from rlvr_probe.report import render

    folder = choose_run(args.run)
    with ReadingProgress() as progress:
        summary = summarize(read_run(folder, progress=progress))
    if args.json:
        json.dump(summary, sys.stdout, indent=2, allow_nan=False)
        print()
    else:
        render(summary, sys.stdout)
    return 0
