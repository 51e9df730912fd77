"""Lengths of prompts, responses, turns and tool results, how they vary, and what a filter keeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from rlvr_probe.analysis.metrics.families import Spread, distribution
from rlvr_probe.analysis.metrics.section import Section
from rlvr_probe.analysis.metrics.sources import by_source
from rlvr_probe.analysis.results import Chapter, Evidence, query_by_step
from rlvr_probe.analysis.statements import counted_quantiles, fill, make, statements
from rlvr_probe.analysis.statistics import jackknife, share_interval, theil_sen
from rlvr_probe.recording.tables import Tables

__all__ = ["TABLES", "icc", "lengths"]

_SQL: Final = statements(__name__)

TABLES: Final = _SQL.derived("sample_group")
"""By name: what a row is, and the query that makes it."""

_SEVERAL: Final = "the run trained several times, with another cap each"
_LEAST: Final = 30
"""Trajectories in the tail that say something of it."""

_QUANTITIES: Final = {
    "prompt": "prompt",
    "unique_prompt": "unique_prompt",
    "response": "response",
    "loss": "loss",
    "context": "context",
    "group.max_over_mean": "group_max_over_mean",
}
"""The statement that has the rows, by the end of the id."""

_OF_GROUPS: Final = ("unique_prompt", "group.max_over_mean")

_OF_TURNS: Final = {
    "turns": "turns",
    "turn.prompt": "turn_prompt",
    "turn.response": "turn_response",
    "observation": "observation",
    "tool_calls": "tool_calls",
    "tool_result": "tool_result",
}


def lengths(tables: Tables) -> Chapter:
    """How long things are."""
    section = Section.of_samples(tables, "lengths", "Lengths")
    make(tables, TABLES, by_step=True)
    spreads = {
        name: distribution(section, name, _SQL[rows], counted=name not in _OF_GROUPS)
        for name, rows in _QUANTITIES.items()
    }
    response = spreads["response"]
    cap = _cap(section, response)
    answer = section.ask(_SQL["blocks"])
    blocks = [row[1:] for row in answer.rows]
    value = icc([sum(column) for column in zip(*blocks, strict=True)]) if blocks else None
    low, high = jackknife(blocks, icc)
    section.add("response.icc", value, answer, low=low, high=high, evidence=response.evidence)
    section.add_series("group.histogram", section.ask(_SQL["sizes"]))
    of_parts = counted_quantiles(_SQL["counted"], "source, part")
    for name in ("histogram", "quantiles", "by_prompt", "step_time"):
        sql = fill(_SQL[name], of_parts=of_parts)
        answer = section.ask(sql, quantiles=[part / 20 for part in range(21)])
        section.add_series(f"source.{name}" if "source" in answer.columns else name, answer)
    _by_step(section, response, cap)
    _turns(section)
    _filtered(section)
    by_source(section)
    return section.chapter()


def _cap(section: Section, spread: Spread) -> int | None:
    """Add what a cap does; the cap of every trajectory, None where they have none or several."""
    limit = section.ask(_SQL["cap"])
    [(cap, several)] = limit.rows or [(None, False)]
    section.add("response.cap", cap, limit)
    cap = None if several else cap
    why = _SEVERAL if several else ""
    answer = section.ask(_SQL["at_cap"], cap=cap)
    [row] = answer.dicts
    effect = spread.effects.get("p95", 1.0)
    for name, part, whole in (
        ("at_cap", row["at_cap"] if cap is not None else None, row["count"]),
        ("at_longest", row["at_longest"], row["count"]),
        ("truncated", row["truncated"], row["told"]),
    ):
        share = part / whole if whole and part is not None else None
        low, high = (None, None) if share is None else share_interval(share, whole / effect)
        evidence, reason = spread.evidence, ""
        if name == "at_cap":
            reason = why
            if row["capped"]:
                evidence = {"trajectory": Evidence.of(row["capped"], part)}
        section.add(
            f"response.{name}", share, answer, low=low, high=high, why=reason, evidence=evidence
        )
    if several:
        section.add("response.tail_index", None, why=why)
    else:
        _tail(section, spread, cap)
    return cap


def _tail(section: Section, spread: Spread, cap: int | None) -> None:
    """Hill's estimate; of what was cut at the cap only that it is longer is known."""
    if not spread.count:
        section.add("response.tail_index", None)
        return
    above, why = spread.quantiles["p95"], ""
    answer = section.ask(_SQL["tail"], cap=cap, above=max(above, 1.0))
    [row] = answer.dicts
    if cap is not None and above >= cap:
        why = "a twentieth of the responses or more is at the cap: nothing is left of the tail"
    elif row["known"] < _LEAST:
        why = f"{row['known']} responses are above the 0.95 quantile and below the cap; it takes"
        why += f" {_LEAST}"
    if why:
        section.add("response.tail_index", None, answer, why=why)
        return
    index = row["known"] / row["logs"]
    half = 1.96 * math.sqrt(spread.effects["p95"] / row["known"])
    low, high = index * math.exp(-half), index * math.exp(half)
    evidence = {"trajectory": Evidence.of(row["longest"], row["count"])}
    section.add("response.tail_index", index, answer, low=low, high=high, evidence=evidence)


