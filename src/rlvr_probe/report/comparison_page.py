"""The page of a comparison: what the terminal says, and what every step took, stage by stage.

It has no script, and its policy forbids it to ask any network.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from string import Template
from typing import Final

from rlvr_probe.analysis.comparison import Comparison, Side
from rlvr_probe.analysis.comparison.side import ALL
from rlvr_probe.analysis.stages import STAGES, Stage
from rlvr_probe.report.blocks import Block, Line, seconds

__all__ = ["comparison_page"]

_WIDTH, _HEIGHT, _EDGE = 320, 120, 14
_POINTS: Final = 400
"""Steps that are drawn of each run, at most."""


def comparison_page(found: Sequence[Comparison], blocks: Sequence[Block]) -> str:
    """The page of some comparisons, which are laid out as ``blocks``."""
    files = resources.files("rlvr_probe.report")
    style = files.joinpath("comparison.css").read_text(encoding="utf-8")
    runs = [found[0].before, *(comparison.after for comparison in found)]
    title = " and ".join(dict.fromkeys(run.source for run in runs))
    return Template(files.joinpath("comparison.html").read_text(encoding="utf-8")).substitute(
        title=_text(f"{title} · rlvr-probe"),
        style=style,
        hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        body="\n".join([*map(_block, blocks), *map(_plots, found)]),
    )


def _block(block: Block) -> str:
    if isinstance(block, Line):
        return f'<p class="{block.style}">{_text(block.text)}</p>'
    kinds = ['class="number"' if column.number else "" for column in block.columns]

    def row(name: str, cells: Sequence[str]) -> str:
        if len(cells) != len(kinds):
            return f'<tr><td colspan="{len(kinds)}">{_text(cells[0])}</td></tr>'
        pairs = zip(kinds, cells, strict=True)
        return (
            f"<tr>{''.join(f'<{name} {kind}>{_text(cell)}</{name}>' for kind, cell in pairs)}</tr>"
        )

    head = row("th", [column.heading for column in block.columns])
    rows = "".join(row("td", cells) for cells in block.rows)
    return f'<h2>{_text(block.title)}</h2><div class="wide"><table>{head}{rows}</table></div>'


def _plots(found: Comparison) -> str:
    """What every step took, of both runs on one scale, for each stage."""
    sides = found.before, found.after
    names = {change.name for change in (found.step, *found.stages)}
    figures = "".join(
        _plot(stage, sides) for stage in (ALL, *STAGES) if stage.name in names
    )  # fmt: skip
    legend = 'Each point is a step: <b class="a">A</b> and <b class="b">B</b>, in their order.'
    return f'<h2>Steps</h2><p>{legend}</p><div class="plots">{figures}</div>'


def _plot(stage: Stage, sides: tuple[Side, Side]) -> str:
    times = [side.times(stage) for side in sides]
    most = max(max(side.values(), default=0.0) for side in times)
    if not most:
        return ""
    points = "".join(
        f'<circle class="{letter}" r="2" cx="{x:.1f}" cy="{y:.1f}"><title>{title}</title></circle>'
        for letter, side, taken in zip("ab", sides, times, strict=True)
        for x, y, title in _points(side, taken, most)
    )
    axis = (
        f'<text x="2" y="11">{seconds(most / 1e9)} s</text><text x="2" y="{_HEIGHT - 3}">0</text>'
    )
    label = f"{stage.title}, s of a step"
    return (
        f'<figure><svg role="img" aria-label="{_text(label)}" viewBox="0 0 {_WIDTH} {_HEIGHT}">'
        f"{axis}{points}</svg><figcaption>{_text(label)}</figcaption></figure>"
    )


def _points(
    side: Side, taken: Mapping[int, float], most: float
) -> Iterator[tuple[float, float, str]]:
    """Where every k-th step is drawn, and what it says."""
    order = {step: place for place, step in enumerate(side.numbers)}
    for step in list(taken)[:: -(-len(taken) // _POINTS)]:
        x = _EDGE + (_WIDTH - 2 * _EDGE) * (order[step] + 0.5) / len(order)
        y = _HEIGHT - _EDGE - (_HEIGHT - 2 * _EDGE) * taken[step] / most
        yield x, y, f"step {side.numbers[step]}: {seconds(taken[step] / 1e9)} s"


def _text(text: str) -> str:
    """A text that a recording may hold, as HTML; what turns a line around is replaced."""
    return html.escape("".join(char if char.isprintable() else "\ufffd" for char in text))
