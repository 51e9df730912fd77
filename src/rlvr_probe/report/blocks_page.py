"""A report as a page for a browser: what the terminal says, and perhaps pictures below it.

It has no script, and its policy forbids it to ask any network.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Sequence
from importlib import resources
from string import Template

from rlvr_probe.report.blocks import Block, Line

__all__ = ["escaped", "page"]


def page(title: str, blocks: Sequence[Block], more: Iterable[str] = ()) -> str:
    """The page.

    Args:
        title: What it is about.
        blocks: The report, as a terminal has it.
        more: HTML below it.
    """
    files = resources.files("rlvr_probe.report")
    style = files.joinpath("blocks_page.css").read_text(encoding="utf-8")
    return Template(files.joinpath("blocks_page.html").read_text(encoding="utf-8")).substitute(
        title=escaped(f"{title} · rlvr-probe"),
        style=style,
        hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        body="\n".join([*map(_block, blocks), *more]),
    )


def _block(block: Block) -> str:
    if isinstance(block, Line):
        return f'<p class="{block.style}">{escaped(block.text)}</p>'
    kinds = ['class="number"' if column.number else "" for column in block.columns]

    def row(name: str, cells: Sequence[str]) -> str:
        if len(cells) != len(kinds):
            return f'<tr><td colspan="{len(kinds)}">{escaped(cells[0])}</td></tr>'
        pairs = zip(kinds, cells, strict=True)
        parts = (f"<{name} {kind}>{escaped(cell)}</{name}>" for kind, cell in pairs)
        return f"<tr>{''.join(parts)}</tr>"

    head = row("th", [column.heading for column in block.columns])
    rows = "".join(row("td", cells) for cells in block.rows)
    return f'<h2>{escaped(block.title)}</h2><div class="wide"><table>{head}{rows}</table></div>'


def escaped(text: str) -> str:
    """A text that a recording may hold, as HTML; what turns a line around is replaced."""
    return html.escape("".join(char if char.isprintable() else "\ufffd" for char in text))
