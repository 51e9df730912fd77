"""What is said of lost time that no cause explains, and where no cause was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rlvr_probe.analysis.characterization import Characterization

__all__ = ["LOST", "NO_CAUSE", "Unexplained", "unexplained"]

LOST: Final[Mapping[str, tuple[str, ...]]] = {
    "waiting for the last of a rollout": ("wait.rollout",),
    "waiting for rewards": ("wait.reward",),
    "waiting for other ranks": ("wait.update", "wait.refit"),
    "between stages": ("bubble",),
    "overhead": (
        "overhead.data", "overhead.dispatch", "overhead.advantage", "overhead.probe",
    ),
    "unaccounted": ("unaccounted",),
}  # fmt: skip
"""What GPUs did while they did no work, and what of the ledger is in it."""

NO_CAUSE: Final = "no cause stands out of the noise of this run"

_MUCH: Final = 0.1
"""Share of the time of all GPUs from which on it is said to be unexplained."""

_WAITED: Final = "waiting"


@dataclass(frozen=True, slots=True)
class Unexplained:
    """The largest part of the lost time that no cause explains.

    Attributes:
        sentence: What is said of it, without a full stop.
        first: Whether it is more than the first cause costs, if there is one.
    """

    sentence: str
    first: bool


def unexplained(found: Characterization) -> Unexplained | None:
    """Lost time without a cause, if that is much.

    What is waited for is explained by whatever cause there is; what goes on between stages only by
    what was open when the recording ended.
    """
    ledger, causes = found.ledger, found.causes
    if ledger is None or not ledger.gpu_s or any(cause.kind == "unfinished" for cause in causes):
        return None
    lost = {
        name: ledger.share(*parts)
        for name, parts in LOST.items()
        if not (causes and name.startswith(_WAITED))
    }
    most = max(lost, key=lambda name: lost[name])
    share = lost[most]
    if share < _MUCH:
        return None
    time = found.unit.say("GPU time")
    sentence = f"{100 * share:.0f} % of {time} went to '{most}', of which no cause is known"
    return Unexplained(sentence, not causes or share > causes[0].share)
