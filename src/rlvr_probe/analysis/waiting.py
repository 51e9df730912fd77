"""Who holds up whom, of spans that are open at the same time."""

from __future__ import annotations

from typing import Final

from rlvr_probe.model import names

__all__ = ["fineness"]

_FINER: Final = (
    names.TOOL_CALL.name, names.REWARD_FN.name, names.VERIFY.name, names.TURN.name,
    names.TRAJECTORY.name, names.OPTIMIZER_STEP.name,
)  # fmt: skip
_OUTER: Final = (names.RPC.name, names.EXPERIENCE.name, names.STEP.name)


def fineness(name: str, *, outermost: bool) -> int:
    """A number for an innermost span that is lower the more likely others wait for it.

    Args:
        name: Of the span.
        outermost: Whether nothing else is open around it: who makes a call does so in a stage of
            its own, and who does it has nothing around it.
    """
    if name in _FINER:
        return _FINER.index(name)
    fine = len(_FINER)
    if name in _OUTER:
        fine += 2 + _OUTER.index(name)
    return fine - (name == names.RPC.name and outermost)
