"""A rank that is slower than its peers, whatever it does; and why, if its GPU tells.

How much longer a rank takes is the median, over the stages of all steps, of the logarithm of its
time by that of the median rank. Where the tokens of a rank are known, its time is first divided by
what a straight line through all ranks and steps gives for as many tokens. A rank that only has more
tokens is as fast as others where nothing depends on tokens (moving weights, checkpoints): the lower
of both counts.

What it costs is replayed: its own time is divided by that factor, and the longest rank of each lap
is looked for again. A stage whose ranks end together is taken to be shared among them as their
log-probabilities are.

A rank may also be longer than its peers in one part of every step, and not in others: a stage, its
generation, its tools or its reward functions. Samples of a rank may be longer by chance in some
steps; a rank that is late in nearly all of them has a reason of its own. What it generates longer
because it has more tokens, or the longest response, is taken off first. The replay gives it the
mean of its peers in that part.

What ranks end together, because a collective makes them, ends at the same time on every machine:
how far apart it is on their clocks shows in every step again, and about so in the start and end of
all else that they do. What machines do together shows it as well, as calls between them do: there
the reading of the recording has corrected it already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from rlvr_probe.analysis.causes.builder import Run
from rlvr_probe.analysis.causes.cause import Cause, Saving
from rlvr_probe.analysis.causes.texts import placed, seconds, times
from rlvr_probe.analysis.causes.thresholds import (
    CLOCKS_APART_S,
    HOT_MIN,
    HOT_NOISE,
    SLOW_IN_EACH,
    SLOW_IN_EACH_STEPS,
    SLOW_MIN,
    SLOW_MIN_OF_TWO,
    SLOW_SIGMAS,
    STAGE_MIN,
    STAGE_SURE,
    STAGE_USUAL,
)
from rlvr_probe.analysis.results import Answer, Evidence
from rlvr_probe.analysis.statements import statements

__all__ = ["clock_skew", "late_ranks", "slow_ranks"]

_SQL: Final = statements(__name__)

_TRIED: Final = 3
"""Slowest ranks that are replayed."""

_ENOUGH: Final = 3
"""Laps in which a rank was not hot, from which it is known how fast it is then."""


@dataclass(frozen=True, slots=True)
class _Pace:
    """A rank, while it was hot or while it was not.

    Attributes:
        team: Its group, where several have methods of one name; else empty.
        ranks: How many it is one of.
        slower: Logarithm of how much longer it took.
        sigmas: That, in standard errors.
        in_all: No stage says that it is not slow there.
    """

    process: int
    rank: int | None
    team: str
    ranks: int
    hot: bool
    laps: int
    slower: float
    sigmas: float
    in_all: bool
    steps: Sequence[int]


def slow_ranks(run: Run) -> list[Cause]:
    """Ranks that make others wait because they are slow, and GPUs that are because they are hot."""
    paces = _paces(run)
    cold = {one.process: one for one in paces if not one.hot and one.laps >= _ENOUGH}
    found = list[Cause]()
    for one in sorted(paces, key=lambda pace: -pace.slower)[:_TRIED]:
        before = cold.get(one.process) if one.hot else None
        # A rank that is slow when it is cold as well is slow for another reason.
        slower = one.slower - max(0.0, before.slower) if before else one.slower
        least = SLOW_MIN if one.ranks > 2 else SLOW_MIN_OF_TWO
        if one.hot and slower >= HOT_MIN:
            found += _thermal(run, one, slower)
        elif not one.hot and slower >= least and one.sigmas >= SLOW_SIGMAS and one.in_all:
            found += _slow(run, one, [*one.steps, *_hot_steps(paces, one.process)])
    return found


def _paces(run: Run) -> list[_Pace]:
    rows = run.ask(_SQL["paces"], sigmas=SLOW_SIGMAS, often=SLOW_IN_EACH_STEPS).dicts
    # Ranks of another attempt, or of another group, are no peers.
    peers: dict[tuple[int | None, str], dict[int, float]] = {}
    for row in rows:
        normal = peers.setdefault((row["attempt"], row["team"]), {})
        if not row["hot"]:
            normal[row["process"]] = row["slower"]
    found = list[_Pace]()
    for row in rows:
        normal = peers[row["attempt"], row["team"]]
        # Of two ranks each is told by the other one already.
        usual = median(normal.values()) if len(normal) > 2 else 0.0
        others = [one - usual for process, one in normal.items() if process != row["process"]]
        # One peer alone has no spread.
        several = len(others) > 1
        spread = math.sqrt(sum(one**2 for one in others) / len(others)) if several else 0.0
        error = (row["spread"] or 0.0) / math.sqrt(row["laps"])
        slower = row["slower"] - usual
        sigmas = slower / (math.hypot(spread, error) or 1e-9)
        if not several and row["spread"] is None:
            sigmas = 0.0  # one time of either rank: nothing tells how much they differ by chance
        laps, steps, team, ranks = row["laps"], sorted(row["steps"]), row["team"], row["ranks"]
        in_all = row["surely"] is None or row["surely"] - usual >= SLOW_IN_EACH * slower
        one = _Pace(
            row["process"], row["rank"], team, ranks, row["hot"], laps, slower, sigmas, in_all,
            steps,
        )  # fmt: skip
        found.append(one)
    return found


def _hot_steps(paces: Sequence[_Pace], process: int) -> Sequence[int]:
    return [step for one in paces if one.hot and one.process == process for step in one.steps]


def _slow(run: Run, one: _Pace, steps: Sequence[int]) -> list[Cause]:
    saving, answer = _replay(run, one, one.slower, steps)
    if run.is_noise(saving):
        return []
    name, where = placed(one.rank, one.team, one.process)
    title = f"{name} took {times(math.exp(one.slower))} as long as its peers"
    evidence = {"process": Evidence.of([one.process])}
    return [run.cause("slow_rank", saving, title, answer, where=where, evidence=evidence)]


def _thermal(run: Run, one: _Pace, slower: float) -> list[Cause]:
    saving, answer = _replay(run, one, slower, one.steps)
    if run.share(saving) < HOT_NOISE:
        return []
    devices = run.ask(_SQL["device"], process=one.process, steps=list(one.steps)).dicts
    told = ""
    if devices and devices[0]["clock_hz"] is not None:
        told = f" ({devices[0]['clock_hz'] / 1e9:.2f} GHz"
        celsius = devices[0]["celsius"]
        told += f", {celsius:.0f} degrees)" if celsius is not None else ")"
    first = run.numbers.get(one.steps[0], one.steps[0])
    name, where = placed(one.rank, one.team, one.process)
    title = (
        f"the GPU of {name} was held down by temperature{told} from step {first} on and"
        f" took {times(math.exp(slower))} as long as its peers"
    )
    evidence = {
        "process": Evidence.of([one.process]),
        "device": Evidence.of([row["device"] for row in devices]),
    }
    if devices:
        where["device"] = devices[0]["uuid"]
    return [run.cause("thermal_throttling", saving, title, answer, where=where, evidence=evidence)]


def _replay(run: Run, one: _Pace, slower: float, steps: Sequence[int]) -> tuple[Saving, Answer]:
    answer = run.ask(
        _SQL["replay"], process=one.process, factor=math.exp(slower), steps=sorted(steps)
    )
    return Saving.of(answer.rows), answer


_FEW: Final = 5
"""Steps from which on "nearly all" means something."""


def late_ranks(run: Run) -> list[Cause]:
    """Ranks that make others wait in one part of the steps."""
    rows = run.ask(
        _SQL["late"], few=_FEW, least=STAGE_MIN, often=STAGE_USUAL, sure=STAGE_SURE
    ).dicts
    found = list[Cause]()
    for row in rows:
        answer = run.ask(_SQL["replay_part"], process=row["process"], stage=row["stage"])
        saving = Saving.of(answer.rows)
        if run.is_noise(saving):
            continue
        name, place = placed(row["rank"], row["team"], row["process"])
        title = f"{name} is {seconds(row['ns'])} a step later than its peers in {row['stage']}"
        evidence = {"process": Evidence.of([row["process"]])}
        place["stage"] = str(row["stage"])
        found.append(run.cause("slow_rank", saving, title, answer, where=place, evidence=evidence))
    return found


def clock_skew(run: Run) -> list[Cause]:
    """Clocks of machines that differ by more than time servers let them."""
    ends, corrected = run.ask(_SQL["ends"]), run.ask(_SQL["corrected"])
    found = [
        (abs(row["s"]), str(row["host"]), ends)
        for row in ends.dicts
        if row["varies_s"] < abs(row["s"]) / 2
    ]
    found += [(row["s"], str(row["host"]), corrected) for row in corrected.dicts]
    apart, host, answer = max(found, key=lambda one: one[0], default=(0.0, "", ends))
    if apart < CLOCKS_APART_S:
        return []
    title = f"wall clocks of two machines are {apart:.1f} s apart"
    where, worst = {"host": host}, [f"host {host}"]
    return [run.cause("clock_skew", Saving(), title, answer, where=where, worst=worst)]
