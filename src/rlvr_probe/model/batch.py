"""The lengths of a run: batch, group, trajectory, turn, and what reward functions gave them.

Token counts are exact counts of what the engine saw, times are ns on the clock of the run, unknown
is ``None``, never 0. Lengths live in columns, one list per batch and rank; :class:`Group` and
:class:`Trajectory` are views made while iterating, so that a million trajectories stay cheap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from rlvr_probe.model.columns import RaggedColumn
from rlvr_probe.model.reward_calls import RewardCall, RewardCallColumns
from rlvr_probe.model.turns import ToolCall, Turn

__all__ = [
    "Batch", "BatchShard", "Group", "Reward", "RewardCall", "RewardColumn", "ToolCall",
    "Trajectory", "Turn",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reward:
    """What one reward function gave one trajectory."""

    function: str
    value: float | None
    """None where it gave none, NaN where it gave NaN or infinity."""
    verify_s: float | None
    """Time of this one verification, s; None where it was of a whole batch, or of another one."""
    index: int = 0
    """Position of the function in the trainer's list: two functions may share a name."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One sampled completion of one prompt."""

    row: int
    """Row in the batch over all ranks."""
    sample: int
    """Position in its group, 0..n-1."""
    process: int
    prompt_tokens: int
    response_tokens: int
    """Of the whole response, the results of tools in it included."""
    truncated: bool | None
    policy_version: int | None
    start_ns: int | None
    end_ns: int | None
    rewards: tuple[Reward, ...]
    turns: tuple[Turn, ...]
    """Empty where they were not recorded one by one."""
    tool_calls: tuple[ToolCall, ...] = ()
    loss_runs: tuple[int, ...] | None = None
    """Response tokens in and out of the loss in turn, those in it first; None where the
    trainer has no mask, or none that fits."""
    engine: int | None = None
    """Rollout engine that served it, from 0; None: it is known by the rank of its process."""
    policy_versions: tuple[int, int] | None = None
    """Trainer steps that the oldest and the newest weights had done which it saw, where they may
    change while it goes on."""
    source: str | None = None
    """Where its prompt is from, in the column that the user named."""

    @property
    def loss_tokens(self) -> int | None:
        """Response tokens in the loss, None where no mask of the trainer is known.

        The model's own, where the rest came from tools. Whole samples that a trainer masks, for
        example truncated ones, still count.
        """
        return None if self.loss_runs is None else sum(self.loss_runs[::2])


@dataclass(frozen=True, slots=True)
class Group:
    """The trajectories of one prompt, in sample order; short if some were not recorded."""

    index: int
    """Position of the prompt in the batch, from 0."""
    size: int
    """Trajectories it should hold."""
    trajectories: tuple[Trajectory, ...]

    @property
    def complete(self) -> bool:
        """Whether every trajectory was recorded."""
        return len(self.trajectories) == self.size


@dataclass(frozen=True, slots=True)
class RewardColumn:
    """Values of one reward function for the rows of one shard."""

    function: str
    index: int
    values: Sequence[float | None]
    verify_s: Sequence[float | None] | None


@dataclass(slots=True)
class BatchShard:
    """The rows of a batch that one process generated."""

    process: int
    rank: int | None
    offset: int
    prompt_tokens: Sequence[int]
    response_tokens: Sequence[int]
    truncated: Sequence[int] | None
    start_ns: int | None
    """Start of the rollout span, ns."""
    end_ns: int | None
    rewards: list[RewardColumn] = field(default_factory=list)
    calls: RewardCallColumns = field(default_factory=RewardCallColumns)
    """By start; where each trajectory is verified on its own, also of other processes."""
    turns: Mapping[int, tuple[Turn, ...]] = field(default_factory=dict)
    """By row in the shard; empty where turns are not recorded per trajectory."""
    tool_calls: Mapping[int, tuple[ToolCall, ...]] = field(default_factory=dict)
    """By row in the shard, in the order of their start."""
    loss_runs: Sequence[Sequence[int]] | None = None
    """Per row, response tokens in and out of the loss in turn, those in it first; None where
    the trainer has no mask, or none that fits."""
    times_ns: Sequence[tuple[int, int] | None] | None = None
    """Start and end of each row, where rows were generated on their own."""
    recorded_ns: int | None = None
    """When its lengths were recorded: after its rollout, ns."""
    engines: Sequence[int | None] | None = None
    """Rollout engine of each row, from 0; None: it is known by the rank of the process."""
    groups: Sequence[int] | None = None
    """Group of each row, ascending; None: ``row // group_size``."""
    prompts: Sequence[str] | None = None
    """What names the prompt of each group of the shard, in every process."""
    policy_versions: Sequence[tuple[int, int] | None] | None = None
    """Trainer steps that the oldest and the newest weights had done which each row saw."""
    sources: Sequence[str | None] | None = None
    """Where the prompt of each row is from; None where no column was named."""

    @property
    def loss_of_rows(self) -> Sequence[int] | None:
        """``loss_tokens`` of each row, as of a :class:`Trajectory`."""
        if isinstance(self.loss_runs, RaggedColumn):
            return self.loss_runs.alternate_sums()
        return None if self.loss_runs is None else [sum(runs[::2]) for runs in self.loss_runs]

    @property
    def loss_tokens(self) -> int | None:
        """Those of all its rows."""
        rows = self.loss_of_rows
        return None if rows is None else sum(rows)


