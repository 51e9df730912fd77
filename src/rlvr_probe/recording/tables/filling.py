"""Fills the tables from a trace: the run, its processes, steps and spans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rlvr_probe.model import names
from rlvr_probe.model.trace import Rpc, Session, Span, Step, Trace
from rlvr_probe.recording.bulk import Bulk
from rlvr_probe.recording.fine.join import numbered
from rlvr_probe.recording.tables.device_rows import fill_devices
from rlvr_probe.recording.tables.generated_rows import fill_batches
from rlvr_probe.recording.tables.schema import BY_NAME
from rlvr_probe.recording.training import last_training

if TYPE_CHECKING:
    import duckdb

__all__ = ["fill"]

_Row = Sequence[Any]

_INT64: Final = 1 << 63

_FACTS: Final[Mapping[str, type]] = {
    "framework": str,
    "framework_version": str,
    "algorithm": str,
    "engine": str,
    "rollout_tp": int,
    "accelerators": int,
    "group_size": int,
    "max_prompt_tokens": int,
    "max_response_tokens": int,
}
"""Columns of ``run`` that a session tells, in their order."""


def fill(sql: duckdb.DuckDBPyConnection, bulk: Bulk, trace: Trace) -> None:
    """Put everything into the tables that is known besides single trajectories, which are there.

    Args:
        sql: Has the tables, as :func:`~rlvr_probe.recording.fine.join.join` filled them.
        bulk: Brings rows there.
        trace: Of the run.
    """
    _fill_run(bulk, trace)
    _fill_steps(bulk, trace, numbered(trace.attempts))
    fill_batches(sql, bulk, trace)
    fill_devices(bulk, trace)
    bulk.finish()


def _fill_run(bulk: Bulk, trace: Trace) -> None:
    """The run, its trainings, its processes, and what is missing of it."""
    attempt_of = {index: one.index for one in trace.attempts for index in one.processes}
    batches = [batch for one in trace.attempts for step in one.steps for batch in step.batches]
    asynchronous = any(batch.queued for batch in batches) if batches else None
    told = last_training(trace.attempts)
    facts = [_fact(told.get(name), kind) for name, kind in _FACTS.items()]
    bulk.add(
        BY_NAME["run"],
        [(trace.run, number(trace.epoch_ns), "recording", *facts, asynchronous)],
    )
    bulk.add(
        BY_NAME["session"],
        (
            (attempt.index, number(one.session), one.process, facts_of(one))
            for attempt in trace.attempts
            for one in attempt.sessions
        ),
    )
    bulk.add(
        BY_NAME["process"],
        (
            (
                one.index, one.key, attempt_of.get(one.index), one.host, one.boot, one.pid,
                number(one.rank), number(one.world_size), one.role, one.state, one.level,
                number(one.start_ns), number(one.last_seen_ns), one.own_s,
                number(sum(one.lost.values())), number(sum(one.faults.values())), one.corrected_s,
            )
            for one in trace.processes
        ),
    )  # fmt: skip
    bulk.add(
        BY_NAME["process_lost"],
        (
            (one.index, reason, number(count))
            for one in trace.processes
            for reason, count in one.lost.items()
        ),
    )
    bulk.add(
        BY_NAME["process_fault"],
        (
            (one.index, place, number(count))
            for one in trace.processes
            for place, count in one.faults.items()
        ),
    )
    bulk.add(
        BY_NAME["process_accelerator"],
        ((one.index, accelerator) for one in trace.processes for accelerator in one.given),
    )
    bulk.add(BY_NAME["lost"], ((reason, number(count)) for reason, count in trace.lost.items()))
    bulk.add(
        BY_NAME["open_span"],
        (
            (
                one.process, one.id, number(one.parent), one.name, one.detail, number(one.step),
                number(one.start_ns), one.age_s, one.thread,
            )
            for one in (*trace.open_spans, *trace.between)
        ),
    )  # fmt: skip


def _fill_steps(bulk: Bulk, trace: Trace, steps: Sequence[Step]) -> None:
    """Steps, coarse spans and joined calls."""
    rpcs: list[tuple[int | None, int, Rpc]] = [
        (at, step.attempt, rpc) for at, step in enumerate(steps) for rpc in step.rpcs
    ]
    rpcs += [(None, one.index, rpc) for one in trace.attempts for rpc in one.rpcs]
    calls = {
        (span.process, span.id): rpc.call for _, _, rpc in rpcs for span in (rpc.caller, *rpc.ranks)
    }
    attempt_of = {index: one.index for one in trace.attempts for index in one.processes}
    bulk.add(BY_NAME["step"], (_step_row(at, step) for at, step in enumerate(steps)))
    bulk.add(
        BY_NAME["span"],
        (
            _span_row(span, at, step.attempt, calls)
            for at, step in enumerate(steps)
            for span in step.spans
        ),
    )
    bulk.add(
        BY_NAME["span"],
        (
            _span_row(span, None, attempt_of.get(span.process), calls)
            for spans in (trace.unplaced, trace.user_spans)
            for span in spans
        ),
    )
    bulk.add(BY_NAME["rpc"], (_rpc_row(at, *one) for at, one in enumerate(rpcs)))
    bulk.add(
        BY_NAME["rpc_rank"],
        (row for at, (_, _, rpc) in enumerate(rpcs) for row in _rank_rows(at, rpc)),
    )


def _step_row(at: int, step: Step) -> _Row:
    whole = [span for span in step.spans if span.name == names.STEP.name]
    return (
        at, step.attempt, number(step.session), step.life, number(step.number), step.superseded_by,
        step.done, step.complete, step.open, number(step.ranks), step.ranks_done,
        *_hull(step.spans), *_hull(whole), step.lost_batches,
    )  # fmt: skip


def _hull(spans: Sequence[Span]) -> tuple[int | None, int | None]:
    start_ns = min((span.start_ns for span in spans), default=None)
    return number(start_ns), number(max((span.end_ns for span in spans), default=None))


def _span_row(
    span: Span, step: int | None, attempt: int | None, calls: Mapping[tuple[int, int], int]
) -> _Row:
    given = span.attributes
    waits = given.get("waits") if given.get("side") == "caller" else None
    return (
        step, attempt, span.process, span.id, span.parent, span.name, number(span.start_ns),
        number(span.end_ns), span.error, text(given.get("mode")), text(given.get("function")),
        text(given.get("method")), text(given.get("group")), text(given.get("side")),
        calls.get((span.process, span.id)), number(given.get("rank")), number(given.get("ranks")),
        None if waits is None else bool(waits), number(given.get("samples")),
        number(given.get("batch")), number(given.get("policy_version")),
        number(given.get("weight_version")), text(given.get("on")), text(given.get("label")),
    )  # fmt: skip


def _rpc_row(at: int, step: int | None, attempt: int, rpc: Rpc) -> _Row:
    caller = rpc.caller
    return (
        at, step, attempt, rpc.group, rpc.method, rpc.call, caller.process, caller.id,
        number(caller.start_ns), number(caller.end_ns),
    )  # fmt: skip


def _rank_rows(at: int, rpc: Rpc) -> Iterator[_Row]:
    for rank, span in enumerate(rpc.ranks):
        yield at, rank, span.process, span.id, number(span.start_ns), number(span.end_ns)


def _fact(value: object, kind: type) -> object:
    """As its column holds it; None for a value of another type, which a recording may claim."""
    if type(value) is not kind:
        return None
    return value if isinstance(value, str) else number(value)


def facts_of(session: Session) -> msgspec.Raw | None:
    """What a process told of a training, as JSON; None where no JSON can hold it."""
    try:
        return msgspec.Raw(msgspec.json.encode(dict(session.facts)))
    except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError):
        return None


def number(value: object) -> int | None:
    """A whole number that a column holds, else None; a recording may claim any."""
    return value if type(value) is int and -_INT64 <= value < _INT64 else None


def text(value: object) -> str | None:
    """A text, else None."""
    return value if isinstance(value, str) else None
