"""``rlvr-probe convert``: a recorded run as a workload that others can replay."""

from __future__ import annotations

import argparse
import errno
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_probe.cli import Subparsers, add_run, orderly
from rlvr_probe.exceptions import ProbeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlvr_probe.model.workload import LeftOut

__all__ = ["add_parser", "execute"]


def add_parser(subparsers: Subparsers) -> None:
    """Add the arguments of ``convert``."""
    parser = subparsers.add_parser(
        "convert",
        help="turn a recorded run into a workload that others can replay",
        description="Turn the complete steps of a recorded run into a workload, each step once. "
        "Names of reward functions and tools become aliases and the kind of model is omitted, so "
        "that it can be shared.",
    )
    add_run(parser)
    parser.add_argument("--to", metavar="FORMAT", required=True, help="format, e.g. polytrace")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, required=True, help="directory to make; must not exist"
    )
    parser.add_argument(
        "--force", action="store_true", help="replace DIR if it is empty or such a workload"
    )
    parser.add_argument(
        "--keep-names", action="store_true", help="keep names instead of aliases: do not share it"
    )
    parser.add_argument(
        "--attempt", metavar="K", type=int, help="this attempt alone, as numbered by show"
    )
    parser.add_argument(
        "--flavor",
        metavar="NAME",
        help="one of the format's ways to say a workload, e.g. packed or multiturn; "
        "by default the one that fits what was recorded",
    )
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Convert the run and return the exit code."""
    from rlvr_probe.cli.chosen_run import read_chosen
    from rlvr_probe.cli.installed_exporters import find_exporter
    from rlvr_probe.exporter.atomic_output import check_free, placed
    from rlvr_probe.workload import build_workload

    exporter = find_exporter(args.to)
    if args.flavor is not None and args.flavor not in exporter.flavors:
        known = ", ".join(exporter.flavors) or "none: omit --flavor"
        raise ProbeError(f"{args.to} has no flavor {args.flavor!r}; it has {known}")
    check_free(args.out, force=args.force, replaceable=exporter.recognizes)
    _, trace = read_chosen(args.run)
    workload = build_workload(trace, attempt=args.attempt)
    try:
        with (
            orderly(),
            placed(args.out, force=args.force, replaceable=exporter.recognizes) as directory,
        ):
            written = exporter.write(
                workload, directory, keep_names=args.keep_names, flavor=args.flavor
            )
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "; nothing was left behind" if full else ""
        raise ProbeError(f"{args.out} cannot be written: {error.strerror or error}{hint}") from None
    print(
        f"{args.out}: {exporter.name} workload of {written.steps:,} batches,"
        f" {written.groups:,} groups, {written.trajectories:,} trajectories"
        f" ({written.files:,} files)"
    )
    # The format repeats the notes it writes down itself.
    for line in dict.fromkeys((*_left_out(workload.left_out), *workload.notes, *written.notes)):
        print(f"  {line}")
    return 0


def _left_out(items: Sequence[LeftOut]) -> list[str]:
    """One line per kind of thing omitted, with how often and how many trajectories."""
    from rlvr_probe.workload.notes import REASONS

    times, rows = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for item in items:
        times[item.what, item.reason] += 1
        rows[item.what, item.reason] += item.count
    return [
        f"omitted: {count:,} x {what}"
        + ("" if reason == what else f" {REASONS[reason].why}")
        + f", {rows[what, reason]:,} trajectories"
        for (what, reason), count in times.items()
    ]
