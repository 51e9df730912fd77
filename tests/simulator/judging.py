"""Judges what an analysis named first, by the truth of a simulated run.

A fault is *clear* if it saves at least :data:`NOISE` of the GPU time of its run, and if no run
without it could look the same (:func:`told_apart`). The first cause of a run is right if it is the
clear fault that saves most, in its place; or a planted fault that is not clear, and saves more than
any clear one. Without a clear fault silence is right as well. Clocks that differ cost nothing: they
have to be named, wherever in the list.

A fault with a course (:mod:`tests.simulator.courses`) is compared with the steps that it is not in.
In every step alike it is clear only if it saves at least :data:`ALIKE`; a first step may warm up
for :data:`WARM_UP_S`. Where nothing else ran on a machine, what is slow there may be named instead.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tests.simulator.scenarios import KINDS
from tests.simulator.truth import Truth

__all__ = ["ALIKE", "NOISE", "WARM_UP_S", "Named", "Score", "Verdict", "judge", "told_apart"]

NOISE: Final = 0.01
"""Share of the GPU time of a run that a fault has to save, to be missed."""

ALIKE: Final = 0.1
"""The same of a fault that is in every step alike, where nothing in the run compares with it."""

WARM_UP_S: Final = 60.0
"""Seconds that a first step takes longer in sound runs as well: compilation, caches."""

Named = tuple[str, Mapping[str, Any], float]
"""Kind and place of a cause, as an analysis names them, and what it costs, GPU-seconds. A place may
have ``steps``, the numbers of all in which it is."""

Outcome = Literal["right", "silent", "missed", "wrong", "false alarm"]
"""``silent`` is right too; ``wrong``: something else is named before what costs most; ``false
alarm``: something is named that was not planted, where nothing is clear."""

_TOOLS: Final = 2.0 / 0.3
"""Latency of the slowest tool by that of the fastest, as runs without a fault are drawn."""

_CHECKPOINT: Final = 0.5
"""Time of moving weights by that of a checkpoint, at most, in runs without a fault."""

# What two in a thousand runs without the fault show, or less: the truth of those among seeds 0 to
# 499, continued by an exponential tail from their largest fifth (occupancy: a normal one).

_SLOWER: Final = 0.035
"""Logarithm of how much longer the slowest rank takes than the median one."""

_MOVING: Final = {"trl": 0.2, "verl": 0.2, "async": 0.24}
"""Share of GPU time that weights take to move, by shape; at most 0.084 and 0.19 were seen, and 0.13
in a sound job of OpenRLHF."""

_STARVED: Final = 0.07
"""Share of wall time that a trainer waits for its queue after its first step; 0.071 were seen, of
298 runs of the wider scenarios."""

_OCCUPANCY: Final = 0.344
"""Occupancy of an asynchronous run, at least; 0.376 were seen."""

_ALONE: Final = 0.165
"""Share of GPU time that a single trajectory costs; that much was seen."""


@dataclass(frozen=True)
class Verdict:
    """What is said of one run.

    Attributes:
        expected: Kind of the clear fault that saves most; empty if none is clear.
        planted: Kinds of all faults, the one that saves most first.
        named: Kind that was named first; empty for silence.
        largest: Kind of the fault that saves most, clear or not; empty if that is below noise.
        found: Whether that one was named first.
        size: What was said that the fault named first costs, by what it does; None if none is.
    """

    seed: int
    shape: str
    outcome: Outcome
    expected: str
    planted: tuple[str, ...]
    named: str
    largest: str = ""
    found: bool = False
    size: float | None = None

    @property
    def right(self) -> bool:
        """Whether the first cause, or silence, is right."""
        return self.outcome in ("right", "silent")


def told_apart(truth: Truth, fault: Mapping[str, Any]) -> bool:
    """Whether no run without the fault could have left the same recording.

    Where an analysis has nothing to compare with, what a fault changes has to leave the range that
    runs without it are drawn from, or what they show.
    """
    scenario, kind, size = truth.scenario, fault["kind"], fault["size"]
    total = truth.gpus * (truth.end_ns - truth.begin_ns)
    if kind == "warm_up":
        return bool(fault["saved_gpu_ns"] >= truth.gpus * WARM_UP_S * 1e9)
    if "form" in fault:
        return bool(fault["form"] != "each" or fault["saved_gpu_ns"] >= ALIKE * total)
    if kind == "slow_rank":
        return math.log1p(size) > _SLOWER
    if kind == "starving_trainer":
        waits = (one for one in truth.waits if one["step"] > 1 and "group" in one)
        waited = sum(one["gpu_ns"] for one in waits) / scenario["ranks"]
        return bool(waited > _STARVED * (truth.end_ns - truth.begin_ns))
    if kind == "slow_tool":
        tools = list(scenario["lengths"]["tool_s"])
        mine = tools.pop(fault["source"]) * (1 + size)
        return bool(mine > _TOOLS * min(tools))
    if kind == "slow_weight_sync":
        if scenario["checkpoint_every"]:
            costs = scenario["costs"]
            return bool(costs["sync_s"] * (1 + size) > _CHECKPOINT * costs["checkpoint_s"])
        return truth.ledger_ns["work.weight_sync"] > _MOVING[truth.shape] * total
    if kind == "waiting_rollout":
        return truth.occupancy < _OCCUPANCY
    if kind == "straggler":
        return bool(fault["saved_gpu_ns"] > _ALONE * total)
    return True


def judge(truth: Truth, named: Sequence[Named]) -> Verdict:
    """What an analysis named, the most expensive first, beside the truth.

    Args:
        truth: Of the run.
        named: Without what the analysis says belongs to the workload.
    """
    faults = sorted(truth.faults, key=lambda one: -one["saved_gpu_ns"])
    total = truth.gpus * (truth.end_ns - truth.begin_ns)
    clear = [
        one for one in faults if one["saved_gpu_ns"] >= NOISE * total and told_apart(truth, one)
    ]
    first = named[0] if named else None
    large = [one for one in faults[:1] if one["saved_gpu_ns"] >= NOISE * total]
    outcome: Outcome
    size = None
    if first is None:
        outcome = "missed" if clear else "silent"
    else:
        found = next((one for one in faults if _is(truth, one, first)), None)
        if found is None:
            outcome = "wrong" if clear else "false alarm"
        elif clear and clear[0]["saved_gpu_ns"] > found["saved_gpu_ns"]:
            outcome = "wrong"
        else:
            outcome = "right"
            if found["saved_gpu_ns"] >= NOISE * total:
                size = first[2] * 1e9 / found["saved_gpu_ns"]
    kinds = tuple(one["kind"] for one in faults)
    if "clock_skew" in kinds and "clock_skew" not in (one[0] for one in named):
        outcome = "missed"
    expected = clear[0]["kind"] if clear else ""
    return Verdict(
        truth.seed, truth.shape, outcome, expected, kinds,
        named="" if first is None else first[0],
        largest=large[0]["kind"] if large else "",
        found=first is not None and any(_is(truth, one, first) for one in large),
        size=size,
    )  # fmt: skip


def _is(truth: Truth, fault: Mapping[str, Any], cause: Named) -> bool:
    """Whether a cause is that fault, in its place."""
    kind, where, _ = cause
    scenario = truth.scenario
    if fault["kind"] == "slow_host" and kind == "slow_rollout":
        # Of the engine alone: the machines of those that train are the first.
        return truth.shape == "async" and fault["gpus"][0] >= scenario["ranks"]
    if kind != fault["kind"]:
        return False
    match kind:
        case "slow_rank":
            return where.get("rank") == fault["rank"]
        case "thermal_throttling":
            return where.get("rank") == fault["gpu"]
        case "slow_tool":
            return where.get("tool") == f"{scenario['sources'][fault['source']]}_tool"
        case "straggler" if "places" in fault and "steps" in where:
            steps = set(where["steps"])
            common = len(steps.intersection(fault["steps"]))
            return 2 * common >= max(len(steps), len(fault["steps"]))
        case "straggler" if "places" in fault:
            return any(_there(truth, where, *place) for place in fault["places"])
        case "straggler":
            place = fault["step"], fault["group_number"], fault["sample"]
            # Of stragglers of several steps no trajectory is told.
            return "sample" in where and _there(truth, where, *place)
        case "slow_reward":
            return where.get("function") == f"{scenario['sources'][fault['source']]}_reward"
        case "slow_host":
            host = f"node-{fault['node'] + 1}"
            return where.get("host", host) == host
    return True


def _there(truth: Truth, where: Mapping[str, Any], step: int, number: int, sample: int) -> bool:
    """Whether a place is that of a trajectory, as far as it is told."""
    found = {"step": step, "sample": sample}
    if "group" in where:
        batch = int(where.get("batch", 0)) * truth.scenario["generated"]
        found["group"] = number - batch
    return all(where.get(name, value) == value for name, value in found.items())


class Score:
    """Verdicts of many runs."""

    def __init__(self, verdicts: Iterable[Verdict]) -> None:
        self.verdicts = sorted(verdicts, key=lambda one: one.seed)

    @property
    def right(self) -> float:
        """Share of the runs of which the first cause, or silence, is right."""
        return _share(one.right for one in self.verdicts)

    @property
    def false_alarms(self) -> float:
        """Share of the runs without a clear fault in which something is named that is not there."""
        return _share(one.outcome == "false alarm" for one in self.verdicts if not one.expected)

    @property
    def false_alarms_clean(self) -> float:
        """The same of the runs without any fault."""
        return _share(one.outcome == "false alarm" for one in self.verdicts if not one.planted)

    def by_kind(self) -> dict[str, tuple[int, int]]:
        """By kind of the fault that has to be named, right ones and all of its runs.

        A run without one counts for the fault that was planted and saves most; clocks that differ
        count wherever they do.
        """
        found: dict[str, tuple[int, int]] = dict.fromkeys(KINDS, (0, 0))
        for one in self.verdicts:
            kinds = {one.expected or next(iter(one.planted), "clean")}
            kinds |= {"clock_skew"} & set(one.planted)
            for kind in kinds:
                right, count = found.get(kind, (0, 0))
                found[kind] = right + one.right, count + 1
        return found

    def clear(self) -> dict[str, tuple[int, int]]:
        """By kind, of runs with a clear fault only: right ones and all."""
        return _tally((one.expected, one.right) for one in self.verdicts)

    def precision(self) -> dict[str, tuple[int, int]]:
        """By kind that was named first: right ones and all."""
        return _tally((one.named, one.right) for one in self.verdicts)

    def found(self) -> dict[str, tuple[int, int]]:
        """By kind of the fault that saves most, whether it can be told apart or not: those that
        were named first, and all."""
        return _tally((one.largest, one.found) for one in self.verdicts)

    def sizes(self) -> dict[str, list[float]]:
        """By kind that was rightly named first, sorted: the cost that was said by the true one."""
        found = defaultdict[str, list[float]](list)
        for one in self.verdicts:
            if one.size is not None:
                found[one.named].append(one.size)
        return {kind: sorted(sizes) for kind, sizes in found.items()}

    def confusion(self) -> Counter[tuple[str, str]]:
        """How often what was to be named, or planted, was named as what."""
        return Counter(
            (one.expected or f"({next(iter(one.planted), 'clean')})", one.named or "-")
            for one in self.verdicts
        )

    def told(self) -> str:
        """All of it as text, with the seeds of what was not right."""
        lines = [
            f"{len(self.verdicts)} runs: {self.right:.1%} right; false alarms"
            f" {self.false_alarms:.1%} of the runs without a clear fault,"
            f" {self.false_alarms_clean:.1%} of those without any"
        ]
        clear, precise, found = self.clear(), self.precision(), self.found()
        sizes = self.sizes()
        for kind, (right, count) in self.by_kind().items():
            lines.append(
                f"  {kind:20} {right:4} of {count:4} right; clear {_of(clear.get(kind))};"
                f" of all above noise {_of(found.get(kind))}; named first"
                f" {_of(precise.get(kind))}; said by true cost {_spread(sizes.get(kind))}"
            )
        lines += [
            f"  seed {one.seed} ({one.shape}): {one.outcome}; to be named"
            f" {one.expected or 'nothing'}, planted {', '.join(one.planted) or 'nothing'},"
            f" named {one.named or 'nothing'}"
            for one in self.verdicts
            if not one.right
        ]
        return "\n".join(lines)


def _tally(told: Iterable[tuple[str, bool]]) -> dict[str, tuple[int, int]]:
    """By kind: so many are, of all of it; no kind is not counted."""
    found = defaultdict[str, tuple[int, int]](lambda: (0, 0))
    for kind, good in told:
        if kind:
            so, count = found[kind]
            found[kind] = so + good, count + 1
    return dict(found)


def _of(pair: tuple[int, int] | None) -> str:
    return "-" if pair is None else f"{pair[0]} of {pair[1]}"


def _spread(sizes: Sequence[float] | None) -> str:
    """Median of sorted numbers, and what eight of ten lie between."""
    if not sizes:
        return "-"
    tenth = len(sizes) // 10
    return f"{sizes[len(sizes) // 2]:.2f} ({sizes[tenth]:.2f} to {sizes[-1 - tenth]:.2f})"


def _share(found: Iterable[bool]) -> float:
    told = list(found)
    return sum(told) / len(told) if told else 0.0
