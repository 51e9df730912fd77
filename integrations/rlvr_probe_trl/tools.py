"""Tool runs: which trajectories an engine call continues, and what each call of a tool took.

TRL executes tools inside ``_generate``, in ``_tool_call_loop``: it looks each one up in a dict of
its own, per row of the batch, and asks the engine again for the rows that called one. While that
loop runs, the dicts are stand-ins that hand out timed tools; the user's list of tools is never
touched.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from types import FunctionType
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.model.names import TOOL_CALL
from rlvr_probe.reading import attribute, error_of, mask_runs, tool_status
from rlvr_probe_trl.reading import lengths, size

__all__ = ["TOOL_LOOP", "loss_runs", "restore_tools", "turn_columns"]


@dataclass(slots=True)
class Loop:
    """One pass through ``_tool_call_loop``.

    Attributes:
        batch: Its experience span.
        prompts, prompt_ids, completion_ids, completions: What TRL works on, changed by it in place.
        asked: Row, turn and name of every tool that was looked up.
        called: Which of those were called, as positions; and those of which that cannot be told.
        missing: How many names were looked up that no tool has.
        watched: Whether every dict of tools has its stand-in.
        swapped: List, position, dict of TRL and its stand-in.
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
    swapped: list[tuple[list[Any], int, Any, Any]] = field(default_factory=list)


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


_IN_PLACE: list[Loop] = []


def turn_columns(
    call: Call, batch: int, prompts: Any, responses: Any
) -> tuple[list[int] | None, int, list[int] | None, list[int] | None] | None:
    """Rows (None for all), turn, prompt and response lengths of an engine call.

    None where a run has no tools, or where the rows could not be told: then only the sums are
    known. Asked once per engine call, when it returned.
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
    state = probe.state(trainer)
    conversation = state.get("conversation")
    if not isinstance(conversation, Conversation) or conversation.batch != batch:
        conversation = state["conversation"] = Conversation(batch)
    return conversation


def _rows(loop: Loop, asked: Any) -> list[int] | None:
    """The rows whose conversations go on, in the order of the engine call.

    TRL keeps them in a local variable. They are told by what it does to its lists before the call.
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
    found: list[int] = []
    for ids in asked:
        row = next((row for row in rows if _begins(ids, loop, row)), None)
        if row is None:
            return None
        rows = [later for later in rows if later > row]
        found.append(row)
    return found


def _answered(messages: Any) -> bool:
    last = messages[-1] if isinstance(messages, list) and messages else None
    return isinstance(last, Mapping) and last.get("role") == "tool"


def _begins(ids: list[int], loop: Loop, row: int) -> bool:
    before = [*loop.prompt_ids[row], *loop.completion_ids[row]]
    return len(ids) > len(before) and ids[: len(before)] == before


def loss_runs(masks: object, response_tokens: Sequence[int]) -> list[list[int]] | None:
    """Runs of each mask in turn, those of ones first; None if there is no sound one for every row.

    Args:
        masks: Per row, 1 for a token of the model and 0 for one of a tool or an environment.
        response_tokens: Lengths that they must have.
    """
    if size(masks) != len(response_tokens) or not response_tokens:
        return None
    found: list[list[int]] = []
    for mask, length in zip(masks, response_tokens, strict=True):  # type: ignore[call-overload]
        runs = mask_runs(mask, length)
        if runs is None:
            return None
        found.append(runs)
    return found


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
        found = super().__contains__(name)
        if not found and self.missing is not None:
            self.loop.missing += 1
            self.missing()
        return found


def _loop_begin(call: Call) -> None:
    trainer, probe = call.args[0], call.probe
    batch = _experience(trainer, probe)
    if not batch or len(call.args) < 5:
        return
    left = probe.state(trainer).get("conversation")
    if isinstance(left, Conversation) and left.loop is not None:
        # An alarm of the user's, between that begin and its call, has left it without an end.
        _put_back(left.loop)
    conversation = _conversation(probe, trainer, batch)
    loop = conversation.loop = call.state = Loop(batch, *call.args[1:5])
    _IN_PLACE.append(loop)
    point = replace(_TOOL, before=_tool_begin, after=partial(_tool_end, loop, conversation))
    for which in ("_sync_tool_dicts", "_async_tool_dicts"):  # TRL >= 0.29
        dicts = attribute(trainer, which)
        if not isinstance(dicts, list):
            continue
        for row, tools in enumerate(dicts):
            # TRL asks the synchronous ones first: what is not among the others is in neither.
            missing = None if which == "_sync_tool_dicts" else partial(_missing, probe, loop, row)
            stand_in = _RowTools(tools)
            stand_in.loop = loop
            stand_in.timed = partial(_timed, probe, loop, conversation, point, row)
            stand_in.missing = (
                None if missing is None else partial(probe.guarded(missing), conversation)
            )
            loop.swapped.append((dicts, row, tools, stand_in))
            dicts[row] = stand_in
    loop.watched = bool(loop.swapped)


def _experience(trainer: Any, probe: Probe) -> int:
    training = probe.state(trainer).get("training")
    span = attribute(training, "batch", "span")
    return span if isinstance(span, int) else 0


def _timed(
    probe: Probe, loop: Loop, conversation: Conversation, point: HookPoint, row: int,
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
    probe.end(probe.begin(TOOL_CALL), {**place, "status": "not_found"})


def _tool_begin(call: Call) -> None:
    call.state = (call.state["index"], call.probe.begin(TOOL_CALL))


def _tool_end(loop: Loop, conversation: Conversation, call: Call) -> None:
    index, span = call.state
    row, turn, name = loop.asked[index]
    error = error_of(call)
    status = tool_status(error)
    values = {"batch": loop.batch, "row": row, "turn": turn, "tool": name, "status": status}
    call.probe.end(span, values, error)


def _loop_end(call: Call) -> None:
    loop = call.state
    if not isinstance(loop, Loop):
        return
    _put_back(loop)
    _conversation(call.probe, call.args[0], loop.batch).loop = None
    count = call.result[4] if isinstance(call.result, tuple) and len(call.result) > 5 else None
    if loop.watched and isinstance(count, int):
        # Counted by TRL and never made: of a type it does not know, without usable arguments.
        for _ in range(count - len(loop.called) - loop.missing):
            values = {"batch": loop.batch, "status": "bad_call"}
            call.probe.end(call.probe.begin(TOOL_CALL), values)


def restore_tools() -> None:
    """Put back every dict of tools: for a detach while tools run."""
    for loop in list(_IN_PLACE):
        _put_back(loop)


def _put_back(loop: Loop) -> None:
    for dicts, row, tools, stand_in in loop.swapped:
        if row < len(dicts) and dicts[row] is stand_in:
            dicts[row] = tools
    _IN_PLACE[:] = [other for other in _IN_PLACE if other is not loop]


_TOOL = HookPoint("tool")

TOOL_LOOP = HookPoint(
    "_tool_call_loop",
    before=_loop_begin,
    after=_loop_end,
    optional=True,
    parameters=("prompts", "prompt_ids", "completion_ids", "completions"),
)
"""Where TRL >= 0.26 executes tools and generates what follows."""
