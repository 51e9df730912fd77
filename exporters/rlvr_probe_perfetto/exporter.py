"""The destination ``perfetto`` of ``rlvr-probe export``."""

from __future__ import annotations

import gzip
import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from rlvr_probe.exporter.atomic_output import check_file, placed_file
from rlvr_probe.model.trace import Trace
from rlvr_probe_perfetto.drawing import Limits, draw
from rlvr_probe_perfetto.scope import Scope
from rlvr_probe_perfetto.trace_events import HEAD

__all__ = ["PerfettoExporter", "written"]


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
            ProbeError: The step does not exist, or the file is in the way, or cannot be written;
                nothing was left behind.
        """
        limits = Limits(args.max_trajectories, args.max_points)
        scope = Scope.of(trace, args.steps)
        with written(args.out, force=args.force) as stream:
            lines = draw(trace, stream, limits, scope)
        first, *rest = lines
        yield f"{args.out}: {first}"
        for line in rest:
            yield f"  {line}"
        yield "  open it in https://ui.perfetto.dev or https://profiler.firefox.com"
        yield "  it is not for sharing: names of roles, functions, tools and your marks are in it"


@contextmanager
def written(target: Path, *, force: bool) -> Iterator[IO[bytes]]:
    """What is written becomes the file ``target``, compressed if its name ends in ``.gz``.

    Raises:
        ProbeError: ``target`` is in the way, or the file system refuses; nothing was left behind.
    """
    packed = target.suffix == ".gz"

    def is_timeline(path: Path) -> bool:
        try:
            with (gzip.open if packed else open)(path, "rb") as stream:
                return bool(stream.read(len(HEAD)) == HEAD)
        except (OSError, EOFError):
            return False

    check = partial(check_file, target, force=force, replaceable=is_timeline, kind="a timeline")
    check()
    with placed_file(target) as work:
        with work.open("wb") as stream:
            if packed:
                # No name and no time of day: the same run gives the same bytes.
                with gzip.GzipFile("", "wb", 6, stream, 0) as inner:
                    yield inner  # type: ignore[misc]
            else:
                yield stream
            stream.flush()
            os.fsync(stream.fileno())
        # Looked at again: writing may have taken minutes.
        check()


def _at_least(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if text.isascii() and text.isdigit() and int(text) >= least:
            return int(text)
        raise ArgumentTypeError(f"{text!r} is not a whole number from {least} on")

    return parse


def _steps(text: str) -> tuple[int, int]:
    first, between, last = text.partition("-")
    last = last if between else first
    if not (first + last).isascii() or not first.isdigit() or not last.isdigit():
        raise ArgumentTypeError(f"{text!r} is neither a step like 3 nor a range like 3-5")
    if int(first) > int(last):
        raise ArgumentTypeError(f"{text!r} ends before it starts")
    return int(first), int(last)
