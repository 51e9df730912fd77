"""``rlvr-probe run``: a command recorded without a line of it changed."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from rlvr_probe.cli import Subparsers
from rlvr_probe.exceptions import ConfigError, ProbeError

if TYPE_CHECKING:
    from rlvr_probe.config import Config

__all__ = ["add_parser", "execute"]

USAGE = 2

_MEANT_FOR_MANY = "OTEL_EXPORTER_"
"""Variables that a program of the user's may read as well, so that they may be set for that."""


def add_parser(subparsers: Subparsers) -> None:
    """Add the arguments of ``run``."""
    parser = subparsers.add_parser(
        "run",
        help="run a command and record every Python process in it",
        usage="rlvr-probe run [--out DIR] [--run-id ID] [--frameworks A,B] -- COMMAND...",
        description="Run COMMAND and record every Python process in it that trains with a "
        "supported framework. Its terminal, signals and exit status are its own.",
        epilog="Exit status: that of COMMAND, 128+n if signal n ended it, 127 if it was not found, "
        "126 if it could not be executed, 2 for wrong usage.",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="folder of recordings (default: ./rlvr-probe-runs)"
    )
    parser.add_argument(
        "--run-id", metavar="ID", help="name of this run's folder in DIR (default: derived)"
    )
    parser.add_argument(
        "--frameworks", metavar="A,B", help="record these only (default: every supported one)"
    )
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER)
    parser.set_defaults(execute=execute, parser=parser)


def execute(args: argparse.Namespace) -> int:
    """Run the command to its end and return its exit status."""
    command = list(args.command)
    # Whether the separator stays in depends on the version of Python.
    if command[:1] == ["--"]:
        del command[0]
    if not command:
        args.parser.print_usage(sys.stderr)
        print("rlvr-probe run: error: COMMAND is missing", file=sys.stderr)
        return USAGE
    from rlvr_probe.launch import launch

    try:
        status = launch(
            command,
            out=args.out,
            run_id=args.run_id,
            frameworks=args.frameworks,
            first=_before,
        )
    except ConfigError as error:
        print(f"rlvr-probe run: error: {error}", file=sys.stderr)
        return USAGE
    if sys.stdout is None:
        # Closed by the process that started us. What ends every command flushes it.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for good
    return status


def _before(config: Config) -> str:
    """Look at where the run goes as it goes on; what to say of that.

    Raises:
        ConfigError: The lake cannot be reached, which the sidecar would find out hours later.
    """
    if config.sidecar and config.upload is not None:
        from rlvr_probe.storage import to_place

        try:
            to_place(config.upload)
        except ProbeError as error:
            raise ConfigError(f"RLVR_PROBE_UPLOAD: {error}") from None
    return _sent_meanwhile(config)


def _sent_meanwhile(config: Config) -> str:
    """Which exporters get the steps of the run, for a user who may not have meant that."""
    is_set = any(name.startswith(_MEANT_FOR_MANY) for name in os.environ)
    if not (config.sidecar and config.live and is_set):
        return ""
    from rlvr_probe.sidecar.live import wanted

    names, _ = wanted(os.environ)
    if not names:
        return ""
    return (
        f"each step is sent to {', '.join(names)} when it is over, as {_MEANT_FOR_MANY}* asks:"
        " names and numbers, no text; RLVR_PROBE_LIVE=0 keeps it here"
    )
