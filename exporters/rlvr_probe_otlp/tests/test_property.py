"""What holds of the plan of any recording."""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_otlp.planning import device_metrics, names, run_metrics
from rlvr_probe_otlp.planning.span_tree import Placed, keep_longest, without_loops
from rlvr_probe_otlp.tests.recordings import MADE, Limits, planned, read, text, traces

from rlvr_probe.model.trace import Trace
from tests import today
from tests.actors import Job
from tests.journals import JournalFile, Training

LIMITS = {
    "as it is": Limits(),
    "narrow": Limits(spans=7, trajectories=5, slowest=3, slowest_of_step=2, share=0.5),
    "everything": Limits(spans=100_000, trajectories=100_000, share=1.0),
}

every_recording = pytest.mark.parametrize("made", today.some(list(MADE), 2))
every_limit = pytest.mark.parametrize("limits", LIMITS)


@pytest.fixture
def trace(made: str, tmp_path: Path) -> Trace:
    MADE[made](tmp_path / "run")
    return read(tmp_path / "run", tmp_path)


@every_recording
@every_limit
def test_ids_are_unique_every_parent_exists_and_no_trace_is_larger_than_its_bound(
    trace: Trace, limits: str
) -> None:
    bounds = LIMITS[limits]
    found = list(traces(trace, bounds))
    assert len({one.trace_id for one in found}) == len(found) > 0
    roots = {(one.trace_id, one.spans[0].span_id) for one in found}
    for one in found:
        assert len(one.spans) <= bounds.spans
        ids = [span.span_id for span in one.spans]
        assert len(set(ids)) == len(ids)
        root, *rest = one.spans
        assert root.parent_id is None
        above = {span.span_id: span.parent_id for span in one.spans}
        for span in rest:
            depth, at = 0, span.span_id
            while (parent := above[at]) is not None:
                depth, at = depth + 1, parent
                assert depth <= len(ids), "a span is its own ancestor"
            assert at == root.span_id
        for span in one.spans:
            assert span.trace_id == one.trace_id
            assert re.fullmatch("[0-9a-f]{32}", span.trace_id)
            assert re.fullmatch("[0-9a-f]{16}", span.span_id)
            assert 0 <= span.start_ns <= span.end_ns < 1 << 63
            assert all((link.trace_id, link.span_id) in roots for link in span.links)
    linked = Counter(link.trace_id for one in found for link in one.spans[0].links)
    assert max(Counter(len(one.spans[0].links) for one in found)) <= bounds.trajectories
    assert sum(linked.values()) > 0 or not any(
        one.spans[0].name == "rlvr.trajectory" for one in found
    )


@every_recording
def test_what_is_left_out_of_a_trace_is_said_by_name_and_length(trace: Trace) -> None:
    whole = {one.trace_id: one for one in traces(trace, LIMITS["everything"])}
    for one in traces(trace, LIMITS["narrow"]):
        everything = whole[one.trace_id]
        kept = {span.span_id for span in one.spans}
        gone = Counter[str]()
        seconds = Counter[str]()
        for span in everything.spans:
            if span.span_id not in kept:
                name = span.name.partition(" ")[0]
                gone[name] += 1
                seconds[name] += span.end_ns - span.start_ns
        said = one.spans[0].attributes
        counts = {name: said.get(f"rlvr.left_out.{name}.count", 0) for name in gone}
        sums = {name: said.get(f"rlvr.left_out.{name}.sum_s") for name in gone}
        assert counts == gone
        assert sums == {name: pytest.approx(ns / 1e9) for name, ns in seconds.items()}
        assert one.left_out == sum(gone.values())


@every_recording
@every_limit
def test_the_same_recording_gives_the_same_plan_wherever_it_lies_and_in_whatever_order(
    made: str, limits: str, trace: Trace, tmp_path: Path
) -> None:
    expected = text(trace, LIMITS[limits])
    draw = random.Random(made)
    elsewhere = tmp_path / "Canary-folder-7Wq" / "run"
    elsewhere.mkdir(parents=True)
    files = sorted((tmp_path / "run").iterdir())
    for path in draw.sample(files, len(files)):
        shutil.copyfile(path, elsewhere / path.name)
    again = read(elsewhere, tmp_path)
    for attempt in again.attempts:
        draw.shuffle(attempt.processes)
        draw.shuffle(attempt.sessions)
        for step in attempt.steps:
            draw.shuffle(step.spans)
            draw.shuffle(step.rpcs)
    for some in (again.user_spans, again.unplaced, again.open_spans):
        draw.shuffle(some)
    printed = text(again, LIMITS[limits])
    assert printed == expected
    assert "Canary" not in printed
    assert str(tmp_path) not in printed


@every_recording
def test_a_share_of_the_trajectories_holds_every_smaller_share(trace: Trace) -> None:
    kept = [
        {one.trace_id for one in traces(trace, Limits(share=share, trajectories=10_000))}
        for share in (0.0, 0.1, 0.4, 1.0)
    ]
    assert all(some <= more for some, more in pairwise(kept))


