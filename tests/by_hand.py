"""Tables of a trace that was made by hand: no journal tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlvr_probe.model.batch import Batch, Trajectory
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording.bulk import real
from rlvr_probe.recording.fine.join import all_batches
from rlvr_probe.recording.notes import of_tables
from rlvr_probe.recording.schema import BY_NAME
from rlvr_probe.recording.store import FineStore
from rlvr_probe.recording.tables import Tables
from rlvr_probe.recording.tables.fill import fill

__all__ = ["tables_of"]

_Rows = Iterator[tuple[str, dict[str, Any]]]


@contextmanager
def tables_of(trace: Trace, *, threads: int | None = 1) -> Iterator[Tables]:
    """The tables of ``trace``, until the context is left."""
    with FineStore(threads, whole=True) as store:
        sql, bulk = store.open()
        first = 0
        for number, (step, batch) in enumerate(all_batches(trace.attempts)):
            for name, values in _rows(number, step, batch, first):
                bulk.add(name, [[values.get(column) for column in BY_NAME[name].names]])
            first += batch.rows
        for attempt in trace.attempts:
            for request in attempt.requests:
                values = {name: getattr(request, name) for name in request.__dataclass_fields__}
                row = {"attempt": attempt.index, **values}
                columns = BY_NAME["request"].names
                bulk.add("request", [[row.get(column) for column in columns]])
        bulk.finish()
        fill(sql, bulk, trace)
        yield Tables(sql, trace.run, tuple(of_tables(trace.notes)))


def _rows(number: int, step: int | None, batch: Batch, first: int) -> _Rows:
    for shard in batch.shards:
        for name in ("prompt_tokens", "truncated", "loss_runs", "engines", "groups", "times_ns"):
            column = getattr(shard, name)
            assert column is None or len(column) == len(shard.response_tokens), name
    shards = [shard for shard in batch.shards for _ in shard.response_tokens]
    at = first
    for group in batch.groups():
        for trajectory in group.trajectories:
            own = None if trajectory.start_ns is None else shards[at - first].times_ns is not None
            yield (
                "trajectory",
                {
                    "trajectory_id": at,
                    "batch_id": number,
                    "step_id": step,
                    "mode": batch.mode,
                    "process": trajectory.process,
                    "row": trajectory.row,
                    "grp": group.index,
                    "sample": trajectory.sample,
                    "prompt_tokens": trajectory.prompt_tokens,
                    "response_tokens": trajectory.response_tokens,
                    "loss_tokens": trajectory.loss_tokens,
                    "truncated": trajectory.truncated,
                    "engine": trajectory.engine,
                    "policy_version": trajectory.policy_version,
                    "start_ns": trajectory.start_ns,
                    "end_ns": trajectory.end_ns,
                    "own_times": own,
                    "source": trajectory.source,
                    "policy_version_min": trajectory.policy_versions
                    and trajectory.policy_versions[0],
                    "policy_version_max": trajectory.policy_versions
                    and trajectory.policy_versions[1],
                },
            )
            yield from _parts(at, number, trajectory)
            at += 1
    at = first
    for shard in batch.shards:
        for call in shard.calls:
            if call.row is not None:
                yield "verification", {
                    "trajectory_id": at + call.row, "batch_id": number,
                    "process": call.process, "function": call.function, "start_ns": call.start_ns,
                    "end_ns": call.end_ns, "attempts": call.attempts, "timeouts": call.timeouts,
                }  # fmt: skip
        at += len(shard.response_tokens)


def _parts(at: int, batch_id: int, trajectory: Trajectory) -> _Rows:
    for turn in trajectory.turns:
        yield "turn", {
            "trajectory_id": at, "batch_id": batch_id, "turn": turn.index,
            "prompt_tokens": turn.prompt_tokens, "response_tokens": turn.response_tokens,
            "cached_tokens": turn.cached_tokens, "start_ns": turn.start_ns, "end_ns": turn.end_ns,
            "took_s": None if turn.end_ns is None else (turn.end_ns - (turn.start_ns or 0)) / 1e9,
            "queue_s": turn.request and turn.request.queue_s,
            "prefill_s": turn.request and turn.request.prefill_s,
            "decode_s": turn.request and turn.request.decode_s,
            "preemptions": turn.request and turn.request.preemptions,
            "finish": turn.request and turn.request.finish,
        }  # fmt: skip
    for call in trajectory.tool_calls:
        yield "tool_call", {
            "trajectory_id": at, "batch_id": batch_id, "turn": call.turn, "tool": call.tool,
            "status": call.status, "error": call.error, "start_ns": call.start_ns,
            "end_ns": call.end_ns, "took_s": call.latency_s,
        }  # fmt: skip
    for reward in trajectory.rewards:
        yield "reward", {
            "trajectory_id": at, "batch_id": batch_id, "function": reward.function,
            "fn": reward.index, "value": real(reward.value), "verify_s": reward.verify_s,
        }  # fmt: skip
