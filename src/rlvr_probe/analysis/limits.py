"""For how long a thing may be open: as its kind took before, or by a setting where few did.

With twenty that ended: three times their 99th percentile, longer than any of them, and ten seconds
at least; what goes on between two steps two minutes at least, because what no span covers may be
rare and long, as an upload every hundred steps. With fewer: so many times the longest of them, two
minutes at least, or a number of seconds, whichever is less, but never before three times the
longest. With none: that number of seconds. Where things end inside of what is open, that is from
the last one on, or so many times as long in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from rlvr_probe.analysis.usual import LEAST, Times
from rlvr_probe.recording.between import BETWEEN

__all__ = ["UNCOVERED_S", "Fallback", "Limit", "Rule", "limit_of"]

_TIMES: Final = 3
_LEAST_S: Final = 10.0
UNCOVERED_S: Final = 120.0
"""What no span covers may be rare, and last for so long, s."""

Rule = Literal["past", "few", "none"]
"""What a limit follows from: enough that ended, fewer than twenty, or none."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """What is told where fewer than twenty of a kind ended.

    Attributes:
        after_s: What is open for longer, s.
        times: What is open for so many times the longest of its kind.
    """

    after_s: float = 600.0
    times: float = 10.0


@dataclass(frozen=True, slots=True)
class Limit:
    """A number of seconds, and the rule that it follows from."""

    seconds: float
    rule: Rule


def limit_of(name: str, past: Times, fallback: Fallback) -> Limit:
    """How long a span may be open, or what goes on between two steps.

    Args:
        name: Of the span.
        past: How long those of its kind took that ended.
        fallback: For where these are few.
    """
    if not past.count or past.longest_s is None:
        return Limit(fallback.after_s, "none")
    if past.count >= LEAST and past.p99_s is not None:
        least_s = UNCOVERED_S if name == BETWEEN else _LEAST_S
        return Limit(max(_TIMES * past.p99_s, past.longest_s, least_s), "past")
    few_s = max(fallback.times * past.longest_s, UNCOVERED_S)
    return Limit(max(_TIMES * past.longest_s, min(few_s, fallback.after_s)), "few")
