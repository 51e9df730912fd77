"""``rlvr-probe compare``: what differs between two runs, with the effect of lengths taken out."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_probe.cli import OK, UNSOUND, Subparsers, orderly
from rlvr_probe.cli.outputs import add_outputs, check_outputs, put_out
from rlvr_probe.exceptions import ProbeError

if TYPE_CHECKING:
    from rlvr_probe.analysis.comparison import Side, Steps

__all__ = ["add_parser", "execute"]


def add_parser(subparsers: Subparsers) -> None:
    """Add the arguments of ``compare``."""
    parser = subparsers.add_parser(
        "compare",
        help="show what differs between two runs, with the effect of lengths taken out",
        description="Show what two runs, or two ranges of steps of one run, were made with that"
        " differs, and which stages take longer for as many tokens, beyond what steps of one run"
        " differ by. With runs on other numbers of GPUs, which stage stops scaling. Needs the"
        " extra analysis.",
    )
    parser.add_argument(
        "runs", metavar="RUN", nargs="+",
        help="a run folder, a folder of runs: the newest, saved tables, or a run of a lake; the"
        " first is A",
    )  # fmt: skip
    parser.add_argument(
        "--steps", metavar="FIRST:LAST", type=_steps, nargs="+", default=[],
        help="steps to compare, both included: of all runs, or one range for each; of one run, two",
    )  # fmt: skip
    parser.add_argument(
        "--fail-above", metavar="SHARE", type=_limit,
        help="exit with 1 if the step, or a stage, takes longer by more, for example 5%%",
    )  # fmt: skip
    add_outputs(parser)
    parser.set_defaults(execute=execute)


def _steps(text: str) -> Steps:
    first, _, last = text.partition(":")
    if not (first.isdecimal() and last.isdecimal()) or int(first) > int(last):
        raise argparse.ArgumentTypeError(f"found {text}, expected FIRST:LAST, for example 20:80")
    return int(first), int(last)


def _limit(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 100:
        raise argparse.ArgumentTypeError(f"found {text}, expected a share, for example 5% or 0.05")
    return share


def execute(args: argparse.Namespace) -> int:
    """Compare and return the exit code."""
    from rlvr_probe.analysis.open_run import require

    require("duckdb", "compare")
    from rlvr_probe.analysis.comparison import compare
    from rlvr_probe.report.compare import lay_out_comparisons, to_document
    from rlvr_probe.report.comparison_page import comparison_page
    from rlvr_probe.storage import to_place

    check_outputs(args)
    with orderly():
        before, *others = _sides(list(map(to_place, args.runs)), args.steps)
        found = [compare(before, after) for after in others]
        failed = [] if args.fail_above is None else [
            change for comparison in found for change in comparison.fails(args.fail_above)
        ]  # fmt: skip
        blocks = lay_out_comparisons(found, failed)
        page = comparison_page(found, blocks)
        put_out(args, blocks, to_document(found, failed), page)
    return UNSOUND if failed else OK


def _sides(runs: Sequence[Path], ranges: Sequence[Steps]) -> list[Side]:
    """What is compared: each run with its steps.

    Raises:
        ProbeError: There are not two of them, or not a range for each.
    """
    if len(runs) == 1 and len(ranges) > 1:
        runs = [runs[0]] * len(ranges)
    if len(runs) < 2:
        raise ProbeError("found one run, expected two, or one with two ranges of --steps")
    if len(ranges) not in (0, 1, len(runs)):
        raise ProbeError(
            f"found {len(ranges)} ranges of --steps and {len(runs)} runs, expected one range for"
            " all, or one for each"
        )
    each = list(ranges) * (len(runs) if len(ranges) == 1 else 1)
    return [_side(run, each[place] if each else None) for place, run in enumerate(runs)]


def _side(run: Path, steps: Steps | None) -> Side:
    from rlvr_probe.analysis.comparison import read_side
    from rlvr_probe.cli.chosen_run import ReadingProgress, open_chosen

    # Causes, of which there are only those of all steps, take many questions.
    with ReadingProgress() as progress, open_chosen(run, progress, hold=steps is None) as tables:
        return read_side(tables, steps)
