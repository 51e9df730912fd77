"""How long a span may be open: by how long its kind took before, or by a setting.

With twenty ended spans of its kind: three times their 99th percentile, at least the longest of them
and ten seconds; between two steps at least two minutes, because what no span covers may be rare and
long, such as an upload every hundred steps. With fewer: :attr:`Fallback.times` the longest, at
least two minutes, or :attr:`Fallback.after_s`, whichever is less, but at least three times the
longest. With none: :attr:`Fallback.after_s`. Where spans end inside an open one, the limit counts
from the last of them on, or is so many times as long in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

from rlvr_probe.analysis.statistics import quantile
from rlvr_probe.model import names
from rlvr_probe.recording.between_steps import BETWEEN
from rlvr_probe.recording.follow.member import Member, Past, Work

__all__ = ["LEAST", "UNCOVERED_S", "Fallback", "Limit", "Times", "Usual", "fineness", "limit_of"]

LEAST: Final = 20
"""Ended spans of a kind from which on they are compared with."""


@dataclass(frozen=True, slots=True)
class Times:
    """How long ended spans of a kind took: their number, and quantiles of the recent ones."""

    count: int = 0
    p50_s: float | None = None
    p99_s: float | None = None
    longest_s: float | None = None

    @classmethod
    def of(cls, pasts: Sequence[Past]) -> Times:
        """Those of several processes together."""
        sample = sorted(chain.from_iterable(past.recent_ns for past in pasts))
        longest_ns = max((past.longest_ns for past in pasts if past.count), default=None)
        return cls(
            sum(past.count for past in pasts),
            quantile(sample, 0.5) / 1e9 if sample else None,
            quantile(sample, 0.99) / 1e9 if sample else None,
            None if longest_ns is None else longest_ns / 1e9,
        )


class Usual:
    """How long spans of each kind took before; each kind is sorted once."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._times: dict[tuple[str, str, str], Times] = {}

    def of(self, member: Member, work: Work) -> Times:
        """Those of its kind in its process, if that has enough of them, else in all.

        A span with a detail is of a kind only with those of the same detail: a checkpoint of a
        worker differs from an update of it.
        """
        key = work.name, work.detail
        enough = key in member.past and member.past[key].count >= LEAST
        place = (member.header.process if enough else "", *key)
        if place not in self._times:
            members = [member] if enough else self._members
            self._times[place] = Times.of([each.past[key] for each in members if key in each.past])
        return self._times[place]


_TIMES: Final = 3
_LEAST_S: Final = 10.0
UNCOVERED_S: Final = 120.0
"""How long what no span covers may last, s, because it may be rare."""

Rule = Literal["past", "few", "none"]
"""What a limit follows from: twenty ended spans or more, fewer, or none."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """The limit where fewer than twenty spans of a kind ended.

    Attributes:
        after_s: Time that a span may be open, s.
        times: The same, as a multiple of the longest of its kind.
    """

    after_s: float = 600.0
    times: float = 10.0


@dataclass(frozen=True, slots=True)
class Limit:
    """A number of seconds, and the rule that it follows from."""

    seconds: float
    rule: Rule


def limit_of(name: str, past: Times, fallback: Fallback) -> Limit:
    """How long a span, or what goes on between two steps, may be open.

    Args:
        name: Name of the span.
        past: How long ended spans of its kind took.
        fallback: The limit where these are few.
    """
    if not past.count or past.longest_s is None:
        return Limit(fallback.after_s, "none")
    if past.count >= LEAST and past.p99_s is not None:
        least_s = UNCOVERED_S if name == BETWEEN else _LEAST_S
        return Limit(max(_TIMES * past.p99_s, past.longest_s, least_s), "past")
    few_s = max(fallback.times * past.longest_s, UNCOVERED_S)
    return Limit(max(_TIMES * past.longest_s, min(few_s, fallback.after_s)), "few")


_FINER: Final = (
    names.TOOL_CALL.name, names.REWARD_FN.name, names.VERIFY.name, names.TURN.name,
    names.TRAJECTORY.name, names.OPTIMIZER_STEP.name,
)  # fmt: skip
_OUTER: Final = (names.RPC.name, names.EXPERIENCE.name, names.STEP.name)


def fineness(name: str, *, outermost: bool) -> int:
    """A number for an innermost span that is lower the more likely others wait for it.

    Args:
        name: Name of the span.
        outermost: Whether nothing else is open around it: a caller makes a call inside a stage,
            and a callee has nothing around it.
    """
    if name in _FINER:
        return _FINER.index(name)
    fine = len(_FINER)
    if name in _OUTER:
        fine += 2 + _OUTER.index(name)
    return fine - (name == names.RPC.name and outermost)
