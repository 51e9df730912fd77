"""The cursor of each GPU: it only moves on, and every interval that it passes gets one name."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.intervals import islands
from rlvr_probe.analysis.ledger.categories import LAYERS
from rlvr_probe.analysis.statements import fill, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["begin_paint", "sweep"]

_SQL: Final = statements(__name__)


def begin_paint(tables: Tables) -> None:
    """Make ``paint``, empty: what is known of a GPU from when to when, by layer."""
    tables.sql.execute(_SQL["paint"])
    categories = [layer.category for layer in LAYERS]
    of = {"layers": list(range(len(LAYERS))), "categories": categories}
    tables.sql.execute(_SQL["layers"], of)


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
