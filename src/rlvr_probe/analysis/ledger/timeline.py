"""The timeline of each GPU: every interval gets one name, and another one as more is known of it.

Waiting inside a collective looks like work to spans, and does not to tensor cores. Ranks that
reduce gradients together end their updates together, and which of them was late is not in their
spans. A GPU that waits in a collective runs a kernel, and its tensor cores are idle. So the rank
whose tensor cores were busiest, over its update, is taken to have worked all the time, and the
others as much less as theirs were. Readings that reach beyond an update are corrected by what
readings show while nothing but one other thing computes.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.ledger.categories import LAYERS
from rlvr_probe.analysis.statements import fill, islands, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["begin_paint", "find_hidden", "make_cells", "sweep"]

_SQL: Final = statements(__name__)


def begin_paint(tables: Tables) -> None:
    """Make ``paint``, empty: what is known of a GPU from when to when, by layer."""
    tables.sql.execute(_SQL["paint"])
    layers = {"layers": list(range(len(LAYERS))), "categories": list(LAYERS.values())}
    tables.sql.execute(_SQL["layers"], layers)


def sweep(tables: Tables, begin_ns: int, end_ns: int) -> None:
    """Make ``segment``: for each GPU, from ``begin_ns`` to ``end_ns``, interval after interval.

    A bit of ``layers`` says that a layer is there; the highest one names the interval.
    """
    sql = tables.sql
    sql.execute(_SQL["death"])
    both = {"begin": begin_ns, "end": end_ns}
    sql.execute(fill(_SQL["union"], islands=islands(_SQL["clipped"], "gpu, layer")), both)
    sql.execute(_SQL["cut"], both)
    sql.execute(_SQL["segment"], both)


def find_hidden(tables: Tables) -> None:
    """Make ``hidden_wait``: by step and GPU, the part of an update that was waiting, ns.

    An update has no row unless readings show it on every GPU of it.
    """
    tables.sql.execute(_SQL["read"])
    tables.sql.execute(_SQL["course"])
    tables.sql.execute(fill(_SQL["level"], from_ns="reading.start_ns", until_ns="reading.end_ns"))
    tables.sql.execute(fill(_SQL["busy"], from_ns="a_ns", until_ns="b_ns"))
    tables.sql.execute(_SQL["hidden"])


def make_cells(tables: Tables) -> None:
    """Make ``ledger`` from ``segment``: GPU time by step, GPU and category, ns."""
    sql = tables.sql
    sql.execute(_SQL["moves"])
    sql.execute(_SQL["thrown"])
    [[thrown]] = sql.execute(_SQL["count"]).fetchall()
    # What of rollout was thrown away, by step and GPU.
    for name in ("total", "discarded", "queued") if thrown else ():
        sql.execute(_SQL[name])
    for name in ("probe", "waited", "cells"):
        sql.execute(_SQL[name])
