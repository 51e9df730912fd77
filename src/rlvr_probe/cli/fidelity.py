"""``rlvr-probe fidelity``: how like a recorded run its replays are."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_probe.cli import OK, Subparsers, orderly
from rlvr_probe.cli.outputs import add_outputs, check_outputs, put_out

if TYPE_CHECKING:
    from rlvr_probe.analysis.fidelity import Card, Kind, Run

__all__ = ["add_parser", "execute", "make_cards"]


def add_parser(subparsers: Subparsers) -> None:
    """Add the arguments of ``fidelity``."""
    parser = subparsers.add_parser(
        "fidelity",
        help="show how like a recorded run its replays are",
        description="Show how like the steps of a recorded run those of its replays are: lengths,"
        " the time of each stage without what slept, where GPU time went, what was in flight."
        " Needs the extra analysis.",
    )
    parser.add_argument(
        "recorded", metavar="RECORDED", type=Path,
        help="a run folder, a folder of runs: the newest, saved tables, or a log of verl",
    )  # fmt: skip
    parser.add_argument(
        "replayed", metavar="REPLAYED", type=Path, nargs="+",
        help="the same of what replay recorded, or the log of a PolyTrace replay",
    )  # fmt: skip
    parser.add_argument(
        "--ceiling", metavar="AGAIN", type=Path, nargs="+", default=[],
        help="the original command, recorded again: no replay can be more alike",
    )  # fmt: skip
    parser.add_argument(
        "--naive", metavar="NAIVE", type=Path, nargs="+", default=[],
        help="what replay --naive recorded, which a replay has to be better than",
    )  # fmt: skip
    add_outputs(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Show the cards and return the exit code."""
    from rlvr_probe.analysis.open_run import require

    require("duckdb", "fidelity")
    from rlvr_probe.report.blocks_page import page
    from rlvr_probe.report.fidelity import lay_out_cards, to_document

    check_outputs(args)
    with orderly():
        cards = make_cards(args.recorded, args.replayed, args.ceiling, args.naive)
        blocks = lay_out_cards(cards)
        title = f"{cards[0].run.source} by {cards[0].recorded.source}"
        put_out(args, blocks, to_document(cards), page(title, blocks))
    return OK


def make_cards(
    recorded: Path,
    replayed: Sequence[Path],
    ceiling: Sequence[Path] = (),
    naive: Sequence[Path] = (),
) -> list[Card]:
    """A card for each run beside the recorded one, the replays first.

    Raises:
        ProbeError: A run cannot be read, or its steps do not belong to recorded ones.
    """
    from rlvr_probe.analysis.fidelity import make_card

    kinds: dict[Kind, Sequence[Path]] = {"replay": replayed, "ceiling": ceiling, "naive": naive}
    original = _read(recorded)
    runs: list[tuple[Run, Kind]] = [
        (_read(path), kind) for kind, paths in kinds.items() for path in paths
    ]
    slept = sorted({what for run, _ in runs if run.note is not None for what in run.note.slept})
    return [make_card(original, run, kind, slept) for run, kind in runs]


def _read(path: Path) -> Run:
    from rlvr_probe.analysis.fidelity import read_log, read_run
    from rlvr_probe.cli.chosen_run import ReadingProgress, choose_run
    from rlvr_probe.model.replay_note import read_note
    from rlvr_probe.recording import check_readable
    from rlvr_probe.recording.tables import is_saved, open_saved, open_tables

    check_readable(path)
    if path.is_file():
        return read_log(path)
    if is_saved(path):
        with open_saved(path) as tables:
            return read_run(tables)
    folder = choose_run(path)
    with ReadingProgress() as progress, open_tables(folder, progress=progress) as tables:
        return read_run(tables, read_note(folder))
