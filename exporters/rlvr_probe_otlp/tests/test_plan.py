"""What of a recording is planned to be sent, against what really happened."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_otlp.planning import names as vocabulary
from rlvr_probe_otlp.planning.data_model import Snapshot
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.planning.viewer_labels import title
from rlvr_probe_otlp.tests.recordings import EPOCH_NS, MADE, Limits, died, read, spans, traces

from rlvr_probe.model import names
from rlvr_probe.model.trace import Trace
from rlvr_probe.reading import digest
from tests import today
from tests.actors import SECOND, Books, Job
from tests.journals import JournalFile, Training
from tests.synthetic import write_recording


@pytest.fixture
def job(tmp_path: Path) -> tuple[Books, Trace]:
    books = Job(tmp_path / "run", steps=4, turns=4).write()
    return books, read(tmp_path / "run", tmp_path)


EVERYTHING = Limits(share=1.0, trajectories=1_000)


def test_what_a_rank_did_lies_under_the_call_that_it_did_it_for(job: tuple[Books, Trace]) -> None:
    books, trace = job
    by_id = {one.span_id: one for one in spans(trace)}
    calls = {
        one.start_ns: one for one in by_id.values() if one.kind == "client" if "rpc" in one.name
    }
    zero = EPOCH_NS
    assert {start - zero for start in calls} == set(books.calls)
    for start, (_, ranks) in books.calls.items():
        caller = calls[start + zero]
        done = [one for one in by_id.values() if one.parent_id == caller.span_id]
        assert {(trace.processes[one.process].key, one.start_ns - zero) for one in done} == set(
            ranks
        )
        assert {one.kind for one in done} == {"server"}


def test_every_trajectory_that_is_kept_is_there_with_its_turns_tools_and_verification(
    job: tuple[Books, Trace],
) -> None:
    books, trace = job
    found = {}
    for one in traces(trace, EVERYTHING):
        root, *parts = one.spans
        if root.name != "rlvr.trajectory":
            continue
        said = root.attributes
        place = (said["rlvr.mode"], said["rl.loop.iteration"], said["rlvr.batch"], said["rlvr.row"])
        starts = {
            kind: sorted(part.start_ns - EPOCH_NS for part in parts if part.name.startswith(kind))
            for kind in ("chat", "execute_tool search", "rl.reward")
        }
        found[place] = (root, starts)
        assert {part.parent_id for part in parts} == {root.span_id}
    assert found.keys() == books.trajectories.keys()
    for place, lived in books.trajectories.items():
        root, starts = found[place]
        assert list(starts.values()) == [lived.turns, lived.tools, [lived.verified[0]]]
        assert root.start_ns - EPOCH_NS == lived.start_ns
        assert root.attributes["rl.sample.input_tokens"] == lived.prompt_tokens
        assert root.attributes["rl.sample.output_tokens"] == lived.response_tokens
        assert root.attributes["rl.reward.score"] == lived.verified[1]
        assert root.attributes["rlvr.engine.replica"] == lived.engine


def test_a_step_and_its_trajectories_are_linked_both_ways(job: tuple[Books, Trace]) -> None:
    _, trace = job
    roots = {one.trace_id: one.spans[0] for one in traces(trace)}
    links = {
        (root.trace_id, link.trace_id, str(link.attributes["rlvr.link.kind"]))
        for root in roots.values()
        for link in root.links
    }
    assert all(
        link.span_id == roots[link.trace_id].span_id for r in roots.values() for link in r.links
    )
    down = {(a, b) for a, b, kind in links if kind == "trajectory"}
    up = {(b, a) for a, b, kind in links if kind == "issued_by"}
    assert down == up
    assert len(down) == sum(one.name == "rlvr.trajectory" for one in roots.values()) > 0


def test_the_slowest_trajectory_of_the_run_so_far_and_of_each_step_is_kept(
    job: tuple[Books, Trace],
) -> None:
    _, trace = job
    everything = {
        root.span_id: root
        for one in traces(trace, EVERYTHING)
        if (root := one.spans[0]).name == "rlvr.trajectory"
    }
    few = Limits(slowest=1, slowest_of_step=1, share=0.0)
    kept = [one.spans[0] for one in traces(trace, few) if one.spans[0].name == "rlvr.trajectory"]
    of_step = dict[object, list[int]]()
    for root in everything.values():
        of_step.setdefault(root.attributes["rl.loop.iteration"], []).append(
            root.end_ns - root.start_ns
        )
    longest = {one.attributes["rl.loop.iteration"]: one.end_ns - one.start_ns for one in kept}
    assert longest == {step: max(lengths) for step, lengths in of_step.items()}
    slowest = [one for one in kept if "slowest_so_far" in list(_listed(one.attributes))]
    lengths = [one.end_ns - one.start_ns for one in slowest]
    # Each was the slowest of the run when its step ended.
    assert lengths == sorted(set(lengths))
    assert lengths[-1] == max(map(max, of_step.values()))


def _listed(attributes: object) -> list[str]:
    assert isinstance(attributes, dict)
    return list(attributes["rlvr.kept"])


def test_spans_of_one_name_are_told_apart_by_what_was_called_and_roots_by_a_line(
    job: tuple[Books, Trace],
) -> None:
    books, trace = job
    titles = Counter(one.name for one in spans(trace, EVERYTHING))
    methods = {"init_model", "compute_log_prob", "update_actor", "update_weights"}
    assert {one for one in titles if "rpc" in one} == {f"rlvr.rpc {one}" for one in methods}
    assert titles["rl.reward math"] == len(books.trajectories)
    roots = [one for one in spans(trace, EVERYTHING) if one.parent_id is None]
    about = {one.attributes.get("input.value") for one in roots}
    assert {f"step {number}, attempt 0" for number in range(1, 5)} < about
    assert {
        f"step {step}, {mode}, prompt {row // 4}, row {row}"
        for mode, step, _, row in books.trajectories
    } < about
    assert len(about) == len(roots), "each is told from the others"
    [one] = [one for one in roots if one.attributes.get("input.value") == "step 3, attempt 0"]
    tokens = sum(
        one.response_tokens
        for place, one in books.trajectories.items()
        if place[:2] == ("train", 3)
    )
    assert one.attributes["output.value"] == f"trajectories 24, response tokens {tokens}"


def test_what_a_critic_learned_is_told_from_what_the_actor_did() -> None:
    for stage, expected in (("update_critic", "rl.train critic"), ("update_actor", "rl.train")):
        assert title("rl.train", {"rlvr.stage": stage}) == expected


def test_a_name_is_of_bounded_length_and_the_attribute_whole() -> None:
    assert title("rlvr.user", {"rlvr.label": "x" * 200}) == "rlvr.user " + "x" * 64
    assert title("rl.reward", {"rlvr.detail": "math", "rlvr.unfinished": True}) == "rl.reward math"


def test_the_step_of_a_rank_says_which_rank(tmp_path: Path) -> None:
    write_recording(tmp_path / "run", steps=2, ranks=4, trajectories=32)
    ranks = Counter(
        one.attributes["rlvr.rank"]
        for one in spans(read(tmp_path / "run", tmp_path))
        if one.name == vocabulary.RANK_STEP
    )
    assert ranks == {0: 2, 1: 2, 2: 2, 3: 2}


def test_of_one_rank_the_root_is_its_step_and_of_several_it_holds_all_of_them(
    tmp_path: Path,
) -> None:
    for ranks, expected in ((1, 0), (2, 2)):
        folder = tmp_path / f"run-{ranks}"
        write_recording(folder, steps=2, ranks=ranks, trajectories=16)
        for one in traces(read(folder, tmp_path)):
            counts = Counter(span.name for span in one.spans)
            assert (counts["rl.loop"], counts[vocabulary.RANK_STEP]) == (1, expected)
            assert counts["rl.train"] == ranks
            root = one.spans[0]
            assert root.end_ns - root.start_ns == 10_000_000_000 + (ranks - 1) * 10_000_000


def test_what_was_open_when_a_process_died_ends_when_it_was_last_seen(tmp_path: Path) -> None:
    died(tmp_path / "run")
    trace = read(tmp_path / "run", tmp_path)
    last = {one.index: EPOCH_NS + one.last_seen_ns for one in trace.processes}
    unfinished = [one for one in spans(trace) if one.attributes.get("rlvr.unfinished")]
    assert Counter(one.name for one in unfinished) == {"rlvr.rank_step": 2, "rlvr.experience": 2}
    assert all(one.end_ns == last[one.process] and one.failed for one in unfinished)
    batches = {one.span_id for one in unfinished if one.name == "rlvr.experience"}
    inside = [one for one in spans(trace) if one.parent_id in batches]
    assert Counter(one.name for one in inside) == {"rl.sample": 2, "rl.reward": 2}


def test_a_step_that_is_going_on_waits_and_one_of_unknown_fate_is_said(tmp_path: Path) -> None:
    died(tmp_path / "run")
    (tmp_path / "proc").mkdir()
    trace = read(tmp_path / "run", tmp_path)
    assert Plan(trace).waiting == 0
    trace.processes[:] = [replace(one, state="running") for one in trace.processes]
    plan = Plan(trace)
    numbers = {one.attributes.get("rl.loop.iteration") for one in spans(trace)}
    assert (plan.waiting, plan.unclear, 3 in numbers) == (1, 0, False)
    trace.processes[:] = [replace(one, state="unknown") for one in trace.processes]
    plan = Plan(trace)
    assert (plan.waiting, plan.unclear) == (0, 4)


def test_a_span_of_the_application_around_ours_is_a_link(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "run")
    training = Training(journal)
    training.begin()
    for step in (1, 2):
        training.step(step)
        own = journal.spans
        journal.event(
            names.APPLICATION_SPAN, training.now_s, parent=own, trace="a" * 32, span="b" * 16
        )
    journal.span(names.USER, 0.1, 0.2, label="before")
    journal.event(names.APPLICATION_SPAN, 0.2, parent=journal.spans, trace="c" * 32, span="d" * 16)
    journal.close()
    links = [
        (one.name, link.trace_id, link.span_id)
        for one in spans(read(tmp_path / "run", tmp_path))
        for link in one.links
        if link.attributes["rlvr.link.kind"] == "application"
    ]
    expected = [("rl.loop", "a" * 32, "b" * 16)] * 2 + [("rlvr.user before", "c" * 32, "d" * 16)]
    assert links == expected


def test_marks_of_the_user_lie_in_their_step_and_the_others_in_a_trace_of_their_own(
    tmp_path: Path,
) -> None:
    died(tmp_path / "run")
    found = Counter(
        (one.spans[0].name, span.attributes["rlvr.label"])
        for one in traces(read(tmp_path / "run", tmp_path))
        for span in one.spans
        if span.name == f"rlvr.user {span.attributes.get('rlvr.label')}"
    )
    assert found == {("rl.loop", "mine"): 4, ("rlvr.outside_steps", "before"): 2}


def test_metrics_count_what_the_books_say(job: tuple[Books, Trace]) -> None:
    books, trace = job
    last = {
        (point.metric, *sorted(point.attributes.items())): point.value
        for unit in Plan(trace).units()
        for point in unit.points
    }
    train = [one for one in books.trajectories.values() if one.place[0] == "train"]
    mode = ("rlvr.mode", "train")
    assert last["rl.train.steps",] == 4
    assert last["rl.sample.samples", mode] == len(train)
    who = (("gen_ai.operation.name", "invoke_agent"), ("gen_ai.provider.name", "vllm"))
    output = ("gen_ai.token.type", "output")
    series = ("gen_ai.client.token.usage", *who, output, mode)
    tokens = last[series]
    assert isinstance(tokens, Snapshot)
    assert tokens.sum == sum(one.response_tokens for one in train)
    assert tokens.max == max(one.response_tokens for one in train)
    turns = last["rlvr.trajectory.turns", mode]
    assert isinstance(turns, Snapshot)
    assert (turns.count, turns.sum) == (len(train), sum(len(one.turns) for one in train))
    tools = last[
        "rlvr.tool.duration", ("gen_ai.tool.name", "search"), mode, ("rlvr.tool.status", "ok")
    ]
    assert isinstance(tools, Snapshot)
    assert tools.count == sum(len(one.tools) for one in train)


def test_rewards_that_are_not_finite_are_counted_and_none_of_them_is_said_as_0(
    tmp_path: Path,
) -> None:
    journal = JournalFile(tmp_path / "run")
    Training(journal).begin()
    batch = journal.next_span()
    journal.event(
        names.TRAJECTORIES, 7, session=0, step=1, mode="train", batch=batch, offset=0, total=4,
        group_size=4, prompt_tokens=[1] * 4, response_tokens=[1] * 4,
    )  # fmt: skip
    given: dict[str, tuple[list[float | None], list[int] | None]] = {
        "sane": ([1.0, 0.5, None, 0.0], None),
        "odd": ([1.0, None, None, None], [1, 3]),
        "silent": ([None] * 4, None),
    }
    for index, (name, (values, odd)) in enumerate(given.items()):
        journal.event(
            names.REWARDS, 7, batch=batch, function=name, index=index, values=values,
            not_finite=odd,
        )  # fmt: skip
    journal.span(names.STEP, 0.5, 8, session=0, step=1)
    journal.close()
    counted = {
        point.attributes["rlvr.reward.fn"]: point.value
        for unit in Plan(read(tmp_path / "run", tmp_path)).units()
        for point in unit.points
        if point.metric == "rlvr.reward.not_finite"
    }
    assert counted == {"sane": 0, "odd": 2}


def test_a_turn_says_what_its_engine_did_for_it_whoever_told_of_it(
    tmp_path: Path,
) -> None:
    journal = JournalFile(tmp_path / "run")
    training = Training(journal)
    training.begin()
    batch = journal.next_span()
    lengths: dict[str, Any] = {"batch": batch, "prompt_tokens": 12, "response_tokens": 30}
    served: dict[str, Any] = {"queue_s": 0.5, "prefill_s": 0.25, "decode_s": 1.5, "preemptions": 2}
    journal.span(names.TURN, 1, 4, rows=0, turn=0, **lengths, **served, finish="length")
    named: dict[str, Any] = {"cached_tokens": 8, "request": digest("named")}
    journal.span(names.TURN, 4, 6, rows=0, turn=1, **lengths, **named)
    told: dict[str, Any] = {
        "told_by": "scheduler",
        "key": digest("key"),
        "request": digest("named"),
    }
    journal.span(names.REQUEST, 4.5, 5.5, **told, cached_tokens=8, queue_s=0.0, finish="stop")
    journal.span(names.TURN, 1, 3, rows=1, turn=0, **lengths)
    journal.event(
        names.TRAJECTORIES, 7, session=0, step=1, mode="train", batch=batch, offset=0, total=2,
        group_size=2, prompt_tokens=[12, 12], response_tokens=[60, 30],
    )  # fmt: skip
    journal.span(names.STEP, 0.5, 8, session=0, step=1)
    journal.close()
    trace = read(tmp_path / "run", tmp_path)
    assert trace.lost == {}
    said = {
        (one.start_ns - EPOCH_NS, one.end_ns - EPOCH_NS): {
            name: one.attributes.get(name)
            for name in (
                "gen_ai.usage.cache_read.input_tokens", "rlvr.queue_s", "rlvr.prefill_s",
                "rlvr.decode_s", "rlvr.kv.preemptions", "rlvr.finish_reason",
            )
        }
        for one in spans(trace, EVERYTHING)
        if one.attributes.get("gen_ai.operation.name") == "chat"
    }  # fmt: skip
    assert {times: [*values.values()] for times, values in said.items()} == {
        (1 * SECOND, 4 * SECOND): [None, 0.5, 0.25, 1.5, 2, "length"],
        (4 * SECOND, 6 * SECOND): [8, 0.0, None, None, None, "stop"],
        (1 * SECOND, 3 * SECOND): [None, None, None, None, None, None],
    }


@pytest.mark.parametrize("made", today.some(list(MADE), 2))
def test_a_difference_of_counts_is_what_a_point_of_differences_says(
    made: str, tmp_path: Path
) -> None:
    MADE[made](tmp_path / "run")
    trace = read(tmp_path / "run", tmp_path)
    before = dict[object, float]()
    differences = list[tuple[object, float]]()
    for unit in Plan(trace).units():
        for point in unit.points:
            if point.kind == "sum" and isinstance(point.value, (int, float)):
                key = (point.metric, *sorted(point.attributes.items(), key=str))
                differences.append((key, point.value - before.get(key, 0)))
                before[key] = point.value
    told = [
        ((point.metric, *sorted(point.attributes.items(), key=str)), point.value)
        for unit in Plan(trace, temporality="delta").units()
        for point in unit.points
        if point.kind == "sum" and isinstance(point.value, (int, float))
    ]
    assert [key for key, _ in told] == [key for key, _ in differences]
    assert [value for _, value in told] == pytest.approx([value for _, value in differences])


def test_every_attribute_of_a_coarse_span_has_a_name_or_is_left_out_on_purpose() -> None:
    coarse = [one for one in names.ALL if one.otel and (one.coarse or one.stage)]
    assert len(coarse) > 15
    declared = {attribute.name for one in coarse for attribute in one.attributes}
    assert declared == vocabulary.ATTRIBUTES.keys() | vocabulary.INTERNAL


def test_every_span_of_a_recording_has_a_name() -> None:
    assert [one.name for one in names.ALL if not one.event and not one.otel] == []
