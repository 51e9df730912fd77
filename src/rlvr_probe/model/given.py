"""A workload as files give it: what somebody else recorded, perhaps not all of it.

A :class:`~rlvr_probe.model.workload.Workload` is what rlvr-probe makes of a run, and promises that
every step is complete. Nothing is promised here. A format may know how long something took without
knowing when: that is kept apart from what has a place in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rlvr_probe.model.batch import Batch

__all__ = ["GivenBatch", "GivenWorkload", "Lasting"]


@dataclass(frozen=True, slots=True)
class Lasting:
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
class GivenBatch:
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
    lasting: Sequence[Lasting] = ()
    context_tokens: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class GivenWorkload:
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
    batches: tuple[GivenBatch, ...]
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
