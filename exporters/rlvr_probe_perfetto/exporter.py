"""The destination ``perfetto`` of ``rlvr-probe export``."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

from rlvr_probe.model.trace import Trace
from rlvr_probe_perfetto.drawing import Limits, draw
from rlvr_probe_perfetto.placing import check_free, placed
from rlvr_probe_perfetto.scope import Scope

__all__ = ["PerfettoExporter"]


class PerfettoExporter:
    """A :class:`~rlvr_probe.exporter.TraceExporter` for the Perfetto UI and Firefox Profiler."""

    name = "perfetto"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add where to, and how much."""
        defaults = Limits()
        parser.add_argument(
            "--out",
            metavar="FILE",
            type=Path,
            required=True,
            help="file to make; must not exist; compressed if it ends in .gz",
        )
        parser.add_argument(
            "--force", action="store_true", help="replace FILE if it is empty or a timeline"
        )
        parser.add_argument(
            "--steps", metavar="A-B", type=_steps, help="these trainer steps only, e.g. 3 or 3-5"
        )
        parser.add_argument(
            "--max-trajectories",
            metavar="N",
            type=_at_least(0),
            default=defaults.trajectories,
            help="most trajectories of one step that are drawn: the slowest, the failed and a"
            f" sample of the rest (default: {defaults.trajectories})",
        )
        parser.add_argument(
            "--max-points",
            metavar="N",
            type=_at_least(1),
            default=defaults.points,
            help="most values of one counter of a device; of more readings, means over equal times"
            f" are drawn (default: {defaults.points})",
        )

    def export(self, trace: Trace, folder: Path, args: Namespace) -> Iterator[str]:
        """Write ``trace`` as a timeline.

        Raises:
            ProbeError: There is no such step, or the file is in the way, or cannot be written;
                nothing was left behind.
        """
        limits = Limits(args.max_trajectories, args.max_points)
        scope = Scope.of(trace, args.steps)
        check_free(args.out, force=args.force)
        with placed(args.out, force=args.force) as stream:
            lines = draw(trace, stream, limits, scope)
        first, *rest = lines
        yield f"{args.out}: {first}"
        for line in rest:
            yield f"  {line}"
        yield "  open it in https://ui.perfetto.dev or https://profiler.firefox.com"
        yield "  it is not for sharing: names of roles, functions, tools and your marks are in it"


def _at_least(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if text.isascii() and text.isdigit() and int(text) >= least:
            return int(text)
        raise ArgumentTypeError(f"{text!r} is no whole number from {least} on")

    return parse


def _steps(text: str) -> tuple[int, int]:
    first, between, last = text.partition("-")
    last = last if between else first
    if not (first + last).isascii() or not first.isdigit() or not last.isdigit():
        raise ArgumentTypeError(f"{text!r} is no step like 3, and no range like 3-5")
    if int(first) > int(last):
        raise ArgumentTypeError(f"{text!r} ends before it begins")
    return int(first), int(last)
