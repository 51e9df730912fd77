"""What ``show`` says of trajectories is what they say themselves, one by one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

import pytest

from rlvr_probe.model.batch import Batch, Trajectory
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from tests import today
from tests.corpus.recordings import RECORDED, folder_of, unpacked
from tests.simulated import BESIDE, FILTERED, SMALL, TRAINED, Corpus
from tests.simulator import Scenario
from tests.summarized import summary_of


def near(expected: Any) -> Any:
    """The same, but for rounding, as deep as it goes."""
    if isinstance(expected, dict):
        return {name: near(value) for name, value in expected.items()}
    return pytest.approx(expected, rel=1e-12) if isinstance(expected, float) else expected


def spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    cuts = quantiles(values, n=100, method="inclusive") if len(values) > 1 else list(values) * 99
    return {
        "mean": fmean(values), "p50": cuts[49], "p90": cuts[89], "p99": cuts[98],
        "max": max(values),
    }  # fmt: skip


def lengths(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    cuts = [one.truncated for one in trajectories if one.truncated is not None]
    return {
        "prompt_tokens": spread([one.prompt_tokens for one in trajectories]),
        "response_tokens": spread([one.response_tokens for one in trajectories]),
        "truncated_share": fmean(cuts) if cuts else None,
    }


def rows(batches: Sequence[Batch]) -> list[Trajectory]:
    return [row for batch in batches for group in batch.groups() for row in group.trajectories]


def training(trace: Trace) -> Iterator[Batch]:
    """Batches of steps that stand, then those that no step trained on."""
    for step in trace.steps():
        yield from step.batches
    for attempt in trace.attempts:
        yield from attempt.untrained


def rewards(batches: Sequence[Batch], trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    given, calls = defaultdict[str, list[Any]](list), defaultdict[str, list[Any]](list)
    for row in trajectories:
        for reward in row.rewards:
            given[reward.function].append(reward.value)
    for call in (call for batch in batches for shard in batch.shards for call in shard.calls):
        calls[call.function].append(call)
    found = dict[str, Any]()
    for name in dict.fromkeys((*given, *calls)):
        values = [value for value in given[name] if value is not None]
        finite, own = [value for value in values if isfinite(value)], calls[name]
        asked = [call for call in own if call.attempts is not None]
        found[name] = {
            "function": name,
            "values": len(finite) if given[name] else None,
            "mean": fmean(finite) if finite else None,
            "not_finite": len(values) - len(finite) if given[name] else None,
            "missing": given[name].count(None) if given[name] else None,
            "calls": len(own) or None,
            "total_s": sum(call.end_ns - call.start_ns for call in own) / 1e9 if own else None,
            "waited": any(call.row is not None for call in own) if own else None,
            "retries": sum(max(0, call.attempts - 1) for call in asked) if asked else None,
            "timeouts": sum(call.timeouts or 0 for call in asked) if asked else None,
        }
    return found


def tools(trajectories: Sequence[Trajectory]) -> dict[str | None, Any]:
    calls = defaultdict[Any, list[Any]](list)
    for call in (call for row in trajectories for call in row.tool_calls):
        calls[call.tool].append(call)
    return {
        name: {
            "tool": name,
            "calls": len(own),
            "statuses": dict(Counter(call.status or "unknown" for call in own)),
            "errors": dict(Counter(call.error for call in own if call.error is not None)),
            "latency_s": spread([call.latency_s for call in own]),
            "total_s": sum(call.latency_s for call in own),
        }
        for name, own in calls.items()
    }


@pytest.mark.parametrize("drawn", today.some([SMALL, FILTERED, TRAINED, BESIDE], 1))
def test_of_a_simulated_run(corpus: Corpus, drawn: Scenario) -> None:
    check_trajectories(corpus.run(drawn)[0])


@pytest.mark.parametrize("name", today.some(list(RECORDED), 1))
def test_of_a_recorded_run(tmp_path: Path, name: str) -> None:
    run = folder_of(unpacked(name, tmp_path))
    check_trajectories(run)
    check_requests(run)


def check_trajectories(run: Path) -> None:
    trace, shown = read_run(run), summary_of(run)
    every = list(training(trace))
    counted = [batch for batch in every if batch.whole] or every
    trajectories = rows(counted)
    assert shown["trajectories"] == len(rows(every))
    assert shown["response_tokens"] == sum(row.response_tokens for row in rows(every))
    assert shown["groups"] == sum(1 for batch in every for _ in batch.groups())
    assert shown["lengths"] == near(lengths(trajectories))
    steps = [step for step in trace.steps() if step.started]
    assert len(steps) == len(shown["step_list"])
    for step, entry in zip(steps, shown["step_list"], strict=True):
        own = rows([batch for batch in step.batches if batch in counted])
        assert entry["lengths"] == near(lengths(own))
    evaluated = rows([batch for step in trace.steps() for batch in step.evaluations])
    assert shown["evaluation"]["lengths"] == near(lengths(evaluated))
    found = {entry["function"]: entry for entry in shown["rewards"]}
    assert found == near(rewards(counted, trajectories))
    assert {entry["tool"]: entry for entry in shown["tools"]} == near(tools(trajectories))
    turns = [len(row.turns) for row in trajectories if row.turns]
    told = shown["turns"] or {"trajectories": 0, "per_trajectory": None}
    assert (told["trajectories"], told["per_trajectory"]) == (len(turns), near(spread(turns)))
    lag = [
        batch.step - 1 - row.policy_versions[0]
        for batch in (batch for step in steps for batch in step.batches if batch in counted)
        for row in rows([batch])
        if row.policy_versions is not None
    ]
    stale = shown["staleness"] or {"trajectories": 0, "steps": None}
    assert (stale["trajectories"], stale["steps"]) == (len(lag), near(spread(lag)))


def check_requests(run: Path) -> None:
    trace, shown = read_run(run), summary_of(run)["requests"]
    requests = [request for attempt in trace.attempts for request in attempt.requests]
    if not requests:
        assert shown is None
        return
    cached = [
        (one.cached_tokens, one.prompt_tokens)
        for one in requests
        if one.cached_tokens is not None and one.prompt_tokens is not None
    ]
    preempted = [one.preemptions for one in requests if one.preemptions is not None]
    assert shown["requests"] == len(requests)
    assert shown["unjoined"] == sum(attempt.unjoined_requests for attempt in trace.attempts)
    assert shown["finishes"] == Counter(one.finish or "unknown" for one in requests)
    assert shown["preemptions"] == (sum(preempted) if preempted else None)
    assert shown["cached_share"] == near(
        sum(hit for hit, _ in cached) / sum(sent for _, sent in cached) if cached else None
    )
    for name in ("queue_s", "prefill_s", "decode_s"):
        times = [value for one in requests if (value := getattr(one, name)) is not None]
        assert shown[name] == near(spread(times))
        assert shown["total_s"].get(name, 0.0) == near(float(sum(times)))
