"""``rlvr-probe upload``: put a run into a lake in object storage, as far as it is not there."""

from __future__ import annotations

import argparse

from rlvr_probe.cli import Subparsers, add_run

__all__ = ["add_parser", "execute"]


def add_parser(subparsers: Subparsers) -> None:
    """Add the arguments of ``upload``."""
    parser = subparsers.add_parser(
        "upload",
        help="put the files of a run into a lake in object storage",
        description="Upload what a lake lacks of a run, to its end. The sidecar of a run with"
        " RLVR_PROBE_UPLOAD does the same as it goes on; this is the last command of a container,"
        " which ends with its first process.",
    )
    add_run(parser)
    parser.add_argument("lake", metavar="LAKE", help="a place such as s3://bucket/name")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Upload the run and return the exit code."""
    from rlvr_probe.cli import OK, complain
    from rlvr_probe.cli.chosen_run import choose_run
    from rlvr_probe.exceptions import ProbeError, RecordingError, StorageError
    from rlvr_probe.filesystem import reach
    from rlvr_probe.sidecar.uploader import Uploader
    from rlvr_probe.spool import find
    from rlvr_probe.storage import is_remote, to_place

    if not is_remote(args.lake):
        raise ProbeError(f"found {args.lake}, expected a place such as s3://bucket/name")
    folder = reach(choose_run(args.run))[0]
    if find(folder) is not None:
        complain(f"warning: a part of it waits in a spool; rlvr-probe sidecar {folder} moves it")
    uploader = Uploader(folder, to_place(args.lake))
    try:
        if not uploader.round(whole=True):
            raise RecordingError(f"{folder} says in no file which run it is; nothing was uploaded")
    except StorageError as error:
        raise ProbeError(
            f"{uploader.sent} files were uploaded and then no more: {error}; the same command"
            " continues"
        ) from None
    files = "1 file" if uploader.sent == 1 else f"{uploader.sent:,} files"
    print(f"{folder.name}: {files} uploaded, {uploader.sent_b / 1e6:,.1f} MB")
    return OK
