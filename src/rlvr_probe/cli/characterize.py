"""``rlvr-probe characterize``: where the GPU-hours of a run went, and why."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_probe.cli import Subparsers, orderly
from rlvr_probe.exceptions import ProbeError, RecordingError

if TYPE_CHECKING:
    from rlvr_probe.cli.chosen_run import ReadingProgress
    from rlvr_probe.exporter import WorkloadReader
    from rlvr_probe.recording.tables import Tables

__all__ = ["add_parser", "execute"]


def add_parser(subparsers: Subparsers) -> None:
    """Add the arguments of ``characterize``."""
    parser = subparsers.add_parser(
        "characterize",
        help="show where the GPU-hours of a run went, and why",
        description="Show where the GPU time of a recorded run went, who made it wait, and what"
        " its lengths, rewards, tools and devices were like. A bare workload directory has fewer"
        " sections. Needs the extra analysis.",
    )
    parser.add_argument(
        "sources",
        metavar="SOURCE",
        type=Path,
        nargs="+",
        help="a run folder, a folder of runs: the newest, a workload directory, or saved tables;"
        " several folders of one run, where nodes kept a part of it each",
    )
    parser.add_argument(
        "--slots",
        metavar="N",
        type=_slots,
        help="sequences that one engine decodes at once, if you know (vLLM: max_num_seqs)",
    )
    parser.add_argument("--json", metavar="FILE", help="write all of it, with queries; - to print")
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="write a page for a browser, which loads nothing"
    )
    parser.add_argument(
        "--save",
        metavar="DIR",
        type=Path,
        help="keep the tables as Parquet in DIR, which is made: a SOURCE that opens fast",
    )
    parser.set_defaults(execute=execute)


def _slots(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"found {text}, expected a number from 1")
    return int(text)


def execute(args: argparse.Namespace) -> int:
    """Characterize and return the exit code."""
    from rlvr_probe.analysis.open_run import require
    from rlvr_probe.cli.chosen_run import ReadingProgress
    from rlvr_probe.config import access_of
    from rlvr_probe.exporter import check_place
    from rlvr_probe.exporter.atomic_output import check_file, placed, placed_file
    from rlvr_probe.report.render import draw

    require("duckdb", "characterize")
    from rlvr_probe.analysis.characterization import characterize
    from rlvr_probe.recording.tables import save_tables
    from rlvr_probe.report.characterize import lay_out_characterization, to_document
    from rlvr_probe.report.page import write_page

    # Before minutes of work, not after them.
    for target in (args.html, None if args.json in (None, "-") else Path(args.json)):
        if target is not None:
            check_file(target)
    if args.save is not None:
        check_place(args.save)
        if os.path.lexists(args.save):
            raise ProbeError(f"{args.save} is there already; give the name of a new directory")
    with orderly(), ReadingProgress() as progress, _tables(args.sources, progress) as tables:
        found = characterize(tables, slots=args.slots)
        if args.save is not None:
            access = access_of(os.environ)
            with placed(
                args.save, force=False, replaceable=lambda _: False, access=access
            ) as folder:
                save_tables(tables, folder)
        if args.html is not None:
            with placed_file(args.html) as path:
                write_page(path, tables, found)
        if args.json is not None:
            text = json.dumps(to_document(found), allow_nan=False)
            if args.json == "-":
                print(text)
                return 0
            with placed_file(Path(args.json)) as path:
                path.write_text(text + "\n", encoding="utf-8")
    draw(lay_out_characterization(found), sys.stdout)
    return 0


def _tables(sources: Sequence[Path], progress: ReadingProgress) -> AbstractContextManager[Tables]:
    from rlvr_probe.recording.tables import is_saved, open_saved, open_tables

    for source in sources:
        reader = _reader(source)
        if reader is None and not is_saved(source):
            continue
        if len(sources) > 1:
            kind = "saved tables" if reader is None else f"a {reader.name} workload"
            raise ProbeError(f"{source} holds {kind}; expected folders of one run, or one SOURCE")
        return open_saved(source) if reader is None else open_tables(reader.read(source))
    return open_tables(sources, progress=progress)


def _reader(source: Path) -> WorkloadReader | None:
    """The format of a workload; None of anything else. A recording is shown to no exporter."""
    from rlvr_probe.cli.chosen_run import choose_run
    from rlvr_probe.cli.installed_exporters import find_reader
    from rlvr_probe.recording import check_readable
    from rlvr_probe.recording.tables import is_saved

    check_readable(source)
    if is_saved(source):
        return None
    try:
        choose_run(source)
    except RecordingError:
        return find_reader(source) if source.is_dir() else None
    return None
