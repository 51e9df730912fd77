"""Calls beside the stages of a step, as logging: spans by class and method."""

from __future__ import annotations

from functools import partial

from rlvr_probe.adapter.contract import Call, HookPoint
from rlvr_probe.model import names

__all__ = ["named_call"]


def named_call(target: str) -> HookPoint:
    """A point that records calls of a method as ``WandbCallback.on_log``, by the object's class.

    Args:
        target: As of a :class:`~rlvr_probe.adapter.HookPoint`; a release may lack it.
    """
    method = target.rpartition(".")[2]
    return HookPoint(
        target,
        names.USER,
        ("label",),
        partial(_read_label, method),
        detail=partial(_label, method),
        optional=True,
    )


def _label(method: str, call: Call) -> str:
    return f"{type(call.args[0]).__name__}.{method}"


def _read_label(method: str, call: Call) -> tuple[str]:
    return (_label(method, call),)
