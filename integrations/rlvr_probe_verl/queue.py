"""The queue of V1: which trajectories the trainer takes from it, and which it throws away.

Rollouts of V1 (0.9) go to a replay buffer by themselves. It knows of each what its tag says, and
loses that when it clears a group: what is thrown away is told before, so that a filter that passes
nothing, for which a step waits for ever, is seen while it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe
from rlvr_probe.model.names import SELECTED, TRAJECTORIES
from rlvr_probe.reading import argument, attribute, digest, number
from rlvr_probe.releases import Dated
from rlvr_probe_verl.controller import controller_of, is_controller, named, trainer
from rlvr_probe_verl.reading import option

__all__ = ["BUFFER", "CLEAR", "EVICT", "QUEUE", "SAMPLE", "Group", "groups_of"]

_REASONS = ("stale", "filter", "failed")
"""Why verl evicts a group, in the order in which it names its reasons."""

_SURPLUS = "surplus"


@dataclass(slots=True)
class Group:
    """The trajectories of one prompt.

    Attributes:
        prompt: What stands for its uid.
        rows: Of each: session and output, which order them; prompt and response tokens.
        reason: Why it was thrown away; None if it was not, or if that is not known.
    """

    prompt: str
    rows: list[tuple[tuple[int, int], int, int]] = field(default_factory=list)
    reason: str | None = None


@dataclass(slots=True)
class Taken:
    """What the trainer did to the queue since it sampled last.

    Attributes:
        sampling: Whether it samples for the training now.
        reasons: Uids by reason, while groups are evicted.
        gone: Groups that were thrown away before it did, and not told yet.
        surplus: Groups that passed a filter and were not taken.
        discards: Whether any group was thrown away.
        ordinal: Number of the batch of the step that groups belong to; None if none was told.
        rows, groups: What was told of it.
        even: Whether each of its groups has as many trajectories as were asked for.
    """

    sampling: bool = False
    reasons: dict[str, Any] | None = None
    gone: list[Group] = field(default_factory=list)
    surplus: list[str] = field(default_factory=list)
    discards: bool = False
    ordinal: int | None = None
    rows: int = 0
    groups: int = 0
    even: bool = True


def groups_of(keys: Iterable[str], tags: Iterable[Any], uids: Any = None) -> list[Group]:
    """The groups that rows of the queue belong to, in the order in which each comes first.

    Args:
        keys: Names of rows, ``{uid}_{session}_{output}``.
        tags: What the queue knows of each.
        uids: Those that are asked for; None for all.

    Raises:
        LookupError: A row whose name or lengths are not there.
    """
    found = dict[str, Group]()
    for key, tag in zip(keys, tags, strict=True):
        uid, *place = key.rsplit("_", 2)
        if uids is not None and uid not in uids:
            continue
        if len(place) != 2 or not all(one.isdecimal() for one in place):
            raise LookupError("a row of the queue has another name")
        prompt, response = _length(tag, "prompt_len"), _length(tag, "response_len")
        if prompt is None or response is None:
            raise LookupError("a row of the queue has no lengths")
        group = found.get(uid)
        if group is None:
            group = found[uid] = Group(digest(uid))
        group.rows.append(((int(place[0]), int(place[1])), prompt, response))
    for group in found.values():
        group.rows.sort()
    return list(found.values())


def _length(tag: Any, name: str) -> int | None:
    return number(tag.get(name)) if isinstance(tag, Mapping) else None


# ---------------------------------------------------------------- hooks


def _built(call: Call) -> None:
    """Hook the methods of the replay buffer, verl's or the user's own."""
    if call.error is None and call.result is not None:
        call.probe.instrument(call.result, BUFFER)


def _taken(probe: Probe, buffer: Any) -> Taken:
    state = probe.state(buffer)
    found = state.get("taken")
    if not isinstance(found, Taken):
        found = state["taken"] = Taken()
    return found


def _evict_begin(call: Call) -> None:
    given = argument(call, 3, "eviction_reasons")
    if isinstance(given, tuple) and len(given) >= len(_REASONS):
        _taken(call.probe, call.args[0]).reasons = dict(zip(_REASONS, given, strict=False))


def _evict_end(call: Call) -> None:
    _taken(call.probe, call.args[0]).reasons = None


def _clear_begin(call: Call) -> None:
    buffer, partition = call.args[0], argument(call, 1, "partition_id")
    uids = argument(call, 2, "uids")
    if not uids or partition == "val":
        return
    taken = _taken(call.probe, buffer)
    rows = (attribute(buffer, "partitions") or {}).get(partition) or {}
    groups = groups_of(rows.keys(), rows.values(), uids)
    there = {group.prompt for group in groups}
    # Of a group that failed there may be no trajectory at all.
    groups += [Group(name) for name in sorted(map(digest, uids)) if name not in there]
    why = _reasons(taken)
    for group in groups:
        group.reason = why.get(group.prompt, _SURPLUS if taken.sampling and not why else None)
    taken.gone += groups
    if taken.sampling:
        _tell_gone(call.probe, taken)


def _reasons(taken: Taken) -> dict[str, str]:
    """Why each group is evicted, the first reason if there are several."""
    found = dict[str, str]()
    for reason, uids in (taken.reasons or {}).items():
        for uid in uids:
            found.setdefault(digest(uid), reason)
    return found


def _sample_begin(call: Call) -> None:
    taken = _taken(call.probe, call.args[0])
    if argument(call, 2, "partition_id") == "val":
        return
    taken.sampling = True
    if taken.gone:
        _tell_gone(call.probe, taken)


def _sample_end(call: Call) -> None:
    buffer, probe = call.args[0], call.probe
    # With what it measured (0.9), or alone (0.8).
    batch = call.result[0] if isinstance(call.result, tuple) else call.result
    evaluates = attribute(batch, "partition_id") == "val"
    taken = Taken() if evaluates else _taken(probe, buffer)
    if not evaluates:
        probe.state(buffer)["taken"] = Taken()
    if call.error is not None:
        return
    used = groups_of(attribute(batch, "keys"), attribute(batch, "tags"))
    _tell(probe, taken, used, evaluates=evaluates)
    filters = attribute(buffer, "filter_groups_metric") is not None
    if taken.discards or (filters and not evaluates):
        session, step, _ = controller_of(probe).where()
        names = [group.prompt for group in used]
        values = {"session": session, "step": step, "kept": [*taken.surplus, *names], "used": names}
        probe.emit(SELECTED, values)


def _tell_gone(probe: Probe, taken: Taken) -> None:
    """What was thrown away: rows of the batch that the trainer waits for, and why."""
    gone, taken.gone, taken.discards = taken.gone, [], True
    _tell(probe, taken, gone, grows=True)
    session, step, _ = controller_of(probe).where()
    for reason in dict.fromkeys(group.reason for group in gone):
        prompts = [group.prompt for group in gone if group.reason == reason]
        values = {"session": session, "step": step, "discarded": prompts, "reason": reason}
        probe.emit(SELECTED, values)
        if reason == _SURPLUS:
            taken.surplus += prompts


def _tell(
    probe: Probe, taken: Taken, told: list[Group], *, evaluates: bool = False, grows: bool = False
) -> None:
    """The next rows of a batch; what was taken comes last, and ends it."""
    controller = controller_of(probe)
    groups = [group for group in told if group.rows]
    first = taken.groups
    rows = [(at, group, *row) for at, group in enumerate(groups, first) for row in group.rows]
    if not rows:
        return
    where = (*controller.where()[:2], "eval" if evaluates else "train")
    span = controller.evaluation if evaluates else controller.rollout
    rollout = option(attribute(trainer(), "config"), "actor_rollout_ref.rollout")
    size = number(option(rollout, "val_kwargs.n" if evaluates else "n")) or 1
    if taken.ordinal is None:
        taken.ordinal = controller.ordinal(where)
    taken.even = taken.even and all(len(group.rows) == size for group in groups)
    offset = taken.rows
    taken.rows, taken.groups = offset + len(rows), first + len(groups)
    if not evaluates:
        controller.samples = taken.rows
    values = {
        **named(where),
        # What has the rollout's times is one piece, the last.
        "batch": None if grows else span or None,
        "ordinal": taken.ordinal,
        "keys": [f"{group.prompt}_{place[0]}_{place[1]}" for _, group, place, _, _ in rows],
        "groups": None if taken.even else [at for at, *_ in rows],
        "prompts": [group.prompt for group in groups],
        "offset": offset,
        "total": taken.rows,
        "grows": 1 if grows else None,
        "group_size": size,
        "prompt_tokens": [prompt for *_, prompt, _ in rows],
        "response_tokens": [response for *_, response in rows],
    }
    probe.emit(TRAJECTORIES, values, parent=0 if grows else span or None)


SAMPLE = HookPoint("sample", before=_sample_begin, after=_sample_end, when=is_controller)
CLEAR = HookPoint("_clear_groups", before=_clear_begin, when=is_controller)
EVICT = HookPoint(
    "_evict_terminal_groups", before=_evict_begin, after=_evict_end, when=is_controller
)

BUFFER = (SAMPLE, CLEAR, EVICT)
"""Methods of the replay buffer."""

QUEUE = (
    Dated(
        HookPoint("verl.trainer.ppo.v1.trainer_base:PPOTrainer._build_replay_buffer", after=_built),
        since="0.9",
    ),
)
"""Hooked in the controller when its modules are imported."""
