"""``rlvr-probe export``: what a run did, for the tools that show traces and metrics."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rlvr_probe.cli import Subparsers, add_run, orderly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlvr_probe.exporter import TraceExporter

__all__ = ["add_parser", "execute"]


def add_parser(subparsers: Subparsers) -> None:
    """Add the arguments of ``export``."""
    parser = subparsers.add_parser(
        "export",
        help="hand a recorded run to a tool that shows traces and metrics",
        description="Hand a recorded run to a tool that shows traces and metrics. Each destination "
        "has options of its own: rlvr-probe export --to NAME --help.",
        allow_abbrev=False,
    )
    add_run(parser)
    parser.add_argument("--to", metavar="NAME", required=True, help="destination, e.g. otlp")
    parser.extend = _extend
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Export the run and return the exit code."""
    from rlvr_probe.cli.chosen_run import read_chosen

    exporter: TraceExporter = args.exporter
    folder, trace = read_chosen(args.run)
    with orderly():
        for line in exporter.export(trace, folder, args):
            print(line)
    return 0


def _extend(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Add the options of the destination that ``arguments`` name."""
    name = None
    for at, word in enumerate(arguments, 1):
        if word == "--to" and at < len(arguments):
            name = arguments[at]
        elif word.startswith("--to="):
            name = word.partition("=")[2]
    if name is None:
        return
    from rlvr_probe.cli.installed_exporters import find_trace_exporter

    exporter = find_trace_exporter(name)
    exporter.add_arguments(parser)
    parser.set_defaults(exporter=exporter)
