"""Builds the workload of a run: complete steps, each once, and a list of all that is omitted.

A batch is in the workload if the step it was generated in stands: done by every rank, every prompt
of its batches whole, not thrown away by a resume. Later steps that it also fed need not have been
done: what was generated is known either way. Steps count towards stage times only if every rank did
them.

Where records may be missing, a step is taken only if its lengths are known to be all there, and a
stage only if it is known for every step of its iteration.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from rlvr_probe.exceptions import WorkloadError
from rlvr_probe.model.batch import Batch
from rlvr_probe.model.trace import Attempt, Step, Trace
from rlvr_probe.model.workload import Iteration, LeftOut, Workload, WorkloadBatch
from rlvr_probe.recording.attempts import changed_facts, last_training
from rlvr_probe.workload.fed_steps import Reuse, fed_steps, linked
from rlvr_probe.workload.notes import (
    loss_notes,
    lossy_processes,
    stage_seconds,
    unknown_notes,
    why_nothing,
)

__all__ = ["build_workload"]


@dataclass(frozen=True, slots=True)
class Facts:
    """Values of ``session`` events.

    Attributes:
        notes: Facts that differ between training runs.
    """

    values: dict[str, object]
    notes: tuple[str, ...]

    def text(self, name: str) -> str | None:
        """A text, None if unknown."""
        value = self.values.get(name)
        return value if isinstance(value, str) else None

    def count(self, name: str) -> int | None:
        """A number of at least 1, None if unknown or 0."""
        value = self.values.get(name)
        return value if type(value) is int and value > 0 else None

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, empty if unknown."""
        value = self.values.get(name)
        if not isinstance(value, (list, tuple)):
            return ()
        return tuple(item for item in value if isinstance(item, str))


def collect_facts(trace: Trace, attempts: Sequence[Attempt]) -> Facts:
    """The facts of the last training of ``attempts``; where others differ, that is noted."""
    values = last_training(attempts)
    if "world_size" not in values:
        sizes = [trace.processes[i].world_size for a in attempts for i in a.processes]
        known = [size for size in sizes if size]
        if known:
            values["world_size"] = max(known)
    # By name alone: a value may be what a workload has an alias for.
    notes = tuple(
        f"{name} differs between training runs; the workload states that of the last one"
        for name in changed_facts(attempts)
    )
    return Facts(values, notes)


_Place = tuple[int, int | None, int | None]
"""Attempt, session and step."""


@dataclass(slots=True)
class _Draft:
    """What has been taken so far."""

    batches: list[WorkloadBatch] = field(default_factory=list)
    iterations: list[Iteration] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    sessions: dict[tuple[int, int], int] = field(default_factory=dict)
    unknown_stages: Counter[str] = field(default_factory=Counter)
    """Iterations whose time of a stage is not known, by stage."""

    def omit(self, what: str, reason: str, place: _Place, count: int) -> None:
        """Take note of what is omitted, and of how many trajectories are in it."""
        self.left_out.append(LeftOut(what, reason, *place, count))


def build_workload(trace: Trace, *, attempt: int | None = None) -> Workload:
    """The workload of ``trace``.

    Args:
        trace: A recorded run.
        attempt: Take this attempt alone, as it ran: also the steps a later one did again. By
            default all attempts are taken, each step once.

    Raises:
        WorkloadError: Two jobs ran at once and ``attempt`` does not choose, group sizes differ, or
            no complete step was recorded.
    """
    chosen = _choose(trace, attempt)
    draft = _Draft()
    for other in trace.attempts:
        if other in chosen:
            _add_attempt(trace, other, draft, alone=attempt is not None)
        else:
            draft.omit("attempt", "not_chosen", (other.index, None, None), _rows(other.steps))
    if not draft.batches:
        raise WorkloadError(f"no complete step in this recording: {_why_empty(trace, draft)}")
    sizes = sorted({taken.batch.group_size for taken in draft.batches})
    if len(sizes) > 1:
        raise WorkloadError(
            f"group sizes {', '.join(map(str, sizes))} in one recording; expected the same number"
            " of trajectories per prompt in every batch"
        )
    facts = collect_facts(trace, chosen)
    return _finish(trace, chosen, draft, facts, sizes[0])


