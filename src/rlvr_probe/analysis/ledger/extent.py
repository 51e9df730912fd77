"""The GPU time of a recording: what the ledger adds up to, and what causes are shares of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rlvr_probe.analysis.ledger.places import find_places
from rlvr_probe.analysis.ledger.stages import find_stages
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["Extent", "find_extent"]

_SQL: Final = statements(__name__)


@dataclass(frozen=True, slots=True)
class Extent:
    """GPUs, and from when to when.

    Attributes:
        gpus: How many there are, whether they train or generate.
        begin_ns, end_ns: From the begin of the first step to the end of the last, on the clock of
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
        find_stages(tables)
    [[gpus, begin_ns, end_ns, steps]] = tables.sql.execute(_SQL["extent"]).fetchall()
    return None if begin_ns is None else Extent(gpus, begin_ns, end_ns, steps)
