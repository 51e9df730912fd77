"""Makes the plan of a workload, and refuses one that leaves open what a replay has to know.

An unknown wait is never none: a replay that left it out would be faster than the recorded run, and
say nothing.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from rlvr_probe.exceptions import SteeringError
from rlvr_probe.model.batch import Batch, BatchShard, Group, Trajectory
from rlvr_probe.model.replay_note import Half
from rlvr_probe.model.workload import ReadWorkload, UntimedDuration, Workload
from rlvr_probe.steering.plan import (
    Plan,
    PlannedBatch,
    PlannedCall,
    PlannedGroup,
    PlannedSample,
    PlannedTool,
    PlannedTurn,
)

__all__ = ["make_plan"]

_T = TypeVar("_T")
_USE_REAL = "; --rewards real takes the reward functions of the command instead"


@dataclass(frozen=True, slots=True)
class _Given:
    """One batch of either kind of workload."""

    batch: Batch
    lasting: Sequence[UntimedDuration] = ()

    @property
    def place(self) -> str:
        return f"step {self.batch.step}"


def make_plan(
    workload: Workload | ReadWorkload,
    *,
    source: str,
    steps: tuple[int, int] | None = None,
    response_cap: int | None = None,
    sleep: bool = True,
    half: Half | None = None,
) -> Plan:
    """The plan of ``workload``.

    Args:
        workload: A recording's, or one that files hold.
        source: What to call it.
        steps: First and last trainer step to take, both included; all.
        response_cap: Longest response allowed, tokens, where the workload does not say.
        sleep: Whether reward functions are planned, too; else those of the command are used.
        half: Of each step to do alone. For training nothing waits, so no wait has to be known.

    Raises:
        SteeringError: Something that a replay needs is unknown, or there is no such step.
    """
    given = _chosen(_batches(workload), steps)
    for taken in given:
        if not taken.batch.whole:
            raise SteeringError(
                f"{taken.place} has {taken.batch.rows} of {taken.batch.total} samples; choose"
                " steps that are whole with --steps"
            )
    cap = _cap(given, response_cap or workload.max_response_tokens)
    waits = half != "training"
    functions = _functions(workload, given, waits=waits) if sleep else ()
    notes = list[str]()
    if drawn := _unknown_values(functions, given):
        notes.append(
            f"values of {', '.join(drawn)} are unknown, so 0 or 1 is drawn for each sample"
        )
    together = any(not name for taken in given for name, *_ in _raw_calls(taken))
    if len(functions) > 1 and together and waits:
        notes.append(
            f"only how long all reward functions took together is known: {functions[0]} takes that"
        )
    if any(taken.batch.queued for taken in given):
        notes.append("recorded with generation beside training; here COMMAND's settings decide")
    if any(taken.batch.unselected for taken in given):
        notes.append("which groups the filter kept is unknown: all are taken as trained on")
    plan = Plan(
        source=source,
        framework=workload.framework,
        batches=tuple(_plan_batch(taken, cap, functions, waits=waits) for taken in given),
        functions=functions,
        group_size=workload.group_size or given[0].batch.group_size,
        cap=cap,
        ranks=workload.accelerators if isinstance(workload, ReadWorkload) else workload.world_size,
        notes=tuple(notes),
        half=half,
    )
    if not isinstance(workload, Workload):
        return plan
    return replace(
        plan,
        steps_per_generation=workload.steps_per_generation,
        iterations=workload.iterations_per_batch,
        accumulation=workload.accumulation,
    )


def _batches(workload: Workload | ReadWorkload) -> list[_Given]:
    if isinstance(workload, Workload):
        return [_Given(taken.batch) for taken in workload.batches]
    return [_Given(read.batch, read.lasting) for read in workload.batches]


def _chosen(given: Sequence[_Given], steps: tuple[int, int] | None) -> list[_Given]:
    first, last = steps or (0, math.inf)
    chosen = [taken for taken in given if first <= taken.batch.step <= last]
    if not chosen:
        known = sorted(taken.batch.step for taken in given)
        has = f"steps {known[0]} to {known[-1]}" if known else "no step"
        raise SteeringError(f"the workload has {has}; expected some of {first} to {last}")
    return chosen


def _cap(given: Sequence[_Given], cap: int | None) -> int:
    """Longest response allowed. Where nothing says it, what was cut shows it."""
    shards = [shard for taken in given for shard in taken.batch.shards]
    longest = max(max(shard.response_tokens, default=0) for shard in shards)
    if cap is None and any(shard.truncated is None for shard in shards):
        raise SteeringError(
            "the workload does not say which samples ended by themselves and which were cut, nor"
            " the longest response allowed; give that with --response-length TOKENS"
        )
    if cap is not None and longest > cap:
        raise SteeringError(f"a response has {longest:,} tokens, expected at most {cap:,}")
    return longest if cap is None else cap


# ---------------------------------------------------------------- rewards


def _functions(
    workload: Workload | ReadWorkload, given: Sequence[_Given], *, waits: bool
) -> tuple[str, ...]:
    """Names of the reward functions, in the order of the trainer."""
    stated = workload.reward_functions if isinstance(workload, Workload) else ()
    by_index = {
        column.index: column.function
        for taken in given
        for shard in taken.batch.shards
        for column in shard.rewards
    }
    names = [*stated] or [by_index[index] for index in sorted(by_index)]
    called = dict.fromkeys(name for taken in given for name, *_ in _raw_calls(taken))
    names += [name for name in called if name and name not in names]
    if not names and (called or not waits):
        return ("reward",)
    if not names:
        raise SteeringError(f"how long reward functions took is unknown{_USE_REAL}")
    return tuple(names)


def _unknown_values(functions: Sequence[str], given: Sequence[_Given]) -> list[str]:
    """Functions of which the values of some samples are unknown."""
    known = [_columns(shard, functions) for taken in given for shard in taken.batch.shards]
    return [
        name for index, name in enumerate(functions) if not all(columns[index] for columns in known)
    ]


_RawCall = tuple[str, int, "float | None", "float | None", "int | None"]
"""Function, share, seconds, start after the rollout, row in the batch.

