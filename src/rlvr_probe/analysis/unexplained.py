"""What is said of lost time that no cause explains, and where no cause was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rlvr_probe.analysis.characterization import Characterization
from rlvr_probe.analysis.ledger import CATEGORIES, FAMILIES, NAMES

__all__ = ["LOST", "NO_CAUSE", "Unexplained", "unexplained"]

LOST: Final[Mapping[str, tuple[str, ...]]] = {
    **{NAMES[name]: (name,) for name in CATEGORIES if name.startswith("wait.")},
    NAMES["bubble"]: ("bubble",),
    FAMILIES["overhead"]: tuple(name for name in CATEGORIES if name.startswith("overhead.")),
    NAMES["unaccounted"]: ("unaccounted",),
}
"""What GPUs did while they did no work, and what of the ledger is in it."""

NO_CAUSE: Final = "no cause found: nothing exceeds the run's own noise"

_MUCH: Final = 0.1
"""Share of the time of all GPUs from which on it is said to be unexplained."""

_WAITED: Final = "wait for "


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
    sentence = f"{100 * share:.0f} % of {time} is {most}, of unknown cause"
    return Unexplained(sentence, not causes or share > causes[0].share)
