"""What ``rlvr-probe show --json`` prints: docs/reference/show-json.md names every key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite
from typing import Any

from rlvr_probe.analysis.quantiles import distribution
from rlvr_probe.model import names
from rlvr_probe.model.batch import Batch
from rlvr_probe.model.trace import Attempt, Process, Step, Trace
from rlvr_probe.recording.remarks import cut
from rlvr_probe.recording.training import FACTS, last_training
from rlvr_probe.report.devices import devices
from rlvr_probe.report.job import roles, rpcs, selection, staleness
from rlvr_probe.report.lengths import column, counted, truncated_share
from rlvr_probe.report.requests import requests
from rlvr_probe.report.turns import tool_use, turn_counts

__all__ = ["SHOW_SCHEMA_VERSION", "summarize"]

SHOW_SCHEMA_VERSION = 1
"""Version of the JSON; a removed or redefined key raises it."""


def summarize(trace: Trace) -> dict[str, Any]:
    """Counts and figures of a run, ready for JSON.

    Top-level counts are of training, each step once: steps thrown away by a resume are under
    ``redone``, evaluation is under ``evaluation``. ``trajectories`` and tokens include those of
    steps that were not finished; what is said of their lengths, turns, tools and rewards is of
    batches that are whole, if any is.
    """
    standing = list(trace.steps())
    started = [step for step in standing if step.started]
    batches = [batch for step in standing for batch in step.batches]
    whole = any(batch.whole for batch in batches)
    sample = counted(batches, whole=whole)
    redone = trace.redone
    return {
        "schema_version": SHOW_SCHEMA_VERSION,
        "run": trace.run,
        "processes": len(trace.processes),
        "attempts": len(trace.attempts),
        "steps": sum(step.done for step in started),
        "unfinished_steps": sum(not step.done for step in started),
        "redone_steps": len(redone),
        **_counts(batches),
        "open_spans": len(trace.open_spans),
        "lost_records": sum(trace.lost.values()),
        "duration_s": max((one.last_seen_ns for one in trace.processes), default=0) / 1e9,
        "training": _training(trace),
        "lengths": _lengths(sample),
        "stages": _stages(trace, standing),
        "rewards": _rewards(sample),
        "turns": turn_counts(sample),
        "tools": tool_use(sample),
        "requests": requests(trace),
        "roles": roles(trace),
        "unreached": trace.unreached,
        "rpcs": rpcs(trace, standing),
        "selection": selection(sample),
        "staleness": staleness(sample),
        "devices": devices(trace),
        "user_spans": _user_spans(trace),
        "step_list": [_step(step, whole) for step in started],
        "attempt_list": [_attempt(trace, attempt) for attempt in trace.attempts],
        "process_list": [_process(trace, one) for one in trace.processes],
        "open_span_list": _open_spans(trace),
        "redone": [
            {
                "attempt": step.attempt,
                "session": step.session,
                "step": step.number,
                "superseded_by": step.superseded_by,
                "trajectories": sum(batch.rows for batch in step.batches),
            }
            for step in redone
        ],
        "evaluation": _evaluation(standing),
        "finer_spans": {
            name: {"count": count, "total_s": total_s}
            for name, (count, total_s) in trace.totals.items()
        },
        "lost": trace.lost,
        "faults": dict(sum((Counter(one.faults) for one in trace.processes), Counter[str]())),
        "notes": [*trace.notes, *_cut(batches)],
    }


def _counts(batches: Sequence[Batch]) -> dict[str, int]:
    shards = [shard for batch in batches for shard in batch.shards]
    return {
        "groups": sum(batch.count_groups()[0] for batch in batches),
        "trajectories": sum(batch.rows for batch in batches),
        "prompt_tokens": sum(sum(shard.prompt_tokens) for shard in shards),
        "response_tokens": sum(sum(shard.response_tokens) for shard in shards),
    }


def _training(trace: Trace) -> dict[str, Any] | None:
    facts = last_training(trace.attempts)
    return {name: facts.get(name) for name in FACTS} if facts else None


def _lengths(batches: Sequence[Batch]) -> dict[str, Any]:
    return {
        "prompt_tokens": distribution(column(batches, "prompt_tokens")),
        "response_tokens": distribution(column(batches, "response_tokens")),
        "truncated_share": truncated_share(batches),
    }


def _cut(batches: Sequence[Batch]) -> list[str]:
    rows = [batch.rows for batch in batches if not batch.whole]
    return cut(len(batches) - len(rows), len(rows), sum(rows))


def _step(step: Step, whole: bool) -> dict[str, Any]:
    return {
        "attempt": step.attempt,
        "session": step.session,
        "step": step.number,
        "done": step.done,
        "ranks_done": step.ranks_done,
        "ranks": step.ranks,
        **_counts(step.batches),
        "lengths": _lengths(counted(step.batches, whole=whole)),
        "policy_version": next((batch.policy_version for batch in step.batches), None),
        "selection": selection(step.batches) if step.batches else None,
        # Seconds of the slowest rank.
        "stage_s": {
            stage: max(by_rank.values())
            for stage in (names.STEP.name, *names.STAGES)
            if (by_rank := step.stage_seconds(stage))
        },
    }


def _stages(trace: Trace, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Per stage: seconds per step in which it was seen, mean of the ranks and slowest rank."""
    found = list[dict[str, Any]]()
    whole = 0.0
    for stage in (names.STEP.name, *names.STAGES):
        by_rank = dict[int | None, float]()
        seen = 0
        total = 0.0
        within = False
        for step in steps:
            if step.started and not step.done:
                continue
            seconds = step.stage_seconds(stage)
            seen += bool(seconds)
            within = within or step.within(stage)
            # The mean first: ranks of two attempts may differ in number.
            total += sum(seconds.values()) / len(seconds) if seconds else 0.0
            for process, value in seconds.items():
                rank = trace.processes[process].rank
                by_rank[rank] = by_rank.get(rank, 0.0) + value
        if not seen:
            continue
        slowest = max(by_rank, key=lambda rank: by_rank[rank])
        if stage == names.STEP.name:
            whole = total
        found.append(
            {
                "stage": stage,
                "steps": seen,
                "mean_s": total / seen,
                "max_s": by_rank[slowest] / seen,
                "slowest_rank": slowest,
                "share": total / whole if whole and within else None,
            }
        )
    return found


