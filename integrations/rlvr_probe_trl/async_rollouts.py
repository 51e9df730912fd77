"""Asynchronous GRPO's rollout process: trajectories, their turns and tools, scoring of groups.

TRL spawns a process that generates and scores for ever and fills a queue; the trainer, in another
process, takes from it (:mod:`rlvr_probe_trl.async_grpo`). There is no trainer here and no step:
groups carry their number, by which what the trainer took is joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.model.names import (
    REWARD,
    REWARD_FN,
    REWARDS,
    TOOL_CALL,
    TRAJECTORIES,
    TRAJECTORY,
    TURN,
)
from rlvr_probe_trl.reading import attribute, is_module, number, reward_values, size, truncated
from rlvr_probe_trl.tools import loss_runs

__all__ = ["ROLLOUT_POINTS"]

_LOOP = "trl.experimental.async_grpo.async_rollout_worker:_AsyncRolloutLoop"


@dataclass(slots=True)
class Conversation:
    """One trajectory while it is made, and until its group is scored.

    Attributes:
        span: Its trajectory span.
        version: Weights that the engine had when it began.
        turns: Tokens sent and generated, per turn.
        tools: Dict of TRL with its tools, while wrappers have their places.
        users: Its tools.
        runs: Runs of its loss mask, where it became one training sample.
    """

    span: int
    version: int | None
    turns: list[tuple[int, int]] = field(default_factory=list)
    tools: dict[str, Any] = field(default_factory=dict)
    users: dict[str, Any] = field(default_factory=dict)
    runs: list[int] | None = None

    @property
    def turn(self) -> int | None:
        """The turn that asks for tools now."""
        return len(self.turns) - 1 if self.turns else None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the first prompt."""
        return self.turns[0][0]

    @property
    def response_tokens(self) -> int:
        """Tokens by which the conversation grew, results of tools included.

        A template that drops what it said before makes it grow by less than was generated.
        """
        sent, generated = self.turns[-1]
        grown = sent + generated - self.prompt_tokens
        return max(grown, sum(of_turn for _, of_turn in self.turns))


_CURRENT: ContextVar[Conversation | None] = ContextVar("rlvr_probe_trl_conversation", default=None)
_MADE: dict[int, tuple[list[Any], Conversation]] = {}
"""Finished conversations by the identity of the token list that TRL puts into their group."""


def _version(loop: Any) -> int | None:
    return number(loop, "model_version")


# ---------------------------------------------------------------- one trajectory


def _conversation_begin(call: Call) -> None:
    conversation = Conversation(call.span, _version(call.args[0]))
    call.state = (conversation, _CURRENT.get())
    # TRL runs each one in a task, which has a context of its own.
    _CURRENT.set(conversation)
    tools = _argument(call, 2, "tool_dict")
    if not isinstance(tools, dict):
        return
    # TRL >= 1.5 makes this dict for the one call; the tools in it are the user's.
    point = replace(_TOOL, before=_tool_begin, after=partial(_tool_end, conversation, list(tools)))
    conversation.tools, conversation.users = tools, dict(tools)
    for index, (name, tool) in enumerate(conversation.users.items()):
        tools[name] = call.probe.wrap(tool, index, point)


def _read_conversation(call: Call) -> tuple[Any, ...]:
    return (call.state[0].version,)


def _conversation_end(call: Call) -> None:
    conversation, before = call.state
    _CURRENT.set(before)
    conversation.tools.update(conversation.users)
    if call.error is not None or not isinstance(call.result, tuple) or not conversation.turns:
        return
    _read_mask(conversation, call.result)
    for part in call.result:
        if isinstance(part, list):
            _MADE[id(part)] = (part, conversation)


def _read_mask(conversation: Conversation, result: tuple[Any, ...]) -> None:
    """From TRL's training rows: one, unless its template rewrote the conversation on the way."""
    rows = next(
        (part for part in result if size(part) == 1 and hasattr(part[0], "completion_mask")), None
    )
    if rows is None:
        return
    mask = attribute(rows[0], "completion_mask")
    if size(mask) == conversation.prompt_tokens + conversation.response_tokens:
        response = mask[conversation.prompt_tokens :]
        runs = loss_runs([response], [len(response)])
        conversation.runs = None if runs is None else runs[0]


def _read_turn(call: Call) -> tuple[Any, ...]:
    conversation = _CURRENT.get()
    sent = size(_argument(call, 1, "prompt_ids"))
    generated = size(call.result[0]) if isinstance(call.result, tuple) and call.result else None
    if conversation is None or sent is None or generated is None:
        return (None, 1, None, sent, generated)
    conversation.turns.append((sent, generated))
    return (conversation.span, 1, len(conversation.turns) - 1, sent, generated)


def _tool_begin(call: Call) -> None:
    call.state = (call.state["index"], call.probe.begin(TOOL_CALL))


def _tool_end(conversation: Conversation, names: list[str], call: Call) -> None:
    index, span = call.state
    error = None if call.error is None else type(call.error).__name__
    status = "ok" if error is None else "cancelled" if error == "CancelledError" else "error"
    place = {"batch": conversation.span, "turn": conversation.turn}
    call.probe.end(span, {**place, "tool": names[index], "status": status}, error)


