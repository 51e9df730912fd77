"""``rlvr-probe validate``: whether a workload directory keeps to its format."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_probe.cli import Subparsers
from rlvr_probe.exceptions import ProbeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlvr_probe.exporter import Problem, WorkloadExporter

__all__ = ["add_parser", "execute"]

SCHEMA_VERSION = 1
_SHOWN = 100


def add_parser(subparsers: Subparsers) -> None:
    """Add the arguments of ``validate``."""
    parser = subparsers.add_parser(
        "validate",
        help="check a workload directory against its format",
        description="Check a workload directory against its format: names file, line, field, what "
        "was found and what was expected. Exits 1 if there is a problem; warnings do not count.",
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="a workload directory")
    parser.add_argument("--format", metavar="FORMAT", help="its format (default: recognized)")
    parser.add_argument(
        "--steps", metavar="0,1", type=_steps, help="check these steps only; each must exist"
    )
    parser.add_argument(
        "--response-length", metavar="N", type=int, help="longest response allowed, tokens"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Validate the directory and return the exit code."""
    from rlvr_probe.cli import OK, UNSOUND
    from rlvr_probe.cli.installed_exporters import find_exporter, find_format
    from rlvr_probe.recording.files import check_readable

    check_readable(args.directory)
    if not args.directory.is_dir():
        what = "is not a directory" if args.directory.exists() else "does not exist"
        raise ProbeError(f"{args.directory} {what}; expected a workload directory")
    exporter = find_format(args.directory) if args.format is None else find_exporter(args.format)
    problems = exporter.validate(
        args.directory, steps=args.steps, response_cap=args.response_length
    )
    sound = all(problem.warning for problem in problems)
    if args.json:
        found = {
            "schema_version": SCHEMA_VERSION,
            "directory": str(args.directory),
            "format": exporter.name,
            "sound": sound,
            "problems": [asdict(problem) for problem in problems],
        }
        print(json.dumps(found, indent=2))
    else:
        _print_text(args.directory, exporter, problems)
    return OK if sound else UNSOUND


def _steps(text: str) -> list[int]:
    try:
        steps = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers like 0,1") from None
    if steps[0] < 0:
        raise argparse.ArgumentTypeError("steps count from 0")
    return steps


def _print_text(directory: Path, exporter: WorkloadExporter, problems: Sequence[Problem]) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    for problem in problems[:_SHOWN]:
        text = f"{'warning: ' if problem.warning else ''}{problem}"
        shown = "".join(c if c.isprintable() else "?" for c in text)
        print(shown.encode(encoding, "replace").decode(encoding))
    if len(problems) > _SHOWN:
        print(f"... {len(problems) - _SHOWN:,} more; --json prints all")
    warnings = sum(problem.warning for problem in problems)
    counts = f"{len(problems) - warnings:,} problems, {warnings:,} warnings"
    verdict = "sound" if warnings == len(problems) else "NOT SOUND"
    print(f"{directory}: {exporter.name} workload, {verdict}: {counts}")
