"""Which groups a trainer's filter kept, and which were trained on, from the names of prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rlvr_probe.model.batch import Batch
from rlvr_probe.model.trace import Session, Step
from rlvr_probe.recording.coarse_rows import SelectedRow

__all__ = ["mark_selected", "mark_unselected"]

_PASSED = "surplus"
"""Reason for which a group is thrown away although it passed the filter."""
_FAILED = "failed"
"""Reason of a group that may have no trajectory at all."""


@dataclass(slots=True)
class _Named:
    kept: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    discarded: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    says_kept: bool = False
    says_used: bool = False


def mark_selected(
    batches: Mapping[tuple[int, int, int], Sequence[Batch]],
    rows: Iterable[tuple[tuple[int, int, int], SelectedRow]],
    skipped: Counter[str],
) -> None:
    """Set :attr:`Batch.kept` and :attr:`Batch.used` where the trainer recorded them.

    A group that no list names was not kept, if its batch has a list of kept groups and none of
    those thrown away, and was not used, if there is a list of those. Otherwise it is unknown, and
    so is all its batch: an event of the step may be missing, or is to come, if no used group is
    recorded yet and the batch came last.

    Args:
        batches: Training batches by session, life and step.
        rows: Events, each with its session, life and step.
        skipped: Gets the prompts that are not those of one group each.
    """
    by_step = dict[tuple[int, int, int], _Named]()
    for place, row in rows:
        named = by_step.setdefault(place, _Named())
        named.says_kept = named.says_kept or row.kept is not None
        named.says_used = named.says_used or row.used is not None
        named.kept.update(row.kept or ())
        named.used.update(row.used or ())
        (named.kept if row.reason == _PASSED else named.discarded).update(row.discarded or ())
        if row.reason == _FAILED:
            named.failed.update(row.discarded or ())
    for place, named in by_step.items():
        _mark(batches.get(place, ()), named, skipped)


def _mark(batches: Sequence[Batch], named: _Named, skipped: Counter[str]) -> None:
    told = Counter(prompt for batch in batches for _, prompt in batch.prompts())
    every = named.kept | named.used | named.discarded
    wrong = {
        prompt
        for prompt in every
        if told[prompt] != 1 and (told[prompt] or prompt not in named.failed)
    }
    skipped["unjoined_prompts"] += len(wrong)
    passed = named.kept | named.used
    last = max(
        (
            at
            for at, batch in enumerate(batches)
            if not every.isdisjoint(prompt for _, prompt in batch.prompts())
        ),
        default=len(batches),
    )
    for at, batch in enumerate(batches):
        groups = dict(batch.prompts())
        if not wrong.isdisjoint(groups.values()) or len(groups) != batch.count_groups()[0]:
            continue
        covered = every.issuperset(groups.values())
        apart = every.isdisjoint(groups.values())
        if apart and at > last and not named.says_used:
            continue
        if not covered and (named.discarded or (named.says_kept and apart)):
            skipped["unjoined_prompts"] += sum(prompt not in every for prompt in groups.values())
            continue
        if covered or named.says_kept:
            batch.kept = frozenset(group for group, prompt in groups.items() if prompt in passed)
        if named.says_used:
            batch.used = frozenset(
                group for group, prompt in groups.items() if prompt in named.used
            )


def mark_unselected(steps: Iterable[Step], sessions: Iterable[Session]) -> int:
    """Set :attr:`Batch.unselected` in steps that are done; how many batches that is.

    Args:
        steps: Of one attempt, after :func:`mark_selected`.
        sessions: The settings of its training runs.
    """
    filtering = {session.session for session in sessions if session.facts.get("filters") == 1}
    found = [
        batch
        for step in steps
        if step.done and step.session in filtering
        for batch in step.batches
        if batch.kept is None and batch.used is None
    ]
    for batch in found:
        batch.unselected = True
    return len(found)
