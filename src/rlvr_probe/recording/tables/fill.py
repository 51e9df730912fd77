"""Fills the tables from a trace, or from a workload that was read; what neither says is NULL."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from math import isnan
from operator import sub
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from rlvr_probe.model import names
from rlvr_probe.model.batch import Batch
from rlvr_probe.model.device_series import DeviceSeries
from rlvr_probe.model.trace import Rpc, Session, Span, Trace
from rlvr_probe.model.workload import ReadBatch, ReadWorkload
from rlvr_probe.recording.attempts import last_training
from rlvr_probe.recording.bulk import Bulk, real
from rlvr_probe.recording.fine.join import all_batches, numbered
from rlvr_probe.recording.schema import BY_NAME, statements

if TYPE_CHECKING:
    import duckdb

__all__ = ["fill", "fill_workload"]

_INT64: Final = 1 << 63
_SPAN: Final = (
    "mode", "function", "method", "side", "rank", "ranks", "samples", "batch", "policy_version",
    "weight_version", "label",
)  # fmt: skip
"""Columns of ``span`` that are attributes of one."""
_SERVED: Final = ("queue_s", "prefill_s", "decode_s", "preemptions", "finish")
"""Columns of ``turn`` that are attributes of its request."""


class _Timed(Protocol):
    @property
    def start_ns(self) -> int | None: ...
    @property
    def end_ns(self) -> int | None: ...


class _Rows:
    """Adds rows whose columns have what is said of them, or the attributes of their names."""

    def __init__(self, bulk: Bulk) -> None:
        self._bulk = bulk

    def add(self, table: str, source: object = None, **known: object) -> None:
        """Add a row; a column that is neither known nor an attribute of a source is NULL.

        So is what a column cannot hold: a recording may claim anything.
        """
        row = list[Any]()
        for column in BY_NAME[table].columns:
            if column.name in known or source is None:
                value = known.get(column.name)
            else:
                value = getattr(source, column.name)
            if column.type in ("BIGINT", "INTEGER"):
                whole = type(value) is int and -_INT64 <= value < _INT64
                value = value if whole else None
            elif column.type == "VARCHAR":
                value = value if isinstance(value, str) else None
            row.append(value)
        self._bulk.add(table, [row])


def fill(sql: duckdb.DuckDBPyConnection, bulk: Bulk, trace: Trace) -> None:
    """Put everything into the tables that is known besides single trajectories, which are there.

    Args:
        sql: Has the tables, as :func:`~rlvr_probe.recording.fine.join.join` filled them.
        bulk: Brings rows there.
        trace: Of the run.
    """
    rows = _Rows(bulk)
    attempt_of = {index: attempt.index for attempt in trace.attempts for index in attempt.processes}
    _fill_run(rows, trace)
    _fill_processes(rows, trace, attempt_of)
    _fill_steps(rows, trace, attempt_of)
    _fill_batches(rows, bulk, trace)
    _fill_devices(rows, bulk, trace)
    bulk.finish()
    for name in ("groups", "trained"):
        sql.execute(statements("rlvr_probe.recording.fine", "join.sql")[name])


def _fill_run(rows: _Rows, trace: Trace) -> None:
    """The run, its training sessions, and what is missing of it."""
    batches = [
        batch for attempt in trace.attempts for step in attempt.steps for batch in step.batches
    ]
    rows.add(
        "run",
        **last_training(trace.attempts)
        | {
            "run": trace.run,
            "epoch_ns": trace.epoch_ns,
            "kind": "recording",
            "asynchronous": any(batch.queued for batch in batches) if batches else None,
        },
    )
    for attempt in trace.attempts:
        for session in attempt.sessions:
            rows.add("session", session, attempt=attempt.index, facts=_json(session))
    for reason, count in trace.lost.items():
        rows.add("lost", reason=reason, rows=count)


def _json(session: Session) -> msgspec.Raw | None:
    """Facts that a process recorded of a session, as JSON; None where no JSON can hold them."""
    try:
        return msgspec.Raw(msgspec.json.encode(dict(session.facts)))
    except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError):
        return None


def _fill_processes(rows: _Rows, trace: Trace, attempt_of: Mapping[int, int]) -> None:
    for process in trace.processes:
        index = process.index
        rows.add(
            "process", process, process=index, attempt=attempt_of.get(index),
            lost=sum(process.lost.values()), faults=sum(process.faults.values()),
        )  # fmt: skip
        for reason, count in process.lost.items():
            rows.add("process_lost", process=index, reason=reason, rows=count)
        for place, count in process.faults.items():
            rows.add("process_fault", process=index, place=place, times=count)
        for accelerator in process.given:
            rows.add("process_accelerator", process=index, accelerator=accelerator)
    for span in (*trace.open_spans, *trace.between):
        rows.add("open_span", span)


def _fill_steps(rows: _Rows, trace: Trace, attempt_of: Mapping[int, int]) -> None:
    """Steps, coarse spans and joined calls."""
    steps = numbered(trace.attempts)
    rpcs: list[tuple[int | None, int, Rpc]] = [
        (step_id, step.attempt, rpc) for step_id, step in enumerate(steps) for rpc in step.rpcs
    ]
    rpcs += [(None, attempt.index, rpc) for attempt in trace.attempts for rpc in attempt.rpcs]
    calls = {
        (span.process, span.id): rpc.call for _, _, rpc in rpcs for span in (rpc.caller, *rpc.ranks)
    }
    for step_id, step in enumerate(steps):
        (start_ns, end_ns), (step_start_ns, step_end_ns) = (
            _hull(step.spans), _hull([span for span in step.spans if span.name == names.STEP.name]),
        )  # fmt: skip
        rows.add(
            "step", step, step_id=step_id, is_open=step.open, start_ns=start_ns, end_ns=end_ns,
            step_start_ns=step_start_ns, step_end_ns=step_end_ns,
        )  # fmt: skip
        for span in step.spans:
            _add_span(rows, span, step_id, step.attempt, calls)
    for span in (*trace.unplaced, *trace.user_spans):
        _add_span(rows, span, None, attempt_of.get(span.process), calls)
    for rpc_id, (place, attempt, rpc) in enumerate(rpcs):
        rows.add(
            "rpc", rpc.caller, rpc_id=rpc_id, step_id=place, attempt=attempt,
            worker_group=rpc.group, method=rpc.method, call=rpc.call,
        )  # fmt: skip
        for rank, span in enumerate(rpc.ranks):
            rows.add("rpc_rank", span, rpc_id=rpc_id, rank=rank)


def _hull(spans: Sequence[Span]) -> tuple[int | None, int | None]:
    start_ns = min((span.start_ns for span in spans), default=None)
    return start_ns, max((span.end_ns for span in spans), default=None)


def _add_span(
    rows: _Rows,
    span: Span,
    step_id: int | None,
    attempt: int | None,
    calls: Mapping[tuple[int, int], int],
) -> None:
    attributes = span.attributes
    waits = attributes.get("waits") if attributes.get("side") == "caller" else None
    rows.add(
        "span", span, step_id=step_id, attempt=attempt, worker_group=attributes.get("group"),
        call=calls.get((span.process, span.id)), waits=None if waits is None else bool(waits),
        wait_on=attributes.get("on"), **{name: attributes.get(name) for name in _SPAN},
    )  # fmt: skip


def _fill_batches(rows: _Rows, bulk: Bulk, trace: Trace) -> None:
    """Every batch, which groups were selected, and what engines and reward functions did else."""
    for batch_id, (step_id, batch) in enumerate(all_batches(trace.attempts)):
        rows.add("batch", batch, batch_id=batch_id, step_id=step_id, workload_step=None)
        bulk.add("q_chosen", _chosen(batch_id, batch))
        for shard in batch.shards:
            for call in shard.calls:
                if call.row is None:
                    rows.add("reward_call", call, batch_id=batch_id, took_s=_seconds(call))
    for attempt in trace.attempts:
        for loose in attempt.loose_calls:
            rows.add("engine_call", loose, attempt=attempt.index)
    for work in trace.reward_work:
        rows.add("reward_work", work, took_s=work.seconds)


def _chosen(batch_id: int, batch: Batch) -> Iterator[Sequence[Any]]:
    """Groups that are known to have been kept or used, or not to have been."""
    kept, used = batch.kept, batch.used
    if kept is None and used is None:
        return
    yield batch_id, None, None if kept is None else False, None if used is None else False
    for group in (kept or frozenset()) | (used or frozenset()):
        yield batch_id, group, _is_in(group, kept), _is_in(group, used)


def _is_in(group: int, groups: frozenset[int] | None) -> bool | None:
    return None if groups is None else group in groups


def _seconds(timed: _Timed) -> float | None:
    """How long something took, s; None if either moment is unknown."""
    start_ns, end_ns = timed.start_ns, timed.end_ns
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / 1e9


def _fill_devices(rows: _Rows, bulk: Bulk, trace: Trace) -> None:
    """Devices, their readings and faults, and the processes that work on them."""
    by_uuid = {series.uuid: device for device, series in enumerate(trace.devices)}
    for device, series in enumerate(trace.devices):
        rows.add("device", series.facts, device=device)
        _add_readings(bulk, device, series)
        for fault in series.faults:
            rows.add("device_fault", fault, device=device)
    for process in trace.processes:
        for uuid in process.devices or ():
            if uuid in by_uuid:
                rows.add(
                    "device_process", device=by_uuid[uuid], process=process.index,
                    how=process.devices_how,
                )  # fmt: skip


def _add_readings(bulk: Bulk, device: int, series: DeviceSeries) -> None:
    for counter in series.counters():
        readings = series.readings[counter.pace]
        values, end_ns = readings.columns[counter.name], readings.times_ns
        start_ns = end_ns
        if counter.kind == "window":
            start_ns = array("q", map(sub, end_ns, readings.windows_ns))
        columns: list[Sequence[float]] = [start_ns.tolist(), end_ns.tolist(), values.tolist()]
        if isnan(sum(values)):
            known = [value == value for value in values]
            columns = [list(compress(column, known)) for column in columns]
        named = zip(("start_ns", "end_ns", "value"), columns, strict=True)
        bulk.add_columns("reading", dict(named), device=device, counter=counter.name)


def fill_workload(bulk: Bulk, workload: ReadWorkload) -> None:
    """Put everything that a workload says into the tables of ``bulk``."""
    rows = _Rows(bulk)
    rows.add("run", workload, run=workload.name, epoch_ns=None, kind="workload", asynchronous=None)
    for process, rank in workload.ranks.items():
        rows.add("process", process=process, rank=rank)
    steps = dict[tuple[int, int], int]()
    first = 0
    for batch_id, given in enumerate(workload.batches):
        key = given.session, given.batch.step
        if key not in steps:
            steps[key] = len(steps)
            rows.add("step", step_id=steps[key], session=key[0], number=key[1])
        _fill_batch(rows, given, batch_id, steps[key], first)
        first += given.batch.rows


def _fill_batch(rows: _Rows, given: ReadBatch, batch_id: int, step_id: int, first: int) -> None:
    """One batch of a workload with all that belongs to it; ``first`` is its first trajectory."""
    batch = given.batch
    rows.add("batch", batch, batch_id=batch_id, step_id=step_id, workload_step=given.number)
    is_placed = any(shard.rank is not None for shard in batch.shards)
    own_times = [
        shard.times_ns is not None for shard in batch.shards for _ in shard.response_tokens
    ]
    took_s = {(part.row, part.turn): part.seconds for part in given.lasting if part.what == "turn"}
    number = first
    for group in batch.groups():
        kept, used = _is_in(group.index, batch.kept), _is_in(group.index, batch.used)
        held = len(group.trajectories)
        rows.add(
            "prompt_group", group, batch_id=batch_id, grp=group.index, rows=held, kept=kept,
            used=used,
        )  # fmt: skip
        if used or (batch.queued and used is None):
            rows.add("trained", step_id=step_id, batch_id=batch_id, grp=group.index)
        for trajectory in group.trajectories:
            row, timed = trajectory.row, trajectory.start_ns is not None
            oldest, newest = trajectory.policy_versions or (None, None)
            context = given.context_tokens[row] if row < len(given.context_tokens) else None
            rows.add(
                "trajectory", trajectory, trajectory_id=number, batch_id=batch_id, step_id=step_id,
                mode=batch.mode, process=trajectory.process if is_placed else None,
                grp=group.index, context_tokens=context, policy_version_min=oldest,
                policy_version_max=newest, own_times=own_times[number - first] if timed else None,
            )  # fmt: skip
            for turn in trajectory.turns:
                rows.add(
                    "turn", turn, trajectory_id=number, batch_id=batch_id, turn=turn.index,
                    took_s=took_s.get((row, turn.index), _seconds(turn)),
                    **{name: getattr(turn.request, name, None) for name in _SERVED},
                )  # fmt: skip
            for call in trajectory.tool_calls:
                rows.add(
                    "tool_call", call, trajectory_id=number, batch_id=batch_id,
                    took_s=_seconds(call), added_tokens=None, queries=None,
                )  # fmt: skip
            for reward in trajectory.rewards:
                rows.add(
                    "reward", reward, trajectory_id=number, batch_id=batch_id, fn=reward.index,
                    value=real(reward.value),
                )  # fmt: skip
            number += 1
    untimed = {"error": None, "start_ns": None, "end_ns": None}
    for part in given.lasting:
        known = {**untimed, "took_s": part.seconds}
        if part.what == "tool_call" and part.row is not None:
            rows.add(
                "tool_call", part, trajectory_id=first + part.row, batch_id=batch_id,
                tool=part.name, **known,
            )  # fmt: skip
        elif part.what == "reward_call":
            rows.add("reward_call", part, batch_id=batch_id, function=part.name, **known)
