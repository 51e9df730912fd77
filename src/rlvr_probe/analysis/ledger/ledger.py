"""Puts the ledger of a recording together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rlvr_probe.analysis.ledger.barriers import find_barriers
from rlvr_probe.analysis.ledger.categories import CATEGORIES
from rlvr_probe.analysis.ledger.extent import find_extent
from rlvr_probe.analysis.ledger.hidden import find_hidden
from rlvr_probe.analysis.ledger.moves import make_cells
from rlvr_probe.analysis.ledger.notes import notes_of
from rlvr_probe.analysis.ledger.places import find_places
from rlvr_probe.analysis.ledger.queue import paint_queue
from rlvr_probe.analysis.ledger.rollout import find_rollout, paint_rollout
from rlvr_probe.analysis.ledger.search import Gpu, insert
from rlvr_probe.analysis.ledger.stages import find_stages, paint_stages
from rlvr_probe.analysis.ledger.sweep import begin_paint, sweep
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["Ledger", "make_ledger"]

_SQL: Final = statements(__name__)


_LARGE: Final = (
    "paint", "painted", "ledger_call", "ledger_part", "barrier_own",
    "tensor_read", "tensor_course",
)  # fmt: skip
"""What was made on the way, and is as large as the recording."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where the time of every GPU went.

    Attributes:
        gpus: All of them.
        begin_ns, end_ns: From the begin of the first step to the end of the last.
        ns: GPU time by category, every category; sums up to GPUs times what lies between.
        notes: What cannot be told of this recording, and what was taken to be so.
    """

    gpus: Sequence[Gpu]
    begin_ns: int
    end_ns: int
    ns: dict[str, int]
    notes: tuple[str, ...]

    @property
    def wall_s(self) -> float:
        """From its begin to its end, s."""
        return (self.end_ns - self.begin_ns) / 1e9

    @property
    def gpu_s(self) -> float:
        """GPU time of all categories, s."""
        return sum(self.ns.values()) / 1e9

    def share(self, *categories: str) -> float:
        """GPU time of these categories of that of all, 0..1; 0 where there is none."""
        whole = sum(self.ns.values())
        return sum(self.ns.get(name, 0) for name in categories) / whole if whole else 0.0

    def share_of_family(self, name: str) -> float:
        """The same of the categories whose names begin with that word, for example ``wait``."""
        return self.share(*(one for one in self.ns if one.partition(".")[0] == name))


def make_ledger(tables: Tables) -> Ledger | None:
    """The ledger; None of a recording without steps, or of a workload, which has no clock.

    Makes the tables ``gpu``, ``segment``, ``ledger`` and ``barrier_wait``; once.
    """
    sql = tables.sql
    made = _made(tables)
    if made is not None:
        return made
    places = find_places(tables)
    find_stages(tables)
    extent = find_extent(tables)
    if extent is None:
        return None
    begin_ns, end_ns = extent.begin_ns, extent.end_ns
    begin_paint(tables)
    find_rollout(tables)
    paint_stages(tables)
    paint_rollout(tables)
    paint_queue(tables)
    sweep(tables, begin_ns, end_ns)
    find_hidden(tables)
    make_cells(tables)
    find_barriers(tables)
    notes = (*places.notes, *notes_of(tables))
    for name in _LARGE:
        sql.execute(f"DROP TABLE IF EXISTS {name}")
    insert(tables, "ledger_note", "note VARCHAR", [(note,) for note in notes])
    insert(tables, "ledger_span", "begin_ns BIGINT, end_ns BIGINT", [(begin_ns, end_ns)])
    return _made(tables)


def _made(tables: Tables) -> Ledger | None:
    """The ledger that the tables hold; None if it was not made yet."""
    sql = tables.sql
    if not tables.has("ledger_span"):
        return None
    [[begin_ns, end_ns]] = sql.execute(_SQL["span"]).fetchall()
    processes = dict(sql.execute(_SQL["processes"]).fetchall())
    gpus = [
        Gpu(gpu, key, device, process, rank, host, boot, part, processes.get(gpu, []))
        for gpu, key, device, process, rank, host, boot, part in sql.execute(
            _SQL["gpus"]
        ).fetchall()
    ]
    ns = dict.fromkeys(CATEGORIES, 0)
    ns.update(sql.execute(_SQL["categories"]).fetchall())
    notes = sql.execute(_SQL["notes"]).fetchall()
    return Ledger(gpus, begin_ns, end_ns, ns, tuple(note for (note,) in notes))
