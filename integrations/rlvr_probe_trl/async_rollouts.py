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
from rlvr_probe.reading import attribute, error_of, mask_runs, number, rewards, tool_status
from rlvr_probe_trl.reading import reward_values, size, truncated
from rlvr_probe_trl.rewards import put_back, restore_functions, swap
from rlvr_probe_trl.training import Swapped

__all__ = ["ROLLOUT_POINTS"]

_LOOP = "trl.experimental.async_grpo.async_rollout_worker:_AsyncRolloutLoop"


@dataclass(slots=True)
class Conversation:
    """One trajectory while it is made, and until its group is scored.

    Attributes:
        span: Its trajectory span, None if none is recorded.
        turns: Tokens sent and generated, per turn.
        tools: Dict of TRL with its tools, while wrappers have their places.
        users: Its tools.
        whole: Whether every turn of it was seen.
        prompt_tokens: Tokens of the first prompt.
        response_tokens: Tokens by which it grew, results of tools included. A template that drops
            what it said before makes it grow by less than was generated, which counts then.
        runs: Runs of its loss mask, where it became one training sample.
    """

    span: int | None = None
    turns: list[tuple[int, int]] = field(default_factory=list)
    tools: dict[str, Any] = field(default_factory=dict)
    users: dict[str, Any] = field(default_factory=dict)
    whole: bool = False
    prompt_tokens: int = 0
    response_tokens: int = 0
    runs: list[int] | None = None

    @property
    def turn(self) -> int | None:
        """The turn that asks for tools now."""
        return len(self.turns) - 1 if self.turns else None


_CURRENT: ContextVar[Conversation | None] = ContextVar("rlvr_probe_trl_conversation", default=None)

_MOST_TOKENS = 1 << 23


class Finished:
    """Conversations whose group is not scored yet, by the token list that TRL puts into it.

    TRL has the same lists until then. Where nobody scores, what is kept here must end somewhere.
    """

    def __init__(self, most_tokens: int = _MOST_TOKENS) -> None:
        self._kept: dict[int, tuple[list[Any], Conversation]] = {}
        self._tokens = 0
        self._most = most_tokens
        self._probe: Probe | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def follow(self, probe: Probe) -> None:
        """Keep what ``probe`` sees, until it is detached."""
        if self._probe is not probe:
            self.forget()
            self._probe = probe
            probe.on_detach(self.forget)
            probe.on_detach(restore_functions)

    def forget(self) -> None:
        """Keep nothing, and take nothing more."""
        self._kept.clear()
        self._tokens, self._probe = 0, None

    def add(self, ids: list[Any], conversation: Conversation, probe: Probe) -> int:
        """Keep one; returns how many of the oldest had to go."""
        if self._probe is not probe:
            return 0
        self.take(ids)
        self._kept[id(ids)] = (ids, conversation)
        self._tokens += len(ids) + 1
        gone = 0
        while self._tokens > self._most and len(self._kept) > 1:
            self.take(next(iter(self._kept.values()))[0])
            gone += 1
        return gone

    def take(self, ids: object) -> Conversation | None:
        """The conversation that made ``ids``, kept no longer; None if it is not known."""
        found = self._kept.pop(id(ids), None)
        if found is None:
            return None
        self._tokens -= len(found[0]) + 1
        return found[1]


FINISHED = Finished()


def _version(loop: Any) -> int | None:
    return number(loop, "model_version")


# ---------------------------------------------------------------- one trajectory


def _conversation_begin(call: Call) -> None:
    conversation = Conversation()
    call.state = (conversation, _CURRENT.get(), _version(call.args[0]))
    # TRL runs each one in a task, which has a context of its own.
    _CURRENT.set(conversation)
    FINISHED.follow(call.probe)
    # By hand: what follows is done as well where trajectories and turns are not recorded.
    conversation.span = call.probe.begin(TRAJECTORY, activate=True) or None
    tools = _argument(call, 2, "tool_dict")
    if not isinstance(tools, dict):
        return
    # TRL >= 1.5 makes this dict for the one call; the tools in it are the user's.
    point = replace(_TOOL, before=_tool_begin, after=partial(_tool_end, conversation, list(tools)))
    conversation.tools, conversation.users = tools, dict(tools)
    for index, (name, tool) in enumerate(conversation.users.items()):
        tools[name] = call.probe.wrap(tool, index, point)


def _conversation_end(call: Call) -> None:
    conversation, before, version = call.state
    _CURRENT.set(before)
    call.probe.end(conversation.span or 0, {"weight_version": version}, error_of(call))
    conversation.tools.update(conversation.users)
    if call.error is not None or not isinstance(call.result, tuple) or len(call.result) < 3:
        return
    # What was said, its tokens, and the training samples that TRL made of it.
    _, ids, samples, *_ = call.result
    if not isinstance(ids, list):
        return
    conversation.whole = bool(conversation.turns) and sum(
        of_turn for _, of_turn in conversation.turns
    ) == len(ids)
    if conversation.whole:
        _measure(conversation)
    elif not _measured_by_trl(conversation, samples, len(ids)):
        raise LookupError("turns of a conversation were not seen, nor its length")
    _read_mask(conversation, samples)
    if FINISHED.add(ids, conversation, call.probe):
        raise OverflowError("too many conversations wait for the scoring of their group")
    if not conversation.whole:
        raise LookupError("turns of a conversation were not seen")


