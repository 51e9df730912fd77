"""What a trainer generates in a step, and what a filter leaves of it, while the step goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rlvr_probe.model import names

__all__ = ["Sifting"]

_PASSED: Final = "surplus"
"""Reason for which a group is thrown away although it passed the filter."""
_FILTERED: Final = "filter"


class Sifting:
    """One trainer, since its last step ended, or one who generates for a queue. One thread.

    Attributes:
        discarded: Groups that a filter threw away.
        passed: Groups that are told to have passed it.
        rounds: Rollouts that ended since an update of the model, of which a step may have several.
        most_discarded, most_rounds: Of any step, or before any update.
        queued: Whether it generates for a queue: what it hands over ends what was a step.
    """

    def __init__(self) -> None:
        """Nothing yet."""
        self.discarded = self.passed = self.rounds = 0
        self.most_discarded = self.most_rounds = 0
        self.queued = False

    def span(self, name: str, get: Callable[[str], Any]) -> None:
        """Take note of a span that ended.

        Args:
            name: Its name.
            get: Value of an attribute; None if it is not there.
        """
        if name in (names.STEP.name, names.UPDATE_ACTOR.name):
            self.most_rounds = max(self.most_rounds, self.rounds)
            self.rounds = 0
        if name == names.STEP.name:
            self.most_discarded = max(self.most_discarded, self.discarded)
            self.discarded = self.passed = 0
        elif name == names.ROLLOUT.name and get("mode") in (None, "train"):
            self.rounds += 1

    def selected(self, get: Callable[[str], Any]) -> None:
        """Take note of groups of which the trainer tells what became of them."""
        kept, used, gone = (get(key) or () for key in ("kept", "used", "discarded"))
        if get("batch") is not None:
            self.queued = True
            if kept or used:
                self.most_discarded = max(self.most_discarded, self.discarded + len(gone))
                self.discarded = self.rounds = 0
                return
        self.passed += max(len(kept), len(used))
        if get("reason") == _PASSED:
            self.passed += len(gone)
        elif get("reason") == _FILTERED:
            self.discarded += len(gone)