@every_recording
def test_every_name_that_is_planned_is_one_that_is_documented(trace: Trace) -> None:
    found = planned(trace, LIMITS["narrow"])
    known = {*names.ATTRIBUTES.values(), *names.SPECIAL.values(), *names.OWN, *names.STANDARD}
    known |= {*device_metrics.SPAN_USE, *device_metrics.DEVICE_ATTRIBUTES}
    patterns = [re.compile(re.escape(name).replace(r"\*", ".+")) for name in known]
    metric_names = {one.name for one in run_metrics.METRICS} | device_metrics.DEVICE_METRICS.keys()
    for attributes in _attributes(found):
        for name in attributes:
            assert any(pattern.fullmatch(name) for pattern in patterns), name
    for unit in found["units"]:
        assert {point["metric"] for point in unit["points"]} <= metric_names
        for one in unit["traces"]:
            for span in one["spans"]:
                name = span["name"].partition(" ")[0]
                assert name in {*names.SPANS.values(), names.RANK_STEP, names.OUTSIDE}


def _attributes(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (found["resource"], *found["processes"].values())
    for unit in found["units"]:
        for one in (*(span for t in unit["traces"] for span in t["spans"]), *unit["points"]):
            yield one["attributes"]
            yield from (link["attributes"] for link in one.get("links", ()))


def test_what_a_recording_should_not_hold_does_not_go_out_either(tmp_path: Path) -> None:
    """Attributes that no version of the probe records, and values of a kind that no name has."""
    canary = "Canary-text-3Bd"
    journal = JournalFile(tmp_path / "run")
    training = Training(journal)
    training.begin(prompt=canary, argv=[canary], model_type={"a": canary}, engine=[canary])
    training.step(1)
    journal.span(
        _named("rollout", "prompt", "policy_version", "samples"), 1.0, 1.1,
        prompt=canary, policy_version=[canary], samples={"text": canary},
    )  # fmt: skip
    journal.span(_named(canary, "step"), 1.0, 1.1, step=1)
    journal.row("fault", 5, "hooks", f"{canary}: {canary}", 1)
    journal.open_table((77, 1.2, canary, ""), beat_s=2.0, step=1)
    journal.close(end=False)
    trace = read(tmp_path / "run", tmp_path)
    assert canary in json.dumps([dict(one.faults) for one in trace.processes])
    printed = text(trace, LIMITS["everything"])
    assert "Canary" not in printed
    assert printed.count('"rl.sample"') == 2


def _named(name: str, *attributes: str) -> Any:
    from rlvr_probe.model.names import Attribute, Name

    return Name(name, "", tuple(Attribute(one, "", "") for one in attributes))


def test_values_that_nothing_can_say_are_left_out() -> None:
    unsayable = [float("nan"), float("inf"), 1 << 63, None, [1], {"a": 1}, b"x", object()]
    assert [one for one in unsayable if names.allowed(one) is not None] == []
    assert names.allowed("a\nb\x1b[31m" + "c" * 1_000) == "a?b?[31m" + "c" * 248
    assert names.allowed(True) is True


@pytest.mark.parametrize("seed", range(20))
def test_loops_of_parents_are_cut_and_the_longest_are_kept_with_what_is_around_them(
    seed: int,
) -> None:
    draw = random.Random(seed)
    count = draw.randrange(1, 60)
    found = dict[int, Placed[int]]()
    for number in range(count):
        start = draw.randrange(100)
        above = draw.choice([None, *range(count + 5)])
        found[number] = Placed(start, start + draw.randrange(100), above)
    parents = without_loops(found)
    for key in found:
        seen = {key}
        at = parents[key]
        while at is not None:
            assert at not in seen
            seen.add(at)
            at = parents[at]
    limit = draw.randrange(1, count + 2)
    kept = keep_longest(found, parents, limit)
    assert len(kept) <= limit
    assert limit < count or len(kept) == count
    assert all(parents[key] in kept for key in kept if parents[key] is not None)


@pytest.mark.timeout(120)
def test_a_deep_chain_of_spans_costs_no_recursion() -> None:
    depth = 2 * sys.getrecursionlimit()
    found = {number: Placed(0, 1, number - 1 if number else None) for number in range(depth)}
    assert len(keep_longest(found, without_loops(found), 100)) <= 100


def test_a_large_step_stays_loadable(tmp_path: Path) -> None:
    """The bound of the reference: 2,048 trajectories of up to 10 turns in a step, and 200 ranks."""
    Job(
        tmp_path / "run", steps=1, prompts=256, group_size=8, turns=10, ranks=200, booked=False
    ).write()
    trace = read(tmp_path / "run", tmp_path)
    [whole, *others] = list(traces(trace))
    assert len(whole.spans) == 500, "the bound of the trace of a step"
    said = whole.spans[0].attributes
    told = {name: value for name, value in said.items() if name.startswith("rlvr.left_out.")}
    assert whole.left_out > 100
    assert told["rlvr.left_out.rlvr.rpc.count"] == whole.left_out
    assert told.keys() == {"rlvr.left_out.rlvr.rpc.count", "rlvr.left_out.rlvr.rpc.sum_s"}
    trajectories = [one for one in others if one.spans[0].name == "rlvr.trajectory"]
    assert 8 < len(trajectories) <= 100
    # 10 turns, 9 calls of tools between them, a verification.
    assert max(len(one.spans) for one in trajectories) <= 21
    assert said["rlvr.trajectories"] == 2048
    assert all(len(one.spans) <= 500 for one in others)
