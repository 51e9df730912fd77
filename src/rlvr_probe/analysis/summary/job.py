"""A job of many processes: its roles, calls of worker groups, filtered prompts, old weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.analysis.statistics import distribution_of
from rlvr_probe.model.batch import Batch
from rlvr_probe.model.columns import firsts_of
from rlvr_probe.model.trace import Step, Trace

__all__ = ["roles", "rpcs", "selection", "staleness"]


def roles(trace: Trace) -> list[dict[str, Any]]:
    """Processes by what they are to the job; none where no process told.

    Those that train first, then by number; one that did not tell has the role None.
    """
    if not any(one.role for one in trace.processes):
        return []
    trainers = {session.process for attempt in trace.attempts for session in attempt.sessions}
    counts = Counter((one.role or None, one.index in trainers) for one in trace.processes)
    return [
        {"role": role, "trains": trains, "processes": count}
        for (role, trains), count in sorted(
            counts.items(), key=lambda item: (not item[0][1], -item[1], item[0][0] or "")
        )
    ]


@dataclass(slots=True)
class _Method:
    ranks: int = 0
    calls: int = 0
    waited: int = 0
    wait_s: float = 0.0
    mean_s: float = 0.0
    slowest_s: float = 0.0
    slowest: Counter[int] = field(default_factory=Counter)


def rpcs(trace: Trace, steps: Iterable[Step]) -> dict[str, Any] | None:
    """Calls of worker groups in ``steps``, by group and method; None if there were none."""
    methods = dict[tuple[str, str], _Method]()
    for rpc in (rpc for step in steps for rpc in step.rpcs):
        one = methods.setdefault((rpc.group, rpc.method), _Method())
        times = [span.seconds for span in rpc.ranks]
        one.calls += 1
        one.ranks = max(one.ranks, len(times))
        one.mean_s += sum(times) / len(times)
        one.slowest_s += max(times)
        one.slowest[times.index(max(times))] += 1
        if rpc.caller.attributes.get("waits", 1):
            one.waited += 1
            one.wait_s += rpc.caller.seconds
    if not methods and not trace.unjoined_rpcs:
        return None
    return {
        "calls": sum(one.calls for one in methods.values()),
        "unjoined": trace.unjoined_rpcs,
        "methods": [
            {
                "group": group,
                "method": method,
                "calls": one.calls,
                "ranks": one.ranks,
                "caller_s": one.wait_s / one.waited if one.waited else None,
                "mean_s": one.mean_s / one.calls,
                "slowest_s": one.slowest_s / one.calls,
                "slowest_rank": one.slowest.most_common(1)[0][0],
            }
            for (group, method), one in sorted(methods.items(), key=lambda item: -item[1].slowest_s)
        ],
    }


def selection(batches: Sequence[Batch]) -> dict[str, Any] | None:
    """Groups that passed a filter and that were trained on; None where no batch tells of one.

    Of the batches that tell: one of an unfinished step may do so yet. Each is None unless every
    one of them tells it.
    """
    told = [batch for batch in batches if batch.kept is not None or batch.used is not None]
    if not told:
        return None
    found: dict[str, Any] = {"groups": sum(batch.count_groups()[0] for batch in told)}
    for name in ("kept", "used"):
        groups = [getattr(batch, name) for batch in told]
        found[name] = None if None in groups else sum(map(len, groups))
    return found


def staleness(batches: Iterable[Batch]) -> dict[str, Any] | None:
    """Trainer steps that the weights of a trajectory lacked when its step began.

    Of the oldest weights that it saw; None where no trajectory tells.
    """
    lag = Counter[int]()
    for batch in batches:
        for shard in batch.shards:
            for version, count in Counter(firsts_of(shard.policy_versions or ())).items():
                lag[batch.step - 1 - version] += count
    if not lag:
        return None
    return {
        "trajectories": lag.total(),
        "stale": sum(count for steps, count in lag.items() if steps > 0),
        "steps": distribution_of(lag),
    }
