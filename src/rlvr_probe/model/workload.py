"""The workload of a run, free of any file format: what to generate, verify and train, per batch.

Built from a :class:`~rlvr_probe.model.trace.Trace`: complete steps only, each once, without
evaluation. What is omitted is listed with its reason. Names of people, hosts, users and paths never
enter it.

A :class:`ReadWorkload` is one that files hold: what somebody else recorded, perhaps not all of it.
It promises nothing. A format may know how long something took without knowing when: that is kept
apart from what has a place in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rlvr_probe.model.batch import Batch

__all__ = [
    "Iteration", "LeftOut", "ReadBatch", "ReadWorkload", "UntimedDuration", "Workload",
    "WorkloadBatch",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class WorkloadBatch:
    """One complete generation batch.

    Attributes:
        index: Dense from 0 over the workload.
        session: Which training of the run, from 0.
        batch: Lengths, rewards, reward calls; every group complete.
        ranks: Global rank by process index, for every process that generated rows of it.
        origin_ns: By process index, the start of the batch's first rollout on its machine: times
            in exports count from here. Clocks of two machines may be seconds apart, so that times
            between them would be made up.
    """

    index: int
    session: int
    batch: Batch
    ranks: Mapping[int, int]
    origin_ns: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Iteration:
    """A smallest set of batches and trainer steps that belong together.

    Usually one batch and one step; one batch feeds several steps if generations are reused, several
    batches feed one step if each micro step generates.

    Attributes:
        batches: Indices of its batches.
        steps: Trainer steps, from 1, in which they were generated or trained on.
        stage_s: Wall seconds by stage name, the slowest rank, summed over its steps; ``step`` is
            the whole. A stage that was not seen is absent.
    """

    batches: tuple[int, ...]
    session: int
    steps: tuple[int, ...]
    stage_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something recorded that is not in the workload, and why.

    Attributes:
        what: ``step``, ``evaluation``, ``attempt``, ``samples``.
        reason: ``incomplete``, ``superseded``, ``evaluation``, ``lost_records``, ...
        attempt, session, step: Where; None if it does not apply.
        count: How many trajectories were recorded of it.
    """

    what: str
    reason: str
    attempt: int | None
    session: int | None
    step: int | None
    count: int


@dataclass(frozen=True, slots=True)
class Workload:
    """A run as something to replay.

    Attributes:
        framework, framework_version, algorithm: As recorded; None if unknown.
        engine: Kind of rollout engine, for example ``transformers`` or ``vllm-colocate``.
        world_size: Ranks of the training that have a model.
        rollout_tp: Tensor-parallel size of the rollout engine.
        group_size: Trajectories per prompt, the same in every batch; where groups differ in size,
            what was asked for.
        max_prompt_tokens, max_response_tokens: Caps; None if there was none.
        steps_per_generation, iterations, accumulation: How batches feed trainer steps.
        prompts_per_update: Where a trainer step updates the model several times: of how many
            prompts each; None where it does it once, or that is unknown.
        reward_functions: Names in the order of the trainer.
        batches: By index.
        iterations: In the order of training.
        lost_records: Rows known to be missing in the whole recording.
        probe: Version of rlvr-probe that recorded it.
        turns_lossy: Turns and tool calls may be missing: that a trajectory has none, or one, then
            does not say that it was generated in one go.
    """

    framework: str | None
    framework_version: str | None
    algorithm: str | None
    engine: str | None
    model_type: str | None
    world_size: int
    rollout_tp: int
    group_size: int
    max_prompt_tokens: int | None
    max_response_tokens: int | None
    steps_per_generation: int | None
    iterations_per_batch: int | None
    accumulation: int | None
    reward_functions: tuple[str, ...]
    batches: tuple[WorkloadBatch, ...]
    iterations: tuple[Iteration, ...]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]
    lost_records: int
    probe: str
    turns_lossy: bool = False
    prompts_per_update: int | None = None


@dataclass(frozen=True, slots=True)
class UntimedDuration:
    """Something that took a known time at an unknown moment.

    Attributes:
        what: ``turn``: the engine call of a turn that its trajectory has; ``tool_call``;
            ``reward_call``: of a function over all rows of one process.
        seconds: How long it took, s; None if that is unknown.
        process: Of a ``reward_call``: whose rows.
        row: Of the others: row of the trajectory in the batch.
        turn: Index of the turn, or of the turn that asked for the tool.
        name: Of the tool or function; None if unknown.
        status: Of a ``tool_call``, one of ``names.TOOL_STATUSES``; None if unknown.
        added_tokens: Of a ``tool_call``: tokens that it added to the context.
        queries: Of a ``tool_call``: how many questions it asked at once.
        samples: Of a ``reward_call``: trajectories in it.
    """

    what: Literal["turn", "tool_call", "reward_call"]
    seconds: float | None
    process: int | None = None
    row: int | None = None
    turn: int | None = None
    name: str | None = None
    status: str | None = None
    added_tokens: int | None = None
    queries: int | None = None
    samples: int | None = None


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """One generation batch.

    Attributes:
        number: What its files call it.
        batch: Lengths, rewards, turns; its processes are numbered from 0 in the whole workload.
        session: Which training, from 0.
        lasting: What took a known time at an unknown moment.
        context_tokens: By row, tokens of prompt, response and what was cut off in the end; empty
            if that is unknown.
    """

    number: int
    batch: Batch
    session: int = 0
    lasting: Sequence[UntimedDuration] = ()
    context_tokens: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class ReadWorkload:
    """A workload directory.

    Attributes:
        name: Of the directory.
        batches: By number.
        ranks: Global rank by process; empty if no process is known.
        notes: What a reader should know: what the files cannot say, and what is odd about them.
        framework, framework_version, algorithm, engine: As the files say; None if they do not.
        accelerators: Ranks that have a model.
    """

    name: str
    batches: tuple[ReadBatch, ...]
    ranks: Mapping[int, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    framework: str | None = None
    framework_version: str | None = None
    algorithm: str | None = None
    engine: str | None = None
    rollout_tp: int | None = None
    accelerators: int | None = None
    group_size: int | None = None
    max_prompt_tokens: int | None = None
    max_response_tokens: int | None = None
