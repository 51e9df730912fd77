"""How a quantity of trajectories is distributed, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rlvr_probe.analysis.chapters.definitions import (
    Definition,
    Found,
    SeriesDefinition,
)
from rlvr_probe.analysis.chapters.intervals import (
    binomial_ranks,
    design_effect,
    mean_interval,
)
from rlvr_probe.analysis.figures import Answer, Evidence, Figure, query
from rlvr_probe.analysis.statements import fill, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["FIGURES", "QUANTILES", "Quantity", "Spread", "ask", "distribution"]

_SQL: Final = statements(__name__)

QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


_ORDER: Final = "(linear interpolation; interval: between order statistics) of"

FIGURES: Final = {
    "count": ("number", "Number of values of", "1"),
    "mean": ("mean", "Mean (interval: Student's t over groups) of", ""),
    "cv": ("relative spread", "Population standard deviation over the mean of", "1"),
    "min": ("smallest", "Smallest value of", ""),
    **{
        name: (f"{share:.0%} quantile", f"Quantile {share:g} {_ORDER}", "")
        for name, share in QUANTILES.items()
    },
    "max": ("largest", "Largest value of", ""),
    "p99_over_p50": ("99% quantile over median", "Quantile 0.99 over the median of", "1"),
    "max_over_p50": ("largest over median", "Largest value over the median of", "1"),
}
"""Of a quantity, by the end of the id: title, beginning of its meaning, unit if not its own."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that every trajectory, turn or group has one of.

    Attributes:
        id: Beginning of the ids of its figures.
        title: A few words.
        what: What it is, with its source, to end a sentence with.
        unit: Of its values.
        rows: SQL whose columns are ``value``, ``cluster`` (a group: rows of two clusters are
            independent) and ``trajectory_id``; where it is told by step also ``step`` and ``unit``.
        unknown: Why there is none where the source has nothing for it.
        by_step: Whether it is told by step.
        ids: What the ids in the column ``trajectory_id`` of its rows are of.
    """

    id: str
    title: str
    what: str
    unit: str
    rows: str
    unknown: str
    by_step: bool = False
    ids: str = "trajectory"

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """Its figures."""
        return tuple(
            Definition(
                f"{self.id}.{name}",
                f"{self.title}: {title}",
                f"{meaning} {self.what}.",
                unit or self.unit,
                self.unknown,
                quantity=self.what,
            )
            for name, (title, meaning, unit) in FIGURES.items()
        )

    @property
    def series(self) -> SeriesDefinition:
        """Its series, where it is told by step."""
        names = ("min", "mean", "p50", "p90", "p99", "max")
        return SeriesDefinition(
            f"{self.id}.by_step",
            f"{self.title} by step",
            f"By step and batch (unit; -1: a queue), as {self.id}, of {self.what}.",
            {"step": "", "unit": "", "count": "1", **dict.fromkeys(names, self.unit)},
        )


@dataclass(frozen=True, slots=True)
class Spread:
    """What was found of a quantity, for figures that build on it.

    Attributes:
        quantiles: By name.
        effects: Design effect of the share below each quantile, by name.
        groups: Clusters.
        behind: Whom the largest values are of.
    """

    count: int
    mean: float | None
    quantiles: dict[str, float]
    effects: dict[str, float]
    groups: int
    behind: Mapping[str, Evidence]


def ask(tables: Tables, found: Found, quantity: Quantity) -> Spread:
    """Add the figures of a quantity, and what there is of each step."""
    figures, spread = distribution(tables, quantity)
    found.add(*figures)
    if quantity.by_step and spread.count:
        found.series.append(quantity.series.of(_ask(tables, _SQL["steps"], quantity)))
    return spread


def distribution(tables: Tables, quantity: Quantity) -> tuple[list[Figure], Spread]:
    """The figures of a quantity, and what others build on; without any, its mean is unknown."""
    named = {one.id.rpartition(".")[2]: one for one in quantity.definitions}
    answer = _ask(tables, _SQL["whole"], quantity, quantiles=list(QUANTILES.values()))
    [told] = answer.dicts
    count = told["count"]
    if not count:
        empty = Spread(0, None, {}, {}, 0, {})
        return [named["mean"].of(None, answer)], empty
    quantiles = dict(zip(QUANTILES, map(float, told["quantiles"]), strict=True))
    behind = _behind(quantity.ids, told["longest"], count)
    spread, squares = _clusters(tables, quantity, told["mean"], count, quantiles, behind)
    ends = _ends(tables, quantity, spread)
    median = quantiles["p50"] or None
    values: dict[str, Any] = {
        **told,
        **quantiles,
        "p99_over_p50": quantiles["p99"] / median if median else None,
        "max_over_p50": told["max"] / median if median else None,
    }
    low, high = mean_interval(float(told["mean"]), squares, spread.groups, count)
    # The mean of what is never below 0 is not either.
    ends["mean"] = (max(low, 0.0) if low is not None and told["min"] >= 0 else low), high
    why = {"cv": "the mean is 0" if count > 1 else "of one value there is no spread"}
    figures = [
        one.of(
            values[name],
            answer,
            why=why.get(name, "the median is 0"),
            low=ends.get(name, (None, None))[0],
            high=ends.get(name, (None, None))[1],
            evidence=behind,
        )
        for name, one in named.items()
    ]
    return figures, spread


def _behind(kind: str, largest: Sequence[int | None] | None, count: int) -> dict[str, Evidence]:
    """Whom the largest values are of, and how many values there are."""
    some = list(dict.fromkeys(one for one in largest or () if one is not None))
    return {kind: Evidence.of(some, count)} if some else {}


def _clusters(
    tables: Tables,
    quantity: Quantity,
    mean: float,
    count: int,
    quantiles: dict[str, float],
    behind: Mapping[str, Evidence],
) -> tuple[Spread, float]:
    """How much the members of a cluster are alike, at the mean and at each quantile."""
    below = ",\n".join(
        f"count(*) FILTER (value <= {value!r})::DOUBLE AS {name}"
        for name, value in quantiles.items()
    )
    sums = ",\n".join(
        f"sum({name}) AS {name}_below, sum({name} * {name}) AS {name}_squares,"
        f" sum({name} * members) AS {name}_products"
        for name in quantiles
    )
    parts = {"below": below, "sums": sums}
    [told] = _ask(tables, _SQL["groups"], quantity, parts, mean=float(mean)).dicts
    groups = told["clusters"]
    effects = dict[str, float]()
    for name in quantiles:
        share = told[f"{name}_below"] / count
        products, members = told[f"{name}_products"], told["members_squares"]
        squares = told[f"{name}_squares"] - 2 * share * products + share**2 * members
        effects[name] = design_effect(squares, groups, count, share)
    spread = Spread(count, float(mean), quantiles, effects, groups, behind)
    return spread, float(told["mean_squares"])


def _ends(
    tables: Tables, quantity: Quantity, spread: Spread
) -> dict[str, tuple[float | None, float | None]]:
    ranks = {
        name: binomial_ranks(spread.count / spread.effects[name], share)
        for name, share in QUANTILES.items()
    }
    asked = sorted({one for pair in ranks.values() for one in pair if one is not None})
    if not asked:
        return {}
    answer = _ask(tables, _SQL["ends"], quantity, ends=asked)
    found = dict(zip(asked, answer.row[0], strict=True))
    # Of a few samples the estimate itself may lie outside of both.
    return {
        name: (
            None if low is None else min(float(found[low]), spread.quantiles[name]),
            None if high is None else max(float(found[high]), spread.quantiles[name]),
        )
        for name, (low, high) in ranks.items()
    }


def _ask(
    tables: Tables,
    sql: str,
    quantity: Quantity,
    parts: Mapping[str, str] | None = None,
    **values: object,
) -> Answer:
    return query(tables, fill(sql, rows=quantity.rows, **(parts or {})), **values)
