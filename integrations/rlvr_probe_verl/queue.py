"""The queue of V1: which trajectories the trainer takes from it, and which it drops.

Rollouts of V1 (0.9) go to a replay buffer by themselves. It knows of each what its tag says, and
loses that when it clears a group: what is dropped is recorded before, so that a filter that passes
nothing, for which a step waits for ever, is seen while it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.adapter import Call, HookPoint, Probe, batch_events
from rlvr_probe.adapter.controller import named, state_of
from rlvr_probe.model.names import SELECTED
from rlvr_probe.reading import argument, attribute, digest, number, option
from rlvr_probe.releases import Dated
from rlvr_probe_verl.controller import Controller, config_of

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
        reason: Why it was dropped; None if it was not, or if that is unknown.
    """

    prompt: str
    rows: list[tuple[tuple[int, int], int, int]] = field(default_factory=list)
    reason: str | None = None


@dataclass(slots=True)
class Taken:
    """What the trainer did to the queue since it sampled last.

    Attributes:
        sampling: Whether it samples for a step now.
        reasons: Uids by reason, while groups are evicted.
        gone: Groups that were dropped before it did, and are not recorded yet.
        surplus: Groups that passed a filter and were not taken.
        discards: Whether any group was dropped.
        batch: The batch of the step that groups belong to, as far as it was recorded.
    """

    sampling: bool = False
    reasons: dict[str, Any] | None = None
    gone: list[Group] = field(default_factory=list)
    surplus: list[str] = field(default_factory=list)
    discards: bool = False
    batch: batch_events.Batch = field(default_factory=batch_events.Batch)


def groups_of(keys: Iterable[str], tags: Iterable[Any], uids: Any = None) -> list[Group]:
    """The groups that rows of the queue belong to, in the order in which each comes first.

    Args:
        keys: Names of rows, ``{uid}_{session}_{output}``.
        tags: What the queue knows of each.
        uids: Those that are asked for; None for all.

    Raises:
        LookupError: A row whose name or lengths are not there.
    """
    groups = dict[str, Group]()
    for key, tag in zip(keys, tags, strict=True):
        uid, *place = key.rsplit("_", 2)
        if uids is not None and uid not in uids:
            continue
        if len(place) != 2 or not all(index.isdecimal() for index in place):
            raise LookupError("a row of the queue has another name")
        prompt, response = _length(tag, "prompt_len"), _length(tag, "response_len")
        if prompt is None or response is None:
            raise LookupError("a row of the queue has no lengths")
        group = groups.setdefault(uid, Group(digest(uid)))
        group.rows.append(((int(place[0]), int(place[1])), prompt, response))
    for group in groups.values():
        group.rows.sort()
    return list(groups.values())


def _length(tag: Any, name: str) -> int | None:
    return number(tag.get(name)) if isinstance(tag, Mapping) else None


# ---------------------------------------------------------------- hooks


def _built(call: Call) -> None:
    """Hook the methods of the replay buffer, verl's or the user's own."""
    if call.error is None and call.result is not None:
        call.probe.instrument(call.result, BUFFER)


def _evict_begin(call: Call) -> None:
    reasons = argument(call, 3, "eviction_reasons")
    if isinstance(reasons, tuple) and len(reasons) >= len(_REASONS):
        taken = state_of(call.probe, call.args[0], Taken)
        taken.reasons = dict(zip(_REASONS, reasons, strict=False))


def _evict_end(call: Call) -> None:
    state_of(call.probe, call.args[0], Taken).reasons = None


def _clear_begin(call: Call) -> None:
    buffer, partition = call.args[0], argument(call, 1, "partition_id")
    uids = argument(call, 2, "uids")
    if not uids or partition == "val":
        return
    taken = state_of(call.probe, buffer, Taken)
    rows = (attribute(buffer, "partitions") or {}).get(partition) or {}
    groups = groups_of(rows.keys(), rows.values(), uids)
    known = {group.prompt for group in groups}
    # A group that failed may have no trajectory.
    groups += [Group(name) for name in sorted(map(digest, uids)) if name not in known]
    why = _reasons(taken)
    for group in groups:
        group.reason = why.get(group.prompt, _SURPLUS if taken.sampling and not why else None)
    taken.gone += groups
    if taken.sampling:
        _record_gone(call.probe, taken)


