"""The plan of a replay: what a run is to generate, wait for and give, batch by batch.

Plain data, handed to the processes of a run in one file. Whatever a replay needs of it is
known: a workload that leaves it open is refused before anything starts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rlvr_probe.model.replay_note import Half

__all__ = [
    "Plan", "PlannedBatch", "PlannedCall", "PlannedGroup", "PlannedSample", "PlannedTool",
    "PlannedTurn", "drawn_tokens", "read_plan", "write_plan",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """One engine call of a sample.

    Attributes:
        prompt_tokens: Context that it starts with; what it has beyond the turn before, and what
            that generated, was added by tools, users or templates.
        response_tokens: To generate.
    """

    prompt_tokens: int
    response_tokens: int


@dataclass(frozen=True, slots=True)
class PlannedTool:
    """One tool call of a sample.

    Attributes:
        turn: That asks for it, from 0.
        seconds: How long it takes, s.
    """

    turn: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PlannedSample:
    """One sample of a group.

    Attributes:
        response_tokens: Of the whole response, what tools added included.
        cut: Whether it ends at the cap, without an end token.
        rewards: By reward function; None where it gave none.
        turns: Where it has several, or calls tools; else empty.
        tools: In the order of their start.
    """

    response_tokens: int
    cut: bool
    rewards: tuple[float | None, ...] = ()
    turns: tuple[PlannedTurn, ...] = ()
    tools: tuple[PlannedTool, ...] = ()

    @property
    def reward(self) -> float:
        """For a framework that has one reward function: the sum of all; None of one counts as 0."""
        return math.fsum(reward for reward in self.rewards if reward is not None)


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """One prompt and its samples.

    Attributes:
        prompt_tokens: At least 1.
        samples: In their order.
        trained: Whether the recorded trainer trained on it; false where its filter dropped it.
        start_s: Start of its first sample, s after the first of its batch; None if unknown.
    """

    prompt_tokens: int
    samples: tuple[PlannedSample, ...]
    trained: bool = True
    start_s: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call of a reward function.

    Attributes:
        function: Position in ``Plan.functions``.
        share: Whose rows it is about: position among the processes that generated the batch.
        seconds: How long it takes, s.
        start_s: Its start, s after the rollout of that process, or before it if negative; None
            where only durations are known.
        row: Row in the batch that it is about; None for all of its share.
    """

    function: int
    share: int
    seconds: float
    start_s: float | None = None
    row: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """One generation batch.

    Attributes:
        step: Of the recorded trainer.
        groups: In the order of the trainer, over all ranks.
        calls: Of reward functions, by start; empty if the functions of the command are used.
        shares: Processes that generated it.
    """

    step: int
    groups: tuple[PlannedGroup, ...]
    calls: tuple[PlannedCall, ...]
    shares: int

    @property
    def samples(self) -> Iterator[PlannedSample]:
        """All samples, in row order."""
        return (sample for group in self.groups for sample in group.samples)


@dataclass(frozen=True, slots=True)
class Plan:
    """A workload as something to do.

    Attributes:
        source: Name of the recording or directory.
        framework: That it was recorded with; None if unknown.
        batches: In their order; at least one.
        functions: Names of reward functions; empty if those of the command are used.
        group_size: Samples per prompt; what was asked for where groups differ.
        cap: Longest response allowed, tokens.
        ranks: Ranks that had a model; None if unknown.
        steps_per_generation, iterations, accumulation: How batches fed trainer steps; None if
            unknown.
        notes: What is not as it was recorded.
        half: Of each step to do alone; None for all of it.
    """

    source: str
    framework: str | None
    batches: tuple[PlannedBatch, ...]
    functions: tuple[str, ...]
    group_size: int
    cap: int
    ranks: int | None = None
    steps_per_generation: int | None = None
    iterations: int | None = None
    accumulation: int | None = None
    notes: tuple[str, ...] = ()
    half: Half | None = None

    @property
    def groups(self) -> Iterator[PlannedGroup]:
        """All groups, in their order."""
        return (group for batch in self.batches for group in batch.groups)

    @property
    def samples(self) -> Iterator[PlannedSample]:
        """All samples, in their order."""
        return (sample for group in self.groups for sample in group.samples)

    @property
    def steps(self) -> str:
        """The recorded trainer steps of its batches, in words."""
        first, last = self.batches[0].step, self.batches[-1].step
        return f"step {first}" if first == last else f"steps {first} to {last}"


def drawn_tokens(
    plan: Plan,
    group: int,
    usable: Sequence[int],
    *,
    count: int,
    turn: int = 0,
    sample: int | None = None,
) -> list[int]:
    """Token ids in place of a text, the same in all processes.

    Args:
        plan: Of the replay.
        group: Position of the prompt among all groups of the plan.
        usable: Ids to draw from.
        count: How many.
        turn: 0 for the prompt, n for what is added after n turns.
        sample: Position in the group, for what it generates in that turn; None for what all
            samples share.
    """
    own = "" if sample is None else f" {sample}"
    return random.Random(f"{plan.source} {group} {turn}{own}").choices(usable, k=count)


def write_plan(plan: Plan, path: Path) -> None:
    """Write ``plan`` into one file."""
    path.write_bytes(msgspec.json.encode(plan))


def read_plan(path: Path) -> Plan:
    """The plan in a file that :func:`write_plan` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Plan)
