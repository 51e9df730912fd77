"""``rlvr-probe stuck``: what a run is doing, and whether that takes unusually long."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from math import nan
from typing import TYPE_CHECKING

from rlvr_probe.cli import Subparsers, add_run

if TYPE_CHECKING:
    from rlvr_probe.analysis.finding import Finding
    from rlvr_probe.analysis.limits import Fallback
    from rlvr_probe.recording.follow.activity import Activity

__all__ = ["add_parser", "execute"]

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"
_AFTER_S, _TIMES = 600.0, 10.0
"""Defaults of :class:`~rlvr_probe.analysis.limits.Fallback`, which the parser does not load."""


def add_parser(subparsers: Subparsers) -> None:
    """Add the arguments of ``stuck``."""
    parser = subparsers.add_parser(
        "stuck",
        help="show what a run is doing, for how long compared with its past, and who is suspect",
        description="Show what is open in a run that goes on, or was when it ended: for how long"
        " against the 99th percentile of its own past, in which process; what a trainer does"
        " between two steps counts as open. Where fewer than 20 of a kind ended, the settings"
        " below decide. With py-spy installed, and the right to use it, show where the suspect's"
        " thread is. Exits with 1 if something is stuck, or its processes are gone and no training"
        " returned.",
    )
    add_run(parser)
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        type=_between(0.1, 3600, "seconds"),
        nargs="?",
        const=2.0,
        help="look again every SECONDS (2), until interrupted",
    )
    parser.add_argument(
        "--unknown-after",
        metavar="SECONDS",
        type=_between(1, 1e9, "seconds"),
        default=_AFTER_S,
        help="where fewer than 20 of a kind ended, what is open for SECONDS is stuck"
        f" ({_AFTER_S:g}), but not before 3 times the longest of them",
    )
    parser.add_argument(
        "--unknown-times",
        metavar="N",
        type=_between(3, 1e9, "times"),
        default=_TIMES,
        help="and so is what is open for N times the longest of them and for 120 seconds"
        f" ({_TIMES:g})",
    )
    parser.add_argument("--no-stacks", action="store_true", help="do not run py-spy")
    parser.add_argument("--json", action="store_true", help="print JSON, with --watch one per line")
    parser.set_defaults(execute=execute)


def _between(least: float, most: float, unit: str) -> Callable[[str], float]:
    """What reads a number that an argument may be."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"found {text}, expected {least:g} to {most:g} {unit}")
        return value

    return read


def execute(args: argparse.Namespace) -> int:
    """Look, once or again and again, and return the exit code."""
    from rlvr_probe.analysis.limits import Fallback
    from rlvr_probe.analysis.stuck import is_stuck
    from rlvr_probe.cli import OK, UNSOUND
    from rlvr_probe.cli.chosen_run import choose_run
    from rlvr_probe.recording.follow.activity import Activity

    pulse = Activity(choose_run(args.run))
    fallback = Fallback(args.unknown_after, args.unknown_times)
    try:
        while True:
            found = _look(pulse, args, fallback)
            if args.watch is None:
                return UNSOUND if is_stuck(found) else OK
            time.sleep(args.watch)
    finally:
        pulse.close()


def _look(pulse: Activity, args: argparse.Namespace, fallback: Fallback) -> list[Finding]:
    from rlvr_probe.analysis.finding import standing_of
    from rlvr_probe.analysis.stuck import examine
    from rlvr_probe.cli.stacks import stacks_of
    from rlvr_probe.report.render import draw
    from rlvr_probe.report.stuck import lay_out_stuck, stuck_document

    members = pulse.read()
    found = examine(members, pulse.machine.boot, pulse.machine.now_ns(), fallback)
    standing = standing_of(members, found, time.time_ns())
    run = members[0].header.run if members else pulse.folder.name
    stacks, hint = ({}, "") if args.no_stacks else stacks_of(found)
    if args.json:
        document = stuck_document(run, found, standing, stacks)
        indent = None if args.watch else 2
        print(json.dumps(document, indent=indent, allow_nan=False), flush=True)
        return found
    if args.watch and sys.stdout.isatty():
        sys.stdout.write(_CLEAR)
    draw(lay_out_stuck(run, found, standing, stacks, hint), sys.stdout)
    sys.stdout.flush()
    return found
