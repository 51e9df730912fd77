"""A recording of processes that trained twice, the second time with other settings."""

from __future__ import annotations

from pathlib import Path

from rlvr_probe.model import names
from tests.journals import JournalFile, Training

__all__ = ["trained_twice"]


def trained_twice(folder: Path) -> None:
    """Two ranks that train twice, with another cap; the last batch lacks what one generated."""
    for rank in (0, 1):
        first = Training(JournalFile(folder, rank + 1), rank=rank, ranks=2)
        first.begin()
        for step in (1, 2):
            first.step(step)
        first.journal.event(names.SESSION_END, first.now_s, session=0, step=2)
        second = Training(first.journal, rank=rank, ranks=2, session=1, now_s=first.now_s)
        second.begin(framework_version="1.17.0", algorithm="rloo", max_response_tokens=2048)
        second.step(1)
        if rank == 0:
            second.step(3)
        first.journal.close()
