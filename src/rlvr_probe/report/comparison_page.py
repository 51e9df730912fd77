"""The page of a comparison: what the terminal says, and what every step took, stage by stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rlvr_probe.analysis.comparison import Comparison, Side
from rlvr_probe.analysis.stages import ALL, STAGES, Stage
from rlvr_probe.report.blocks import Block, seconds
from rlvr_probe.report.blocks_page import escaped, page

__all__ = ["comparison_page"]

_WIDTH, _HEIGHT, _EDGE = 320, 120, 14
_POINTS: Final = 400
"""Steps that are drawn of each run, at most."""


def comparison_page(found: Sequence[Comparison], blocks: Sequence[Block]) -> str:
    """The page of some comparisons, which are laid out as ``blocks``."""
    runs = [found[0].before, *(comparison.after for comparison in found)]
    title = " and ".join(dict.fromkeys(run.source for run in runs))
    return page(title, blocks, map(_plots, found))


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
        f'<figure><svg role="img" aria-label="{escaped(label)}" viewBox="0 0 {_WIDTH} {_HEIGHT}">'
        f"{axis}{points}</svg><figcaption>{escaped(label)}</figcaption></figure>"
    )


def _points(
    side: Side, taken: Mapping[int, float], most: float
) -> Iterator[tuple[float, float, str]]:
    """Where every k-th step is drawn, and what it says."""
    order = {step: place for place, step in enumerate(side.numbers)}
    for step in list(taken)[:: -(-len(taken) // _POINTS) or 1]:
        x = _EDGE + (_WIDTH - 2 * _EDGE) * (order[step] + 0.5) / len(order)
        y = _HEIGHT - _EDGE - (_HEIGHT - 2 * _EDGE) * taken[step] / most
        yield x, y, f"step {side.numbers[step]}: {seconds(taken[step] / 1e9)} s"
