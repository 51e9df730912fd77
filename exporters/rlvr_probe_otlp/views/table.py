"""What a dashboard is made of, and the panels that most of them have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from rlvr_probe_otlp.views.queries import NOT_EVAL, held, quantile

__all__ = ["OUTPUT", "TOKENS", "Board", "Panel", "alarm", "each", "number", "spread"]

TOKENS: Final = "gen_ai.client.token.usage"
OUTPUT: Final = f', gen_ai_token_type="output"{NOT_EVAL}'
"""Chooses response tokens of the training among all tokens."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        title: What it shows, with its unit where Grafana has none for it.
        meaning: How to read it.
        unit: By the name that Grafana has for it.
        queries: Legend and query of each line.
        kind: ``timeseries`` draws over time, ``stat`` is one number.
        width: Of 24.
        stacked: Whether lines are laid on each other.
        signed: Whether values may be below 0.
        whole: Whether the axis reaches to 1, so that shares can be compared.
        decimals: Digits behind the point; None leaves them to Grafana.
        axis: What the axis counts, where neither unit nor title says it.
        empty: What an empty panel means.
        alarms: Whether anything but 0 is drawn in red.
    """

    title: str
    meaning: str
    unit: str
    queries: Sequence[tuple[str, str]]
    kind: Literal["timeseries", "stat"] = "timeseries"
    width: int = 12
    stacked: bool = False
    signed: bool = False
    whole: bool = False
    decimals: int | None = None
    axis: str = ""
    empty: str = "No such thing was recorded in this time"
    alarms: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard.

    Attributes:
        name: Of its file; its uid is made from it.
        rows: Title and panels of each row.
    """

    name: str
    title: str
    meaning: str
    rows: Sequence[tuple[str, Sequence[Panel]]]


def number(
    title: str, meaning: str, unit: str, query: str, *, decimals: int | None = None
) -> Panel:
    """One number, a quarter of a row wide."""
    return Panel(title, meaning, unit, (("", query),), kind="stat", width=6, decimals=decimals)


def alarm(title: str, meaning: str, query: str) -> Panel:
    """How many there are of what should not be; green only where that is known to be none."""
    return replace(number(title, meaning, "none", query, decimals=0), alarms=True)


def spread(metric: str, *by: str, where: str = "") -> Sequence[tuple[str, str]]:
    """Median, 90 % and 99 % of a histogram."""
    named = "".join(f" {{{{{name.replace('.', '_')}}}}}" for name in by)
    return [
        (f"{label}{named}", quantile(below, metric, *by, where=where))
        for label, below in (("median", 0.5), ("90 %", 0.9), ("99 %", 0.99))
    ]


def each(metric: str, legend: str, *by: str, where: str = "") -> Sequence[tuple[str, str]]:
    """What a gauge shows, by attributes that the legend names."""
    return [(legend, held(metric, *by, where=where))]
