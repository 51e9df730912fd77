"""Where a report goes: the terminal, and files of JSON and HTML."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_probe.report.blocks import Block

__all__ = ["add_outputs", "check_outputs", "put_out"]


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """Add ``--json`` and ``--html``."""
    parser.add_argument("--json", metavar="FILE", help="write all of it; - to print")
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="write a page for a browser, which loads nothing"
    )


def check_outputs(args: argparse.Namespace) -> None:
    """Refuse files that cannot be written, before anything takes time."""
    from rlvr_probe.exporter.atomic_output import check_file

    for target in (args.html, None if args.json in (None, "-") else Path(args.json)):
        if target is not None:
            check_file(target)


def put_out(args: argparse.Namespace, blocks: Sequence[Block], document: Any, page: str) -> None:
    """Write the files that were asked for; print the report, or its JSON."""
    from rlvr_probe.exporter.atomic_output import placed_file
    from rlvr_probe.report.render import draw

    text = json.dumps(document, allow_nan=False)
    files = [(args.html, page)]
    if args.json not in (None, "-"):
        files.append((Path(args.json), text + "\n"))
    for target, content in files:
        if target is not None:
            with placed_file(target) as path:
                path.write_text(content, encoding="utf-8")
    if args.json == "-":
        print(text)
    else:
        draw(blocks, sys.stdout)
