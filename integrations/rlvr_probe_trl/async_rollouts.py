"""Asynchronous GRPO's rollout process: trajectories, their turns and tools, scoring of groups.

TRL spawns a process that generates and scores for ever and fills a queue; the trainer, in another
process, takes from it (:mod:`rlvr_probe_trl.async_grpo`). There is no trainer here and no step:
groups carry their number, by which what the trainer took is joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.adapter import conversation as kit
from rlvr_probe.adapter.batch_events import emit_trajectories, sources
from rlvr_probe.adapter.spans import end_tool, start_tool
from rlvr_probe.adapter.user_functions import Swapped, put_all_back
from rlvr_probe.model.names import REWARD, TRAJECTORY, TURN
from rlvr_probe.reading import argument, attribute, error_of, mask_runs, number, option, size
from rlvr_probe_trl.reading import truncated
from rlvr_probe_trl.rewards import swap

__all__ = ["ROLLOUT_POINTS"]

_LOOP = "trl.experimental.async_grpo.async_rollout_worker:_AsyncRolloutLoop"


@dataclass(slots=True)
class Conversation(kit.Conversation):
    """One trajectory while it is made, and until its group is scored.

    Attributes:
        sizes: Tokens sent and generated, per turn.
        swapped: Where wrappers are in the place of its tools.
        whole: Whether every turn of it was seen.
        prompt_tokens: Tokens of the first prompt.
        response_tokens: Tokens by which it grew, results of tools included. A template that drops
            what it said before makes it grow by less than was generated, which counts then.
        runs: Runs of its loss mask, where it became one sample.
    """

    sizes: list[tuple[int, int]] = field(default_factory=list)
    swapped: Swapped = field(default_factory=Swapped)
    whole: bool = False
    prompt_tokens: int = 0
    response_tokens: int = 0
    runs: list[int] | None = None

    @property
    def generated(self) -> int:
        """Tokens generated in all turns."""
        return sum(generated for _, generated in self.sizes)


_CURRENT = kit.Current[Conversation]("rlvr_probe_trl_conversation")

_MOST_TOKENS = 1 << 23


class Finished:
    """Conversations whose group is not scored yet, by the token list that TRL puts into it.

    TRL has the same lists until then. Where nothing is scored, what is kept here must end
    somewhere.
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
            probe.on_detach(put_all_back)

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
        """Take out the conversation that made ``ids``; None if it is unknown."""
        kept, conversation = self._kept.pop(id(ids), (None, None))
        if kept is not None:
            self._tokens -= len(kept) + 1
        return conversation


FINISHED = Finished()


# ---------------------------------------------------------------- one trajectory


def _conversation_begin(call: Call) -> None:
    # By hand: what follows is done as well where trajectories and turns are not recorded.
    span = call.probe.begin(TRAJECTORY, activate=True) or None
    conversation = Conversation(span)
    # TRL runs each one in a task, which has a context of its own.
    _CURRENT.enter(call, conversation)
    call.state = (*call.state, number(call.args[0], "model_version"))
    FINISHED.follow(call.probe)
    tools = argument(call, 2, "tool_dict")
    if not isinstance(tools, dict):
        return
    # TRL >= 1.5 makes this dict for the one call; the tools in it are the user's.
    names = list(tools)
    point = replace(_TOOL, before=start_tool, after=partial(_tool_end, conversation, names))
    for index, name in enumerate(names):
        conversation.swapped.put(tools, name, call.probe.wrap(tools[name], index, point))


def _conversation_end(call: Call) -> None:
    conversation = _CURRENT.leave(call)
    if conversation is None:
        return
    call.probe.end(conversation.span or 0, {"weight_version": call.state[2]}, error_of(call))
    conversation.swapped.put_back()
    if call.error is not None or not isinstance(call.result, tuple) or len(call.result) < 3:
        return
    # What was said, its tokens, and the samples that TRL made of it.
    _, ids, samples, *_ = call.result
    if not isinstance(ids, list):
        return
    sizes = conversation.sizes
    conversation.whole = bool(sizes) and conversation.generated == len(ids)
    if conversation.whole:
        conversation.prompt_tokens = sizes[0][0]
        grown = sum(sizes[-1]) - conversation.prompt_tokens
        conversation.response_tokens = max(grown, conversation.generated)
    elif not _measured_by_trl(conversation, samples, len(ids)):
        raise LookupError("turns of a conversation were not seen, nor its length")
    _read_mask(conversation, samples)
    if FINISHED.add(ids, conversation, call.probe):
        raise OverflowError("too many conversations wait for the scoring of their group")
    if not conversation.whole:
        raise LookupError("turns of a conversation were not seen")


def _measured_by_trl(conversation: Conversation, samples: Any, generated: int) -> bool:
    """Lengths from the masks of TRL's samples, the last of which is how it ended."""
    masks = [attribute(row, "completion_mask") for row in samples] if size(samples) else []
    if not masks or not all(isinstance(mask, list) for mask in masks) or 1 not in masks[0]:
        return False
    conversation.prompt_tokens = masks[0].index(1)
    conversation.response_tokens = max(len(masks[-1]) - conversation.prompt_tokens, generated)
    return True


