"""What each rank does inside a call that is recorded by itself: the optimizer's steps."""

from __future__ import annotations

from rlvr_probe.adapter import Call, HookPoint
from rlvr_probe.model.names import OPTIMIZER_STEP
from rlvr_probe.reading import argument, attribute

__all__ = ["OPTIMIZER"]


def _updates(call: Call) -> bool:
    """Whether this is more than one of several micro-batches that are accumulated."""
    model = argument(call, 2, "model")
    for engine in (attribute(model, "model"), model):
        at_boundary = attribute(engine, "is_gradient_accumulation_boundary")
        if callable(at_boundary):
            return bool(at_boundary())
    return True


OPTIMIZER = HookPoint(
    "openrlhf.utils.deepspeed.deepspeed:DeepspeedStrategy.optimizer_step",
    OPTIMIZER_STEP,
    when=_updates,
)
