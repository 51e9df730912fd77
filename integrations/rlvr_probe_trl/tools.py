"""Tool runs: which trajectories an engine call continues, and what each call of a tool took.

TRL executes tools inside ``_generate``, in ``_tool_call_loop``: it looks each one up in a dict of
its own, per row of the batch, and asks the engine again for the rows that called one. While that
loop runs, the dicts are stand-ins that hand out timed tools; the user's list of tools is never
touched.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from types import FunctionType
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.adapter.controller import state_of
from rlvr_probe.adapter.spans import end_tool, start_tool
from rlvr_probe.adapter.user_functions import Swapped
from rlvr_probe.reading import attribute, error_of
from rlvr_probe_trl.reading import lengths
from rlvr_probe_trl.trainer import Training

__all__ = ["TOOL_LOOP", "turn_columns"]


@dataclass(slots=True)
class Loop:
    """One pass through ``_tool_call_loop``.

    Attributes:
        batch: Its experience span.
        prompts, prompt_ids, completion_ids, completions: What TRL works on, changed by it in place.
        asked: Row, turn and name of every tool that was looked up.
        called: Which of those were called, as positions; and those of which that is unknown.
        missing: How many names were looked up that no tool has.
        watched: Whether every dict of tools has its stand-in.
        swapped: Where stand-ins are in the place of TRL's dicts of tools.
    """

    batch: int
    prompts: Any
    prompt_ids: Any
    completion_ids: Any
    completions: Any
    asked: list[tuple[int, int | None, str]] = field(default_factory=list)
    called: set[int] = field(default_factory=set)
    missing: int = 0
    watched: bool = False
    swapped: Swapped = field(default_factory=Swapped)


@dataclass(slots=True)
class Conversation:
    """What is known of the batch that a trainer generates.

    Attributes:
        batch: Its experience span.
        turn: Engine calls so far.
        loop: The tool loop that runs, if any.
    """

    batch: int = 0
    turn: int = 0
    loop: Loop | None = None

    @property
    def last(self) -> int | None:
        """The turn whose tools run, None if no engine call was seen."""
        return self.turn - 1 if self.turn else None


def turn_columns(
    call: Call, batch: int, prompts: Any, responses: Any
) -> tuple[list[int] | None, int, list[int] | None, list[int] | None] | None:
    """Rows (None for all), turn, prompt and response lengths of an engine call.

    None where a run has no tools, or where the rows are unknown: then only the sums are known.
    Asked once per engine call, when it returned.
    """
    trainer = call.args[0]
    if not attribute(trainer, "tools"):
        return None
    conversation = _conversation(call.probe, trainer, batch)
    turn, loop = conversation.turn, conversation.loop
    conversation.turn += 1
    rows = None
    if loop is not None:
        rows = _rows(loop, call.args[1] if len(call.args) > 1 else prompts)
        if rows is None:
            return None
    elif turn:  # generated anew without tools in between: not a next turn of the same rows
        return None
    return rows, turn, lengths(prompts), lengths(responses)


def _conversation(probe: Probe, trainer: Any, batch: int) -> Conversation:
    conversation = state_of(probe, trainer, Conversation)
    if conversation.batch != batch:
        conversation.batch, conversation.turn, conversation.loop = batch, 0, None
    return conversation


def _rows(loop: Loop, asked: Any) -> list[int] | None:
    """The rows whose conversations go on, in the order of the engine call.

    TRL keeps them in a local variable. They are known by what it does to its lists before the call.
    """
    if not isinstance(asked, list) or not isinstance(loop.completions, list):
        return None
    # TRL < 1.0 sends the prompts themselves, to which it added what the tools said.
    places = {id(prompt): row for row, prompt in enumerate(loop.prompts)}
    rows = [places.get(id(prompt), -1) for prompt in asked]
    if -1 not in rows:
        return rows
    rows = [row for row, messages in enumerate(loop.completions) if _answered(messages)]
    if len(rows) == len(asked):
        return rows
    # TRL < 1.4 leaves the answers of tools in conversations that became too long to go on.
    continued: list[int] = []
    for ids in asked:
        row = next((row for row in rows if _begins(ids, loop, row)), None)
        if row is None:
            return None
        rows = [later for later in rows if later > row]
        continued.append(row)
    return continued


def _answered(messages: Any) -> bool:
    last = messages[-1] if isinstance(messages, list) and messages else None
    return isinstance(last, Mapping) and last.get("role") == "tool"


def _begins(ids: list[int], loop: Loop, row: int) -> bool:
    before = [*loop.prompt_ids[row], *loop.completion_ids[row]]
    return len(ids) > len(before) and ids[: len(before)] == before


# ---------------------------------------------------------------- single tools


class _RowTools(dict[str, Any]):
    """The tools of one row, as TRL looks them up; each comes out timed."""

    __slots__ = ("loop", "missing", "timed")

    loop: Loop
    timed: Callable[[str, Any], Any]
    missing: Callable[..., None] | None

    def __getitem__(self, name: str) -> Any:
        return self.timed(name, super().__getitem__(name))

    def __contains__(self, name: object) -> bool:
        known = super().__contains__(name)
        if not known and self.missing is not None:
            self.loop.missing += 1
            self.missing()
        return known


def _loop_begin(call: Call) -> None:
    trainer, probe = call.args[0], call.probe
    batch = _experience(trainer, probe)
    if not batch or len(call.args) < 5:
        return
    left = state_of(probe, trainer, Conversation).loop
    if left is not None:
        # An alarm of the user's, between that start and its call, has left it without an end.
        left.swapped.put_back()
    conversation = _conversation(probe, trainer, batch)
    loop = conversation.loop = call.state = Loop(batch, *call.args[1:5])
    point = replace(_TOOL, before=start_tool, after=partial(_tool_end, loop))
    for which in ("_sync_tool_dicts", "_async_tool_dicts"):  # TRL >= 0.29
        dicts = attribute(trainer, which)
        for row, tools in enumerate(dicts if isinstance(dicts, list) else ()):
            stand_in = _RowTools(tools)
            stand_in.loop = loop
            stand_in.timed = partial(_timed, probe, conversation, loop, point, row)
            # TRL asks the synchronous ones first: what is not among the others is in neither.
            missing = partial(_missing, probe, loop, row, conversation)
            stand_in.missing = None if which == "_sync_tool_dicts" else probe.guarded(missing)
            loop.swapped.put(dicts, row, stand_in)
    loop.watched = bool(loop.swapped)


def _experience(trainer: Any, probe: Probe) -> int:
    span = attribute(state_of(probe, trainer, Training).batch, "span")
    return span if isinstance(span, int) else 0


def _timed(
    probe: Probe, conversation: Conversation, loop: Loop, point: HookPoint, row: int,
    name: str, tool: Any,
) -> Any:  # fmt: skip
    # Called by TRL itself: nothing here can fail but the wrapping, which the probe guards.
    index = len(loop.asked)
    loop.asked.append((row, conversation.last, name))
    return _counted(loop, index, probe.wrap(tool, index, point))


def _counted(loop: Loop, index: int, timed: Any) -> Any:
    """``timed``, which says by itself that it is called: recording of the call may fail."""
    if inspect.iscoroutinefunction(timed) and isinstance(timed, FunctionType):

        @wraps(timed)
        async def call_later(*args: Any, **kwargs: Any) -> Any:
            loop.called.add(index)
            return await timed(*args, **kwargs)

        return call_later
    generates = inspect.isgeneratorfunction(timed) or inspect.isasyncgenfunction(timed)
    if generates or not isinstance(timed, FunctionType):
        # What is called in its place would be of another kind.
        loop.called.add(index)
        return timed

    @wraps(timed)
    def call_now(*args: Any, **kwargs: Any) -> Any:
        loop.called.add(index)
        return timed(*args, **kwargs)

    return call_now


def _missing(probe: Probe, loop: Loop, row: int, conversation: Conversation) -> None:
    # The name is what the model wrote: it is not ours to keep.
    place = {"batch": loop.batch, "row": row, "turn": conversation.last}
    end_tool(probe, None, None, **place, status="not_found")


def _tool_end(loop: Loop, call: Call) -> None:
    index, span = call.state
    row, turn, name = loop.asked[index]
    place = {"batch": loop.batch, "row": row, "turn": turn}
    end_tool(call.probe, span, error_of(call), **place, tool=name)


def _loop_end(call: Call) -> None:
    loop = call.state
    if not isinstance(loop, Loop):
        return
    loop.swapped.put_back()
    _conversation(call.probe, call.args[0], loop.batch).loop = None
    count = call.result[4] if isinstance(call.result, tuple) and len(call.result) > 5 else None
    if loop.watched and isinstance(count, int):
        # Counted by TRL and never made: of a type it does not know, without usable arguments.
        for _ in range(count - len(loop.called) - loop.missing):
            end_tool(call.probe, None, batch=loop.batch, status="bad_call")


_TOOL = HookPoint("tool")

TOOL_LOOP = HookPoint(
    "_tool_call_loop",
    before=_loop_begin,
    after=_loop_end,
    optional=True,
    parameters=("prompts", "prompt_ids", "completion_ids", "completions"),
)
"""Where TRL >= 0.26 executes tools and generates what follows."""
