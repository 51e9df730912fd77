"""Spans that a hook point starts and ends by hand: stages, and calls between processes.

By hand, because what they are, and which step they belong to, is known only in the call.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from rlvr_probe.adapter.contract import Call, Probe
from rlvr_probe.adapter.controller import Where, named
from rlvr_probe.model.names import RPC, TOOL_CALL, Name
from rlvr_probe.reading import error_of, tool_status

__all__ = ["Open", "end_span", "end_tool", "open_stage", "start_call", "start_stage", "start_tool"]

Open = tuple[int, dict[str, Any]]
"""A span that is open, and the attributes that it ends with."""

_calls: Counter[tuple[str, str | None, str | None]] = Counter()


def open_stage(probe: Probe, name: Name, where: Where) -> Open:
    """Start a stage that is current until it ends."""
    return probe.begin(name, step=where[1], activate=True), named(where)


def start_stage(call: Call, name: Name, where: Where) -> None:
    """Start a stage at a call; :func:`end_span` ends it."""
    call.state = open_stage(call.probe, name, where)


def end_span(call: Call, **values: Any) -> None:
    """End what was started at a call, if anything was.

    Args:
        call: The one whose ``state`` starts with a span and its attributes.
        values: More attributes.
    """
    if call.state is not None:
        span, known, *_ = call.state
        call.probe.end(span, {**known, **values}, error_of(call))


def start_call(
    call: Call,
    side: str,
    group: str | None,
    method: str | None,
    where: Where | None = None,
    *,
    activate: bool = True,
    **values: Any,
) -> None:
    """Start a call of a group of processes; :func:`end_span` ends it.

    Nothing is added to a call on its way. The k-th call of a method of a group is the k-th
    execution of that method in each of its processes, so both sides count.

    Args:
        call: The call of the framework's own function.
        side: ``caller`` or ``worker``.
        group: Name of the group.
        method: Name of the method.
        where: Place in the run, where it is known.
        activate: Whether it is current until it ends.
        values: More attributes.
    """
    key = (side, group, method)
    at = {} if where is None else named(where)
    known = {**at, "side": side, "group": group, "method": method, "call": _calls[key], **values}
    _calls[key] += 1
    step = None if where is None else where[1]
    span = call.probe.begin(RPC, detail=method or "", step=step, activate=activate)
    call.state = (span, known)


def start_tool(call: Call) -> None:
    """Start the call of a tool that a wrapper stands for.

    ``call.state`` is its position among those that were wrapped, and its span, from here on.
    """
    call.state = (call.state["index"], call.probe.begin(TOOL_CALL))


def end_tool(probe: Probe, span: int | None, error: str | None = None, **values: Any) -> None:
    """End the call of a tool.

    Args:
        probe: To record with.
        span: Its span; None for a call that never reached a tool.
        error: Type of the exception that ended it.
        values: Attributes: what it belongs to, which tool, and how it ended where ``error`` alone
            does not say.
    """
    span = probe.begin(TOOL_CALL) if span is None else span
    probe.end(span, {"status": tool_status(error), **values}, error)
