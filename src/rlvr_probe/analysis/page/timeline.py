"""What every GPU that is drawn did, what it read, and what was in flight, in pieces of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rlvr_probe.analysis.causes import Cause
from rlvr_probe.analysis.page.selection import chosen_gpus, chosen_steps
from rlvr_probe.analysis.results import Answer, query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["COUNTERS", "PIECES", "READINGS", "Timeline", "Window"]

PIECES: Final = 1_000
"""Pieces of the time of the run in the view of all of it."""

READINGS: Final = 600
"""Pieces of its time in which readings are drawn."""

COUNTERS: Final = {
    "sm_active": "1", "tensor_active": "1", "utilization": "1", "power_w": "W", "memory_b": "By",
    "temperature_c": "Cel", "sm_clock_hz": "Hz",
}  # fmt: skip
"""Counters that are drawn, and their units."""

_SQL: Final = statements(__name__)

_EXACT: Final = 150_000
"""Intervals that are drawn as they are; beyond that, of some steps only."""


@dataclass(frozen=True, slots=True)
class Window:
    """Time in which intervals are drawn as they are.

    Attributes:
        step: Whose ``step_id``; None if it is all there is.
        first_ns, last_ns: From when to when.
    """

    step: int | None
    first_ns: int
    last_ns: int


class Timeline:
    """The time of a run, asked piece by piece.

    Attributes:
        gpus: Numbers of the GPUs that are drawn, in order.
        why: How many of them there are for which reason.
    """

    def __init__(self, tables: Tables, causes: Sequence[Cause], begin_ns: int, end_ns: int) -> None:
        """Choose what is drawn, into the tables ``page_gpu`` and ``page_segment``."""
        self._tables, self._causes = tables, causes
        self._begin, self._end = begin_ns, end_ns
        self.gpus, self.why = chosen_gpus(tables, causes)
        query(tables, _SQL["make_gpus"], gpus=self.gpus)
        tables.sql.execute(_SQL["make_segments"])

    def places(self) -> list[dict[str, Any]]:
        """Who the GPUs are."""
        return query(self._tables, _SQL["gpus"]).dicts

    def steps(self) -> Sequence[tuple[Any, ...]]:
        """``step_id``, number, begin and end of each step, ns."""
        return self._tables.sql.execute(_SQL["steps"]).fetchall()

    def windows(self) -> list[Window]:
        """Times whose intervals are drawn as they are: all of the run, or some of its steps."""
        sql = self._tables.sql
        [[count]] = sql.execute(_SQL["count"]).fetchall()
        if count <= _EXACT:
            return [Window(None, self._begin, self._end)]
        cost = dict(sql.execute(_SQL["costs"]).fetchall())
        found = list[Window]()
        over = self._begin
        for step in chosen_steps(self._tables, self._causes, cost, _EXACT):
            [first, last] = query(self._tables, _SQL["extent"], step=step).row
            first, last = max(first, over, self._begin), min(last, self._end)
            if first < last:
                found.append(Window(step, first, last))
                over = last
        return found

    def exact(self, window: Window) -> Answer:
        """GPU, start, end and category of each interval that reaches into ``window``."""
        return query(self._tables, _SQL["exact"], first=window.first_ns, last=window.last_ns)

    def pieces(self) -> Answer:
        """GPU, piece, category and ns, of each of the :data:`PIECES`."""
        width = self._width(PIECES)
        return query(self._tables, _SQL["pieces"], begin=self._begin, width=width)

    def readings(self, counter: str) -> Answer:
        """GPU, piece and mean of what was read of a counter in each of the :data:`READINGS`."""
        times = {"begin": self._begin, "end": self._end, "width": self._width(READINGS)}
        return query(self._tables, _SQL["readings"], counter=counter, **times)

    def flight(self) -> Answer | None:
        """Piece and mean number of sequences in flight; None if that is not known."""
        if not self._tables.has("flight", "rollout"):
            return None
        times = {"begin": self._begin, "width": self._width(PIECES), "pieces": PIECES}
        return query(self._tables, _SQL["flight"], **times)

    def _width(self, pieces: int) -> int:
        return max(1, -(-(self._end - self._begin) // pieces))
