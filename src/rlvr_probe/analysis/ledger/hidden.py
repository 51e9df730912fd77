"""Waiting inside a collective: to spans it looks like work, to tensor cores it does not.

Ranks that reduce gradients together end their updates together, and which of them was late is not
in their spans. A GPU that waits in a collective runs a kernel, and its tensor cores are idle. So
the rank whose tensor cores were busiest, over its update, is taken to have worked all the time, and
the others as much less as theirs were. Readings that reach beyond an update are corrected by what
readings show while nothing but one other thing computes.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.statements import fill, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["find_hidden"]

_SQL: Final = statements(__name__)


def find_hidden(tables: Tables) -> None:
    """Make ``hidden_wait``: by step and GPU, the part of an update that was waiting, ns.

    Where readings do not tell, of any GPU of an update, it has no row.
    """
    tables.sql.execute(_SQL["read"])
    tables.sql.execute(_SQL["course"])
    tables.sql.execute(fill(_SQL["level"], from_ns="one.start_ns", until_ns="one.end_ns"))
    tables.sql.execute(fill(_SQL["busy"], from_ns="a_ns", until_ns="b_ns"))
    tables.sql.execute(_SQL["hidden"])
