"""The timeline against the recording that it was drawn from."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from rlvr_probe_perfetto.drawing import Limits
from rlvr_probe_perfetto.tests.reading import Bar, Timeline, drawn
from rlvr_probe_perfetto.tests.recordings import MADE, died, read

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.model import names
from rlvr_probe.model.trace import Trace
from rlvr_probe.model.turns import ToolCall, ToolColumns
from tests.actors import SECOND, Job
from tests.journals import JournalFile, Training

RUN_TRACKS = ("run", "trajectories")


@pytest.fixture(params=MADE)
def trace(request: pytest.FixtureRequest, tmp_path: Path) -> Trace:
    MADE[request.param](tmp_path / "run")
    return read(tmp_path / "run", tmp_path)


def of_processes(timeline: Timeline) -> list[Bar]:
    return [bar for bar in timeline.bars if bar.line.startswith("spans")]


def test_every_span_is_drawn_once_at_its_time(trace: Trace) -> None:
    spans = [span for one in trace.attempts for step in one.steps for span in step.spans]
    spans += [*trace.unplaced, *trace.user_spans]
    expected = Counter((one.name, one.start_ns, one.end_ns) for one in spans)
    expected.update(
        (one.name, one.start_ns, trace.processes[one.process].last_seen_ns)
        for one in trace.open_spans
    )
    found = Counter(
        (bar.name.split(":")[0].split(" ")[0], *bar.times) for bar in of_processes(drawn(trace))
    )
    assert found == expected
    assert found.total() > 10


def test_what_lies_inside_a_span_was_recorded_inside_it_or_has_no_parent(trace: Trace) -> None:
    spans = {
        (span.process, span.start_ns, span.end_ns, span.name): span
        for one in trace.attempts
        for step in one.steps
        for span in step.spans
    }
    processes = {
        bar.pid: bar.arguments["pid"]
        for bar in drawn(trace).of("process")
        if bar.name.startswith("process ")
    }
    index = {one.pid: one.index for one in trace.processes}
    inside = 0
    for bar in of_processes(drawn(trace)):
        where = index[processes[bar.pid]]
        span = spans.get((where, *bar.times, bar.name.split(":")[0].split(" ")[0]))
        if span is None or bar.parent is None:
            continue
        above = spans.get((where, *bar.parent.times, bar.parent.name.split(":")[0].split(" ")[0]))
        if above is None:
            continue
        inside += 1
        known = {one.id for one in spans.values() if one.process == where}
        assert span.parent == above.id or span.parent not in known
    assert inside or not any(span.parent for span in spans.values())


def test_processes_are_named_by_role_and_rank_and_sorted(tmp_path: Path) -> None:
    Job(tmp_path / "run", steps=2, ranks=12).write()
    timeline = drawn(read(tmp_path / "run", tmp_path))
    names = [timeline.tracks[pid] for pid in sorted(timeline.order, key=timeline.order.__getitem__)]
    ranks = [f"WorkerDict rank {rank}" for rank in range(12)]
    assert names == [
        "run", *["AgentLoopWorker"] * 3, "TaskRunner rank 0", *ranks, "driver", "trajectories",
    ]  # fmt: skip


def test_every_trajectory_has_its_turns_tools_and_verification_inside(tmp_path: Path) -> None:
    books = Job(tmp_path / "run", steps=3, turns=4).write()
    timeline = drawn(read(tmp_path / "run", tmp_path))
    parts = Counter[tuple[int, str]]()
    for bar in timeline.of("turn", "tool_call", "verify"):
        assert bar.parent is not None
        assert bar.parent.kind == "trajectory"
        assert bar.arguments["trajectory"] == bar.parent.arguments["row"]
        parts[bar.parent.start_ns, bar.kind] += 1
    found = {bar.start_ns: bar for bar in timeline.of("trajectory")}
    assert found.keys() == {one.start_ns for one in books.trajectories.values()}
    for one in books.trajectories.values():
        bar = found[one.start_ns]
        mode, *_, row = one.place
        said = bar.arguments
        assert (said["mode"], said["step"], said["batch"], said["row"]) == one.place
        assert said["response_tokens"] == one.response_tokens
        assert bar.name == ("" if mode == "train" else f"{mode} ") + f"trajectory {row}"
        assert parts[one.start_ns, "turn"] == len(one.turns)
        assert parts[one.start_ns, "tool_call"] == len(one.tools)
        assert parts[one.start_ns, "verify"] == 1
        assert one.verified[1] in [
            value for name, value in said.items() if name.startswith("reward ")
        ]


def test_of_many_trajectories_the_slowest_the_failed_and_a_sample_are_drawn_and_it_is_said(
    tmp_path: Path,
) -> None:
    Job(tmp_path / "run", steps=3, prompts=40, turns=4).write()
    trace = read(tmp_path / "run", tmp_path)
    broken = set[int]()
    for step in trace.attempts[0].steps:
        for batch in step.batches:
            for shard in batch.shards:
                times = shard.times_ns[0] if shard.times_ns is not None else None
                tools = shard.tool_calls
                assert isinstance(tools, ToolColumns)
                assert times is not None
                tools.add(0, ToolCall(0, "search", "error", "OSError", times[0], times[0] + 1))
                broken.add(times[0])
    whole, timeline = drawn(trace, Limits(10_000)), drawn(trace, Limits(24))
    assert {bar.start_ns for bar in whole.of("trajectory") if "failed" in bar.name} == broken
    assert not any("drawn_because" in bar.arguments for bar in whole.bars)
    for number in (1, 2, 3):
        every = [bar for bar in whole.of("trajectory") if bar.arguments["step"] == number]
        bars = [bar for bar in timeline.of("trajectory") if bar.arguments["step"] == number]
        why = {bar.start_ns: bar.arguments["drawn_because"] for bar in bars}
        assert (len(every) > 100, len(bars)) == (True, 24)
        slowest = sorted(every, key=lambda bar: bar.end_ns - bar.start_ns)[-6:]
        assert {bar.start_ns for bar in slowest} == {t for t in why if why[t] == "slowest"}
        assert broken & {bar.start_ns for bar in every} <= why.keys()
        assert Counter(why.values())["sampled"] >= 12
    total, left = len(whole.of("trajectory")), len(whole.of("trajectory")) - 3 * 24
    notes = [bar.name for bar in timeline.of("note")]
    assert [note for note in notes if note.startswith(f"{left} of {total} trajectories are not")]
    again = drawn(trace, Limits(24))
    assert timeline.document == again.document


def test_trajectories_of_one_call_have_no_bars_and_it_is_said(tmp_path: Path) -> None:
    MADE["ranks"](tmp_path / "run")
    timeline = drawn(read(tmp_path / "run", tmp_path))
    assert timeline.of("trajectory") == []
    [note] = timeline.of("note")
    assert note.name == "64 trajectories are not drawn: they have no times of their own"


def test_arrows_go_from_each_call_to_what_every_rank_did(tmp_path: Path) -> None:
    books = Job(tmp_path / "run", steps=4, ranks=3).write()
    arrows = drawn(read(tmp_path / "run", tmp_path)).arrows()
    assert len(arrows) == 3 * len(books.calls)
    real = {(start, done) for start, (_, found) in books.calls.items() for _, done in found}
    assert {(one.start_ns, other.start_ns) for one, other in arrows} == real
    assert {bar.kind for arrow in arrows for bar in arrow} == {"rpc"}


def test_what_was_open_when_a_process_died_lasts_until_it_was_last_seen(tmp_path: Path) -> None:
    died(tmp_path / "run")
    trace = read(tmp_path / "run", tmp_path)
    timeline = drawn(trace)
    bars = [bar for bar in timeline.bars if "unfinished" in bar.arguments]
    words = ["experience: mine (unfinished)", "step 3 (unfinished)"]
    assert sorted(bar.name for bar in bars) == sorted(words * 2)
    lives = {bar.track: bar for bar in timeline.of("process")}
    assert {bar.name for bar in lives.values()} == {"process died"}
    for bar in bars:
        assert bar.end_ns == lives[bar.track].end_ns
        assert bar.arguments["unfinished"] == "was open when its process died"
    rollouts = [bar for bar in timeline.of("stage") if bar.arguments.get("step") == 3]
    assert rollouts
    assert all(bar.parent is not None for bar in rollouts)


def test_lost_rows_and_errors_are_told_at_their_process(tmp_path: Path) -> None:
    died(tmp_path / "run")
    trace = read(tmp_path / "run", tmp_path)
    one = trace.processes[0]
    object.__setattr__(one, "lost", {"queue_full": 12, "disk_full": 3})
    object.__setattr__(one, "faults", {"hook": 2})
    trace.lost = {"queue_full": 12, "disk_full": 3}
    timeline = drawn(trace)
    bars = {bar.name: bar for bar in timeline.of("process") if bar.track == "rank 0"}
    assert bars["lost: 15"].arguments == {"queue_full": 12, "disk_full": 3}
    assert bars["errors inside the probe: 2"].arguments == {"hook": 2}
    notes = [bar.name for bar in timeline.of("note")]
    assert "rows lost: 12 (queue full)" in notes
    assert "rows lost: 3 (disk full)" in notes


def test_steps_that_were_thrown_away_say_so(tmp_path: Path) -> None:
    MADE["resumed"](tmp_path / "run")
    trace = read(tmp_path / "run", tmp_path)
    timeline = drawn(trace)
    thrown = {bar.name for bar in timeline.of("step") if "thrown away" in bar.name}
    assert thrown == {f"step {step.number} (thrown away)" for step in trace.redone}
    own = [bar for bar in of_processes(timeline) if bar.kind == "step"]
    assert {bar.name for bar in own if "thrown_away" in bar.arguments} == thrown
    assert {bar.name for bar in own} > thrown
    assert thrown
    assert {track.split(" ")[0] for track in timeline.tracks.values()} == {"run", "attempt"}


def test_some_steps_are_drawn_alone_with_what_lies_beside_them(tmp_path: Path) -> None:
    Job(tmp_path / "run", steps=4).write()
    trace = read(tmp_path / "run", tmp_path)
    whole, part = drawn(trace), drawn(trace, steps=(2, 3))
    assert {bar.arguments["step"] for bar in part.of("step", "trajectory")} == {2, 3}
    begin = min(bar.start_ns for bar in part.of("step"))
    end = max(bar.end_ns for bar in part.bars)
    lives = part.of("process")
    assert lives
    assert all(begin <= bar.start_ns and bar.end_ns <= end for bar in lives)
    assert {bar.times for bar in part.of("rpc")} < {bar.times for bar in whole.of("rpc")}
    with pytest.raises(ProbeError, match="has no step 9; its steps are from"):
        drawn(trace, steps=(9, 9))


def test_times_are_exact_to_the_nanosecond_after_a_month(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "run")
    training = Training(journal, now_s=30 * 86_400.0)
    training.begin()
    training.step(1)
    start_ns, length_ns = 30 * 86_400 * SECOND + 123_456_789, 987_654_321
    journal.row(journal.definition(names.USER, ["label"]), start_ns, length_ns, 999, 0, None, "x")
    journal.close()
    [bar] = drawn(read(tmp_path / "run", tmp_path)).of("user")
    assert bar.times == (start_ns, start_ns + length_ns)


def test_no_host_device_path_or_undeclared_value_is_in_it(tmp_path: Path) -> None:
    canary = "Canary-3Bd"
    where = {"host": canary, "job": canary, "ids": {"wandb": canary}}
    journal = JournalFile(tmp_path / canary / "run", run=f"run-{canary}", header=where)
    training = Training(journal)
    training.begin(prompt=canary, model_type=canary)
    training.step(1)
    rollout = names.Name(
        "rollout", "", tuple(names.Attribute(one, "", "") for one in ("step", "prompt", "samples"))
    )
    journal.span(rollout, 1.0, 1.1, step=1, prompt=canary, samples=[canary])
    journal.span(names.Name(canary, ""), 1.0, 1.1, step=1)
    journal.event(names.PROCESS, 0, role="worker", actor=canary, node=canary)
    journal.close()
    sidecar = JournalFile(
        tmp_path / canary / "run", 90, run=f"run-{canary}", header={"host": canary}
    )
    sidecar.event(names.PROCESS, 0, role=names.SIDECAR)
    sidecar.event(
        names.DEVICE, 0, device=0, uuid=canary, kind="gpu", driver=canary, absent=[f"x: {canary}"]
    )
    sidecar.event(names.DEVICE_SAMPLE, 1, device=0, power_w=100.0)
    sidecar.event(names.DEVICE_SAMPLE, 1.2, device=0, power_w=120.0)
    sidecar.close()
    (tmp_path / canary / "run" / f"{canary}.jsonl").write_text("mine")
    trace = read(tmp_path / canary / "run", tmp_path)
    timeline = drawn(trace)
    assert any(canary in note for note in trace.notes), "it is there to be left out"
    assert [bar.name for bar in timeline.of("note") if "ignored" in bar.name]
    assert timeline.points("GPU 0", "power W")
    assert "Canary" not in json.dumps(timeline.document)


def test_hostile_words_are_cut_and_cannot_break_the_file(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "run")
    training = Training(journal)
    training.begin()
    training.step(1)
    for word in ('"]}\n', "\u2028\u0000", "x" * 10_000, "\x1b[31m"):
        journal.span(names.USER, 1.0, 1.1, label=word)
    journal.span(names.ROLLOUT, 1.0, 1.1, step=1 << 70, samples=float(10**300), mode="train")
    journal.close()
    timeline = drawn(read(tmp_path / "run", tmp_path))
    labels = [bar.arguments["label"] for bar in timeline.of("user")]
    assert len(labels) == 4
    assert all(label.isprintable() and len(label) <= 256 for label in labels)


def test_an_empty_run_is_an_empty_timeline() -> None:
    trace = Trace("run", [], [], [], [], {}, [])
    timeline = drawn(trace)
    assert (timeline.bars, list(timeline.tracks.values())) == ([], ["run"])
