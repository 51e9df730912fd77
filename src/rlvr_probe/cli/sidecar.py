"""``rlvr-probe sidecar``: be the sidecar of a run by hand."""

from __future__ import annotations

import argparse
import math

from rlvr_probe.cli import Subparsers, add_run

__all__ = ["add_parser", "execute"]


def add_parser(subparsers: Subparsers) -> None:
    """Add the arguments of ``sidecar``."""
    parser = subparsers.add_parser(
        "sidecar",
        help="run the sidecar of a run here: read GPUs, compact and move finished files",
        description="Run the sidecar of a run on this node, as the processes of the run start one "
        "by themselves: read the counters of its GPUs into the recording, compact what is "
        "finished, move what lies in a spool on this node, and end when no process of the run "
        "writes any more. Of a run that has ended it compacts what is left, of every node.",
    )
    add_run(parser)
    parser.add_argument(
        "--gpu-hz", metavar="HZ", help="how often GPUs are read, 0.2 to 9; 0: not at all"
    )
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Be the sidecar to the end, and return the exit code."""
    from rlvr_probe.cli import INTERRUPTED, OK
    from rlvr_probe.cli.chosen_run import choose_run
    from rlvr_probe.config import Config
    from rlvr_probe.exceptions import RecordingError
    from rlvr_probe.filesystem import reach
    from rlvr_probe.sidecar.startup import Lock, serve, stand_back
    from rlvr_probe.spool import find

    config = Config.from_environ(gpu_hz=args.gpu_hz)
    folder = reach(choose_run(args.run))[0]
    stand_back()
    # What was moved is then a run without a spool, with files of other nodes.
    spool, reason = find(folder), "exit"
    for place in (spool, None) if spool is not None else (None,):
        lock = Lock.take(folder)
        if not isinstance(lock, Lock):
            raise RecordingError(
                f"{folder.name} has a sidecar on this node already"
                f"{f', process {lock}' if lock else ''}; it ends by itself when the run does"
            )
        where = "" if place is None else f", moves {place}"
        print(
            f"sidecar of {folder.name}{where}; ends when no process of it writes any more",
            flush=True,
        )
        reason = serve(
            folder, config, lock, last_s=math.inf, move_s=math.inf, spool=place, every_node=True
        )
        if reason != "exit":
            break
    print(f"left {folder.name}: {_REASONS[reason]}")
    return INTERRUPTED if reason == "signal" else OK


_REASONS = {
    "exit": "no process of it writes any more on this node",
    "lock": "its lock was deleted",
    "signal": "interrupted",
}
