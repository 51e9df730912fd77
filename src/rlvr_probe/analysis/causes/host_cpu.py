"""What the CPU of the host did in slow steps: more where others work on it, less where all wait.

A cause says what was slow; the busy cores of the machine say whether the slow steps had more of its
CPU to share than others, as with another job beside the training, or left it idle, as a process
that is stopped or waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rlvr_probe.analysis.causes.builder import Run
from rlvr_probe.analysis.causes.thresholds import LONGER
from rlvr_probe.analysis.statements import statements

__all__ = ["busy_cores"]

_SQL: Final = statements(__name__)


def busy_cores(run: Run, steps: Iterable[int]) -> str:
    """Busy CPU cores in some steps beside all others, in words.

    Args:
        run: Whose hosts were read, or not.
        steps: The ``step_id`` of slow steps.

    Returns:
        Words to follow a title; empty where no CPU was read, or it was about as busy as usual.
    """
    for slow, usual in run.ask(_SQL["busy"], steps=list(steps)).rows:
        if max(slow / usual, usual / slow) >= LONGER:
            return f" (CPU cores busy: {slow:.1f}, in other steps {usual:.1f})"
    return ""
