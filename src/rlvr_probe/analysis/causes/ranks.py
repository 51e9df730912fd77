"""Ranks slower than their peers in all they do or in one part, hot GPUs, and clock skew.

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

from rlvr_probe.analysis.causes import thresholds
from rlvr_probe.analysis.causes.builder import Run
from rlvr_probe.analysis.causes.cause import Cause, Saving, placed, seconds, times
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
        sure: Whether that is many standard errors.
        in_all: No stage says that it is not slow there.
    """

    process: int
    rank: int | None
    team: str
    ranks: int
    hot: bool
    laps: int
    slower: float
    sure: bool
    in_all: bool
    steps: Sequence[int]


def slow_ranks(run: Run) -> list[Cause]:
    """Ranks that make others wait because they are slow, and GPUs that are because they are hot."""
    paces = _paces(run)
    cold = {pace.process: pace for pace in paces if not pace.hot and pace.laps >= _ENOUGH}
    causes = list[Cause]()
    for pace in sorted(paces, key=lambda pace: -pace.slower)[:_TRIED]:
        before = cold.get(pace.process) if pace.hot else None
        # A rank that is slow when it is cold as well is slow for another reason.
        slower = pace.slower - max(0.0, before.slower) if before else pace.slower
        least = thresholds.SLOW_MIN if pace.ranks > 2 else thresholds.SLOW_MIN_OF_TWO
        if pace.hot and slower >= thresholds.HOT_MIN:
            causes += _thermal(run, pace, slower)
        elif not pace.hot and slower >= least and pace.in_all and pace.sure:
            hot = (other for other in paces if other.hot and other.process == pace.process)
            steps = [*pace.steps, *(step for other in hot for step in other.steps)]
            answer = _replay(run, pace, pace.slower, steps)
            how = f"took {times(math.exp(pace.slower))} as long as its peers"
            causes += _named(run, pace.process, pace.rank, pace.team, how, answer)
    return causes


def _named(
    run: Run, process: int, rank: int | None, team: str, how: str, answer: Answer, **where: str
) -> list[Cause]:
    name, place = placed(rank, team, process)
    evidence = {"process": Evidence.of([process])}
    return run.cause(
        "slow_rank", f"{name} {how}", answer, where={**place, **where}, evidence=evidence
    )


def _paces(run: Run) -> list[_Pace]:
    rows = run.ask(
        _SQL["paces"], sigmas=thresholds.SLOW_SIGMAS, often=thresholds.SLOW_IN_EACH_STEPS
    ).dicts
    # Peers are ranks of the same attempt and group.
    peers: dict[tuple[int | None, str], dict[int, float]] = {}
    for row in rows:
        normal = peers.setdefault((row["attempt"], row["team"]), {})
        if not row["hot"]:
            normal[row["process"]] = row["slower"]
    paces = list[_Pace]()
    for row in rows:
        normal = peers[row["attempt"], row["team"]]
        # Of two ranks each is already compared with the other one.
        usual = median(normal.values()) if len(normal) > 2 else 0.0
        others = [value - usual for process, value in normal.items() if process != row["process"]]
        # One peer alone has no spread.
        several = len(others) > 1
        spread = math.sqrt(sum(value**2 for value in others) / len(others)) if several else 0.0
        error = (row["spread"] or 0.0) / math.sqrt(row["laps"])
        slower = row["slower"] - usual
        # One time of either rank: how much they differ by chance is unknown.
        known = several or row["spread"] is not None
        sigmas = slower / (math.hypot(spread, error) or 1e-9)
        in_all = row["surely"] is None or row["surely"] - usual >= thresholds.SLOW_IN_EACH * slower
        pace = _Pace(
            row["process"], row["rank"], row["team"], row["ranks"], row["hot"], row["laps"], slower,
            known and sigmas >= thresholds.SLOW_SIGMAS, in_all, sorted(row["steps"]),
        )  # fmt: skip
        paces.append(pace)
    return paces


def _thermal(run: Run, pace: _Pace, slower: float) -> list[Cause]:
    answer = _replay(run, pace, slower, pace.steps)
    devices = run.ask(_SQL["device"], process=pace.process, steps=list(pace.steps)).dicts
    state = ""
    if devices and devices[0]["clock_hz"] is not None:
        state = f" ({devices[0]['clock_hz'] / 1e9:.2f} GHz"
        celsius = devices[0]["celsius"]
        state += f", {celsius:.0f} degrees)" if celsius is not None else ")"
    name, where = placed(pace.rank, pace.team, pace.process)
    title = (
        f"the GPU of {name} was held down by temperature{state} from step"
        f" {run.number(pace.steps[0])} on and"
        f" took {times(math.exp(slower))} as long as its peers"
    )
    evidence = {
        "process": Evidence.of([pace.process]),
        "device": Evidence.of([row["device"] for row in devices]),
    }
    if devices:
        where["device"] = devices[0]["uuid"]
    return run.cause(
        "thermal_throttling",
        title,
        answer,
        noise=thresholds.HOT_NOISE,
        where=where,
        evidence=evidence,
    )


def _replay(run: Run, pace: _Pace, slower: float, steps: Sequence[int]) -> Answer:
    return run.ask(
        _SQL["replay"], process=pace.process, factor=math.exp(slower), steps=sorted(steps)
    )


_FEW: Final = 5
"""Steps from which on "nearly all" means something."""


def late_ranks(run: Run) -> list[Cause]:
    """Ranks that make others wait in one part of the steps."""
    rows = run.ask(
        _SQL["late"],
        few=_FEW,
        least=thresholds.STAGE_MIN,
        often=thresholds.STAGE_USUAL,
        sure=thresholds.STAGE_SURE,
    ).dicts
    causes = list[Cause]()
    for row in rows:
        answer = run.ask(_SQL["replay_part"], process=row["process"], stage=row["stage"])
        stage = str(row["stage"])
        how = f"is {seconds(row['ns'])} a step later than its peers in {stage}"
        causes += _named(run, row["process"], row["rank"], row["team"], how, answer, stage=stage)
    return causes


def clock_skew(run: Run) -> list[Cause]:
    """Clocks of machines that differ by more than time servers let them."""
    ends, corrected = run.ask(_SQL["ends"]), run.ask(_SQL["corrected"])
    hosts = [
        (abs(row["s"]), str(row["host"]), ends)
        for row in ends.dicts
        if row["varies_s"] < abs(row["s"]) / 2
    ]
    hosts += [(row["s"], str(row["host"]), corrected) for row in corrected.dicts]
    apart, host, answer = max(hosts, key=lambda host: host[0], default=(0.0, "", ends))
    if apart < thresholds.CLOCKS_APART_S:
        return []
    title = f"wall clocks of two machines are {apart:.1f} s apart"
    where, worst = {"host": host}, [f"host {host}"]
    return run.cause("clock_skew", title, answer, Saving(), noise=0.0, where=where, worst=worst)
