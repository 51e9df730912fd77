"""The TRL adapter: what to hook when transformers and TRL are imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe_trl.rewards import restore_functions
from rlvr_probe_trl.stages import METHODS, WEIGHT_SYNC_POINT, is_online
from rlvr_probe_trl.steps import add_callback, add_optimizer_hooks
from rlvr_probe_trl.tools import TOOL_LOOP, restore_tools

__all__ = ["TrlAdapter", "built"]

_TRAINERS = (
    "trl.trainer.grpo_trainer:GRPOTrainer",
    "trl.trainer.rloo_trainer:RLOOTrainer",
)

_ready: list[Probe] = []
"""The probe that the hooks which are set once per process report to; empty after a detach."""


class TrlAdapter:
    """TRL's online trainers: GRPO, RLOO, their subclasses and what Unsloth makes of them."""

    name = "trl"
    distribution = "trl"
    tested = ">=1.16,<1.17"

    def hook_points(self, version: str) -> Sequence[HookPoint]:
        """The constructor that all trainers share; their methods are hooked once one is built."""
        return (_CONSTRUCTOR, WEIGHT_SYNC_POINT)

    def expected(self, version: str) -> Sequence[HookPoint]:
        """The methods as well, on TRL's own trainers."""
        methods = (
            replace(point, target=f"{trainer}.{point.target}")
            for trainer in _TRAINERS
            for point in METHODS
            if point is not TOOL_LOOP or trainer == _TRAINERS[0]  # RLOO has no tools
        )
        return (*self.hook_points(version), *methods)


def built(call: Call) -> None:
    """After ``Trainer.__init__``: hook the methods of a trainer that generates while it trains.

    TRL's own constructor goes on after this one, so nothing of the trainer is read here.
    """
    trainer, probe = call.args[0], call.probe
    if call.error is not None or not is_online(trainer):
        return
    if not any(ready is probe for ready in _ready):
        _ready.append(probe)
        probe.on_detach(_ready.clear)
        probe.on_detach(restore_functions)
        probe.on_detach(restore_tools)
        add_optimizer_hooks(probe)
    if probe.instrument(trainer, METHODS):
        add_callback(probe, trainer)


# Nothing but the trainer that is built tells which classes define the methods: users subclass, and
# Unsloth compiles TRL's source anew.
_CONSTRUCTOR = HookPoint("transformers.trainer:Trainer.__init__", after=built)
