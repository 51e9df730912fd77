"""``rlvr-probe characterize``: where the GPU-hours of a run went, and why."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_probe.cli import Subparsers, complain, orderly
from rlvr_probe.exceptions import ProbeError, RecordingError

if TYPE_CHECKING:
    from rlvr_probe.analysis.characterization import Engine
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
        nargs="+",
        help="a run folder, a folder of runs: the newest, a workload directory, saved tables, or a"
        " run of a lake; several folders of one run, where nodes kept a part of it each",
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
    parser.add_argument(
        "--lake",
        metavar="LAKE",
        help="keep them in a lake of runs, in place of what it has of this one: a folder, or a"
        " place such as s3://bucket/name",
    )
    parser.add_argument(
        "--engine",
        metavar="ENGINE",
        type=_engine,
        default="duckdb",
        help="duckdb: this machine, which is the default; ray: the Ray cluster of RAY_ADDRESS or of"
        " this machine, or a new one here; ray://HOST:PORT: that cluster",
    )
    parser.set_defaults(execute=execute)


def _engine(text: str) -> str:
    if text not in ("duckdb", "ray") and not re.fullmatch(r"ray://[^/\s]+", text):
        raise argparse.ArgumentTypeError(f"found {text}, expected duckdb, ray or ray://HOST:PORT")
    return text


def _slots(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"found {text}, expected a number from 1")
    return int(text)


def execute(args: argparse.Namespace) -> int:
    """Characterize and return the exit code."""
    from rlvr_probe.analysis.open_run import require
    from rlvr_probe.cli.chosen_run import ReadingProgress
    from rlvr_probe.exporter import check_place
    from rlvr_probe.exporter.atomic_output import check_file, placed_file
    from rlvr_probe.report.render import draw

    require("duckdb", "characterize")
    from rlvr_probe.analysis.characterization import characterize
    from rlvr_probe.analysis.run_summary import summary_of
    from rlvr_probe.recording.lake import TABLES, put_summary, run_folder
    from rlvr_probe.report.characterize import lay_out_characterization, to_document
    from rlvr_probe.report.page import write_page
    from rlvr_probe.storage import to_place

    # Before minutes of work, not after them.
    for target in (args.html, None if args.json in (None, "-") else Path(args.json)):
        if target is not None:
            check_file(target)
    if args.save is not None:
        check_place(args.save)
        if os.path.lexists(args.save):
            raise ProbeError(f"{args.save} is there already; give the name of a new directory")
    lake = None if args.lake is None else to_place(args.lake)
    sources = [to_place(source) for source in args.sources]
    with (
        orderly(),
        ReadingProgress() as progress,
        _started(args.engine, made=bool(args.save or lake or args.html)) as engine,
        _tables(sources, progress, engine) as tables,
    ):
        found = characterize(tables, slots=args.slots, engine=engine)
        if args.save is not None:
            _save(tables, args.save, force=False)
        if lake is not None:
            _save(tables, run_folder(lake, tables.source) / TABLES, force=True)
            put_summary(lake, tables.source, summary_of(tables, found))
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


def _save(tables: Tables, place: Path, *, force: bool) -> None:
    """Keep the tables in a new folder; with ``force`` in place of others."""
    from rlvr_probe.config import access_of
    from rlvr_probe.exporter.atomic_output import placed
    from rlvr_probe.recording.tables import is_saved, save_tables
    from rlvr_probe.storage import is_remote

    if is_remote(place):
        save_tables(tables, place)
        return
    with placed(place, force=force, replaceable=is_saved, access=access_of(os.environ)) as folder:
        save_tables(tables, folder)


@contextmanager
def _started(name: str, *, made: bool) -> Iterator[Engine]:
    """The engine of that name; ``made``: the tables get what was made for the answers."""
    from rlvr_probe.analysis.characterization import HERE
    from rlvr_probe.analysis.open_run import require

    if name == "duckdb":
        yield HERE
        return
    require("ray", f"--engine {name}")
    from rlvr_probe.analysis.ray_engine import on_ray

    with on_ray(None if name == "ray" else name, complain, made=made) as engine:
        yield engine


@contextmanager
def _tables(sources: Sequence[Path], progress: ReadingProgress, engine: Engine) -> Iterator[Tables]:
    from rlvr_probe.cli.chosen_run import choose_run, open_chosen
    from rlvr_probe.recording.lake import tables_in
    from rlvr_probe.recording.tables import open_tables

    kinds = [(source, _reader(source)) for source in sources]
    for source, reader in kinds if len(sources) > 1 else ():
        if reader is not None or tables_in(source) is not None:
            kind = "saved tables" if reader is None else f"a {reader.name} workload"
            raise ProbeError(f"{source} holds {kind}; expected folders of one run, or one SOURCE")
    [(source, reader), *more] = kinds
    with (
        open_tables(
            list(map(choose_run, sources)), threads=engine.threads, progress=progress,
            decode=engine.decode,
        ) if more
        else open_tables(reader.read(source)) if reader is not None
        else open_chosen(source, progress, hold=True, engine=engine) as tables
    ):  # fmt: skip
        yield tables


def _reader(source: Path) -> WorkloadReader | None:
    """The format of a workload; None of anything else. A recording is shown to no exporter."""
    from rlvr_probe.cli.installed_exporters import find_reader
    from rlvr_probe.recording import check_readable, find_run
    from rlvr_probe.recording.lake import tables_in
    from rlvr_probe.storage import is_remote

    check_readable(source)
    if is_remote(source) or tables_in(source) is not None:
        return None
    try:
        find_run(source)
    except RecordingError:
        return find_reader(source) if source.is_dir() else None
    return None
