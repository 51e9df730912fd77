"""Families of metrics: how a quantity is distributed, with intervals; calls by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rlvr_probe.analysis.metrics.registry import FAMILIES
from rlvr_probe.analysis.metrics.section import Section, evidence_of
from rlvr_probe.analysis.results import Evidence, query, query_by_step
from rlvr_probe.analysis.statements import (
    counted_quantiles,
    covered,
    fill,
    make,
    quantiles_of,
    statements,
)
from rlvr_probe.analysis.statistics import Interval, binomial_ranks, design_effect, mean_interval

__all__ = ["Calls", "Spread", "distribution"]

_SQL: Final = statements(__name__)

_COUNTED: Final = fill(_SQL["of_counts"], quantiles=counted_quantiles(_SQL["counted"], "every"))

_SHOWN: Final = [0.5, 0.9, 0.99]
"""Quantiles of steps and names."""

_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Spread:
    """What was found of a quantity, for metrics that build on it.

    Attributes:
        quantiles: By name.
        effects: Design effect of the share below each quantile, by name.
        evidence: Ids of the largest values.
    """

    count: int
    mean: float | None = None
    quantiles: dict[str, float] = field(default_factory=dict)
    effects: dict[str, float] = field(default_factory=dict)
    evidence: Mapping[str, Evidence] = field(default_factory=dict)


def distribution(section: Section, name: str, rows: str, *, counted: bool = False) -> Spread:
    """Add the metrics of a quantity, and its series; without any value, its mean is unknown.

    Args:
        section: That it is of.
        name: The end of its id.
        rows: SQL whose columns are ``value``, ``cluster`` (a group: rows of two clusters are
            independent) and ``trajectory_id``; of a quantity with a series also ``step`` and
            ``unit``.
        counted: Whether values are whole numbers, few of which differ, of trajectories and their
            parts alone.
    """
    family = FAMILIES[f"{section.name}.{name}"]
    of_values = _COUNTED if counted else _SQL["held"]
    sql = fill(_SQL["whole"], rows=rows, of_values=of_values)
    answer = section.ask(sql, quantiles=list(_QUANTILES.values()))
    [row] = answer.dicts
    count = row["count"]
    if not count:
        section.add(f"{name}.mean", None, answer)
        return Spread(0)
    mean, quantiles = float(row["mean"]), dict(zip(_QUANTILES, row["quantiles"], strict=True))
    quantiles = {key: float(value) for key, value in quantiles.items()}
    largest = dict.fromkeys(number for number in row["longest"] or () if number is not None)
    evidence = {family.ids: Evidence.of(largest, count)} if largest else {}
    groups = _clusters(section, rows, mean, quantiles, counted)
    effects = _effects(groups, count)
    sql = fill(_SQL["ends"], rows=rows, of_values=of_values)
    ends: dict[str, Interval] = _ends(section, sql, quantiles, effects, count)
    low, high = mean_interval(mean, float(groups["mean_squares"]), groups["clusters"], count)
    # The mean of what is never below 0 is not either.
    ends["mean"] = (max(low, 0.0) if low is not None and row["min"] >= 0 else low), high
    median = quantiles["p50"] or None
    values: dict[str, Any] = {
        **row,
        **quantiles,
        "p99_over_p50": quantiles["p99"] / median if median else None,
        "max_over_p50": row["max"] / median if median else None,
    }
    why = {"cv": "the mean is 0" if count > 1 else "of one value there is no spread"}
    for key in family.metrics:
        low, high = ends.get(key, (None, None))
        section.add(
            f"{name}.{key}", values[key], answer, low=low, high=high,
            why=why.get(key, "the median is 0"), evidence=evidence,
        )  # fmt: skip
    if family.by_step:
        of_steps = quantiles_of(rows, "step, unit")
        sql = fill(_SQL["spread_by_step"], rows=rows, quantiles=of_steps)
        section.add_series(f"{name}.by_step", section.ask(sql, quantiles=_SHOWN))
    return Spread(count, mean, quantiles, effects, evidence)


def _clusters(
    section: Section, rows: str, mean: float, quantiles: Mapping[str, float], counted: bool
) -> dict[str, Any]:
    """Sums over clusters: of their members, and of those below each quantile."""
    below = ",\n".join(
        f"count(*) FILTER (value <= {value!r})::DOUBLE AS {name}"
        for name, value in quantiles.items()
    )
    sums = ",\n".join(
        f"sum({name}) AS {name}_below, sum({name} * {name}) AS {name}_squares,"
        f" sum({name} * members) AS {name}_products"
        for name in quantiles
    )
    sql = fill(_SQL["groups"], rows=rows, below=below, sums=sums)
    answer = (query_by_step if counted else query)(section.tables, sql, mean=mean)
    known = [row for row in answer.rows if row[0]]  # of ranges with any cluster
    return dict(zip(answer.columns, map(sum, zip(*known, strict=True)), strict=True))


def _effects(groups: Mapping[str, Any], count: int) -> dict[str, float]:
    """How much the members of a cluster are alike, at each quantile."""
    effects = dict[str, float]()
    for name in _QUANTILES:
        share = groups[f"{name}_below"] / count
        products, members = groups[f"{name}_products"], groups["members_squares"]
        squares = groups[f"{name}_squares"] - 2 * share * products + share**2 * members
        effects[name] = design_effect(squares, groups["clusters"], count, share)
    return effects


def _ends(
    section: Section, sql: str, quantiles: Mapping[str, float], effects: Mapping[str, float],
    count: int,
) -> dict[str, Interval]:  # fmt: skip
    ranks = {
        name: binomial_ranks(count / effects[name], share) for name, share in _QUANTILES.items()
    }
    asked = sorted({rank for pair in ranks.values() for rank in pair if rank is not None})
    if not asked:
        return {}
    values = dict(zip(asked, section.ask(sql, quantiles=asked).row[1], strict=True))
    # Of a few samples the estimate itself may lie outside of both.
    return {
        name: (
            None if low is None else min(float(values[low]), quantiles[name]),
            None if high is None else max(float(values[high]), quantiles[name]),
        )
        for name, (low, high) in ranks.items()
    }


_MOST: Final = 50
"""Names that have metrics, those with the most time; all are in the sums."""

_UNCOUNTED: Final = "how many trajectories are in a call was not recorded"
_UNPLACED: Final = "only durations are known, not when a call was"


@dataclass(frozen=True, slots=True)
class Calls:
    """Something with a name that is called, for trajectories.

    Attributes:
        name: What a name is, ``function`` or ``tool``; its metrics have ids that start with it.
        rows: SQL with columns ``name``, ``unit`` (the time of calls adds up between units),
            ``step``, ``seconds``, ``start_ns`` and ``end_ns`` (NULL if only the seconds are known),
            ``samples`` (trajectories in it), ``trajectory_id`` and ``process``.
    """

    name: str
    rows: str

    @property
    def tables(self) -> dict[str, tuple[str, str]]:
        """What its metrics are also made of, by name: what a row is, and the query."""
        what = f"calls by step and {self.name}"
        return {f"{self.name}_time": (what, fill(_SQL["step_times"], rows=self.rows))}

    def add(self, section: Section) -> list[str | None]:
        """Add the metrics of every name, that with the most time first; these names."""
        name = self.name
        of_names = quantiles_of(fill(_SQL["values"], rows=self.rows), "name")
        sql = fill(_SQL["by_name"], rows=self.rows, quantiles=of_names)
        answer = section.ask(sql, quantiles=_SHOWN)
        if not answer.rows:
            section.add(f"{name}.time", None, answer)
            return []
        make(section.tables, self.tables)
        timed = covered(fill(_SQL["timed"], rows=self.rows), "unit, name")
        union = section.ask(fill(_SQL["busy"], steps=f"{name}_time", covered=timed))
        busy = {who: (length, time) for who, length, time in union.rows}
        for row in answer.dicts[:_MOST]:
            by = {name: row["name"] or "(unknown)"}
            evidence = evidence_of(
                trajectory=row["longest"], process=dict.fromkeys(row["processes"] or ())
            )
            shown = zip(("p50", "p90", "p99"), row["quantiles"], strict=True)
            values: dict[str, Any] = {**row, **dict(shown)}
            length, time = busy.get(row["name"], (None, None))
            union_of = {"busy": length, "concurrency": time / length if length else None}
            for key in FAMILIES[f"{section.name}.{name}"].metrics:
                value, source, why = (
                    (union_of[key], union, _UNPLACED)
                    if key in union_of
                    else (values[key], answer, _UNCOUNTED)
                )
                section.add(f"{name}.{key}", value, source, why=why, evidence=evidence, by=by)
        if len(answer.rows) > _MOST:
            section.notes.append(f"{_MOST} of {len(answer.rows):,} {name}s have metrics")
        steps = section.ask(fill(_SQL["by_step"], by=name, steps=f"{name}_time"))
        section.add_series(f"{name}.by_step", steps)
        return [row["name"] for row in answer.dicts[:_MOST]]
