"""Calls of tools and of interactions by verl's ToolAgentLoop.

It keeps the errors of tools from the trajectory, and makes text of them. Whether a tool raised is
seen where it is called, below the line that catches; the text is never looked at.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.adapter.controller import instrument_once
from rlvr_probe.adapter.spans import end_tool
from rlvr_probe.model.names import TOOL_CALL
from rlvr_probe.reading import argument, attribute, error_of, tool_status, word
from rlvr_probe.releases import Dated
from rlvr_probe_verl.conversation import CURRENT, Conversation, in_conversation

__all__ = ["CREATE", "EXECUTE", "FUNCTION", "INTERACT", "TOOLS", "USE"]


@dataclass(slots=True)
class Use:
    """One call of a tool.

    Attributes:
        conversation: Whose it is.
        span: Its span.
        turn: Turn that asked for it; None if none was seen.
        tool: Its name, None if the model wrote the name of none.
        watched: Whether the methods of the tool are hooked.
        reached: Whether the tool itself was called.
        failed: Whether it raised, or returned what verl cannot use.
        error: Type of the exception that it raised, or that verl raises then; None if unknown.
    """

    conversation: Conversation
    span: int
    turn: int | None
    tool: str | None
    watched: bool = False
    reached: bool = False
    failed: bool = False
    error: str | None = None

    def note(self, error: str | None) -> None:
        """Note the first thing that went wrong, by the type of its exception."""
        if not self.failed:
            self.failed, self.error = True, error


_USE: ContextVar[Use | None] = ContextVar("rlvr_probe_verl_tool", default=None)


def _call_begin(call: Call) -> None:
    conversation = CURRENT.get()
    if conversation is None:
        return
    name = attribute(argument(call, 1, "tool_call"), "name")
    tools = attribute(argument(call, 3, "agent_data"), "_active_tools")
    tools = attribute(call.args[0], "tools") if tools is None else tools
    known = isinstance(tools, dict) and isinstance(name, str) and name in tools
    span, turn = call.probe.begin(TOOL_CALL), conversation.turn
    use = Use(conversation, span, turn, name if known else None)
    if known:
        use.watched = _watch(call.probe, tools[name])
    call.state = (use, _USE.get())
    _USE.set(use)
    last = conversation.turns - 1
    if last != conversation.asked:
        conversation.asked, conversation.broken = last, False


def _watch(probe: Probe, tool: Any) -> bool:
    """Hook the methods of a tool, on the classes that define them; whether its call is seen."""
    # A function tool of 0.8 and later has `call`, any other tool `execute`.
    return instrument_once(probe, tool, (EXECUTE, FUNCTION), (CREATE,)) > 0


def _call_end(call: Call) -> None:
    if call.state is None:
        return
    use, outer = call.state
    _USE.set(outer)
    error = error_of(call)
    use.conversation.broken |= isinstance(call.result, BaseException)
    _end(call.probe, use, error or use.error, status_of(use, error))


def _end(probe: Probe, use: Use, error: str | None, status: str | None) -> None:
    values = {"batch": use.conversation.span, "turn": use.turn, "tool": use.tool}
    end_tool(probe, use.span, error, status=status, **values)


def status_of(use: Use, error: str | None) -> str | None:
    """How a call ended, by what was seen of it; None if that is unknown.

    Args:
        use: What was seen.
        error: Type of the exception that came out of verl's own function.
    """
    if error is not None:
        return tool_status(error)
    if use.tool is None:
        return "not_found"
    if use.failed:
        return "error"
    if not use.watched:
        return None
    return "ok" if use.reached else "bad_call"


def _seen(call: Call) -> None:
    use = _USE.get()
    if use is not None and call.error is not None:
        use.note(error_of(call))


def _reached(call: Call) -> None:
    use = _USE.get()
    if use is not None:
        use.reached = True
    _seen(call)


def _executed(call: Call) -> None:
    _reached(call)
    use = _USE.get()
    if use is None or call.error is not None:
        return
    # verl unpacks three values where it catches errors.
    if not isinstance(call.result, (tuple, list)):
        use.note(None if hasattr(call.result, "__iter__") else TypeError.__name__)
    elif len(call.result) != 3:
        use.note(ValueError.__name__)


def _in_use(call: Call) -> bool:
    return _USE.get() is not None


def _interact_begin(call: Call) -> None:
    conversation = CURRENT.get()
    if conversation is not None:
        name = word(attribute(argument(call, 1, "agent_data"), "interaction", "name"))
        span = call.probe.begin(TOOL_CALL)
        call.state = Use(conversation, span, conversation.turns - 1, name)


def _interact_end(call: Call) -> None:
    if isinstance(call.state, Use):
        error = error_of(call)
        _end(call.probe, call.state, error, tool_status(error))


CREATE = HookPoint("create", after=_seen, when=_in_use)
EXECUTE = HookPoint("execute", after=_executed, when=_in_use)
FUNCTION = HookPoint("call", after=_reached, when=_in_use)

USE = HookPoint("_call_tool", before=_call_begin, after=_call_end, when=in_conversation)
INTERACT = HookPoint(
    "_handle_interacting_state",
    before=_interact_begin,
    after=_interact_end,
    when=in_conversation,
)

_NORMALIZE = HookPoint(
    "verl.experimental.agent_loop.tool_agent_loop:normalize_function_tool_return",
    after=_seen,
    when=_in_use,
)

TOOLS = (Dated(_NORMALIZE, "0.8"),)
"""Hooked in the workers when their modules are imported."""
