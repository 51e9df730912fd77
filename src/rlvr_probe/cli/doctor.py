"""``rlvr-probe doctor``: whether a run in this Python would be recorded whole."""

from __future__ import annotations

import argparse
import json
import shutil
import sys

from rlvr_probe.cli import Subparsers

__all__ = ["add_parser", "execute"]

_WIDTH = 100


def add_parser(subparsers: Subparsers) -> None:
    """Add the arguments of ``doctor``."""
    parser = subparsers.add_parser(
        "doctor",
        help="check that a run in this Python will be recorded whole",
        description="Examine this Python as a run would find it: frameworks and their hook "
        "points, start-up hook, folder of recordings, settings, GPU library. Nothing is imported "
        "of a framework and nothing is recorded. Exits 1 if something will not be recorded.",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="folder of recordings to look at (default: ./rlvr-probe-runs)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON (documented, stable)")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Examine this Python, say what was found and return the exit code."""
    from rlvr_probe.cli import OK, UNSOUND
    from rlvr_probe.doctor import examine, lay_out
    from rlvr_probe.report.render import draw

    # Looking for a framework would arm the start-up hook of a shell that has it switched on.
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if type(finder).__module__ != "rlvr_probe._boot"
    ]
    found = examine(out=args.out)
    if args.json:
        print(json.dumps(found.to_json(), indent=2, allow_nan=False))
    else:
        width = min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDTH)
        draw(lay_out(found, width=width, marks=_has_marks()), sys.stdout, wrap=False)
    return UNSOUND if found.problems else OK


def _has_marks() -> bool:
    try:
        "✓✗·".encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeError):
        return False
    return True
