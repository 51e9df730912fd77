"""The ledger of a recording: what it counts, from when to when, and where all of it went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rlvr_probe.analysis.ledger import painting, timeline
from rlvr_probe.analysis.ledger.barriers import find_barriers
from rlvr_probe.analysis.ledger.categories import CATEGORIES
from rlvr_probe.analysis.ledger.gpu_owners import find_places
from rlvr_probe.analysis.ledger.gpu_search import Gpu
from rlvr_probe.analysis.statements import insert, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["GPU", "HIDDEN", "Extent", "Ledger", "Unit", "find_extent", "make_ledger", "unit_of"]

_SQL: Final = statements(__name__)


@dataclass(frozen=True, slots=True)
class Unit:
    """The name of what has the time.

    Attributes:
        name: ``GPU`` or ``rank``; its time is in ``GPU-s`` or ``rank-s``.
        several: What several of them are: GPUs, ranks, or ranks and the engines beside them.
    """

    name: str
    several: str

    def say(self, text: str) -> str:
        """A sentence or a unit that is about GPUs, about what stands for them."""
        return text.replace("GPU", self.name)

    def count(self, number: int) -> str:
        """That many of them."""
        return f"1 {self.name}" if number == 1 else f"{number:,} {self.several}"


GPU: Final = Unit("GPU", "GPUs")


def unit_of(tables: Tables) -> Unit:
    """Of the ledger of these tables: ranks, and engines, stand for GPUs where none is known."""
    if not tables.has("gpu"):
        return GPU
    [[count, known, ranks]] = tables.sql.execute(_SQL["unit"]).fetchall()
    if known or not count:
        return GPU
    return Unit("rank", "ranks" if ranks == count else "ranks or engines")


@dataclass(frozen=True, slots=True)
class Extent:
    """GPUs, and from when to when.

    Attributes:
        gpus: How many there are, whether they train or generate.
        begin_ns, end_ns: From the start of the first step to the end of the last, on the clock of
            the run; what had not ended lasted until its process was last seen.
        steps: Trainer steps in it, those that were thrown away too.
    """

    gpus: int
    begin_ns: int
    end_ns: int
    steps: int

    @property
    def wall_ns(self) -> int:
        """Wall time, ns."""
        return self.end_ns - self.begin_ns

    @property
    def gpu_s(self) -> float:
        """GPUs times wall time, s."""
        return self.gpus * self.wall_ns / 1e9


def find_extent(tables: Tables) -> Extent | None:
    """The extent of a recording; None of one without steps that have times.

    Makes the tables of GPUs and stages where the ledger has not made them.
    """
    if not tables.has("gpu", "ledger_window"):
        find_places(tables)
        painting.find_stages(tables)
    [[gpus, begin_ns, end_ns, steps]] = tables.sql.execute(_SQL["extent"]).fetchall()
    return None if begin_ns is None else Extent(gpus, begin_ns, end_ns, steps)


HIDDEN = (
    "waiting inside a collective of an update counts as work: tensor activity was not read of every"
    " GPU that took part"
)


def _notes(tables: Tables) -> list[str]:
    """What the ledger of this recording omits or assumes."""

    def first(name: str) -> Any:
        return tables.sql.execute(_SQL[name]).fetchall()[0][0]

    notes = list[str]()
    if (after_s := first("after")) is not None:
        notes.append(
            f"the training was seen for {after_s:,.0f} s more after its last step and what was open"
            " in it: nothing says what it did then, and it is not in the ledger"
        )
    [[gpus, known, _]] = tables.sql.execute(_SQL["unit"]).fetchall()
    if gpus and not known:
        counted = "the rank counts" if gpus == 1 else f"each of {gpus} ranks or engines counts"
        notes.append(f"no GPU recorded; {counted} as one")
    if first("unread"):
        notes.append(HIDDEN)
    if whole := tables.sql.execute(_SQL["whole"]).fetchall():
        names = ", ".join(f"{name} ({count})" for name, count in whole)
        notes.append(
            "some stages are known only as a whole, so that waiting in them counts as work:"
            f" {names}"
        )
    if missing := first("unrecorded"):
        notes.append(f"{missing} ranks of the training recorded nothing")
    if beside := first("beside"):
        notes.append(f"{beside} GPUs were read that no process of this run is known to work on")
    if (width := first("width") or 0) > 0:
        notes.append(
            f"machines wait for each other by clocks that are known to {width:.3g} s: what is"
            " shorter counts as dispatch"
        )
    return notes


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
        begin_ns, end_ns: From the start of the first step to the end of the last.
        ns: GPU time by category, every category; sums up to GPUs times what lies between.
        notes: What is unknown of this recording, and what was assumed.
    """

    gpus: Sequence[Gpu]
    begin_ns: int
    end_ns: int
    ns: dict[str, int]
    notes: tuple[str, ...]

    @property
    def wall_s(self) -> float:
        """From its start to its end, s."""
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
        """The same of the categories whose names start with that word, for example ``wait``."""
        return self.share(*(category for category in self.ns if category.partition(".")[0] == name))


def make_ledger(tables: Tables) -> Ledger | None:
    """The ledger; None of a recording without steps, or of a workload, which has no clock.

    Makes the tables ``gpu``, ``segment``, ``ledger`` and ``barrier_wait``; once.
    """
    sql = tables.sql
    made = _made(tables)
    if made is not None:
        return made
    places = find_places(tables)
    painting.find_stages(tables)
    extent = find_extent(tables)
    if extent is None:
        return None
    begin_ns, end_ns = extent.begin_ns, extent.end_ns
    timeline.begin_paint(tables)
    painting.find_rollout(tables)
    painting.paint_stages(tables)
    painting.paint_rollout(tables)
    painting.paint_queue(tables)
    timeline.sweep(tables, begin_ns, end_ns)
    timeline.find_hidden(tables)
    timeline.make_cells(tables)
    find_barriers(tables)
    notes = (*places.notes, *_notes(tables))
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
    gpus = [Gpu(*row) for row in sql.execute(_SQL["gpus"]).fetchall()]
    ns = dict.fromkeys(CATEGORIES, 0)
    ns.update(sql.execute(_SQL["categories"]).fetchall())
    notes = sql.execute(_SQL["notes"]).fetchall()
    return Ledger(gpus, begin_ns, end_ns, ns, tuple(note for (note,) in notes))
