"""Reads ``multiturn_workload_step_N.jsonl``: trajectories with their turns and tool calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rlvr_probe.model import names
from rlvr_probe.model.batch import Batch, BatchShard, RewardColumn, Turn
from rlvr_probe.model.workload import ReadBatch, UntimedDuration
from rlvr_probe_polytrace.extension_check import check_trajectory_extension
from rlvr_probe_polytrace.fields import COUNT, Kind, Place, integer, is_integer, number
from rlvr_probe_polytrace.findings import Findings, shown
from rlvr_probe_polytrace.multiturn_check import MULTITURN_KEYS, TOOL_KEYS, TURN_KEYS
from rlvr_probe_polytrace.reading import FileReader
from rlvr_probe_polytrace.restored import Told, reward_columns

__all__ = ["read_multiturn"]

_Record = Mapping[str, object]

_STATUSES = {"success": "ok", "api_error": "error"}
"""Ours for PolyTrace's; of ``unknown`` nothing is known."""


def read_multiturn(
    directory: Path, step: int, name: str, told: Told, findings: Findings
) -> ReadBatch:
    """One step.

    Args:
        directory: Where its file is.
        step: Its number.
        name: Of its file.
        told: What the manifest says; gets the caps.
        findings: Takes what is wrong.
    """
    records = list[_Record]()
    seen = set[tuple[int, int]]()
    for line, record in FileReader(directory, name, findings).records():
        place = Place(findings, name, line)
        if not place.check(record, MULTITURN_KEYS) or record["validate"]:
            continue
        sound = [
            _sound(place, record, *one) for one in (("turns", TURN_KEYS), ("tool_calls", TOOL_KEYS))
        ]
        if not all(sound):
            continue
        key = integer(record, "prompt_group_id"), integer(record, "sample_id")
        if key in seen:
            place.report("unique", "sample_id", key[1], f"each once in prompt group {key[0]}")
        seen.add(key)
        if "x_rlvr" in record:
            check_trajectory_extension(place.within("x_rlvr"), record)
        told.caps.add(integer(record, "max_response_len"))
        records.append(record)
    records.sort(key=lambda one: (integer(one, "prompt_group_id"), integer(one, "sample_id")))
    place_of = told.place(step)
    session, trainer_step, ordinal = (0, step, 0) if place_of is None else place_of
    return ReadBatch(
        number=step,
        batch=_batch(records, trainer_step, ordinal, told),
        session=session,
        lasting=tuple(
            one for row, record in enumerate(records) for one in _lasting(record, row, told)
        ),
        context_tokens=[integer(one, "final_total_len") for one in records],
    )


def _sound(place: Place, record: _Record, field: str, table: Mapping[str, Kind]) -> bool:
    sound = True
    for position, item in enumerate(_items(record, field)):
        if not isinstance(item, dict):
            place.report("element", f"{field}[{position}]", shown(item), "an object")
            sound = False
        else:
            sound = place.within(f"{field}[{position}]").check(item, table) and sound
    return sound


def _items(record: _Record, field: str) -> list[_Record]:
    items = record[field]
    return items if isinstance(items, list) else []


def _batch(records: Sequence[_Record], step: int, ordinal: int, told: Told) -> Batch:
    sizes = Counter(integer(one, "prompt_group_id") for one in records)
    size = max(sizes.values(), default=1)
    numbers = {group: number for number, group in enumerate(sorted(sizes))}
    given = [_extension(one) for one in records]
    engines = [one.get("engine_id", one.get("dp_rank")) for one in given]
    cut = [_truncated(one, told) for one in records]
    masks = [_runs(one) for one in records]
    known = "response_loss_mask_rle" not in told.unknown
    policies = {one.get("policy_version") for one in given}
    policy = policies.pop() if len(policies) == 1 else None
    bounds = [(one.get("policy_version_min"), one.get("policy_version_max")) for one in given]
    versions = [
        (low, high) if is_integer(low) and is_integer(high) else None for low, high in bounds
    ]
    shard = BatchShard(
        process=0,
        rank=None,
        offset=0,
        prompt_tokens=[integer(one, "prompt_len") for one in records],
        response_tokens=[integer(one, "final_response_len") for one in records],
        truncated=None if None in cut else [int(bool(one)) for one in cut],
        start_ns=None,
        end_ns=None,
        rewards=_rewards(given),
        turns={row: tuple(_turns(one, told)) for row, one in enumerate(records)},
        loss_runs=[one or () for one in masks] if known and None not in masks else None,
        engines=[one if COUNT.test(one) else None for one in engines]  # type: ignore[misc]
        if any(map(COUNT.test, engines))
        else None,
        groups=[numbers[integer(one, "prompt_group_id")] for one in records]
        if len(set(sizes.values())) > 1
        else None,
        policy_versions=versions if any(versions) else None,
    )
    return Batch(
        "train",
        step,
        ordinal,
        policy if is_integer(policy) and policy >= 0 else None,
        size,
        size * len(sizes),
        [shard] if records else [],
        kept=_chosen(records, given, numbers, "kept"),
        used=_chosen(records, given, numbers, "used"),
    )


