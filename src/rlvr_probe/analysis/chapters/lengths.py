"""Lengths: how long prompts, responses, turns and tool results are, and how they vary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from rlvr_probe.analysis.chapters import filtering, turning
from rlvr_probe.analysis.chapters.definitions import (
    Definition,
    Found,
    SeriesDefinition,
)
from rlvr_probe.analysis.chapters.distributions import Quantity, Spread, ask
from rlvr_probe.analysis.chapters.intervals import jackknife, share_interval, theil_sen
from rlvr_probe.analysis.chapters.samples import prepare
from rlvr_probe.analysis.figures import Chapter, Evidence, query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["DEFINITIONS", "SERIES", "lengths"]

_SQL: Final = statements(__name__)

_GROUP: Final = "hash(batch_id, grp) AS cluster"

PROMPT: Final = Quantity(
    "lengths.prompt",
    "prompt",
    "the prompt of every trajectory (trajectory.prompt_tokens)",
    "tokens",
    _SQL["prompt"],
    "no trajectory was recorded",
)
UNIQUE_PROMPT: Final = Quantity(
    "lengths.unique_prompt",
    "prompt of a group",
    "the prompt of every group, counted once (trajectory.prompt_tokens)",
    "tokens",
    _SQL["unique_prompt"],
    "no trajectory was recorded",
    by_step=True,
)
RESPONSE: Final = Quantity(
    "lengths.response",
    "response",
    "the response of every trajectory, results of tools in it included"
    " (trajectory.response_tokens)",
    "tokens",
    _SQL["response"],
    "no trajectory was recorded",
)
LOSS: Final = Quantity(
    "lengths.loss",
    "response in the loss",
    "the part of every response that is in the loss (trajectory.loss_tokens)",
    "tokens",
    _SQL["loss"],
    "the trainer has no mask of the loss, or none was recorded",
)
CONTEXT: Final = Quantity(
    "lengths.context",
    "context in the end",
    "the context of every trajectory in the end, before it was cut (trajectory.context_tokens)",
    "tokens",
    _SQL["context"],
    "only a workload of several turns says it",
)
SPREAD: Final = Quantity(
    "lengths.group.max_over_mean",
    "longest over mean in a group",
    "the longest response of every group over its mean response (trajectory.response_tokens)",
    "1",
    _SQL["group_max_over_mean"],
    "no group has a response that is not empty",
)

_CAP: Final = (
    Definition(
        "lengths.response.cap",
        "cap on a response",
        "Longest response that the trainer asks for (run.max_response_tokens).",
        "tokens",
        "no cap was recorded",
    ),
    Definition(
        "lengths.response.at_cap",
        "share as long as the cap",
        "Trajectories whose response is as long as the cap over all trajectories, with Wilson's"
        " interval at the effective number of samples (trajectory.response_tokens).",
        "1",
        "no cap was recorded",
    ),
    Definition(
        "lengths.response.at_longest",
        "share at the longest",
        "Trajectories whose response is as long as the longest one over all trajectories: more than"
        " a few are at a cap, recorded or not (trajectory.response_tokens).",
        "1",
        "no trajectory was recorded",
    ),
    Definition(
        "lengths.response.truncated",
        "share stopped by the cap",
        "Trajectories that the cap stopped, over those of which that is known: one that ends by"
        " itself with the last token that it may have is not among them (trajectory.truncated).",
        "1",
        "whether a trajectory was stopped by the cap was not recorded",
    ),
    Definition(
        "lengths.response.tail_index",
        "tail index",
        "Hill's estimate of the exponent of the tail of responses above the 0.95 quantile u: those"
        " below the cap over the sum of ln(response / u); what reached the cap counts as longer"
        " than it. The smaller, the heavier; below 2 the variance has no limit.",
        "1",
        "no trajectory was recorded",
    ),
)
_VARIATION: Final = (
    Definition(
        "lengths.response.icc",
        "variation between prompts",
        "Intra-class correlation of responses, of a one-way analysis of variance by group:"
        " (MSB - MSW) / (MSB + (n0 - 1) MSW); 1: all responses to a prompt are equally long, 0: the"
        " prompt says nothing of the length. Interval: jackknife over 64 blocks of groups.",
        "1",
        "it takes two groups, and a group of two trajectories",
    ),
)
_TREND: Final = tuple(
    Definition(
        f"lengths.response.trend_{name}",
        f"trend of the {what}",
        f"Median slope of the {what} of responses from step to step (Theil and Sen), with Sen's"
        " interval; steps are taken to be independent.",
        "tokens/step",
        "it takes three steps",
    )
    for name, what in (("mean", "mean"), ("p99", "0.99 quantile"))
)

BY_STEP: Final = SeriesDefinition(
    "lengths.response.by_step",
    "responses by step",
    "Of the responses of each step and batch (unit; -1: a queue), as lengths.response"
    " (trajectory.response_tokens).",
    {
        "step_id": "", "step": "", "unit": "", "workload_step": "",
        "trajectories": "1", "groups": "1",
        "prompt_tokens": "tokens", "tokens": "tokens", "mean": "tokens", "min": "tokens",
        "p50": "tokens", "p90": "tokens", "p99": "tokens", "max": "tokens", "at_cap": "1",
    },
)  # fmt: skip

SIZES: Final = SeriesDefinition(
    "lengths.group.histogram",
    "groups by their size",
    "How many groups have how many trajectories (trajectory).",
    {"trajectories": "1", "groups": "1"},
)

_QUANTITIES: Final = (PROMPT, UNIQUE_PROMPT, RESPONSE, LOSS, CONTEXT, SPREAD)
DEFINITIONS: Final = (
    *(one for quantity in _QUANTITIES for one in quantity.definitions),
    *_CAP,
    *_VARIATION,
    *_TREND,
    *turning.DEFINITIONS,
    *filtering.DEFINITIONS,
)
SERIES: Final = (UNIQUE_PROMPT.series, BY_STEP, SIZES, *turning.SERIES, *filtering.SERIES)

_SEVERAL: Final = "the run trained several times, with another cap each"
_LEAST: Final = 30
"""Trajectories in the tail that say something of it."""


def lengths(tables: Tables) -> Chapter:
    """How long things are."""
    found = Found("lengths", "Lengths")
    found.notes += prepare(tables)
    spreads = dict[str, Spread]()
    for quantity in _QUANTITIES:
        spreads[quantity.id] = ask(tables, found, quantity)
    cap = _cap(tables, found, spreads[RESPONSE.id])
    _icc(tables, found, spreads[RESPONSE.id])
    _sizes(tables, found)
    _by_step(tables, found, spreads[RESPONSE.id], cap)
    turning.turns(tables, found)
    filtering.filtered(tables, found)
    return found.chapter()


def _cap(tables: Tables, found: Found, spread: Spread) -> int | None:
    """Add what a cap does; the cap of every trajectory, None where they have none or several."""
    cap, at_cap, at_longest, truncated, tail = _CAP
    limit = query(tables, _SQL["cap"])
    [(most, several)] = limit.rows or [(None, False)]
    found.add(cap.of(most, limit))
    most = None if several else most
    why = _SEVERAL if several else ""
    answer = query(
        tables,
        _SQL["at_cap"],
        cap=most,
    )
    [told] = answer.dicts
    effect = spread.effects.get("p95", 1.0)
    for one, part, whole in (
        (at_cap, told["at_cap"] if most is not None else None, told["count"]),
        (at_longest, told["at_longest"], told["count"]),
        (truncated, told["truncated"], told["told"]),
    ):
        share = part / whole if whole and part is not None else None
        low, high = (None, None) if share is None else share_interval(share, whole / effect)
        behind = spread.behind
        if one is at_cap and told["capped"]:
            behind = {"trajectory": Evidence.of(told["capped"], part)}
        reason = why if one is at_cap else ""
        found.add(one.of(share, answer, low=low, high=high, why=reason, evidence=behind))
    if several:
        found.add(tail.of(None, why=why))
    else:
        _tail(tables, found, tail, spread, most)
    return most


def _tail(tables: Tables, found: Found, tail: Definition, spread: Spread, cap: int | None) -> None:
    """Hill's estimate; of what was cut at the cap only that it is longer is known."""
    if not spread.count:
        found.add(tail.of(None))
        return
    above = spread.quantiles["p95"]
    answer = query(
        tables,
        _SQL["tail"],
        cap=cap,
        above=max(above, 1.0),
    )
    [told] = answer.dicts
    if cap is not None and above >= cap:
        why = "a twentieth of the responses or more is at the cap: of the tail nothing is left"
    elif told["known"] < _LEAST:
        why = f"{told['known']} responses are above the 0.95 quantile and below the cap; it takes"
        why += f" {_LEAST}"
    else:
        why = ""
    if why:
        found.add(tail.of(None, answer, why=why))
        return
    index = told["known"] / told["logs"]
    half = 1.96 * math.sqrt(spread.effects["p95"] / told["known"])
    found.add(
        tail.of(
            index,
            answer,
            low=index * math.exp(-half),
            high=index * math.exp(half),
            evidence={"trajectory": Evidence.of(told["longest"], told["count"])},
        )
    )


def _icc(tables: Tables, found: Found, spread: Spread) -> None:
    [one] = _VARIATION
    answer = query(tables, _SQL["blocks"])
    blocks = [row[1:] for row in answer.rows]
    value = icc([sum(column) for column in zip(*blocks, strict=True)]) if blocks else None
    low, high = jackknife(blocks, icc)
    found.add(one.of(value, answer, low=low, high=high, evidence=spread.behind))


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


def _sizes(tables: Tables, found: Found) -> None:
    answer = query(tables, _SQL["sizes"])
    found.series.append(SIZES.of(answer))


def _by_step(tables: Tables, found: Found, spread: Spread, cap: int | None) -> None:
    answer = query(
        tables,
        _SQL["by_step"],
        cap=cap,
    )
    found.series.append(BY_STEP.of(answer))
    for one, name in zip(_TREND, ("mean", "p99"), strict=True):
        points = [
            (float(row["step"]), float(row[name]))
            for row in answer.dicts
            if row["step"] is not None
        ]
        slope, (low, high) = theil_sen(points) if len(points) > 2 else (None, (None, None))
        found.add(one.of(slope, answer, low=low, high=high, evidence=spread.behind))
