"""``rlvr-probe stuck``: what a run is at now, and whether that takes unusually long."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from rlvr_probe.analysis.stuck import Finding
    from rlvr_probe.trace.pulse import Pulse

__all__ = ["add_parser", "execute"]

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the arguments of ``stuck``."""
    parser = subparsers.add_parser(
        "stuck",
        help="say what a run is at now, for how long against its own past, and who is suspect",
        description="Show what is open in a run that goes on, or was when it ended: for how long"
        " against the 99th percentile of its own past, in which process. With py-spy installed, and"
        " the right to use it, show where the suspect's thread is. Exits with 1 if something is"
        " stuck.",
    )
    parser.add_argument(
        "run", metavar="RUN", type=Path, help="a run folder, or a folder of runs: the newest"
    )
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        type=_seconds,
        nargs="?",
        const=2.0,
        help="look again every SECONDS (2), until interrupted",
    )
    parser.add_argument("--no-stacks", action="store_true", help="do not run py-spy")
    parser.add_argument("--json", action="store_true", help="print JSON, with --watch one per line")
    parser.set_defaults(execute=execute, parser=parser)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"found {text}, expected 0.1 to 3600 seconds")
    return value


def execute(args: argparse.Namespace) -> int:
    """Look, once or again and again, and return the exit code."""
    from rlvr_probe.analysis.stuck import is_stuck
    from rlvr_probe.cli import OK, UNSOUND
    from rlvr_probe.trace import find_run
    from rlvr_probe.trace.pulse import Pulse

    pulse = Pulse(find_run(args.run))
    try:
        while True:
            found = _look(pulse, args)
            if args.watch is None:
                return UNSOUND if is_stuck(found) else OK
            time.sleep(args.watch)
    finally:
        pulse.close()


def _look(pulse: Pulse, args: argparse.Namespace) -> list[Finding]:
    from rlvr_probe.analysis.stuck import examine
    from rlvr_probe.cli.stacks import stacks_of
    from rlvr_probe.report.render import draw
    from rlvr_probe.report.stuck import lay_out_stuck, stuck_document

    members = pulse.read()
    found = examine(members, pulse.machine.boot, pulse.machine.now_ns())
    run = members[0].header.run if members else pulse.folder.name
    stacks, hint = ({}, "") if args.no_stacks else stacks_of(found)
    if args.json:
        document = stuck_document(run, found, stacks)
        json.dump(document, sys.stdout, indent=None if args.watch else 2, allow_nan=False)
        print(flush=True)
        return found
    if args.watch and sys.stdout.isatty():
        sys.stdout.write(_CLEAR)
    draw(lay_out_stuck(run, found, stacks, hint), sys.stdout)
    sys.stdout.flush()
    return found