def _tools_end(call: Call) -> None:
    """After the tools of a turn: those that the model made up, without their names."""
    conversation = _CURRENT.get()
    asked, tools = _argument(call, 1, "tool_calls"), _argument(call, 2, "tool_dict")
    if conversation is None or not isinstance(asked, list) or not isinstance(tools, dict):
        return
    for one in asked:
        function = one.get("function") if isinstance(one, Mapping) else None
        if isinstance(function, Mapping) and function.get("name") not in tools:
            values = {"batch": conversation.span, "turn": conversation.turn, "status": "not_found"}
            call.probe.end(call.probe.begin(TOOL_CALL), values)


def _argument(call: Call, index: int, name: str) -> Any:
    return call.args[index] if len(call.args) > index else call.kwargs.get(name)


# ---------------------------------------------------------------- one group


def _score_begin(call: Call) -> None:
    loop, group = call.args[0], _argument(call, 1, "group")
    _tell(call.probe, loop, group, call.span)
    functions = attribute(loop, "reward_funcs")
    call.state = swapped = list[tuple[list[Any], int, Any, Any]]()
    if not isinstance(functions, list):
        return
    names: list[str] = list(attribute(loop, "reward_func_names") or ())
    point = replace(
        _FUNCTION,
        read=partial(_read_function, call.span, names),
        after=partial(_function_done, call.span, names),
    )
    for index, function in enumerate(functions):
        if is_module(function):
            continue
        wrapper = call.probe.wrap(function, index, point)
        swapped.append((functions, index, function, wrapper))
        functions[index] = wrapper


def _read_mode(call: Call) -> tuple[Any, ...]:
    return ("train",)


def _score_end(call: Call) -> None:
    for functions, index, function, wrapper in call.state:
        if index < len(functions) and functions[index] is wrapper:
            functions[index] = function


def _tell(probe: Probe, loop: Any, group: Any, span: int) -> None:
    """The trajectories of a group, once all of them are there."""
    number_of, rows = number(group, "group_id"), attribute(group, "completions_ids")
    if not isinstance(rows, list):
        return
    found = [_MADE.pop(id(ids), None) for ids in rows]
    for other in attribute(group, "completions") or ():
        _MADE.pop(id(other), None)
    conversations = [one[1] for one in found if one is not None]
    if number_of is None or not rows or len(conversations) < len(rows):
        return
    stops = frozenset(
        token
        for token in (
            *(attribute(loop, "eos_token_ids") or ()),
            attribute(loop, "tokenizer", "pad_token_id"),
        )
        if isinstance(token, int)
    )
    runs = [one.runs for one in conversations]
    values = {
        "mode": "train",
        "batch": span,
        "queue_group": number_of,
        "weight_version": number(group, "model_version"),
        "spans": [one.span for one in conversations],
        "offset": 0,
        "total": len(rows),
        "group_size": len(rows),
        "prompt_tokens": [one.prompt_tokens for one in conversations],
        "response_tokens": [one.response_tokens for one in conversations],
        "truncated": truncated(rows, stops),
        "loss_runs": None if None in runs else runs,
    }
    probe.emit(TRAJECTORIES, values, parent=span)


def _read_function(span: int, names: list[str], call: Call) -> tuple[Any, ...]:
    index = call.state["index"]
    name = names[index] if index < len(names) else None
    return (span, name, size(call.kwargs.get("completions")))


def _function_done(span: int, names: list[str], call: Call) -> None:
    index = call.state["index"]
    if call.error is not None or index >= len(names):
        return
    values = {
        "batch": span,
        "function": names[index],
        "index": index,
        "values": reward_values(call.result),
    }
    call.probe.emit(REWARDS, values, parent=call.span)


_TOOL = HookPoint("tool")
_FUNCTION = HookPoint("reward_function", REWARD_FN, ("batch", "function", "samples"))

ROLLOUT_POINTS = (
    HookPoint(
        f"{_LOOP}._generate_one",
        TRAJECTORY,
        ("weight_version",),
        _read_conversation,
        before=_conversation_begin,
        after=_conversation_end,
        optional=True,
        parameters=("prompt", "tool_dict"),
    ),
    HookPoint(
        f"{_LOOP}._generate_one_turn",
        TURN,
        ("batch", "samples", "turn", "prompt_tokens", "response_tokens"),
        _read_turn,
        optional=True,
        parameters=("prompt_ids",),
    ),
    HookPoint(
        f"{_LOOP}._execute_tool_calls",
        after=_tools_end,
        optional=True,
        parameters=("tool_calls", "tool_dict"),
    ),
    HookPoint(
        f"{_LOOP}._score_group",
        REWARD,
        ("mode",),
        _read_mode,
        before=_score_begin,
        after=_score_end,
        optional=True,
        parameters=("group",),
    ),
)
"""In the process that TRL spawns; there is no trainer in it to find them on."""