Without a name it is about all functions together."""


def _raw_calls(taken: _Given) -> Iterator[_RawCall]:
    """Calls of reward functions as recorded."""
    for at, own in enumerate(taken.batch.shards):
        for call in own.calls:
            end_ns = own.end_ns
            start_s = None if end_ns is None else (call.start_ns - end_ns) / 1e9
            row = None if call.row is None else own.offset + call.row
            yield call.function, at, (call.end_ns - call.start_ns) / 1e9, start_s, row
        for lasted in taken.lasting:
            if lasted.what == "reward_call" and lasted.process == own.process:
                yield lasted.name or "", at, lasted.seconds, None, None


def _calls(taken: _Given, functions: Sequence[str]) -> Iterator[PlannedCall]:
    places = defaultdict[str, list[int]](list)
    for index, name in enumerate(functions):
        places[name].append(index)
    seen, waits = Counter[tuple[str, int]](), set[tuple[int, int]]()
    for name, share, seconds, start_s, row in _raw_calls(taken):
        # Of two functions of one name, each is called once for a share, in their order.
        own = places[name] if name else [0]
        function = own[seen[name, share] % len(own)] if row is None else own[0]
        seen[name, share] += 1
        if seconds is None:
            raise _unknown_wait([name or functions[0]], taken)
        waits |= {(function, share)} if name else {(at, share) for at in range(len(functions))}
        yield PlannedCall(function, share, seconds, start_s, row)
    for share, shard in enumerate(taken.batch.shards):
        missing = [name for at, name in enumerate(functions) if (at, share) not in waits]
        if missing and shard.response_tokens:
            raise _unknown_wait(missing, taken)


def _unknown_wait(functions: Sequence[str], taken: _Given) -> SteeringError:
    return SteeringError(
        f"how long {', '.join(functions)} took in {taken.place} is unknown, and is not taken for 0"
        f"{_USE_REAL}"
    )


# ---------------------------------------------------------------- samples


def _plan_batch(taken: _Given, cap: int, functions: Sequence[str], *, waits: bool) -> PlannedBatch:
    batch = taken.batch
    tools = _untimed_tools(taken)
    columns = [_columns(shard, functions) for shard in batch.shards]
    share_of_row = [at for at, shard in enumerate(batch.shards) for _ in shard.response_tokens]
    groups = list[PlannedGroup]()
    starts = [_start_ns(group) for group in batch.groups()]
    first_ns = min((start for start in starts if start is not None), default=0)
    for group, start_ns in zip(batch.groups(), starts, strict=True):
        prompts = {own.prompt_tokens for own in group.trajectories}
        if len(prompts) != 1 or not min(prompts):
            raise SteeringError(
                f"{taken.place} has prompts of {sorted(prompts)} tokens in group {group.index};"
                " expected one prompt of at least 1 token"
            )
        samples = tuple(
            _plan_sample(taken, own, cap, functions, columns[share_of_row[own.row]], tools)
            for own in group.trajectories
        )
        if not waits:
            samples = tuple(replace(own, tools=()) for own in samples)
        trained = batch.used is None or group.index in batch.used
        start_s = None if start_ns is None else (start_ns - first_ns) / 1e9
        groups.append(PlannedGroup(prompts.pop(), samples, trained, start_s))
    calls = tuple(_calls(taken, functions)) if functions and waits else ()
    return PlannedBatch(batch.step, tuple(groups), calls, len(batch.shards))


def _start_ns(group: Group) -> int | None:
    known = [own.start_ns for own in group.trajectories if own.start_ns is not None]
    return min(known, default=None)


def _columns(shard: BatchShard, functions: Sequence[str]) -> list[bool]:
    """Of which functions the values are known."""
    known = {column.index for column in shard.rewards}
    return [index in known for index in range(len(functions))]


def _plan_sample(
    taken: _Given, own: Trajectory, cap: int, functions: Sequence[str], known: Sequence[bool],
    tools: Mapping[int, Sequence[PlannedTool]],
) -> PlannedSample:  # fmt: skip
    where = f"row {own.row} of {taken.place}"
    if own.response_tokens < 1:
        raise SteeringError(f"{where} has a response of no tokens; expected at least 1")
    cut = own.response_tokens == cap if own.truncated is None else own.truncated
    values = {reward.index: reward.value for reward in own.rewards}
    draw = random.Random(where)
    rewards = tuple(
        _number(values.get(index)) if known[index] else float(draw.randrange(2))
        for index in range(len(functions))
    )
    called = tools.get(own.row) or [
        PlannedTool(_known(call.turn, where, "the turn of a tool call"), call.latency_s)
        for call in own.tool_calls
    ]
    turns = tuple(
        PlannedTurn(
            _known(turn.prompt_tokens, where, "the prompt of a turn"),
            _known(turn.response_tokens, where, "the response of a turn"),
        )
        for turn in (own.turns if called or len(own.turns) > 1 else ())
    )
    if called and not turns:
        raise SteeringError(f"{where} calls tools, and its turns are unknown")
    return PlannedSample(own.response_tokens, cut, rewards, turns, tuple(called))


def _untimed_tools(taken: _Given) -> dict[int, list[PlannedTool]]:
    """Tool calls that files hold with their durations alone, by row."""
    tools = defaultdict[int, list[PlannedTool]](list)
    for lasted in taken.lasting:
        if lasted.what == "tool_call" and lasted.row is not None:
            where = f"row {lasted.row} of {taken.place}"
            turn = _known(lasted.turn, where, "the turn of a tool call")
            seconds = _known(lasted.seconds, where, "how long a tool call took")
            tools[lasted.row].append(PlannedTool(turn, seconds))
    return tools


def _known(value: _T | None, where: str, what: str) -> _T:
    if value is None:
        raise SteeringError(f"{what} is unknown in {where}, and is not taken for 0")
    return value


def _number(value: float | None) -> float | None:
    """What a reward function may give; NaN, which stands for infinity too, counts as none."""
    return None if value is None or math.isnan(value) else value
