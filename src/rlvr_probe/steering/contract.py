"""Contract of a replay: what a framework's ``replay.py`` offers, and what it is given.

One class in ``integrations/<framework>/replay.py`` and one line in the entry-point group
``rlvr_probe.replays``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol, runtime_checkable

from rlvr_probe.steering.plan import Plan

__all__ = ["GROUP", "Replay", "Steering"]

GROUP = "rlvr_probe.replays"
"""Entry-point group of replays, our own and third parties' alike."""


@dataclass(frozen=True, slots=True)
class Steering:
    """What a replay is given in a process of the run.

    Attributes:
        plan: What to do.
        say: Prints a line for the user: once in a job is enough, so from its first rank.
        report: Notes that a share (a rank, a worker) has done batch number ``index`` of the plan,
            ``report(index, share, shares)``; the command counts what is missing by that.
    """

    plan: Plan
    say: Callable[[str], None]
    report: Callable[[int, int, int], None]


@runtime_checkable
class Replay(Protocol):
    """How a framework is steered.

    Attributes:
        name: Of its integration.
        modules: Modules of the framework; :meth:`steer` is called when one has been imported.
    """

    name: str
    modules: Sequence[str]

    def refusal(self, plan: Plan) -> str | None:
        """Why no training of this framework can replay ``plan``, however it is set; else None.

        Asked before the command starts; loads no framework. ``plan.half`` is refused where that
        half cannot be done alone.
        """
        ...

    def settings(self, plan: Plan) -> Mapping[str, object]:
        """Settings of the framework that replay ``plan``, by the names that its users know."""
        ...

    def losses(self, plan: Plan) -> Sequence[str]:
        """What of ``plan`` is not reproduced, a sentence each."""
        ...

    def steer(self, module: ModuleType, steering: Steering) -> None:
        """Steer every training that ``module`` makes from here on.

        It says by ``steering.say`` what is forced in which way, and why not in a better one. Where
        a run does not fit the plan, or does something else than it, it raises
        :class:`~rlvr_probe.exceptions.SteeringError`, with the settings to change.
        """
        ...