def icc(sums: Sequence[float]) -> float | None:
    """Intra-class correlation.

    Args:
        sums: Groups, trajectories, sum of squared sizes, total, sum of total^2 / size, sum of
            squares.
    """
    groups, n, squared_sizes, total, between, squares = sums
    if groups < 2 or n <= groups:
        return None
    msb = (between - total * total / n) / (groups - 1)
    msw = (squares - between) / (n - groups)
    size = (n - squared_sizes / n) / (groups - 1)
    whole = msb + (size - 1) * msw
    return (msb - msw) / whole if whole else None


def _by_step(section: Section, spread: Spread, cap: int | None) -> None:
    answer = query_by_step(section.tables, _SQL["by_step"], cap=cap)
    section.add_series("response.by_step", answer)
    steps = [row for row in answer.dicts if row["step"] is not None]
    for name in ("mean", "p99"):
        points = [(float(row["step"]), float(row[name])) for row in steps]
        slope, (low, high) = theil_sen(points) if len(points) > 2 else (None, (None, None))
        evidence = spread.evidence
        section.add(f"response.trend_{name}", slope, answer, low=low, high=high, evidence=evidence)


def _turns(section: Section) -> None:
    """Add what turns say; of turns that are whole trajectories, what those say already."""
    if section.ask(_SQL["several"]).row[0]:
        for name, rows in _OF_TURNS.items():
            distribution(section, name, _SQL[rows], counted=True)
        section.add_series("turn.by_turn", section.ask(_SQL["by_turn"]))
        section.add_series("turn.by_step", section.ask(_SQL["turns_by_step"]))
        for name in ("turns", "tool_calls"):
            answer = section.ask(fill(_SQL["histogram_of"], name=name, rows=_SQL[name]))
            section.add_series(f"{name}.histogram", answer)
    else:
        section.notes.append("single-turn run: turn metrics omitted")
    answer = section.ask(_SQL["loss_share"])
    section.add("loss_share", answer.row[0], answer)
    answer = section.ask(_SQL["turn_sums"])
    for name, value in answer.dicts[0].items():
        section.add(f"turn.{name}", value, answer)


def _filtered(section: Section) -> None:
    """Add what a filter did with groups, if there was one, and with the tokens of the others."""
    answer = section.ask(_SQL["filter_shares"])
    [row] = answer.dicts
    if not row["groups"]:
        section.add("filter.groups", None, answer)
        return
    for name, value in row.items():
        section.add(f"filter.{name}", value, answer)
    for name, condition in (("used", "used"), ("unused", "NOT used")):
        rows = fill(_SQL["filtered_response"], condition=condition)
        distribution(section, name, rows, counted=True)
    section.add_series("filter.by_step", section.ask(_SQL["filter_by_step"]))