def _choose(trace: Trace, attempt: int | None) -> list[Attempt]:
    if attempt is not None and not 0 <= attempt < len(trace.attempts):
        known = f"0 to {len(trace.attempts) - 1}" if trace.attempts else "none"
        raise WorkloadError(f"attempt {attempt} is not in this recording; it has {known}")
    chosen = list(trace.attempts if attempt is None else [trace.attempts[attempt]])
    together = [str(other.index) for other in chosen if other.concurrent and not other.mixed]
    if attempt is None and together:
        raise WorkloadError(
            "two jobs ran at the same time under one run id; choose one with"
            f" --attempt: {', '.join(together)}"
        )
    if any(other.mixed for other in chosen):
        raise WorkloadError(
            "two processes claim the same rank of one job at the same time: their rows cannot be"
            " told apart; record each job under its own RLVR_PROBE_RUN_ID"
        )
    return chosen


def _add_attempt(trace: Trace, attempt: Attempt, draft: _Draft, *, alone: bool) -> None:
    lossy = lossy_processes(trace, attempt)
    for session, life in sorted({(step.session, step.life) for step in attempt.steps}):
        reuse = _reuse(attempt, session)
        least = reuse.per_each_step if reuse is not None and lossy else 0
        steps = [step for step in attempt.steps if (step.session, step.life) == (session, life)]
        key = (attempt.lineage, session)
        number = draft.sessions.setdefault(key, len(draft.sessions))
        standing = list[Step]()
        for step in steps:
            place = attempt.index, number, step.number
            if reason := _reason(step, alone=alone, least=least):
                draft.omit("step", reason, place, _rows([step]))
            else:
                standing.append(step)
            evaluated = sum(batch.rows for batch in step.evaluations)
            if evaluated:
                draft.omit("evaluation", "evaluation", place, evaluated)
        _add_session(trace, attempt, number, steps, standing, draft, reuse, lossy)


def _reason(step: Step, *, alone: bool, least: int) -> str:
    """Why a step cannot be taken; empty if it can, or if there is nothing to take.

    Args:
        step: To look at.
        alone: Whether its attempt is taken as it ran.
        least: Batches that it must have generated.
    """
    if not step.started:
        return ""
    # Alone, an attempt is taken as it ran; what it went back on itself is still there twice.
    if step.superseded_by is not None and not (alone and step.superseded_by != step.attempt):
        return "superseded"
    if step.done and (not step.lengths_known or len(step.batches) < least):
        return "lost_records"
    if not step.complete:
        return "incomplete"
    return ""


def _add_session(
    trace: Trace, attempt: Attempt, session: int, steps: Sequence[Step], standing: Sequence[Step],
    draft: _Draft, reuse: Reuse | None, lossy: frozenset[int],
) -> None:  # fmt: skip
    """Take the batches of one training in one attempt."""
    by_number = {step.number: step for step in standing if step.started}
    # What was generated and lost also fed steps, which no other batch then did.
    generated = [
        (step, batch)
        for step in steps
        for batch in (*step.batches, *repeat(None, min(step.missing_batches, 1)))
    ]
    begun = [step.number for step in steps if step.started]
    first, last = min(begun, default=0), max(begun, default=0)
    fed = fed_steps([step.number for step, _ in generated], reuse, first, last, lossy=bool(lossy))
    numbers = sorted(by_number)
    used, claimed = set[int](), set[int]()
    for members, feeds in linked(fed):
        # Not every number in a range: a step may claim to be the 10^17th.
        begin, end = bisect_left(numbers, feeds.start), bisect_left(numbers, feeds.stop)
        claimed.update(numbers[begin:end])
        indices, taken_from = list[int](), list[range]()
        for member in members:
            step, batch = generated[member]
            if batch is None or step.number not in by_number:
                continue
            taken = _take(trace, attempt, session, len(draft.batches), batch, draft)
            if taken is not None:
                draft.batches.append(taken)
                indices.append(taken.index)
                taken_from.append(fed[member])
        if indices:
            done = tuple(
                number
                for number in numbers[begin:end]
                if any(number in steps for steps in taken_from)
            )
            stage_s, unknown = stage_seconds([by_number[number] for number in done], lossy)
            draft.unknown_stages.update(unknown)
            draft.iterations.append(Iteration(tuple(indices), session, done, stage_s))
            used.update(done)
    # These trained on a batch that is omitted or lost, so there is nothing to replay.
    for number in sorted(by_number.keys() - used):
        reason = "lost_records" if lossy and number not in claimed else "no_batch"
        draft.omit("step", reason, (attempt.index, session, number), _rows([by_number[number]]))


