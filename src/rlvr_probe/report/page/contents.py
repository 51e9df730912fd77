"""Gathers what is on the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.analysis.causes import Cause
from rlvr_probe.analysis.characterization import NO_CAUSE, Characterization, unexplained
from rlvr_probe.analysis.ledger import FAMILIES, NAMES, Ledger
from rlvr_probe.analysis.page.charts import hosts, ledger_of, lengths_of, lost, references
from rlvr_probe.analysis.page.timeline import timeline_of
from rlvr_probe.analysis.results import Chapter, Evidence, Figure, Series
from rlvr_probe.recording.tables import Tables
from rlvr_probe.report.page.encode import cleaned, drawn, unit_of

__all__ = ["document", "summary"]

_RUN = (
    "run", "kind", "framework", "framework_version", "algorithm", "engine", "rollout_tp",
    "accelerators", "group_size", "max_prompt_tokens", "max_response_tokens", "asynchronous",
)  # fmt: skip


@dataclass
class _Shared:
    """What many figures have in common: texts once, ids to be looked up."""

    queries: dict[str, int] = field(default_factory=dict)
    definitions: dict[tuple[str, ...], int] = field(default_factory=dict)
    ids: dict[str, set[int]] = field(default_factory=dict)

    def query(self, text: str) -> int:
        """Number of a query."""
        return self.queries.setdefault(text, len(self.queries))

    def definition(self, figure: Figure) -> int:
        """Number of what a figure is."""
        unit = unit_of(figure.id, figure.unit)
        texts = (figure.id, figure.title, figure.meaning, unit, ", ".join(figure.inputs))
        return self.definitions.setdefault(texts, len(self.definitions))

    def evidence(self, kind: str, ids: Iterable[int | None]) -> None:
        """Ids that are on the page."""
        self.ids.setdefault(kind, set()).update(number for number in ids if number is not None)


def document(tables: Tables, found: Characterization) -> dict[str, Any]:
    """All of it, as JSON has it.

    Args:
        tables: Those that it was made of, with the tables of the ledger.
        found: What was found.
    """
    shared = _Shared()
    ledger, causes = found.ledger, found.causes
    if ledger is not None and not ledger.gpu_s:
        # Steps that took no time at all.
        ledger = None
    first, second = summary(found, ledger)
    page: dict[str, Any] = {
        "source": found.source,
        "run": _run(tables, found),
        "headline": [first, second],
        "families": FAMILIES,
        "categories": NAMES,
        "unit": found.unit.name,
        "ledger": ledger_of(tables, ledger, found.unit),
        "causes": None if ledger is None else [_cause(cause, shared) for cause in causes],
        "timeline": None if ledger is None else timeline_of(tables, ledger, causes),
        "lengths": lengths_of(tables),
        "chapters": [_chapter(chapter, shared) for chapter in found.chapters],
        "notes": list(dict.fromkeys(found.notes)),
        "lost": [list(row) for row in lost(tables)],
    }
    if page["ledger"]:
        page["ledger"]["bars"]["cells"] = drawn(page["ledger"]["bars"]["cells"])
        for row in (*page["ledger"]["who"], *page["ledger"]["worst"]):
            shared.evidence("trajectory", [row.get("trajectory_id"), row.get("worst_trajectory")])
            shared.evidence("process", [row.get("process")])
            shared.evidence("step", [row.get("step_id"), row.get("worst_step")])
    page["queries"] = list(shared.queries)
    page["definitions"] = list(shared.definitions)
    page["who"] = references(tables, shared.ids)
    return {name: cleaned(value) for name, value in page.items()}


def _run(tables: Tables, found: Characterization) -> dict[str, Any]:
    facts = {name: found.facts[name] for name in _RUN}
    [counts] = found.counts.dicts
    facts |= {name: counts[name] for name in ("trajectories", "steps", "processes")}
    facts |= {"tokens": counts["response_tokens"], "hosts": hosts(tables)}
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _evidence(evidence: Mapping[str, Evidence], shared: _Shared) -> dict[str, Any]:
    for kind, known in evidence.items():
        shared.evidence(kind, known.ids)
    return {kind: [list(known.ids), known.count] for kind, known in evidence.items()}


def _chapter(chapter: Chapter, shared: _Shared) -> dict[str, Any]:
    return {
        "name": chapter.name,
        "title": chapter.title,
        "notes": chapter.notes,
        "figures": [_figure(figure, shared) for figure in chapter.figures],
        "series": [_series(series, shared) for series in chapter.series],
    }


def _figure(figure: Figure, shared: _Shared) -> dict[str, Any]:
    parts: dict[str, Any] = {
        "why": figure.why if figure.value is None else None,
        "low": figure.low,
        "high": figure.high,
        "query": shared.query(figure.query) if figure.query else None,
        "evidence": _evidence(figure.evidence, shared) or None,
        "by": dict(figure.by) or None,
    }
    known = {name: part for name, part in parts.items() if part is not None}
    return {"is": shared.definition(figure), "value": figure.value, **known}


def _series(series: Series, shared: _Shared) -> dict[str, Any]:
    return {
        **series.values(),
        "columns": series.columns,
        "units": [unit_of(f"{series.id}:{name}", series.units[name]) for name in series.columns],
        "rows": drawn(series.rows),
        "query": shared.query(series.query),
    }


def _cause(cause: Cause, shared: _Shared) -> dict[str, Any]:
    return {
        **cause.values(),
        "evidence": _evidence(cause.evidence, shared),
        "query": shared.query(cause.query),
    }


def summary(found: Characterization, ledger: Ledger | None) -> tuple[str, str]:
    """What became of the GPU time, and what to look at first: two sentences."""
    causes, kind = found.causes, found.kind
    if ledger is None or not ledger.gpu_s:
        if kind == "workload":
            return "A workload has lengths and durations, no clock: no ledger of GPU time.", ""
        return "No training step was recorded: the ledger is empty.", ""
    shares = {name: ledger.share_of_family(name) for name in FAMILIES}
    text = f"{found.unit.say('GPUs')} worked {_percent(shares['work'])} of the time and waited"
    text += f" {_percent(shares['wait'])}"
    waits = {name: ledger.share(name) for name in NAMES if name.startswith("wait.")}
    most = max(waits, key=lambda name: waits[name])
    if waits[most] >= 0.005:
        whole = waits[most] > 0.95 * shares["wait"]
        text += f", {'nearly all of it' if whole else f'most ({_percent(waits[most])})'}"
        text += f" {NAMES[most].removeprefix('wait ')}"
    rest = {
        name: shares[name] for name in ("bubble", "overhead", "discarded", "unaccounted")
        if shares[name] >= 0.05
    }  # fmt: skip
    if rest:
        also = max(rest, key=lambda name: rest[name])
        text += f"; {_percent(rest[also])} was {FAMILIES[also]}"
    text = text[:1].upper() + text[1:]
    unknown = unexplained(found)
    if causes and unknown is not None and unknown.first:
        return f"{text}.", f"{unknown.sentence}."
    faults = [cause for cause in causes if not cause.natural]
    if faults and faults[0].early:
        return f"{text}.", f"Only a hint, as {faults[0].no_interval}: {faults[0].title}"
    if faults:
        return f"{text}.", faults[0].title[:1].upper() + faults[0].title[1:]
    if causes:
        return f"{text}.", f"No fault found. Inherent to the workload: {causes[0].title}"
    silence = NO_CAUSE if unknown is None else f"{NO_CAUSE}; {unknown.sentence}"
    return f"{text}.", f"{silence[:1].upper()}{silence[1:]}."


def _percent(share: float) -> str:
    """A share for reading: never 0 % of something, never all of it if something is left."""
    if 0 < share < 0.01:
        return "under 1 %"
    if 0.99 < share < 1:
        return "over 99 %"
    return f"{share:.0%}".replace("%", " %")
