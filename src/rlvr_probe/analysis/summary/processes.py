"""Attempts, processes, and the spans that were open or that users made."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rlvr_probe.model.trace import Attempt, Process, Trace

__all__ = ["attempt_entry", "open_spans", "process_entry", "user_spans"]


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
        "states": dict(Counter(one.state for one in members)),
        "start_s": min(one.start_ns for one in members) / 1e9,
        "last_seen_s": max(one.last_seen_ns for one in members) / 1e9,
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


def process_entry(trace: Trace, one: Process) -> dict[str, Any]:
    """One process: how it ended, and what recording took of its time."""
    attempt = next((a.index for a in trace.attempts if one.index in a.processes), None)
    alive_s = (one.last_seen_ns - one.start_ns) / 1e9
    return {
        "index": one.index,
        "process": one.key,
        "attempt": attempt,
        "role": one.role or None,
        "rank": one.rank,
        "host": one.host,
        "pid": one.pid,
        "state": one.state,
        "start_s": one.start_ns / 1e9,
        "last_seen_s": one.last_seen_ns / 1e9,
        "silent_s": one.silent_s,
        "devices": None if one.devices is None else list(one.devices),
        "devices_how": one.devices_how or None,
        "level": one.level,
        "level_reason": one.level_reason,
        "muted": dict(one.muted),
        "own_s": one.own_s,
        "own_share": one.own_s / alive_s if one.own_s is not None and alive_s > 0 else None,
        "lost": dict(one.lost),
        "faults": dict(one.faults),
        "ids": dict(one.ids),
    }


def open_spans(trace: Trace) -> list[dict[str, Any]]:
    """Oldest first within a process; the process says whether it is open now or was at its end.

    What trainers are at between two steps comes last: it is no span.
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
