"""How a run as a whole stands, as far as its recording tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rlvr_probe.analysis.finding import WRONG, Finding
from rlvr_probe.analysis.launched import launches
from rlvr_probe.recording.follow.member import Member

__all__ = ["Outcome", "Standing", "standing_of"]

Outcome = Literal["stuck", "unknown", "usual", "idle", "over"]
"""``stuck``: something is wrong. ``unknown``: too little to compare with, or whether processes live
is not known. ``usual``: what is open is within its limits. ``idle``: nothing that is recorded is
open. ``over``: no process of it is left, and none is missed."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A run as a whole.

    Attributes:
        outcome: What is to be thought of it.
        states: How many processes are in each state; ``ended`` are those that were there until
            their training was over.
        trained, returned: Whether a training began, and whether the last one of each process that
            trains returned by itself.
        seen_s: Since the last sign of life of any process, by wall clocks; negative where that of
            another machine is ahead.
    """

    outcome: Outcome
    states: Counter[str]
    trained: bool
    returned: bool
    seen_s: float


def standing_of(members: Sequence[Member], findings: Sequence[Finding], wall_ns: int) -> Standing:
    """How the launches that are not past stand.

    Args:
        members: Processes of one run.
        findings: What is found of them.
        wall_ns: Now, by the wall clock of this machine.
    """
    states: Counter[str] = Counter()
    seen_ns, returned, trained = 0, True, False
    for launch in launches(members):
        seen_ns = max(seen_ns, launch.seen_ns)
        for one in launch.members:
            states["ended" if launch.outlived(one) else one.state] += 1
            trained = trained or one.trained
            returned = returned and (one.returned or not one.trained)
    return Standing(
        _outcome(states, findings),
        states,
        trained,
        trained and returned,
        (wall_ns - seen_ns) / 1e9,
    )


def _outcome(states: Counter[str], findings: Sequence[Finding]) -> Outcome:
    verdicts = {one.verdict for one in findings}
    if verdicts & WRONG:
        return "stuck"
    if not states["running"] and not states["unknown"]:
        return "over"
    if "unknown" in verdicts or states["unknown"]:
        return "unknown"
    return "usual" if verdicts & {"open", "apart"} else "idle"