@dataclass(slots=True)
class Batch:
    """One generation batch over all ranks."""

    mode: str
    step: int
    """Trainer step it was generated in."""
    ordinal: int
    policy_version: int | None
    group_size: int
    total: int
    """Rows it should hold."""
    shards: list[BatchShard]
    """By offset."""
    kept: frozenset[int] | None = None
    """Groups that passed the trainer's filter; None: all did, as far as is known."""
    used: frozenset[int] | None = None
    """Groups that were trained on, as :attr:`kept`."""
    unselected: bool = False
    """The trainer filters groups, and did not record which of these it kept: which of them were
    trained on is unknown."""
    queued: bool = False
    """Generated beside the training for a queue; ``step`` is the one that first trained on it."""

    @property
    def rows(self) -> int:
        """Rows that were recorded."""
        return sum(len(shard.response_tokens) for shard in self.shards)

    @property
    def complete(self) -> bool:
        """Whether every row of every rank was recorded."""
        return self.rows == self.total

    @property
    def ragged(self) -> bool:
        """Whether groups may differ in size: ``group_size`` is then what was asked for."""
        return any(shard.groups is not None for shard in self.shards)

    @property
    def whole(self) -> bool:
        """Whether every row was recorded and every prompt has all its trajectories.

        Groups that differ in size have what they have.
        """
        return self.complete and (self.ragged or self.total % self.group_size == 0)

    def count_groups(self) -> tuple[int, int]:
        """Prompts with at least one recorded trajectory, and with all of them.

        Cost is in shards, not rows, where every group has the same size.
        """
        if self.ragged:
            found = Counter(chain.from_iterable(map(self._groups_of, self.shards)))
            return len(found), len(found) if self.complete else 0
        size = self.group_size
        members: dict[int, int] = {}
        inside = 0
        for shard in self.shards:
            first, end = shard.offset, shard.offset + len(shard.response_tokens)
            head, tail = first // size, (end - 1) // size
            inside += max(0, tail - head - 1)
            for group in {head, tail}:
                held = min(end, (group + 1) * size) - max(first, group * size)
                members[group] = members.get(group, 0) + held
        full = sum(held == size for held in members.values())
        return len(members) + inside, full + inside

    def groups(self) -> Iterator[Group]:
        """The prompts of the batch in their order; a group may straddle shards."""
        index, members = 0, list[Trajectory]()
        for shard in self.shards:
            for local, group in enumerate(self._groups_of(shard)):
                if group != index and members:
                    yield self._group(index, members)
                    members = []
                index = group
                members.append(self._trajectory(shard, local, len(members)))
        if members:
            yield self._group(index, members)

    def prompts(self) -> Iterator[tuple[int, str]]:
        """Each group with what names its prompt in every process, where that is known."""
        for shard in self.shards:
            if shard.prompts is not None:
                numbers = dict.fromkeys(self._groups_of(shard))
                yield from zip(numbers, shard.prompts, strict=True)

    def _groups_of(self, shard: BatchShard) -> Iterable[int]:
        if shard.groups is not None:
            return shard.groups
        rows = range(shard.offset, shard.offset + len(shard.response_tokens))
        return (row // self.group_size for row in rows)

    def _group(self, index: int, members: list[Trajectory]) -> Group:
        """A group as large as it should be: of a ragged one that is known in a whole batch only."""
        size = self.group_size
        if self.ragged:
            size = len(members) if self.complete else max(size, len(members) + 1)
        return Group(index, size, tuple(members))

    def _trajectory(self, shard: BatchShard, local: int, sample: int) -> Trajectory:
        row = shard.offset + local
        start_ns, end_ns = shard.start_ns, shard.end_ns
        if shard.times_ns is not None:
            start_ns, end_ns = shard.times_ns[local] or (None, None)
        return Trajectory(
            row=row,
            sample=row % self.group_size if shard.groups is None else sample,
            process=shard.process,
            prompt_tokens=shard.prompt_tokens[local],
            response_tokens=shard.response_tokens[local],
            truncated=None if shard.truncated is None else bool(shard.truncated[local]),
            policy_version=self.policy_version,
            start_ns=start_ns,
            end_ns=end_ns,
            rewards=tuple(
                Reward(
                    column.function,
                    column.values[local],
                    None if column.verify_s is None else column.verify_s[local],
                    column.index,
                )
                for column in shard.rewards
            ),
            turns=shard.turns.get(local, ()),
            tool_calls=shard.tool_calls.get(local, ()),
            loss_runs=None if shard.loss_runs is None else tuple(shard.loss_runs[local]),
            engine=None if shard.engines is None else shard.engines[local],
            policy_versions=None if shard.policy_versions is None else shard.policy_versions[local],
            source=None if shard.sources is None else shard.sources[local],
        )
