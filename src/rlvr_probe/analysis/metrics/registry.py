"""What metrics and series there are: names, meanings and units, of ``registry.ini`` beside this.

A section of that file is one metric or one series, or a family of metrics: with ``like = NAME`` it
has a metric for each line of the section ``NAME``, a title, a meaning and a unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rlvr_probe.analysis.ledger import CATEGORIES
from rlvr_probe.analysis.statements import read_texts

__all__ = ["DEFINITIONS", "FAMILIES", "SERIES"]


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric as the documentation has it.

    Attributes:
        id: Stable, for example ``lengths.response.p99``.
        title: A few words.
        meaning: One sentence: formula and source.
        unit: As that of :class:`~rlvr_probe.analysis.results.Figure`.
        unknown: Why there is none where the source has nothing for it.
        by: Names of what there is one of each for.
        quantity: What it is the distribution of, where it is one of the metrics that are.
    """

    id: str
    title: str
    meaning: str
    unit: str
    unknown: str
    by: tuple[str, ...] = ()
    quantity: str = ""


@dataclass(frozen=True, slots=True)
class SeriesDefinition:
    """A series as the documentation has it.

    Attributes:
        units: Unit of each column, by name, in the order of the query; empty for what has none.
    """

    id: str
    title: str
    meaning: str
    units: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """Metrics of one quantity, or of calls by their names.

    Attributes:
        id: Prefix of their ids.
        by: What a name is, for example ``function``; empty for a quantity.
        ids: What the ids in the column ``trajectory_id`` of its rows are of.
        by_step: Whether it has a series by step.
        metrics: By the end of the id.
    """

    id: str
    by: str = ""
    ids: str = "trajectory"
    by_step: bool = False
    metrics: dict[str, Definition] = field(default_factory=dict)


def _family(name: str, section: Mapping[str, str], rows: Mapping[str, str]) -> Family:
    """The family of a section, of the rows of the section that it is like."""
    texts = {"unit": "1", "by": "", "ids": "trajectory", **section}
    by, quantity = texts["by"], texts["of"] if section["like"] == _DISTRIBUTION else ""
    metrics = dict[str, Definition]()
    for key, row in rows.items():
        title, meaning, unit = (part.strip().format_map(texts) for part in row.split("|"))
        unknown = texts["unknown"].format(name=key)
        metrics[key] = Definition(
            f"{name}.{key}", title, meaning, unit, unknown, tuple(by.split()), quantity
        )
    return Family(name, by, texts["ids"], "by_step" in section, metrics)


def _series(name: str, section: Mapping[str, str]) -> SeriesDefinition:
    categories = " ".join(f"{category}:GPU-s" for category in CATEGORIES)
    columns = section["columns"].format(categories=categories).split()
    units = {column: unit for column, _, unit in (text.partition(":") for text in columns)}
    return SeriesDefinition(name, section["title"], section["meaning"], units)


def _by_step(family: Family, section: Mapping[str, str]) -> SeriesDefinition:
    of = section["of"]
    if family.by:
        columns = {"step": "", family.by: "", "calls": "1", "seconds": "s", "longest": "s"}
        title, meaning = f"time by step and {family.by}", "number, sum and longest of the durations"
        return SeriesDefinition(f"{family.id}.by_step", title, f"Of {of}: {meaning}.", columns)
    values = dict.fromkeys(("min", "mean", "p50", "p90", "p99", "max"), section.get("unit", "1"))
    return SeriesDefinition(
        f"{family.id}.by_step",
        f"{section['title']} by step",
        f"By step and batch (unit; -1: a queue), as {family.id}, of {of}.",
        {"step": "", "unit": "", "count": "1", **values},
    )


_DISTRIBUTION: Final = "distribution"
"""Section of the metrics that every quantity has."""

DEFINITIONS: Final[dict[str, Definition]] = {}
"""Every metric that there can be, by its id."""

FAMILIES: Final[dict[str, Family]] = {}
"""Every family, by its id."""

SERIES: Final[dict[str, SeriesDefinition]] = {}
"""Every series that there can be, by its id."""


def _load() -> None:
    sections = read_texts(__name__, "registry.ini")
    for name, section in sections.items():
        if "columns" in section:
            SERIES[name] = _series(name, section)
        elif "like" in section:
            family = FAMILIES[name] = _family(name, section, sections[section["like"]])
            DEFINITIONS.update({metric.id: metric for metric in family.metrics.values()})
            if family.by_step:
                SERIES[f"{name}.by_step"] = _by_step(family, section)
        elif "meaning" in section:
            DEFINITIONS[name] = Definition(
                name, section["title"], section["meaning"], section.get("unit", "1"),
                section["unknown"], tuple(section.get("by", "").split()),
            )  # fmt: skip


_load()
