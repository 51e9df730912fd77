"""Trajectories: how long, their turns, tools and rewards, how old their weights, what engines did.

Asked of the tables, of the rows that the sections of :mod:`rlvr_probe.analysis.metrics` are of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final

from rlvr_probe.analysis.results import query
from rlvr_probe.analysis.statements import fill, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["TIMES", "Lengths", "per_call_s", "requests", "rewards", "staleness", "tools", "turns"]

_SQL: Final = statements(__name__)

TIMES: Final = ("queue_s", "prefill_s", "decode_s")
"""Times of a request, one after another."""


def _rows(tables: Tables, name: str, **values: str) -> Sequence[dict[str, Any]]:
    """What a statement answers; of each part, SQL of the value that it says the spread of."""
    spreads = {part: fill(_SQL["distribution"], value=value) for part, value in values.items()}
    return [_finite(row) for row in query(tables, fill(_SQL[name], **spreads)).dicts]


def _finite(value: Any) -> Any:
    """``value``, as deep as it goes; sums of absurd values may be infinite, and are unknown."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return None if isinstance(value, float) and not isfinite(value) else value


class Lengths:
    """Lengths of trajectories: of the whole run, of single steps, and of evaluation."""

    def __init__(self, tables: Tables) -> None:
        """Ask for all of them."""
        rows = _rows(tables, "lengths", prompt="prompt_tokens", response="response_tokens")
        self._found = {
            (row.pop("mode"), None if row.pop("of_all") else (step_id,)): row
            for row in rows
            for step_id in [row.pop("step_id")]
        }

    def of_run(self, mode: str) -> dict[str, Any]:
        """How long prompts and responses are, and how many the cap stopped."""
        return self._figures(mode, None)

    def of_step(self, step_id: int) -> dict[str, Any]:
        """The same of one step of the training."""
        return self._figures("train", (step_id,))

    def _figures(self, mode: str, step: tuple[int] | None) -> dict[str, Any]:
        unknown: dict[str, Any] = dict.fromkeys(
            ("prompt_tokens", "response_tokens", "truncated_share")
        )
        return self._found.get((mode, step), unknown)


def turns(tables: Tables) -> dict[str, Any] | None:
    """How many turns trajectories had; None where turns were not recorded one by one."""
    [row] = _rows(tables, "turns", spread="turns")
    return row if row["trajectories"] else None


def tools(tables: Tables) -> list[dict[str, Any]]:
    """Per tool, the most called one first: calls, outcomes and latency."""
    found = _rows(tables, "tools", spread="took_s")
    return [
        row | {"statuses": _sorted(row["statuses"]), "errors": _sorted(row["errors"])}
        for row in found
    ]


def rewards(tables: Tables) -> list[dict[str, Any]]:
    """Per reward function: mean value, time of its calls, and how often a service was asked.

    Where a function gave values and no call of it was recorded, its calls are unknown: another
    process verified, and did not record for which rows. Where it was called and no row is known to
    have its values, the values are unknown.
    """
    values, calls = (
        {row["function"]: row for row in _rows(tables, name)} for name in ("values", "calls")
    )
    unknown = dict.fromkeys(("values", "mean", "not_finite", "missing"))
    uncalled = dict.fromkeys(("calls", "total_s", "waited", "retries", "timeouts"))
    return [
        {"function": function, **unknown, **uncalled}
        | values.get(function, {})
        | calls.get(function, {})
        for function in dict.fromkeys((*values, *calls))
    ]


def per_call_s(reward: Mapping[str, Any], *, waited: bool) -> float | None:
    """Seconds of a call in an entry of :func:`rewards`; None if its calls are of the other kind.

    Args:
        reward: The entry.
        waited: Whether it is asked how long calls were waited for, or how long they ran.
    """
    known = reward["calls"] and reward["waited"] is waited
    return reward["total_s"] / reward["calls"] if known else None


def requests(tables: Tables, unjoined: int) -> dict[str, Any] | None:
    """Counts, times and cached tokens of all requests; None where no engine recorded one.

    Args:
        tables: Get the requests.
        unjoined: Requests without a known turn.
    """
    [row] = _rows(tables, "requests", **{name: name for name in TIMES})
    if not row["requests"]:
        return None
    totals = {name: row.pop(f"{name.removesuffix('_s')}_total") for name in TIMES}
    return {
        "requests": row.pop("requests"),
        "unjoined": unjoined,
        **row,
        "finishes": _sorted(row["finishes"]),
        "total_s": {name: total for name, total in totals.items() if total is not None},
    }


def staleness(tables: Tables) -> dict[str, Any] | None:
    """Trainer steps that the weights of a trajectory lacked when its step started.

    Of the oldest weights that it saw; None where no trajectory recorded a version.
    """
    [row] = _rows(tables, "staleness", spread="lag")
    return row if row["trajectories"] else None


def _sorted(counts: Mapping[str, int] | None) -> dict[str, int]:
    return dict(sorted((counts or {}).items()))
