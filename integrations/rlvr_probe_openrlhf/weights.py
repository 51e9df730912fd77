"""Which weights an engine has: how often they were moved to it, as its actor sees it.

OpenRLHF moves them parameter by parameter, and empties the engine's caches with the last one. It
does so after each step that it trained, so that their number is that of the steps that they know;
where a run goes on from a checkpoint it also does so before the first generation, and the
number of steps is not known here.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.adapter.ray_actors import class_of
from rlvr_probe.reading import attribute

__all__ = ["ENGINES", "MOVES", "WEIGHTS", "Weights"]

_MODULE = "openrlhf.trainer.ray.vllm_engine"


@dataclass(slots=True)
class Weights:
    """Weights of the engine of this process.

    Attributes:
        counted: Whether moving them is seen here.
        started: How often moving started.
        done: How often it was done.
        asked: Whether anything was generated.
        resumed: Whether weights came before anything was generated.
    """

    counted: bool = False
    started: int = 0
    done: int = 0
    asked: bool = False
    resumed: bool = False

    def oldest(self) -> int | None:
        """Steps that the oldest weights know that may be in use now; None if that is unknown."""
        self.asked = True
        return self.done if self.counted and not self.resumed else None

    def newest(self) -> int | None:
        """Steps that the newest weights know that may have been in use until now."""
        return self.started if self.counted and not self.resumed else None

    def begin_move(self) -> None:
        """A parameter comes."""
        if self.started == self.done:
            self.started += 1
            self.resumed = self.resumed or not self.asked

    def end_move(self, last: bool) -> None:
        """A parameter came, the last one or not."""
        if last:
            self.done = self.started


WEIGHTS = Weights()


def _move_begin(call: Call) -> None:
    WEIGHTS.begin_move()


def _move_end(call: Call) -> None:
    WEIGHTS.end_move(call.kwargs.get("empty_cache") is True)


def _joined(call: Call) -> None:
    """The group for moving weights is made once, before any is moved: moves are seen as this is."""
    WEIGHTS.counted = True


MOVES = (
    HookPoint("init_process_group", before=_joined),
    HookPoint("update_weight", before=_move_begin, after=_move_end),
    HookPoint("update_weight_cuda_ipc", before=_move_begin, after=_move_end),
)
"""Methods of the actor that has the engine."""


def _engines_begin(call: Call) -> None:
    """Before engines' actors are made: their class is Ray's already, and not sent to them yet."""
    module = sys.modules.get(_MODULE)
    for name in ("RolloutRayActor", "LLMRayActor"):  # since 0.10.2, before
        kind = class_of(attribute(module, name))
        if kind is not None:
            call.probe.instrument(kind, MOVES)


ENGINES = HookPoint(f"{_MODULE}:create_vllm_engines", before=_engines_begin)
