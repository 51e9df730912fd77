"""How long spans of a kind took before, in one process of a run or in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from rlvr_probe.analysis.statistics import quantile
from rlvr_probe.recording.follow.member import Member, Past, Work

__all__ = ["LEAST", "NO_TIMES", "Times", "Usual"]

LEAST: Final = 20
"""Spans that ended, below which there is nothing to compare with."""


@dataclass(frozen=True, slots=True)
class Times:
    """How long spans of a kind took that ended: how many, and of the recent ones quantiles."""

    count: int
    p50_s: float | None
    p99_s: float | None
    longest_s: float | None

    @classmethod
    def of(cls, pasts: Sequence[Past]) -> Times:
        """Of several processes together."""
        sample = sorted(chain.from_iterable(past.recent_ns for past in pasts))
        longest_ns = max((past.longest_ns for past in pasts if past.count), default=None)
        return cls(
            sum(past.count for past in pasts),
            quantile(sample, 0.5) / 1e9 if sample else None,
            quantile(sample, 0.99) / 1e9 if sample else None,
            None if longest_ns is None else longest_ns / 1e9,
        )


NO_TIMES: Final = Times(0, None, None, None)
"""Of a kind of which none ended."""


class Usual:
    """How long it took before, of each kind that is asked for; sorted once."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._own: dict[tuple[str, str, str], Times] = {}
        self._all: dict[tuple[str, str], Times] = {}

    def of(self, member: Member, work: Work) -> Times:
        """Of its kind in its process, if that has enough of them, else in all.

        One that has a detail is of a kind with those of the same one alone: a checkpoint of a
        worker is no update of it.
        """
        key = work.name, work.detail
        past = member.past.get(key)
        if past is not None and past.count >= LEAST:
            return self._in(member, key, past)
        return self._in_all(key)

    def _in(self, member: Member, key: tuple[str, str], past: Past) -> Times:
        place = (member.header.process, *key)
        found = self._own.get(place)
        if found is None:
            found = self._own[place] = Times.of([past])
        return found

    def _in_all(self, key: tuple[str, str]) -> Times:
        found = self._all.get(key)
        if found is None:
            pasts = [one.past[key] for one in self._members if key in one.past]
            found = self._all[key] = Times.of(pasts) if pasts else NO_TIMES
        return found
