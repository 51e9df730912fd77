"""The destination ``perfetto`` of ``rlvr-probe export``."""

from __future__ import annotations

import gzip
import io
import json
import os
import tempfile
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.model.trace import Trace
from rlvr_probe_perfetto.events import events
from rlvr_probe_perfetto.spans import Left, Selection

__all__ = ["PerfettoExporter"]


class PerfettoExporter:
    """A :class:`~rlvr_probe.exporter.TraceExporter` that writes one file."""

    name = "perfetto"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add where to, and how much."""
        defaults = Selection()
        parser.add_argument(
            "--out",
            metavar="FILE",
            type=Path,
            required=True,
            help="file to make, e.g. run.json, or run.json.gz for a small one; must not exist",
        )
        parser.add_argument("--force", action="store_true", help="replace FILE")
        parser.add_argument(
            "--steps", metavar="A-B", type=_steps, help="these trainer steps only, e.g. 3 or 3-5"
        )
        parser.add_argument(
            "--max-trajectories",
            metavar="N",
            type=_number,
            default=defaults.trajectories,
            help=f"most trajectories of one step: the slowest (default: {defaults.trajectories})",
        )

    def export(self, trace: Trace, folder: Path, args: Namespace) -> Iterator[str]:
        """Write the timeline; the file appears whole or not at all.

        Raises:
            ProbeError: The file is in the way, or cannot be written, or there is nothing to draw.
        """
        if os.path.lexists(args.out) and not (args.force and args.out.is_file()):
            raise ProbeError(f"{args.out} exists; --force replaces a file")
        selection = Selection(args.steps, args.max_trajectories)
        left = Left()
        try:
            count = _write(args.out, trace, selection, left)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ProbeError(f"{args.out} cannot be written: {reason}") from None
        yield f"{args.out}: {count:,} events; open it at https://ui.perfetto.dev"
        if left.trajectories:
            yield (
                f"  {left.trajectories:,} trajectories are not drawn: of each step the slowest"
                f" {selection.trajectories:,} are"
            )


def _write(path: Path, trace: Trace, selection: Selection, left: Left) -> int:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as raw:
            if path.suffix == ".gz":
                # The same recording gives the same bytes: no time, no name.
                with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
                    count = _write_json(cast("IO[bytes]", packed), trace, selection, left)
            else:
                count = _write_json(raw, trace, selection, left)
            raw.flush()
            os.fsync(raw.fileno())
        if not count:
            raise ProbeError("there is nothing to draw: no such step, or an empty recording")
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return count


def _write_json(raw: IO[bytes], trace: Trace, selection: Selection, left: Left) -> int:
    out = io.TextIOWrapper(raw, encoding="ascii", write_through=False)
    head = {"displayTimeUnit": "ms", "otherData": {"run": trace.run, "epoch_ns": trace.epoch_ns}}
    out.write(json.dumps(head)[:-1] + ',"traceEvents":[')
    count = 0
    for event in events(trace, selection, left):
        line = json.dumps(event, separators=(",", ":"), allow_nan=False)
        out.write(f"{',' if count else ''}\n{line}")
        count += 1
    out.write("\n]}\n")
    out.flush()
    out.detach()
    return count


def _steps(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    try:
        found = int(first), int(last or first)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no step like 3, and no range like 3-5") from None
    if found[0] > found[1]:
        raise ArgumentTypeError(f"{text!r} ends before it begins")
    return found


def _number(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ArgumentTypeError(f"{text} is below 0")
    return number
