"""Draws a report: with rich on a terminal, as plain text anywhere else."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from rlvr_probe.report.blocks import BAR, Block, Grid, Line

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["draw", "render"]

_WIDTH = 100
_STYLES = {"plain": "", "title": "bold", "quiet": "dim", "alarm": "bold red"}


def render(summary: Mapping[str, Any], file: TextIO, *, color: bool | None = None) -> None:
    """Write the report on a summary to ``file``, at most 100 columns wide.

    Args:
        summary: From :func:`~rlvr_probe.analysis.summary.summarize`.
        file: Where to; a stream that cannot say a character gets a question mark.
        color: Draw with rich; by default if ``file`` is a terminal and rich is installed.
    """
    # Not for who draws something else: it takes as long to load as all the rest.
    from rlvr_probe.report.show import lay_out

    draw(lay_out(summary), file, color=color)


def draw(
    blocks: Sequence[Block], file: TextIO, *, color: bool | None = None, wrap: bool = True
) -> None:
    """Write a report that is laid out, as :func:`render` does.

    Args:
        blocks: The report.
        file: Where to.
        color: As for :func:`render`.
        wrap: False if its lines are broken where they shall be.
    """
    wanted = _is_terminal(file) if color is None else color
    if wanted:
        try:
            _draw(blocks, file, wrap)
        except ImportError:
            pass
        else:
            return
    encoding = getattr(file, "encoding", None) or "utf-8"
    for line in _plain(blocks, wrap):
        file.write(line.encode(encoding, "replace").decode(encoding) + "\n")


def _is_terminal(file: TextIO) -> bool:
    return file.isatty() and os.environ.get("TERM") != "dumb"


def _draw(blocks: Sequence[Block], file: TextIO, wrap: bool) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(file=file, highlight=False, force_terminal=True)
    console.width = min(console.width, _WIDTH)
    for before, block in zip((None, *blocks), blocks, strict=False):
        if isinstance(block, Line):
            if isinstance(before, Grid):
                console.print()
            console.print(Text(block.text, style=_STYLES[block.style]), soft_wrap=not wrap)
        else:
            console.print()
            console.print(Text(block.title, style=_STYLES[block.style] or "bold cyan"))
            console.print(Padding(_table(block, console.width - 2), (0, 0, 0, 2)))


def _table(grid: Grid, room: int) -> Table:
    """A grid as a table; where it is wider than ``room``, headings are broken before names are."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    style = "red" if grid.style == "alarm" else "cyan"
    table = Table(
        box=box.SIMPLE_HEAD,
        border_style=style,
        header_style="bold",
        show_edge=False,
        padding=(0, 0, 0, 1),
    )
    widths = _widths(grid)
    narrow = sum(widths) + 2 * len(widths) > room
    for place, column in enumerate(grid.columns):
        heading = column.heading
        if narrow:
            longest = max((len(word) for word in heading.split()), default=0)
            cells = (len(row[place]) for row in grid.rows if len(row) == len(grid.columns))
            heading = "\n".join(textwrap.wrap(heading, max(longest, *cells, 1)))
        # Folded: a name that is cut cannot be recognized.
        table.add_column(heading, justify="right" if column.number else "left", overflow="fold")
    for row in grid.rows:
        # Text: a name in a recording may look like markup.
        if len(row) == len(grid.columns):
            table.add_row(*(Text(cell, style="cyan" if BAR in cell else "") for cell in row))
        else:
            # A cell across the table would widen a column.
            table.add_row(*(Text("…", style="dim") for _ in grid.columns))
            table.caption, table.caption_justify = Text(row[0], style="dim"), "left"
    return table


def _plain(blocks: Sequence[Block], wrap: bool) -> Iterator[str]:
    for before, block in zip((None, *blocks), blocks, strict=False):
        if isinstance(block, Line):
            if isinstance(before, Grid):
                yield ""
            broken = textwrap.wrap(block.text, _WIDTH, subsequent_indent="  ") if wrap else ()
            yield from broken or [block.text]
            continue
        yield ""
        yield block.title
        widths = _widths(block)
        for row in ([column.heading for column in block.columns], *block.rows):
            if len(row) != len(block.columns):
                yield "  " + row[0]
                continue
            cells = [
                cell.rjust(width) if column.number else cell.ljust(width)
                for cell, width, column in zip(row, widths, block.columns, strict=True)
            ]
            yield ("  " + "  ".join(cells)).rstrip()[:_WIDTH].replace(BAR, "#")


def _widths(grid: Grid) -> list[int]:
    """How wide each column is; a row of one cell lies across them."""
    wide = [row for row in grid.rows if len(row) == len(grid.columns)]
    return [
        max(len(column.heading), *(len(row[place]) for row in wide)) if wide else 0
        for place, column in enumerate(grid.columns)
    ]
