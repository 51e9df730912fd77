"""The TRL adapter: what to hook when transformers and TRL are imported."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.reading import attribute
from rlvr_probe.releases import release
from rlvr_probe_trl.async_grpo import ASYNC_METHODS, is_async
from rlvr_probe_trl.points import imported, looked_up, methods, tokenizer_methods
from rlvr_probe_trl.releases import installed
from rlvr_probe_trl.rewards import restore_functions
from rlvr_probe_trl.stages import is_online
from rlvr_probe_trl.steps import add_callback, add_optimizer_hooks
from rlvr_probe_trl.tools import restore_tools

__all__ = ["TrlAdapter", "built"]

_ready: list[Probe] = []
"""The probe that the hooks which are set once per process report to; empty after a detach."""


class TrlAdapter:
    """TRL's online trainers: GRPO, RLOO, their subclasses and what Unsloth makes of them."""

    name = "trl"
    distribution = "trl"
    tested = ">=0.17,<1.17"

    def hook_points(self, version: str) -> Sequence[HookPoint]:
        """The constructor that all trainers share; their methods are hooked once one is built."""
        return (_CONSTRUCTOR, *imported(release(version)))

    def expected(self, version: str) -> Sequence[HookPoint]:
        """The methods as well, on TRL's own trainers."""
        return (*self.hook_points(version), *looked_up(release(version)))


def built(call: Call) -> None:
    """After ``Trainer.__init__``: hook the methods of a trainer that generates while it trains.

    TRL's own constructor goes on after this one, so nothing of the trainer is read here.
    """
    trainer, probe = call.args[0], call.probe
    beside = is_async(trainer)
    if call.error is not None or not (beside or is_online(trainer)):
        return
    if not any(ready is probe for ready in _ready):
        # First what may fail: it is tried again with the next trainer then.
        add_optimizer_hooks(probe)
        _ready.append(probe)
        probe.on_detach(_ready.clear)
        probe.on_detach(restore_functions)
        probe.on_detach(restore_tools)
    at = installed()
    if beside:
        if probe.instrument(trainer, ASYNC_METHODS):
            add_callback(probe, trainer)
    elif probe.instrument(trainer, methods(at)):
        probe.instrument(attribute(trainer, "processing_class"), tokenizer_methods(at))
        add_callback(probe, trainer)


# Nothing but the trainer that is built tells which classes define the methods: users subclass, and
# Unsloth compiles TRL's source anew.
_CONSTRUCTOR = HookPoint("transformers.trainer:Trainer.__init__", after=built)
