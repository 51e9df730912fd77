"""A rank that is slower than its peers, whatever it does; and why, if its GPU tells.

How much longer a rank takes is the median, over the stages of all steps, of the logarithm of its
time by that of the median rank. Where the tokens of a rank are known, its time is first divided by
what a straight line through all ranks and steps gives for as many tokens. A rank that only has more
tokens is as fast as others where nothing depends on tokens (moving weights, checkpoints): the lower
of both counts.

What it costs is replayed: its own time is divided by that factor, and the longest rank of each lap
is looked for again. A stage whose ranks end together is taken to be shared among them as their
log-probabilities are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from rlvr_probe.analysis.causes.cause import Cause, Saving
from rlvr_probe.analysis.causes.finding import Run
from rlvr_probe.analysis.causes.thresholds import (
    HOT_MIN,
    HOT_NOISE,
    SLOW_IN_EACH,
    SLOW_IN_EACH_STEPS,
    SLOW_MIN,
    SLOW_MIN_OF_TWO,
    SLOW_SIGMAS,
)
from rlvr_probe.analysis.causes.words import placed, times
from rlvr_probe.analysis.figures import Answer, Evidence

__all__ = ["slow_ranks"]

_TRIED: Final = 3
"""Slowest ranks that are replayed."""

_ENOUGH: Final = 3
"""Laps in which a rank was not hot, from which it is known how fast it is then."""

_PACES: Final = """
WITH tokens AS (
    SELECT step_id, process, sum(prompt_tokens + response_tokens) AS tokens
    FROM kept_trajectory WHERE mode = 'train' AND step_id IS NOT NULL GROUP BY ALL
), taken AS (
    SELECT w.*, t.tokens FROM cause_work AS w LEFT JOIN tokens AS t USING (step_id, process)
    WHERE NOT w.together AND w.ranks > 1 AND w.ns > 0
), rough AS (
    SELECT stage, team, greatest(regr_intercept(ns, tokens), 0) AS fixed,
           regr_slope(ns, tokens) AS each, regr_r2(ns, tokens) AS fits
    FROM taken GROUP BY stage, team
), first AS (
    SELECT t.step_id, t.stage, t.team, t.process,
           ln(ns / CASE WHEN isfinite(each) AND each > 0 AND fits > 0.1
                        THEN fixed + each * tokens ELSE 1 END) AS x
    FROM taken AS t JOIN rough USING (stage, team)
), before AS (
    SELECT stage, team, process, exp(median(x)) AS factor
    FROM (SELECT *, x - median(x) OVER (PARTITION BY step_id, stage, team) AS x FROM first)
    GROUP BY ALL
), line AS (
    SELECT stage, team, greatest(regr_intercept(ns / factor, tokens), 0) AS fixed,
           regr_slope(ns / factor, tokens) AS each, regr_r2(ns / factor, tokens) AS fits
    FROM taken JOIN before USING (stage, team, process) GROUP BY stage, team
), second AS (
    SELECT t.*, ln(ns / CASE WHEN isfinite(each) AND each > 0 AND fits > 0.3
                             THEN fixed + each * tokens ELSE 1 END) AS x
    FROM taken AS t JOIN line USING (stage, team)
), apart AS (
    SELECT step_id, stage, team, process, rank, ranks,
           -- Of two ranks the median lies between both.
           (x - median(x) OVER (PARTITION BY step_id, stage, team)) * if(ranks = 2, 2, 1) AS x,
           stage IN ('weight_sync', 'update_weights', 'save_checkpoint', 'load_checkpoint')
           AS fixed_size
    FROM second
), told AS (
    SELECT a.*, h.process IS NOT NULL AS hot
    FROM apart AS a LEFT JOIN cause_hot AS h USING (step_id, process)
), fastest AS (
    SELECT process, hot, min(surely) AS surely
    FROM (SELECT process, hot, median(x) + $sigmas * stddev_samp(x) / sqrt(count(*)) AS surely
          FROM told GROUP BY process, hot, stage HAVING count(*) >= $often)
    GROUP BY process, hot
)
SELECT process, any_value(p.attempt) AS attempt, any_value(told.rank) AS rank, max(team) AS team,
       max(ranks) AS ranks, hot, count(*) AS laps, stddev_samp(x) AS spread,
       least(median(x) FILTER (NOT fixed_size), median(x) FILTER (fixed_size)) AS slower,
       any_value(surely) AS surely, list(DISTINCT step_id) AS steps
FROM told LEFT JOIN fastest USING (process, hot) JOIN process AS p USING (process)
GROUP BY process, hot ORDER BY process, hot
"""
"""By rank, and by whether it was hot: logarithm of how much longer it took; and ``surely``, what it
is at most in the stage in which it is least."""

_REPLAY: Final = """
WITH faster AS (
    SELECT step_id, $factor AS factor FROM (SELECT unnest($steps) AS step_id)
), mine AS (
    -- Of its own attempt: in another one its GPU may have other engines.
    SELECT e.engine FROM process AS own JOIN gpu_process AS p USING (process)
    JOIN engine_gpu AS e ON e.gpu = p.gpu AND e.attempt = own.attempt
    WHERE own.process = $process
), laps AS (
    SELECT step_id,
           max(own_ns + tool_ns + reward_ns)
           - max(CASE WHEN process = $process THEN own_ns / coalesce(factor, 1) ELSE own_ns END
                 + tool_ns + reward_ns) AS ns
    FROM cause_lap LEFT JOIN faster USING (step_id) GROUP BY step_id, lap
), hidden AS (
    SELECT step_id,
           max(ns) * (1 - max(CASE WHEN process = $process THEN weight_ns / coalesce(factor, 1)
                                   ELSE weight_ns END) / max(weight_ns)) AS ns
    FROM cause_hidden LEFT JOIN faster USING (step_id) GROUP BY step_id, stage, team
), paths AS (
    SELECT step_id,
           max(end_ns) - max(end_ns - CASE WHEN engine IN (FROM mine)
                             THEN generated_ns * (1 - 1 / coalesce(factor, 1)) ELSE 0 END) AS ns
    FROM cause_path LEFT JOIN faster USING (step_id) GROUP BY step_id, batch_id
)
SELECT step_id, sum(ns)::DOUBLE AS ns
FROM (FROM laps UNION ALL FROM hidden UNION ALL FROM paths) GROUP BY step_id ORDER BY step_id
"""
"""Wall time of each step that a faster rank would have saved."""

_DEVICE: Final = """
SELECT h.device, d.uuid, median(r.value) FILTER (r.counter = 'sm_clock_hz') AS clock_hz,
       max(r.value) FILTER (r.counter = 'temperature_c') AS celsius
FROM cause_hot AS h JOIN device AS d USING (device) JOIN kept_step AS s USING (step_id)
JOIN reading AS r ON r.device = h.device AND r.end_ns BETWEEN s.start_ns AND s.end_ns
WHERE h.process = $process AND h.step_id IN $steps
GROUP BY h.device, d.uuid ORDER BY count(DISTINCT h.step_id) DESC, h.device
"""
"""GPUs of a rank that were hot in these steps, the one that was in most of them first."""


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
    rows = run.ask(_PACES, sigmas=SLOW_SIGMAS, often=SLOW_IN_EACH_STEPS).dicts
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
    devices = run.ask(_DEVICE, process=one.process, steps=list(one.steps)).dicts
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
    answer = run.ask(_REPLAY, process=one.process, factor=math.exp(slower), steps=sorted(steps))
    return Saving.of(answer.rows), answer
