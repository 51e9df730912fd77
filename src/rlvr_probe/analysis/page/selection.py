"""Which GPUs and steps of a large run are drawn one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from rlvr_probe.analysis.causes import Cause
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["GPUS", "chosen_gpus", "chosen_steps", "together"]

_SQL: Final = statements(__name__)

GPUS: Final = 48
"""GPUs that are drawn; all are counted."""

_ENDS: Final = 8
"""Of these, so many that waited least, and most."""


def together(count: int, most: int) -> int:
    """Of ``count`` things, how many make one so that there are at most ``most``."""
    return max(1, -(-count // most))


def _even(of: Sequence[int], count: int) -> Iterator[int]:
    """``count`` of them, evenly spaced, the coarsest first."""
    if not of:
        return
    whole = 1
    while whole < count * 2:
        for part in range(whole + 1):
            yield of[min(len(of) - 1, part * (len(of) - 1) // whole)]
        whole *= 2


def _first(count: int, *some: Iterable[int]) -> list[int]:
    """The first ``count`` different ones."""
    return list(dict.fromkeys(chain(*some)))[:count]


def chosen_gpus(tables: Tables, causes: Sequence[Cause]) -> tuple[list[int], dict[str, int]]:
    """Numbers of the GPUs that are drawn, by rank, and how many there are for which reason."""
    places = tables.sql.execute(_SQL["gpus"]).fetchall()
    every = [gpu for gpu, *_ in places]
    if len(every) <= GPUS:
        return every, {}
    named = dict[int, None]()
    for cause in causes:
        processes, devices = (
            set(cause.evidence[kind].ids) if kind in cause.evidence else set[int]()
            for kind in ("process", "device")
        )
        for gpu, process, device, rank in places:
            here = rank is not None and rank == cause.where.get("rank")
            if here or process in processes or device in devices:
                named[gpu] = None
    waited = [gpu for gpu, _ in tables.sql.execute(_SQL["waited"]).fetchall()]
    causing = _first(GPUS // 2, named)
    ends = _first(len(causing) + 2 * _ENDS, causing, waited[:_ENDS], waited[::-1][:_ENDS])
    chosen = _first(GPUS, ends, _even(every, GPUS), every)
    why = {
        "named": len(causing), "ends": len(ends) - len(causing), "even": len(chosen) - len(ends),
    }  # fmt: skip
    return [gpu for gpu in every if gpu in chosen], why


def chosen_steps(
    tables: Tables, causes: Sequence[Cause], cost: dict[int, int], most: int
) -> list[int]:
    """Steps that are drawn exactly, in order of their start.

    Args:
        tables: With the ledger.
        causes: Whose steps come first.
        cost: By step_id, what it takes to draw it.
        most: What all of them may take.
    """
    steps = tables.sql.execute(_SQL["steps"]).fetchall()
    order = [step for step, _ in steps if step in cost]
    took = dict(steps)
    longest = sorted(order, key=lambda step: -took[step])
    place = {step: at for at, step in enumerate(order)}
    named = (
        step for cause in causes for step in (cause.evidence["step"].ids if "step" in cause.evidence
                                            else ())[:5]
    )  # fmt: skip
    median = longest[len(longest) // 2 :][:1]
    ends = (*order[:1], *order[-1:])
    wished = _first(
        len(order), (step for step in named if step in cost), longest[:8], median, ends,
        _even(order, len(order)),
    )  # fmt: skip
    found, left = list[int](), most
    for step in wished:
        if cost[step] > left:
            break
        left -= cost[step]
        found.append(step)
    return sorted(found, key=lambda step: place[step])
