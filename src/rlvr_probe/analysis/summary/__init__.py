"""What ``rlvr-probe show --json`` says of a run: a module per subject.

docs/reference/show-json.md names every key. What happened when is asked of the trace; single
trajectories, of the tables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

from rlvr_probe.analysis.results import query
from rlvr_probe.analysis.samples import COUNTS_QUERY, prepare
from rlvr_probe.analysis.summary import devices, job, trajectories
from rlvr_probe.model import names
from rlvr_probe.model.batch import Batch
from rlvr_probe.model.trace import Step, Trace
from rlvr_probe.recording.attempts import FACTS, last_training
from rlvr_probe.recording.fine.join import numbered
from rlvr_probe.recording.tables import Tables

__all__ = ["SHOW_SCHEMA_VERSION", "summarize"]

SHOW_SCHEMA_VERSION: Final = 1
"""Version of the JSON; a removed or redefined key raises it."""

_COUNTED: Final = ("groups", "trajectories", "prompt_tokens", "response_tokens")


def summarize(trace: Trace, tables: Tables) -> dict[str, Any]:
    """Counts and metrics of a run, ready for JSON.

    Args:
        trace: Of the run, without single trajectories.
        tables: Of the same run; they get the views of the sections.

    Top-level counts are of training, each step once: steps thrown away by a resume are under
    ``redone``, evaluation is under ``evaluation``. ``trajectories`` and tokens include those of
    steps that were not finished, and of none; what is said of their lengths, turns, tools and
    rewards is of batches that are whole, if any is.
    """
    standing = list(trace.steps())
    started = [step for step in standing if step.started]
    batches = [batch for step in standing for batch in step.batches]
    batches += [batch for attempt in trace.attempts for batch in attempt.untrained]
    whole = any(batch.whole for batch in batches)
    redone, facts = trace.redone, last_training(trace.attempts)
    cut, lengths = prepare(tables), trajectories.Lengths(tables)
    [counts] = query(tables, COUNTS_QUERY).dicts
    step_ids = {id(step): number for number, step in enumerate(numbered(trace.attempts))}
    return {
        "schema_version": SHOW_SCHEMA_VERSION,
        "run": trace.run,
        "processes": len(trace.processes),
        "attempts": len(trace.attempts),
        "steps": sum(step.done for step in started),
        "unfinished_steps": sum(not step.done for step in started),
        "redone_steps": len(redone),
        **{name: counts[name] or 0 for name in _COUNTED},
        "open_spans": len(trace.open_spans),
        "lost_records": sum(trace.lost.values()),
        "duration_s": max((process.last_seen_ns for process in trace.processes), default=0) / 1e9,
        "training": {name: facts.get(name) for name in FACTS} if facts else None,
        "lengths": lengths.of_run("train"),
        "stages": _stages(trace, standing),
        "rewards": trajectories.rewards(tables),
        "turns": trajectories.turns(tables),
        "tools": trajectories.tools(tables),
        "requests": trajectories.requests(
            tables, sum(attempt.unjoined_requests for attempt in trace.attempts)
        ),
        "roles": job.roles(trace),
        "unreached": trace.unreached,
        "rpcs": job.rpcs(trace, standing),
        "selection": job.selection([batch for batch in batches if batch.whole or not whole]),
        "staleness": trajectories.staleness(tables),
        "devices": devices.devices(trace),
        "user_spans": job.user_spans(trace),
        "step_list": [_step_entry(step, lengths.of_step(step_ids[id(step)])) for step in started],
        "attempt_list": [job.attempt_entry(trace, attempt) for attempt in trace.attempts],
        "process_list": [job.process_entry(trace, process) for process in trace.processes],
        "open_span_list": job.open_spans(trace),
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
        "evaluation": {
            "steps": sorted({step.number for step in standing if step.evaluations}),
            **_counts([batch for step in standing for batch in step.evaluations]),
            "lengths": lengths.of_run("eval"),
        },
        "finer_spans": {
            name: {"count": count, "total_s": total_s}
            for name, (count, total_s) in trace.totals.items()
        },
        "lost": trace.lost,
        "faults": dict(
            sum((Counter(process.faults) for process in trace.processes), Counter[str]())
        ),
        "notes": [*tables.notes, *cut],
    }


def _counts(batches: Sequence[Batch]) -> dict[str, int]:
    """Groups, trajectories and tokens of ``batches``."""
    shards = [shard for batch in batches for shard in batch.shards]
    return {
        "groups": sum(batch.count_groups()[0] for batch in batches),
        "trajectories": sum(batch.rows for batch in batches),
        "prompt_tokens": sum(sum(shard.prompt_tokens) for shard in shards),
        "response_tokens": sum(sum(shard.response_tokens) for shard in shards),
    }


def _step_entry(step: Step, lengths: dict[str, Any]) -> dict[str, Any]:
    """One step, with the lengths of those of its trajectories that are counted."""
    return {
        "attempt": step.attempt,
        "session": step.session,
        "step": step.number,
        "done": step.done,
        "ranks_done": step.ranks_done,
        "ranks": step.ranks,
        **_counts(step.batches),
        "lengths": lengths,
        "policy_version": next((batch.policy_version for batch in step.batches), None),
        "selection": job.selection(step.batches) if step.batches else None,
        # Seconds of the slowest rank.
        "stage_s": {
            stage: max(by_rank.values())
            for stage in (names.STEP.name, *names.STAGES)
            if (by_rank := step.stage_seconds(stage))
        },
    }


def _stages(trace: Trace, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Per stage: seconds per step in which it was seen, mean of the ranks and slowest rank."""
    found, whole = list[dict[str, Any]](), 0.0
    for stage in (names.STEP.name, *names.STAGES):
        by_rank = defaultdict[int | None, float](float)
        seen, total, within = 0, 0.0, False
        for step in steps:
            if step.started and not step.done:
                continue
            seconds = step.stage_seconds(stage)
            seen += bool(seconds)
            within = within or step.within(stage)
            # The mean first: ranks of two attempts may differ in number.
            total += sum(seconds.values()) / len(seconds) if seconds else 0.0
            for process, value in seconds.items():
                by_rank[trace.processes[process].rank] += value
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
