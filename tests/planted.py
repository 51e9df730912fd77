"""A sleep planted into a real training, and whether the analysis names it first, with its seconds.

The training keeps the book of its sleeps itself (``tests/asleep/planted_sleep.py``), with nothing
of the probe involved. The truth is what it would have saved not to sleep: the wall time in which
somebody slept, times the GPUs that wait for it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final, Literal

from rlvr_probe.analysis.causes import Cause
from rlvr_probe.analysis.characterization import Characterization, characterize
from rlvr_probe.recording.tables import open_tables

__all__ = [
    "ASLEEP",
    "Kind",
    "Planted",
    "Slept",
    "characterized",
    "disturbed",
    "mistakes",
    "read_books",
    "saved_by_ranks_s",
    "saved_s",
    "slept_together",
]

ASLEEP: Final = Path(__file__).with_name("asleep")
"""What a training needs in its ``PYTHONPATH`` to sleep."""

_DISTURBANCE: Final = Path(__file__).with_name("disturbance.py")
_LAST_LINE_S: Final = 10.0
"""How long a disturbance has to end by itself once the training has."""

Kind = Literal[
    "reward",
    "rank",
    "tool",
    "data",
    "callback",
    "on_save",
    "checkpoint",
    "evaluation",
    "rollout",
    "dispatch",
    "update",
    "straggler",
    "host",
]
"""What sleeps, or is slow: what of a training, or between its steps, or all of its process."""

_NAMED: Final[Mapping[Kind, tuple[str, tuple[str, ...]]]] = {
    "reward": ("function", ("slow_reward", "serial_reward")),
    "rank": ("rank", ("slow_rank",)),
    "tool": ("tool", ("slow_tool",)),
    "data": ("", ("slow_data",)),
    "callback": ("", ("slow_between_steps",)),
    "on_save": ("", ("slow_checkpoint", "slow_between_steps")),
    "checkpoint": ("", ("slow_checkpoint",)),
    "evaluation": ("", ("slow_evaluation", "slow_reward")),
    "rollout": ("", ("slow_rollout",)),
    "dispatch": ("", ("slow_dispatch",)),
    "update": ("", ("slow_update",)),
    "straggler": ("", ("straggler", "slow_rollout")),
    "host": ("", ("slow_host", "slow_rollout", "slow_update")),
}
"""By what sleeps: how its place is told, if it is, and the kinds of causes that are right."""

_TOLERANCE: Final = 0.1
"""Of the truth, that the cost of a cause may be off by."""

_WIDE: Final = 0.3
"""Of the truth, that half of an interval may be wide: the truth may then be anywhere in it."""

_STEP: Final = re.compile(r"step (\d+):")


@dataclass(frozen=True)
class Planted:
    """A sleep.

    Attributes:
        kind: What sleeps.
        place: Name of the function, method or tool, or number of the rank.
        seconds: How long; 0 for what is slow without sleeping.
        steps: In which steps; empty for all.
        per: What it sleeps so long for: each call, each step until then, or each second of work.
    """

    kind: Kind
    place: str | int
    seconds: float
    steps: tuple[int, ...] = ()
    per: Literal["call", "step", "second"] = "call"

    def variables(self, books: Path | str) -> dict[str, str]:
        """What a training is told it by; it keeps its book in the folder ``books``."""
        return {
            "PLANTED_KIND": self.kind,
            "PLANTED_PLACE": str(self.place),
            "PLANTED_S": str(self.seconds),
            "PLANTED_PER": self.per,
            "PLANTED_STEPS": ",".join(map(str, self.steps)),
            "PLANTED_BOOKS": str(books),
        }


@dataclass(frozen=True)
class Slept:
    """What a training wrote of its sleeps.

    Attributes:
        calls: How many there were.
        wall_s: Wall time in which somebody slept, s: what two slept at the same time counts once.
        steps: Numbers of the steps in which somebody did; empty where the training does not know.
    """

    calls: int
    wall_s: float
    steps: frozenset[int]


@contextmanager
def disturbed(planted: Planted | None, steps: Path, books: Path) -> Iterator[None]:
    """Disturbs a training from outside meanwhile, if that is what is planted.

    Args:
        planted: What is.
        steps: Folder where the training says when its steps begin.
        books: Folder for the book of the disturbance.
    """
    if planted is None or planted.kind != "host":
        yield
        return
    command = [sys.executable, str(_DISTURBANCE), str(steps)]
    environment = os.environ | {"PYTHONPATH": str(ASLEEP)} | planted.variables(books)
    with subprocess.Popen(command, env=environment) as process:
        try:
            yield
            with suppress(subprocess.TimeoutExpired):  # it has the last of its book to write
                process.wait(_LAST_LINE_S)
        finally:
            process.terminate()


def read_books(books: Path) -> Slept:
    """Those of all processes together."""
    texts = (path.read_text().splitlines() for path in sorted(books.glob("slept-*.jsonl")))
    lines = sorted(map(json.loads, chain(*texts)), key=lambda line: line["begin_ns"])
    wall_ns, until_ns = 0, 0
    for line in lines:
        wall_ns += max(0, line["end_ns"] - max(line["begin_ns"], until_ns))
        until_ns = max(until_ns, line["end_ns"])
    steps = frozenset(line["step"] for line in lines if line["step"] is not None)
    return Slept(len(lines), wall_ns / 1e9, steps)


def saved_s(calls: Sequence[Mapping[str, int]], together: int, seconds: float) -> float:
    """Wall time that steps would have saved whose calls do not wait for one another, s.

    Args:
        calls: All of them, ``start`` and ``end``, ns; those that slept lasted ``seconds`` at least.
        together: Calls of a step. It goes on when the last of them has ended.
        seconds: How long a call slept.
    """
    slept_ns = round(seconds * 1e9)
    found_ns = 0
    calls = sorted(calls, key=lambda call: call["start"])
    for first in range(0, len(calls), together):
        step = [(call["start"], call["end"]) for call in calls[first : first + together]]
        awake = (end - slept_ns if end - start >= slept_ns else end for start, end in step)
        found_ns += max(end for _, end in step) - max(awake)
    return found_ns / 1e9


def saved_by_ranks_s(calls: Sequence[Mapping[str, int]]) -> float:
    """Wall time that steps would have saved in which all ranks wait for the last of them, s.

    Less than what was slept where another rank is the last without the sleep, as it is by chance on
    a machine with less processors than ranks.

    Args:
        calls: Those of all ranks: the number ``call``, when its work was done (``worked``) and
            what it slept behind that (``end``), ns.
    """
    steps = dict[int, list[Mapping[str, int]]]()
    for one in calls:
        steps.setdefault(one["call"], []).append(one)
    last = (
        (max(one["end"] for one in step), max(one["worked"] for one in step))
        for step in steps.values()
    )
    return sum(end - worked for end, worked in last) / 1e9


def slept_together(
    slept: Slept,
    planted: Planted | None,
    rewards: Sequence[Mapping[str, int]],
    together: int,
    steps: int,
) -> Slept:
    """What would have been saved where trajectories go their own way, and wait at a step's end.

    Tools of all trajectories of a step sleep at the same time, and each a little later than
    another: the step would be shorter by what one of them sleeps. Of the reward function, one call
    of each step sleeps.

    Args:
        slept: What was written of the sleeps.
        planted: What slept; None if nothing.
        rewards: All verifications, as for :func:`saved_s`.
        together: Trajectories of a step.
        steps: How many there were.
    """
    if planted is None or planted.kind == "rank":
        return slept
    if planted.kind == "tool":
        assert slept.calls % together == 0
        return replace(slept, wall_s=slept.calls // together * planted.seconds)
    assert slept.calls == steps
    return replace(slept, wall_s=saved_s(rewards, together, planted.seconds))


def characterized(recording: Path) -> Characterization:
    """What is said of a recording."""
    with open_tables(recording, threads=1) as tables:
        return characterize(tables)


def mistakes(
    causes: Sequence[Cause], planted: Planted | None, slept: Slept, gpus: int
) -> list[str]:
    """What is wrong with the causes of a training in which nothing else is amiss; empty if nothing.

    Args:
        causes: As they are ranked.
        planted: What sleeps; None of a sound training, of which nothing is to be named.
        slept: Its book.
        gpus: How many wait while it sleeps: the ranks of the training, on a machine without GPUs.
    """
    if planted is None:
        return [f"nothing sleeps, and {cause.title}" for cause in causes if _is_amiss(cause)]
    if not slept.calls:
        return ["nothing slept"]
    if not causes:
        return ["nothing is named"]
    first, *others = causes
    name, kinds = _NAMED[planted.kind]
    true_s = gpus * slept.wall_s
    found = [f"{cause.title}, too" for cause in others if _is_amiss(cause)]
    if first.kind not in kinds or (name and first.where.get(name) != planted.place):
        found.append(f"{planted.kind} {planted.place} sleeps, and {first.title} ({first.kind})")
    if not _is_near(first, true_s):
        found.append(f"{true_s:.2f} GPU-s were slept, and {first.title} costs {first.gpu_s:.2f}")
    if slept.steps:
        worst = [int(step) for one in first.worst for step in _STEP.findall(one)]
        if not worst or not slept.steps.issuperset(worst):
            found.append(f"steps {sorted(slept.steps)} slept, and the worst are {worst}")
    return found


def _is_amiss(cause: Cause) -> bool:
    """Whether a cause says that something is wrong with a training.

    How long it takes to start workers in its first step, between stages, is up to the machine: more
    than a minute on a busy one.
    """
    starts = cause.kind == "warm_up" and cause.where.get("stage") == "between_steps"
    return not cause.natural and not starts


def _is_near(cause: Cause, true_s: float) -> bool:
    """Whether a cost is the true one: to a tenth, or as sure as it says of itself."""
    if abs(cause.gpu_s - true_s) <= _TOLERANCE * true_s:
        return True
    if cause.low is None or cause.high is None:
        return False
    return cause.high - cause.low <= 2 * _WIDE * true_s and cause.low <= true_s <= cause.high
