"""Single trajectories that a whole step waited for, and filters that make it generate again.

What the longest trajectory costs a step is how much later it ends than all others of its batch, as
far as it generated for longer. Where a rank generates its rows in calls of their own, it is what
these would have been shorter by, at the pace that the longest trajectory of a call and its time
have in common in the run, as far as no other rank is as late.

Lengths have heavy tails by nature. A straggler is one of which the run's own tail leads to expect
less than one in a thousand: the tail is that of Hill's estimator over the longest of all others,
and the worst of three sizes of it counts. A trajectory that was cut at the cap is none.

Where several steps have some, these would be each other's tail. So the longest of a run are taken
together, down to a gap in the lengths, and the tail of all others says how likely so many are. What
remains possible by that is a straggler only where those steps follow each other, too.

A filter may throw away so many groups that a step has to generate again. What the step lasts longer
is the time from the end of its first generation to that of its last.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Any, Final, NamedTuple

from rlvr_probe.analysis.causes.baselines import slope
from rlvr_probe.analysis.causes.builder import Run
from rlvr_probe.analysis.causes.cause import Cause, Saving, per_cent, seconds
from rlvr_probe.analysis.causes.thresholds import (
    FEW_KEPT,
    FOLLOWING,
    GAP,
    GAP_CHANCE,
    LONG_TAIL_SHARE,
    NOISE,
    PATTERN,
    RARE,
    RARE_ALONE,
    RARE_SEVERAL,
    RARE_TOGETHER,
    TAIL,
)
from rlvr_probe.analysis.results import Answer, Evidence, query_by_step
from rlvr_probe.analysis.statements import statements

__all__ = ["aggressive_filter", "stragglers"]

_SQL: Final = statements(__name__)


class _Block(NamedTuple):
    """The longest trajectories of a run, down to a gap in the lengths.

    Attributes:
        common: Whether most steps have one, in no pattern.
        likely: How likely so many are, in such a pattern; as all of these a logarithm (base 10).
        pattern: How likely the pattern is.
        part: The steps that it is in.
        size: How many they are.
        expected: How many are expected, no logarithm.
        rare: How likely so many are.
        gap: How likely the gap is, and the pattern, no logarithm.
        cut: Whether all were cut at the cap.
    """

    common: bool
    likely: float
    pattern: float
    part: range
    size: int
    expected: float
    rare: float
    gap: float
    cut: bool

    @property
    def many(self) -> bool:
        """Whether they are too many for a tail, wherever they are."""
        return self.rare <= RARE_ALONE or self.expected < RARE_SEVERAL

    @property
    def natural(self) -> bool:
        """Whether the tail of all others, or the workload, may have them."""
        together = self.rare + math.log10(max(self.gap, 1e-300))
        # Those at the cap are as long as each other: their gap says nothing.
        some = not self.cut and self.pattern <= FOLLOWING and together <= RARE_TOGETHER
        return self.common or self.gap > GAP_CHANCE or not (self.many or some)


_SLOWER: Final = 3.0
"""How many times the pace of the run a trajectory may take that generates alone, at most."""

_SEVERAL: Final = 2
"""Steps with stragglers, from which on these are taken together."""

_WAYS: Final = 2
"""Ways in which steps follow each other: each, or each second one."""

_PART: Final = 3
"""Fewest steps that are seen to follow each other."""

_MOST_STEPS: Final = 60
"""Most steps of which it is asked whether they do: its cost grows with their cube."""


def stragglers(run: Run) -> list[Cause]:
    """Those apart from all others in several steps; else the worst, if it is beyond the tail."""
    [count] = run.ask(_SQL["lasting"]).row
    # A tenth of all, a thousand at most, and what the tail behind them takes.
    longest = run.ask(_SQL["lengths"], most=min(count // 10, 1000) + 51).rows
    apart = _apart(run, longest, count)
    if apart and apart[0].kind == "straggler":
        return apart
    answer = query_by_step(run.tables, _SQL["last"])
    if not answer.rows:
        answer = run.ask(_SQL["longest"])
    cost = sorted((row for row in answer.dicts if row["ns"]), key=lambda row: -row["ns"])
    if not cost:
        return apart
    worst, ns = cost[0], cost[0]["ns"]
    rows = run.ask(_SQL["trajectory"], trajectory=worst["trajectory_id"]).dicts
    if not rows or not rows[0]["response_tokens"]:
        return apart
    others = [tokens for tokens, trajectory, *_ in longest if trajectory != worst["trajectory_id"]]
    saving = Saving({worst["step_id"]: ns})
    if not rows[0]["truncated"] and _expected(others, rows[0]["response_tokens"], count) < RARE:
        return _named(run, "straggler", saving, rows[0], others, answer)
    if not apart and ns >= LONG_TAIL_SHARE * run.extent.wall_ns:
        return _named(run, "long_tail", saving, rows[0], others, answer)
    return apart


def _apart(run: Run, longest: Sequence[Sequence[Any]], every: int) -> list[Cause]:
    """The longest of the run, of several steps, that lie apart from the others.

    Args:
        run: Which.
        longest: Tokens, trajectory, step, batch and group of the longest, longest first.
        every: How many trajectories there are.
    """
    tokens, blocks = [row[0] for row in longest], list[_Block]()
    for count in range(2, len(tokens) - min(TAIL)):
        if tokens[count - 1] >= GAP * tokens[count]:
            groups = {row[2:5] for row in longest[:count]}
            hit = Counter(step for step, *_ in groups if step is not None)
            if len(hit) >= _SEVERAL:
                expected = _expected(tokens[count:], tokens[count - 1], every)
                rare, (pattern, part) = _rare(count, expected), _pattern(hit, run.extent.steps)
                # What most steps have, wherever they are, is how the workload is.
                common = len(hit) > run.extent.steps / 2 and pattern > PATTERN
                gap = _gap_chance(tokens[: count + 1]) * 10**pattern
                likely, cut = rare + pattern, all(row[5] for row in longest[:count])
                blocks.append(
                    _Block(common, likely, pattern, part, count, expected, rare, gap, cut)
                )
    if not blocks:
        return []
    block = min(blocks, key=lambda block: (block.natural, block.common, block.likely))
    pattern, part, count, natural = block.pattern, block.part, block.size, block.natural
    # One that was cut at the cap says nothing of where stragglers are that are many anyway.
    uncut = {row[2:5] for row in longest[:count] if not row[5] and row[2] is not None}
    if block.many and uncut:
        pattern, part = _pattern(Counter(step for step, *_ in uncut), run.extent.steps)
    # Where these follow each other, steps elsewhere waited for the tail.
    follow = not natural and pattern <= PATTERN
    rows = [row for row in longest[:count] if row[2] in part] if follow else longest[:count]
    answer = run.ask(_SQL["tails"], least=tokens[count - 1])
    if not answer.rows:
        return []
    steps, most, rest, ns = zip(*answer.rows, strict=True)
    pace = slope(most, ns)
    usual_ns = median(
        [time for time, long, other in zip(ns, most, rest, strict=True) if long == other] or ns
    )
    saving = Saving(
        {
            step: min(_SLOWER * (long - other) * pace, max(0.0, time - usual_ns))
            for step, long, other, time in zip(steps, most, rest, ns, strict=True)
            if long > other and (step in part or not follow)
        }
    )
    least = LONG_TAIL_SHARE if natural else NOISE
    if saving.wall_ns < least * run.extent.wall_ns:
        return []
    worst = saving.worst_steps[0]
    title = (
        f"{len(saving.by_step)} steps waited for {len(rows)} trajectories of up to {rows[0][0]:,}"
        f" tokens; the longest other of the run has {tokens[count]:,}"
    )
    evidence = {"trajectory": Evidence.of([row[1] for row in rows])}
    kind = "long_tail" if natural else "straggler"
    where = {"step": run.number(worst)}
    return run.cause(kind, title, answer, saving, where=where, evidence=evidence)


def _named(
    run: Run, kind: str, saving: Saving, row: Mapping[str, Any], longest: Sequence[int],
    answer: Answer,
) -> list[Cause]:  # fmt: skip
    number, ns = run.number(row["step_id"]), saving.wall_ns
    where = {"step": number, "group": row["grp"], "sample": row["sample"], "batch": row["ordinal"]}
    tokens = row["response_tokens"]
    cut = ", cut at the cap," if row["truncated"] else ""
    other = f"; the longest other of the run has {longest[0]:,}" if longest else ""
    title = (
        f"step {number} waited {seconds(ns)} for one trajectory of {tokens:,} tokens{cut} (sample"
        f" {row['sample']} of group {row['grp']}{other})"
    )
    place = next(
        (f" on {name} {row[name]}" for name in ("engine", "rank") if row[name] is not None), ""
    )
    worst = [
        f"step {number}, batch {row['ordinal']}, group {row['grp']}, sample {row['sample']}:"
        f" {tokens:,} tokens{place}"
    ]
    evidence = {"trajectory": Evidence.of([row["trajectory_id"]])}
    return run.cause(kind, title, answer, saving, where=where, evidence=evidence, worst=worst)


def _expected(longest: Sequence[int], tokens: int, trajectories: int) -> float:
    """Trajectories at least as long that the tail of the others leads to expect.

    Where most of these are as long as each other, they end at a limit, and nothing longer is
    expected. Where some are, as of lengths of a few tokens, their tail starts behind them.

    Args:
        longest: Tokens of the longest others, longest first.
        tokens: Of the trajectory.
        trajectories: Of the run: its tail has a quarter of them at most.
    """
    expected, alike = [0.0], longest.count(longest[0]) if longest else 0
    if 2 * alike > len(longest):
        return 0.0
    for count in [count for count in TAIL if count <= max(TAIL[0], trajectories // 4)]:
        if len(longest) <= count or longest[count] < 1:
            return math.inf
        count = count if alike < count else min(alike + count, len(longest) - 1)
        start = longest[count]
        sum_of_logs = math.fsum(math.log(length / start) for length in longest[:count])
        if not sum_of_logs:
            # All are as long: there is no tail.
            continue
        expected.append(count * (start / tokens) ** (count / sum_of_logs))
    return max(expected)


def _gap_chance(longest: Sequence[int]) -> float:
    """How likely a tail has such a gap below all but the last of these, longest first.

    Logarithms of the ``n`` longest of a Pareto tail, of any index, lie apart by ``1 / n`` of an
    exponential: the share of one of them in the sum of all has a beta distribution (Renyi).
    """
    *above, below = longest
    whole = math.fsum(math.log(length / below) for length in above)
    share = len(above) * math.log(above[-1] / below) / whole
    return max(0.0, 1 - share) ** (len(above) - 1)


def _rare(count: int, expected: float) -> float:
    """How likely so many are, or more, where so many are expected: of Poisson, its log10."""
    if expected >= count:
        return 0.0
    # The first term of the sum, which the others exceed by less than the factor.
    log = count * math.log(expected or 1e-300) - expected - math.lgamma(count + 1)
    return min(0.0, (log - math.log1p(-expected / (count + 1))) / math.log(10))


def _pattern(hit: Counter[int], steps: int) -> tuple[float, range]:
    """How likely groups lie as close in each step, or each second one, of a part of a run.

    Either so many are in that part, or each step of it has one: what is less likely counts.

    Args:
        hit: Groups by step.
        steps: Of the run.

    Returns:
        The logarithm (base 10), and that part.
    """
    likely, where = 0.0, range(0)
    if len(hit) > _MOST_STEPS:
        return likely, where
    # As likely is any choice of as many steps; some may be none that the ledger has.
    steps = max(steps, len(hit))
    every = _log_choices(steps, len(hit))
    for stride in (1, 2):
        for first, last in combinations(sorted(hit), 2):
            part = range(first, last + 1, stride)
            if part[-1] == last and _PART <= len(part) <= steps / 2:
                inside = sum(hit[step] for step in part)
                chance = _log_choices(hit.total(), inside) + inside * math.log(len(part) / steps)
                # So many parts of a run are looked at.
                tried = [chance + math.log(steps**2 / 2)]
                if all(step in hit for step in part):
                    others = _log_choices(steps - len(part), len(hit) - len(part))
                    places = steps - (last - first)
                    tried.append(others - every + math.log(_WAYS * places))
                if min(tried) / math.log(10) < likely:
                    likely, where = min(tried) / math.log(10), part
    return likely, where


def _log_choices(count: int, chosen: int) -> float:
    """Logarithm of how many ways there are to choose some: their number may exceed a float."""
    return math.lgamma(count + 1) - math.lgamma(chosen + 1) - math.lgamma(count - chosen + 1)


def aggressive_filter(run: Run) -> list[Cause]:
    """A filter that few groups pass, if it makes steps generate again."""
    kept, thrown_away = run.ask(_SQL["kept"]).row
    if not thrown_away or kept >= FEW_KEPT * (kept + thrown_away):
        return []
    answer = run.ask(_SQL["again"])
    rounds = sorted((-count, run.number(step)) for step, _, count in answer.rows)
    again = sum(count > 1 for _, _, count in answer.rows)
    title = (
        f"the filter passes {per_cent(kept / (kept + thrown_away))} of the groups, and {again} of"
        f" {len(answer.rows)} steps generated again"
    )
    worst = [f"step {number} generated {-count} times" for count, number in rounds[:3]]
    return run.cause("aggressive_filter", title, answer, worst=worst)
