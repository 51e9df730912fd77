"""Calls of tools and of interactions by verl's ToolAgentLoop.

It keeps the errors of tools from the trajectory, and makes text of them. Whether a tool raised is
seen where it is called, below the line that catches; the text is never looked at.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.model.names import TOOL_CALL
from rlvr_probe.reading import argument, attribute, error_of, tool_status
from rlvr_probe.releases import Dated
from rlvr_probe_verl.conversation import CURRENT, Conversation

__all__ = ["CREATE", "EXECUTE", "FUNCTION", "INTERACT", "TOOLS", "USE"]


@dataclass(slots=True)
class Use:
    """One call of a tool.

    Attributes:
        conversation: Whose it is.
        span: Its span.
        turn: Turn that asked for it, -1 if none was seen.
        tool: Its name, None if there is no tool of the name that the model wrote.
        watched: Whether the methods of the tool are hooked.
        reached: Whether the tool itself was called.
        failed: Whether it raised, or returned what verl cannot use.
        error: Type of the exception that it raised, or that verl raises then; None if unknown.
    """

    conversation: Conversation
    span: int
    turn: int
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


def _is_conversation(call: Call) -> bool:
    conversation = CURRENT.get()
    return conversation is not None and conversation.loop is call.args[0]


def _call_begin(call: Call) -> None:
    conversation = CURRENT.get()
    if conversation is None:
        return
    turn = conversation.turns - 1
    name = attribute(argument(call, 1, "tool_call"), "name")
    tools = attribute(argument(call, 3, "agent_data"), "_active_tools")
    tools = attribute(call.args[0], "tools") if tools is None else tools
    known = isinstance(tools, dict) and isinstance(name, str) and name in tools
    use = Use(conversation, call.probe.begin(TOOL_CALL), turn, name if known else None)
    if known:
        use.watched = _watch(call.probe, tools[name])
    call.state = (use, _USE.get())
    _USE.set(use)
    if turn != conversation.asked:
        conversation.asked, conversation.broken = turn, False


def _watch(probe: Probe, tool: Any) -> bool:
    """Hook the methods of a tool, on the classes that define them; whether its call is seen."""
    state = probe.state(type(tool))
    watched = state.get("watched")
    if watched is None:
        probe.instrument(tool, (CREATE,))
        # A function tool of 0.8 and later has `call`, any other tool `execute`.
        watched = state["watched"] = bool(probe.instrument(tool, (EXECUTE, FUNCTION)))
    return bool(watched)


def _call_end(call: Call) -> None:
    if call.state is None:
        return
    use, outer = call.state
    _USE.set(outer)
    error = error_of(call)
    status = status_of(use, error)
    use.conversation.broken |= isinstance(call.result, BaseException)
    values = {
        "batch": use.conversation.span,
        "turn": use.turn if use.turn >= 0 else None,
        "tool": use.tool,
        "status": status,
    }
    call.probe.end(use.span, values, error or use.error)


def status_of(use: Use, error: str | None) -> str | None:
    """How a call ended, by what was seen of it; None if that cannot be told.

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
    if conversation is None:
        return
    name = attribute(argument(call, 1, "agent_data"), "interaction", "name")
    use = Use(
        conversation,
        call.probe.begin(TOOL_CALL),
        conversation.turns - 1,
        name if isinstance(name, str) else None,
    )
    call.state = use


def _interact_end(call: Call) -> None:
    use = call.state
    if not isinstance(use, Use):
        return
    error = error_of(call)
    status = tool_status(error)
    values = {"batch": use.conversation.span, "turn": use.turn, "tool": use.tool, "status": status}
    call.probe.end(use.span, values, error)


CREATE = HookPoint("create", after=_seen, when=_in_use)
EXECUTE = HookPoint("execute", after=_executed, when=_in_use)
FUNCTION = HookPoint("call", after=_reached, when=_in_use)

USE = HookPoint("_call_tool", before=_call_begin, after=_call_end, when=_is_conversation)
INTERACT = HookPoint(
    "_handle_interacting_state",
    before=_interact_begin,
    after=_interact_end,
    when=_is_conversation,
)

TOOLS = (
    Dated(
        HookPoint(
            "verl.experimental.agent_loop.tool_agent_loop:normalize_function_tool_return",
            after=_seen,
            when=_in_use,
        ),
        since="0.8",
    ),
)
"""Hooked in the workers when their modules are imported."""