def _reasons(taken: Taken) -> dict[str, str]:
    """Why each group is evicted, the first reason if there are several."""
    reasons = dict[str, str]()
    for reason, uids in (taken.reasons or {}).items():
        for uid in uids:
            reasons.setdefault(digest(uid), reason)
    return reasons


def _sample_begin(call: Call) -> None:
    taken = state_of(call.probe, call.args[0], Taken)
    if argument(call, 2, "partition_id") == "val":
        return
    taken.sampling = True
    if taken.gone:
        _record_gone(call.probe, taken)


def _sample_end(call: Call) -> None:
    buffer, probe = call.args[0], call.probe
    # With what it measured (0.9), or alone (0.8).
    batch = call.result[0] if isinstance(call.result, tuple) else call.result
    evaluates = attribute(batch, "partition_id") == "val"
    taken = Taken() if evaluates else state_of(probe, buffer, Taken)
    if not evaluates:
        probe.state(buffer).pop(Taken.__name__, None)
    if call.error is not None:
        return
    used = groups_of(attribute(batch, "keys"), attribute(batch, "tags"))
    _record(probe, taken, used, evaluates=evaluates)
    filters = attribute(buffer, "filter_groups_metric") is not None
    if taken.discards or (filters and not evaluates):
        names = [group.prompt for group in used]
        values = {"kept": [*taken.surplus, *names], "used": names}
        probe.emit(SELECTED, {**_step(probe), **values})


def _step(probe: Probe) -> dict[str, Any]:
    session, step, _ = Controller.of(probe).where()
    return {"session": session, "step": step}


def _record_gone(probe: Probe, taken: Taken) -> None:
    """What was dropped: rows of the batch that the trainer waits for, and why."""
    gone, taken.gone, taken.discards = taken.gone, [], True
    _record(probe, taken, gone, more=True)
    for reason in dict.fromkeys(group.reason for group in gone):
        prompts = [group.prompt for group in gone if group.reason == reason]
        probe.emit(SELECTED, {**_step(probe), "discarded": prompts, "reason": reason})
        if reason == _SURPLUS:
            taken.surplus += prompts


def _record(
    probe: Probe, taken: Taken, groups: list[Group], *, evaluates: bool = False, more: bool = False
) -> None:
    """The next rows of a batch; what was taken comes last, and ends it."""
    controller, batch = Controller.of(probe), taken.batch
    groups = [group for group in groups if group.rows]
    rows = [(at, group, *row) for at, group in enumerate(groups) for row in group.rows]
    if not rows:
        return
    if not batch.place:
        where = (*controller.where()[:2], "eval" if evaluates else "train")
        batch.place = {**named(where), "ordinal": controller.ordinal(where)}
    rollout = option(config_of(), "actor_rollout_ref.rollout")
    size = number(option(rollout, "val_kwargs.n" if evaluates else "n")) or 1
    even = all(len(group.rows) == size for group in groups)
    columns = {
        **batch.add([at for at, *_ in rows], len(rows), size, even=even),
        "keys": [f"{group.prompt}_{place[0]}_{place[1]}" for _, group, place, _, _ in rows],
        "prompts": [group.prompt for group in groups],
        "prompt_tokens": [prompt for *_, prompt, _ in rows],
        "response_tokens": [response for *_, response in rows],
    }
    if not evaluates:
        controller.samples = batch.rows
    span = controller.evaluation if evaluates else controller.rollout
    batch.emit(probe, None if more else span or None, columns, more)


SAMPLE = HookPoint("sample", before=_sample_begin, after=_sample_end, when=Controller.is_here)
CLEAR = HookPoint("_clear_groups", before=_clear_begin, when=Controller.is_here)
EVICT = HookPoint(
    "_evict_terminal_groups", before=_evict_begin, after=_evict_end, when=Controller.is_here
)

BUFFER = (SAMPLE, CLEAR, EVICT)
"""Methods of the replay buffer."""

_BUILD = HookPoint("verl.trainer.ppo.v1.trainer_base:PPOTrainer._build_replay_buffer", after=_built)

QUEUE = (Dated(_BUILD, "0.9"),)
"""Hooked in the controller when its modules are imported."""