def _read_mask(conversation: Conversation, samples: Any) -> None:
    """From TRL's samples: one, unless its template rewrote the conversation on the way."""
    mask: Any = attribute(samples[0], "completion_mask") if size(samples) == 1 else None
    if size(mask) == conversation.prompt_tokens + conversation.response_tokens:
        response = mask[conversation.prompt_tokens :]
        conversation.runs = mask_runs(response, len(response))


def _turn_begin(call: Call) -> None:
    call.state = call.probe.begin(TURN, activate=True)


def _turn_end(call: Call) -> None:
    conversation, turn = _CURRENT.get(), None
    sent = size(argument(call, 1, "prompt_ids"))
    generated = size(call.result[0]) if isinstance(call.result, tuple) and call.result else None
    if conversation is not None and sent is not None and generated is not None:
        turn = conversation.start_turn()
        conversation.sizes.append((sent, generated))
    values = {
        "batch": None if conversation is None else conversation.span,
        "samples": 1,
        "turn": turn,
        "prompt_tokens": sent,
        "response_tokens": generated,
    }
    call.probe.end(call.state or 0, values, error_of(call))


def _tool_end(conversation: Conversation, names: list[str], call: Call) -> None:
    index, span = call.state
    place = {"batch": conversation.span, "turn": conversation.turn}
    end_tool(call.probe, span, error_of(call), **place, tool=names[index])


def _tools_end(call: Call) -> None:
    """After the tools of a turn: those that the model made up, without their names."""
    conversation = _CURRENT.get()
    asked, tools = argument(call, 1, "tool_calls"), argument(call, 2, "tool_dict")
    if conversation is None or not isinstance(asked, list) or not isinstance(tools, dict):
        return
    place = {"batch": conversation.span, "turn": conversation.turn}
    for tool in asked:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and function.get("name") not in tools:
            end_tool(call.probe, None, None, **place, status="not_found")


# ---------------------------------------------------------------- one group


def _score_begin(call: Call) -> None:
    loop, group = call.args[0], argument(call, 1, "group")
    functions = attribute(loop, "reward_funcs")
    call.state = Swapped()
    if isinstance(functions, list):
        names = list[str](attribute(loop, "reward_func_names") or ())
        swap(call.probe, functions, names, call.span, call.state)
    _record(call.probe, loop, group, call.span)


def _read_mode(call: Call) -> tuple[Any, ...]:
    return ("train",)


def _score_end(call: Call) -> None:
    call.state.put_back()


def _record(probe: Probe, loop: Any, group: Any, span: int) -> None:
    """The trajectories of a group, once all of them are there."""
    group_id, rows = number(group, "group_id"), attribute(group, "completions_ids")
    if not isinstance(rows, list):
        return
    taken = [FINISHED.take(ids) for ids in rows]
    conversations = [conversation for conversation in taken if conversation is not None]
    if group_id is None or not rows:
        return
    if len(conversations) < len(rows):
        raise LookupError("not every conversation of a group was seen")
    eos, pad = attribute(loop, "eos_token_ids"), attribute(loop, "tokenizer", "pad_token_id")
    stops = frozenset(token for token in (*(eos or ()), pad) if isinstance(token, int))
    runs = [conversation.runs for conversation in conversations]
    spans = [conversation.span if conversation.whole else None for conversation in conversations]
    given = sources(lambda name: option(attribute(group, "reward_kwargs"), name))
    values = {
        "mode": "train",
        "batch": span,
        "queue_group": group_id,
        "weight_version": number(group, "model_version"),
        # Turns are recorded by their trajectory: without all of them there are none.
        "spans": None if None in spans else spans,
        "offset": 0,
        "total": len(rows),
        "group_size": len(rows),
        "prompt_tokens": [conversation.prompt_tokens for conversation in conversations],
        "response_tokens": [conversation.response_tokens for conversation in conversations],
        "truncated": truncated(rows, stops),
        "sources": given if size(given) == len(rows) else None,
        "loss_runs": None if None in runs else runs,
    }
    emit_trajectories(probe, span, values)


_TOOL = HookPoint("tool")

_of_loop = partial(HookPoint, optional=True)

ROLLOUT_POINTS = (
    _of_loop(
        f"{_LOOP}._generate_one",
        before=_conversation_begin,
        after=_conversation_end,
        parameters=("prompt", "tool_dict"),
    ),
    _of_loop(
        f"{_LOOP}._generate_one_turn",
        before=_turn_begin,
        after=_turn_end,
        parameters=("prompt_ids",),
    ),
    _of_loop(
        f"{_LOOP}._execute_tool_calls", after=_tools_end, parameters=("tool_calls", "tool_dict")
    ),
    _of_loop(
        f"{_LOOP}._score_group",
        REWARD,
        ("mode",),
        _read_mode,
        before=_score_begin,
        after=_score_end,
        parameters=("group",),
    ),
)
"""In the process that TRL spawns; there is no trainer in it to find them on."""