def _take(
    trace: Trace, attempt: Attempt, session: int, index: int, batch: Batch, draft: _Draft
) -> WorkloadBatch | None:
    ranks = dict[int, int]()
    for shard in batch.shards:
        rank = trace.processes[shard.process].rank if shard.rank is None else shard.rank
        if rank is None:
            draft.omit("samples", "unknown_rank", (attempt.index, session, batch.step), batch.rows)
            return None
        ranks[shard.process] = rank
    clock = {
        process: trace.processes[process].boot or trace.processes[process].host for process in ranks
    }
    first = dict[str, int]()
    for shard in batch.shards:
        # Without a rollout span, when the lengths were recorded is the nearest known moment.
        moment = shard.recorded_ns if shard.start_ns is None else shard.start_ns
        if moment is not None:
            key = clock[shard.process]
            first[key] = min(moment, first.get(key, moment))
    origin_ns = {process: first[key] for process, key in clock.items() if key in first}
    return WorkloadBatch(index, session, batch, ranks, origin_ns)


def _reuse(attempt: Attempt, session: int) -> Reuse | None:
    for candidate in attempt.sessions:
        if candidate.session == session:
            facts = Facts(dict(candidate.facts), ())
            per_batch, per_step = facts.count("steps_per_generation"), facts.count("accumulation")
            if per_batch and per_step:
                return Reuse(per_batch * (facts.count("iterations") or 1), per_step)
    return None


def _rows(steps: Iterable[Step]) -> int:
    return sum(batch.rows for step in steps for batch in step.batches)


def _why_empty(trace: Trace, draft: _Draft) -> str:
    if not any(step.started for attempt in trace.attempts for step in attempt.steps):
        return "no training step was recorded at all"
    left_out = why_nothing(draft.left_out)
    return f"omitted: {left_out}" if left_out else "its steps have no trajectories"


def _finish(
    trace: Trace, chosen: Sequence[Attempt], draft: _Draft, facts: Facts, group_size: int
) -> Workload:
    notes = [*facts.notes, *loss_notes(trace), *unknown_notes(draft.batches)]
    if trace.unreached:
        notes.append(f"{sum(trace.unreached.values())} processes of the job recorded nothing")
    machines = {trace.processes[i].boot for attempt in chosen for i in attempt.processes}
    shards = (shard for taken in draft.batches for shard in taken.batch.shards)
    if len(machines) > 1 and any(shard.times_ns is not None for shard in shards):
        notes.append(
            "times of trajectories that another machine generated are as good as its wall clock"
        )
    if any(taken.batch.ragged for taken in draft.batches):
        notes.append("groups differ in size: the group size is what was asked for")
    notes += [
        f"the time of stage {stage} is omitted from {count} iterations: not every step of theirs"
        " has it, and records are missing"
        for stage, count in sorted(draft.unknown_stages.items())
    ]
    if len(draft.sessions) > 1:
        notes.append(f"{len(draft.sessions)} training runs in one recording, one after the other")
    ranks = max((step.ranks for attempt in chosen for step in attempt.steps), default=1)
    return Workload(
        framework=facts.text("framework"),
        framework_version=facts.text("framework_version"),
        algorithm=facts.text("algorithm"),
        engine=facts.text("engine"),
        model_type=facts.text("model_type"),
        # Where the process that trains has no model itself, the ranks that do count.
        world_size=facts.count("accelerators") or facts.count("world_size") or ranks,
        rollout_tp=facts.count("rollout_tp") or 1,
        group_size=group_size,
        max_prompt_tokens=facts.count("max_prompt_tokens"),
        max_response_tokens=facts.count("max_response_tokens"),
        steps_per_generation=facts.count("steps_per_generation"),
        iterations_per_batch=facts.count("iterations"),
        accumulation=facts.count("accumulation"),
        reward_functions=facts.texts("reward_functions"),
        batches=tuple(draft.batches),
        iterations=tuple(draft.iterations),
        left_out=tuple(draft.left_out),
        notes=tuple(notes),
        lost_records=sum(trace.lost.values()),
        probe=next((process.probe for process in trace.processes if process.probe), ""),
        turns_lossy=any(lossy_processes(trace, attempt) for attempt in chosen),
        prompts_per_update=facts.count("prompts_per_update"),
    )
