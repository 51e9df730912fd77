"""What ``rlvr-probe show --json`` says of a run, asked of its trace: a module per subject.

docs/reference/show-json.md names every key.

In Python, over columns: a run that ``show`` is asked for while it trains is small, and to load what
SQL takes longer than all of this. Lengths, turns and rewards are defined as in the sections of
:mod:`rlvr_probe.analysis.metrics`; tests hold one against the other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import reduce
from operator import iadd
from typing import Any, Final

from rlvr_probe.analysis.summary import devices, job, trajectories
from rlvr_probe.analysis.summary.trajectories import Lengths, counted, counts
from rlvr_probe.model import names
from rlvr_probe.model.trace import Step, Trace
from rlvr_probe.recording.attempts import FACTS, last_training
from rlvr_probe.recording.notes import cut

__all__ = ["SHOW_SCHEMA_VERSION", "summarize"]

SHOW_SCHEMA_VERSION: Final = 1
"""Version of the JSON; a removed or redefined key raises it."""


def summarize(trace: Trace) -> dict[str, Any]:
    """Counts and metrics of a run, ready for JSON.

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
    own = [Lengths.of(counted(step.batches, whole=whole)) for step in standing]
    redone, facts = trace.redone, last_training(trace.attempts)
    cut_rows = [batch.rows for batch in batches if not batch.whole]
    return {
        "schema_version": SHOW_SCHEMA_VERSION,
        "run": trace.run,
        "processes": len(trace.processes),
        "attempts": len(trace.attempts),
        "steps": sum(step.done for step in started),
        "unfinished_steps": sum(not step.done for step in started),
        "redone_steps": len(redone),
        **counts(batches),
        "open_spans": len(trace.open_spans),
        "lost_records": sum(trace.lost.values()),
        "duration_s": max((process.last_seen_ns for process in trace.processes), default=0) / 1e9,
        "training": {name: facts.get(name) for name in FACTS} if facts else None,
        "lengths": reduce(iadd, own, Lengths()).figures(),
        "stages": _stages(trace, standing),
        "rewards": trajectories.rewards(sample),
        "turns": trajectories.turns(sample),
        "tools": trajectories.tool_use(sample),
        "requests": job.requests(trace),
        "roles": job.roles(trace),
        "unreached": trace.unreached,
        "rpcs": job.rpcs(trace, standing),
        "selection": job.selection(sample),
        "staleness": job.staleness(sample),
        "devices": devices.devices(trace),
        "user_spans": job.user_spans(trace),
        "step_list": [
            _step_entry(step, lengths)
            for step, lengths in zip(standing, own, strict=True)
            if step.started
        ],
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
        "evaluation": _evaluation(standing),
        "finer_spans": {
            name: {"count": count, "total_s": total_s}
            for name, (count, total_s) in trace.totals.items()
        },
        "lost": trace.lost,
        "faults": dict(
            sum((Counter(process.faults) for process in trace.processes), Counter[str]())
        ),
        "notes": [*trace.notes, *cut(len(batches) - len(cut_rows), len(cut_rows), sum(cut_rows))],
    }


def _evaluation(steps: Sequence[Step]) -> dict[str, Any]:
    batches = [batch for step in steps for batch in step.evaluations]
    return {
        "steps": sorted({step.number for step in steps if step.evaluations}),
        **counts(batches),
        "lengths": Lengths.of(batches).figures(),
    }


def _step_entry(step: Step, lengths: Lengths) -> dict[str, Any]:
    """One step, with the lengths of those of its trajectories that are counted."""
    return {
        "attempt": step.attempt,
        "session": step.session,
        "step": step.number,
        "done": step.done,
        "ranks_done": step.ranks_done,
        "ranks": step.ranks,
        **counts(step.batches),
        "lengths": lengths.figures(),
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