def _extension(record: _Record) -> dict[str, object]:
    found = record.get("x_rlvr")
    return found if isinstance(found, dict) else {}


def _truncated(record: _Record, told: Told) -> bool | None:
    reason = record["finish_reason"]
    return {"length": True, "stop": False}.get(str(reason))


def _runs(record: _Record) -> list[int] | None:
    """Runs in and out of the loss in turn, those in it first; None where they do not fit."""
    found = list[int]()
    for item in _items(record, "response_loss_mask_rle"):
        if not isinstance(item, list) or len(item) != 2 or not all(map(COUNT.test, item)):
            return None
        value, tokens = item
        if value not in (0, 1):
            return None
        if len(found) % 2 == value:
            found.append(0)
        found.append(tokens)
    return found if sum(found) == integer(record, "final_response_len") else None


def _turns(record: _Record, told: Told) -> Iterator[Turn]:
    for one in _items(record, "turns"):
        cached = integer(one, "cached_tokens")
        yield Turn(
            index=integer(one, "turn"),
            prompt_tokens=integer(one, "prompt_tokens"),
            response_tokens=integer(one, "completion_tokens"),
            cached_tokens=cached if told.known("turns.cached_tokens", cached, 0) else None,
            start_ns=None,
            end_ns=None,
        )


def _lasting(record: _Record, row: int, told: Told) -> Iterator[UntimedDuration]:
    """Times of the turns and tool calls of one trajectory."""
    for one in _items(record, "turns"):
        seconds = number(one, "engine_latency_s")
        if told.known("turns.engine_latency_s", seconds, 0.0):
            yield UntimedDuration("turn", seconds, row=row, turn=integer(one, "turn"))
    calls = _items(record, "tool_calls")
    own = _extension(record).get("tool_status")
    statuses = own if isinstance(own, list) and len(own) == len(calls) else [None] * len(calls)
    for one, own_status in zip(calls, statuses, strict=True):
        name, queries = str(one["tool_name"]), integer(one, "query_count")
        added = integer(one, "append_len")
        status = own_status if own_status in names.TOOL_STATUSES else None
        yield UntimedDuration(
            "tool_call",
            number(one, "latency_s"),
            row=row,
            turn=integer(one, "turn"),
            name=name if told.known("tool_calls.tool_name", name, "unknown") else None,
            status=_STATUSES.get(str(one["status"])) if status is None else str(status),
            added_tokens=added if told.known("tool_calls.append_len", added, 0) else None,
            queries=queries if told.known("tool_calls.query_count", queries, 1) else None,
        )


def _rewards(given: Sequence[_Record]) -> list[RewardColumn]:
    return reward_columns(given, [1] * len(given))


def _chosen(
    records: Sequence[_Record],
    given: Sequence[_Record],
    numbers: Mapping[int, int],
    word: str,
) -> frozenset[int] | None:
    """Groups that were ``kept`` or ``used``, if every trajectory says."""
    own = [one.get(word) for one in given]
    if not own or not all(isinstance(value, bool) for value in own):
        return None
    return frozenset(
        numbers[integer(record, "prompt_group_id")]
        for record, value in zip(records, own, strict=True)
        if value
    )
