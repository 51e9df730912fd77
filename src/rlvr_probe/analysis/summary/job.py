"""A job: its roles, processes, worker groups, filters and users' spans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.model.batch import Batch
from rlvr_probe.model.trace import Attempt, Process, Step, Trace

__all__ = [
    "attempt_entry",
    "mean_s",
    "open_spans",
    "process_entry",
    "roles",
    "rpcs",
    "selection",
    "user_spans",
]


def roles(trace: Trace) -> list[dict[str, Any]]:
    """Processes by their role in the job; none where no process recorded one.

    Those that train first, then by number; a process that recorded no role has the role None.
    """
    if not any(process.role for process in trace.processes):
        return []
    trainers = {session.process for attempt in trace.attempts for session in attempt.sessions}
    counts = Counter(
        (process.role or None, process.index in trainers) for process in trace.processes
    )
    return [
        {"role": role, "trains": trains, "processes": count}
        for (role, trains), count in sorted(
            counts.items(), key=lambda item: (not item[0][1], -item[1], item[0][0] or "")
        )
    ]


@dataclass(slots=True)
class _Method:
    ranks: int = 0
    calls: int = 0
    waited: int = 0
    wait_s: float = 0.0
    mean_s: float = 0.0
    slowest_s: float = 0.0
    slowest: Counter[int] = field(default_factory=Counter)


def rpcs(trace: Trace, steps: Iterable[Step]) -> dict[str, Any] | None:
    """Calls of worker groups in ``steps``, by group and method; None if there were none."""
    methods = dict[tuple[str, str], _Method]()
    for rpc in (rpc for step in steps for rpc in step.rpcs):
        entry = methods.setdefault((rpc.group, rpc.method), _Method())
        times = [span.seconds for span in rpc.ranks]
        entry.calls += 1
        entry.ranks = max(entry.ranks, len(times))
        entry.mean_s += sum(times) / len(times)
        entry.slowest_s += max(times)
        entry.slowest[times.index(max(times))] += 1
        if rpc.caller.attributes.get("waits", 1):
            entry.waited += 1
            entry.wait_s += rpc.caller.seconds
    if not methods and not trace.unjoined_rpcs:
        return None
    return {
        "calls": sum(entry.calls for entry in methods.values()),
        "unjoined": trace.unjoined_rpcs,
        "methods": [
            {
                "group": group,
                "method": method,
                "calls": entry.calls,
                "ranks": entry.ranks,
                "caller_s": entry.wait_s / entry.waited if entry.waited else None,
                "mean_s": entry.mean_s / entry.calls,
                "slowest_s": entry.slowest_s / entry.calls,
                "slowest_rank": entry.slowest.most_common(1)[0][0],
            }
            for (group, method), entry in sorted(
                methods.items(), key=lambda item: -item[1].slowest_s
            )
        ],
    }


def selection(batches: Sequence[Batch]) -> dict[str, Any] | None:
    """Groups that passed a filter and that were trained on; None where no batch recorded any.

    Of the batches that did: one of an unfinished step may do so yet. Each count is None unless
    every one of them recorded it.
    """
    known = [batch for batch in batches if batch.kept is not None or batch.used is not None]
    if not known:
        return None
    found: dict[str, Any] = {"groups": sum(batch.count_groups()[0] for batch in known)}
    for name in ("kept", "used"):
        groups = [getattr(batch, name) for batch in known]
        found[name] = None if None in groups else sum(map(len, groups))
    return found


def user_spans(trace: Trace) -> list[dict[str, Any]]:
    """Per label of ``rlvr_probe.span``: how often, and how long."""
    found = dict[str, list[float]]()
    for span in trace.user_spans:
        label = span.attributes.get("label")
        found.setdefault(label if isinstance(label, str) else "", []).append(span.seconds)
    return [
        {"label": label, "count": len(times), "total_s": sum(times), "max_s": max(times)}
        for label, times in found.items()
    ]


def mean_s(user_span: Mapping[str, Any]) -> float:
    """Seconds of a span in an entry of :func:`user_spans`."""
    return float(user_span["total_s"] / user_span["count"])


def attempt_entry(trace: Trace, attempt: Attempt) -> dict[str, Any]:
    """One launch of the job: its processes, and the steps that it did."""
    members = [trace.processes[index] for index in attempt.processes]
    started = [step for step in attempt.steps if step.started]
    done = [step for step in started if step.done]
    resumed = [session.facts.get("resumed_step") for session in attempt.sessions]
    return {
        "attempt": attempt.index,
        "job": attempt.job,
        "processes": attempt.processes,
        "states": dict(Counter(process.state for process in members)),
        "start_s": min(process.start_ns for process in members) / 1e9,
        "last_seen_s": max(process.last_seen_ns for process in members) / 1e9,
        "resumed_step": min((step for step in resumed if type(step) is int), default=None),
        "first_step": min((step.number for step in started), default=None),
        "last_step": max((step.number for step in started), default=None),
        "steps": len(done),
        "unfinished_steps": len(started) - len(done),
        "redone_steps": sum(step.superseded_by is not None for step in started),
        "concurrent": attempt.concurrent,
        "mixed": attempt.mixed,
        "lineage": attempt.lineage,
    }


def process_entry(trace: Trace, process: Process) -> dict[str, Any]:
    """One process: how it ended, and what recording took of its time."""
    attempt = next((a.index for a in trace.attempts if process.index in a.processes), None)
    alive_s = (process.last_seen_ns - process.start_ns) / 1e9
    return {
        "index": process.index,
        "process": process.key,
        "attempt": attempt,
        "role": process.role or None,
        "rank": process.rank,
        "host": process.host,
        "pid": process.pid,
        "state": process.state,
        "start_s": process.start_ns / 1e9,
        "last_seen_s": process.last_seen_ns / 1e9,
        "silent_s": process.silent_s,
        "devices": None if process.devices is None else list(process.devices),
        "devices_how": process.devices_how or None,
        "level": process.level,
        "level_reason": process.level_reason,
        "muted": dict(process.muted),
        "own_s": process.own_s,
        "own_share": process.own_s / alive_s if process.own_s is not None and alive_s > 0 else None,
        "lost": dict(process.lost),
        "faults": dict(process.faults),
        "ids": dict(process.ids),
    }


def open_spans(trace: Trace) -> list[dict[str, Any]]:
    """Oldest first within a process; the process says whether it is open now or was at its end.

    What trainers do between two steps comes last: no span covers it.
    """
    return [
        {
            "process": span.process,
            "rank": trace.processes[span.process].rank,
            "state": trace.processes[span.process].state,
            "name": span.name,
            "detail": span.detail,
            "step": span.step,
            "start_s": span.start_ns / 1e9,
            "age_s": span.age_s,
            "thread": span.thread,
        }
        for span in (*trace.open_spans, *trace.between)
    ]
