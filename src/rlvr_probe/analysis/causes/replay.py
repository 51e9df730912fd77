"""What a run does between two barriers, by rank and by trajectory: what the causes replay.

A *lap* is what one rank does from one barrier to the next. The step waits for the longest; with
another duration of one of its parts another rank may be the longest. ``cause_lap`` has a row for
each step, barrier and rank:

*   ``own_ns`` is what its GPU worked, so that a faster GPU makes it shorter;
*   ``tool_ns`` and ``reward_ns`` are what it waited for its own tools and reward functions: what
    ran at the same time counts once.

``cause_path`` has a row for each trajectory that goes its own way, from its start until it was
verified. ``cause_called`` has the calls of tools and reward functions that a rank waits for itself.
``cause_hidden`` has the stages whose ranks end together, because a collective in them
makes all wait for the last: how long each of them worked is not in its spans.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.intervals import covered
from rlvr_probe.analysis.statements import fill, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["WITHOUT", "make_laps"]

_SQL: Final = statements(__name__)

_KEYS: Final = "step_id, process, part"
WITHOUT: Final = covered(_SQL["other_calls"], _KEYS)
"""Time in which a rank waits for a tool or a reward function, but for those of ``$names``."""


def make_laps(tables: Tables) -> None:
    """Make the tables of this module, for as long as the connection is open.

    Those of GPUs are there.
    """
    for name in ("work", "calls", "called"):
        tables.sql.execute(_SQL[name])
    tables.sql.execute(fill(_SQL["parts"], waited=covered("cause_called", _KEYS)))
    for name in ("laps", "hidden", "paths", "hot"):
        tables.sql.execute(_SQL[name])