def _measure(conversation: Conversation) -> None:
    """Lengths from the turns."""
    turns = conversation.turns
    conversation.prompt_tokens = turns[0][0]
    grown = sum(turns[-1]) - conversation.prompt_tokens
    conversation.response_tokens = max(grown, sum(of_turn for _, of_turn in turns))


def _measured_by_trl(conversation: Conversation, samples: Any, generated: int) -> bool:
    """Lengths from the masks of TRL's training samples, the last of which is how it ended."""
    masks = [attribute(one, "completion_mask") for one in samples] if size(samples) else []
    if not masks or not all(isinstance(mask, list) for mask in masks) or 1 not in masks[0]:
        return False
    conversation.prompt_tokens = masks[0].index(1)
    conversation.response_tokens = max(len(masks[-1]) - conversation.prompt_tokens, generated)
    return True


def _read_mask(conversation: Conversation, samples: Any) -> None:
    """From TRL's training samples: one, unless its template rewrote the conversation on the way."""
    mask: Any = attribute(samples[0], "completion_mask") if size(samples) == 1 else None
    if size(mask) == conversation.prompt_tokens + conversation.response_tokens:
        response = mask[conversation.prompt_tokens :]
        conversation.runs = mask_runs(response, len(response))


def _turn_begin(call: Call) -> None:
    call.state = call.probe.begin(TURN, activate=True)


def _turn_end(call: Call) -> None:
    conversation = _CURRENT.get()
    sent = size(_argument(call, 1, "prompt_ids"))
    generated = size(call.result[0]) if isinstance(call.result, tuple) and call.result else None
    values = {"batch": None if conversation is None else conversation.span, "samples": 1}
    if conversation is None or sent is None or generated is None:
        known = {"turn": None, "prompt_tokens": sent, "response_tokens": generated}
    else:
        known = {
            "turn": len(conversation.turns),
            "prompt_tokens": sent,
            "response_tokens": generated,
        }
        conversation.turns.append((sent, generated))
    call.probe.end(call.state or 0, {**values, **known}, error_of(call))


def _tool_begin(call: Call) -> None:
    call.state = (call.state["index"], call.probe.begin(TOOL_CALL))


def _tool_end(conversation: Conversation, names: list[str], call: Call) -> None:
    index, span = call.state
    error = error_of(call)
    status = tool_status(error)
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
    functions = attribute(loop, "reward_funcs")
    call.state = Swapped()
    if isinstance(functions, list):
        names: list[str] = list(attribute(loop, "reward_func_names") or ())
        point = replace(
            _FUNCTION,
            read=partial(_read_function, call.span, names),
            after=partial(_function_done, call.span, names),
        )
        swap(call.probe, functions, point, call.state)
    _tell(call.probe, loop, group, call.span)


def _read_mode(call: Call) -> tuple[Any, ...]:
    return ("train",)


def _score_end(call: Call) -> None:
    put_back(call.state)


def _tell(probe: Probe, loop: Any, group: Any, span: int) -> None:
    """The trajectories of a group, once all of them are there."""
    number_of, rows = number(group, "group_id"), attribute(group, "completions_ids")
    if not isinstance(rows, list):
        return
    found = [FINISHED.take(ids) for ids in rows]
    conversations = [one for one in found if one is not None]
    if number_of is None or not rows:
        return
    if len(conversations) < len(rows):
        raise LookupError("not every conversation of a group was seen")
    stops = frozenset(
        token
        for token in (
            *(attribute(loop, "eos_token_ids") or ()),
            attribute(loop, "tokenizer", "pad_token_id"),
        )
        if isinstance(token, int)
    )
    runs = [one.runs for one in conversations]
    spans = [one.span if one.whole else None for one in conversations]
    values = {
        "mode": "train",
        "batch": span,
        "queue_group": number_of,
        "weight_version": number(group, "model_version"),
        # Turns are told by their trajectory: without all of them there are none.
        "spans": None if None in spans else spans,
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
        **rewards(reward_values(call.result)),
    }
    call.probe.emit(REWARDS, values, parent=call.span)


_TOOL = HookPoint("tool")
_FUNCTION = HookPoint("reward_function", REWARD_FN, ("batch", "function", "samples"))

ROLLOUT_POINTS = (
    HookPoint(
        f"{_LOOP}._generate_one",
        before=_conversation_begin,
        after=_conversation_end,
        optional=True,
        parameters=("prompt", "tool_dict"),
    ),
    HookPoint(
        f"{_LOOP}._generate_one_turn",
        before=_turn_begin,
        after=_turn_end,
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