def _rewards(batches: Sequence[Batch]) -> list[dict[str, Any]]:
    """Per reward function: mean value, time of its calls, and how often a service was asked.

    Of one that gave values and that nobody was seen to call, calls are unknown: another process
    verified, and did not tell for whom. Of one that was called and gave values to nobody that is
    known, the values are.
    """
    values = dict[str, tuple[int, float]]()
    odd, missing = Counter[str](), Counter[str]()
    calls = dict[str, tuple[int, float]]()
    asked = dict[str, tuple[int, int]]()
    waited = set[str]()
    for shard in (shard for batch in batches for shard in batch.shards):
        for rewards in shard.rewards:
            given = [value for value in rewards.values if value is not None]
            known = [value for value in given if isfinite(value)]
            odd[rewards.function] += len(given) - len(known)
            missing[rewards.function] += len(rewards.values) - len(given)
            count, total = values.get(rewards.function, (0, 0.0))
            values[rewards.function] = (count + len(known), total + sum(known))
        for function, seconds in shard.calls.seconds():
            count, total = calls.get(function, (0, 0.0))
            calls[function] = (count + 1, total + seconds)
        for function, row, attempts, timeouts in shard.calls.asked():
            if row is not None:
                waited.add(function)
            if attempts is not None:
                again, late = asked.get(function, (0, 0))
                asked[function] = (again + max(0, attempts - 1), late + (timeouts or 0))
    return [
        {
            "function": function,
            "values": values[function][0] if function in values else None,
            "mean": _mean(*values[function]) if function in values else None,
            "not_finite": odd[function] if function in values else None,
            "missing": missing[function] if function in values else None,
            "calls": calls[function][0] if function in calls else None,
            "total_s": calls[function][1] if function in calls else None,
            "waited": function in waited if function in calls else None,
            "retries": asked[function][0] if function in asked else None,
            "timeouts": asked[function][1] if function in asked else None,
        }
        for function in dict.fromkeys((*values, *calls))
    ]  # fmt: skip


def _mean(count: int, total: float) -> float | None:
    # A sum of absurd rewards may be infinite, which JSON cannot say.
    return total / count if count and isfinite(total) else None


def _user_spans(trace: Trace) -> list[dict[str, Any]]:
    """Per label of ``rlvr_probe.span``: how often, and how long."""
    found = dict[str, list[float]]()
    for span in trace.user_spans:
        label = span.attributes.get("label")
        found.setdefault(label if isinstance(label, str) else "", []).append(span.seconds)
    return [
        {"label": label, "count": len(times), "total_s": sum(times), "max_s": max(times)}
        for label, times in found.items()
    ]


def _attempt(trace: Trace, attempt: Attempt) -> dict[str, Any]:
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


def _process(trace: Trace, one: Process) -> dict[str, Any]:
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


def _open_spans(trace: Trace) -> list[dict[str, Any]]:
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


def _evaluation(steps: Sequence[Step]) -> dict[str, Any]:
    batches = [batch for step in steps for batch in step.evaluations]
    return {
        "steps": sorted({step.number for step in steps if step.evaluations}),
        **_counts(batches),
        "lengths": _lengths(batches),
    }
