"""The timeline against the recording it was drawn from, and against the format's description."""

from __future__ import annotations

import gzip
import json
import random
import shlex
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_perfetto.lanes import Bar, in_lanes

from rlvr_probe import cli
from rlvr_probe.model import names
from rlvr_probe.model.trace import Trace
from rlvr_probe.trace import read_run
from rlvr_probe.trace.liveness import Machine
from tests.actors import SECOND, Job
from tests.journals import JournalFile, Training
from tests.synthetic import write_recording
from tests.truth import STEP, Truth, tell

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "draw-a-timeline.md"


def draw(run: Path, out: Path, *more: str) -> dict[str, Any]:
    assert cli.main(["export", str(run), "--to", "perfetto", "--out", str(out), *more]) == 0
    data = out.read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(data) if out.suffix == ".gz" else data)
    return found


def bars_of(timeline: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in timeline["traceEvents"] if event["ph"] == "X"]


def coarse(trace: Trace) -> Counter[tuple[int, str, float, float]]:
    spans = [span for one in trace.attempts for step in one.steps for span in step.spans]
    return Counter(
        (one.process + 1, one.name, one.start_ns / 1e3, (one.end_ns - one.start_ns) / 1e3)
        for one in (*spans, *trace.unplaced, *trace.user_spans)
    )


def actors(folder: Path) -> None:
    Job(folder, steps=4, turns=4, other_machine=300 * SECOND).write()


def ranks(folder: Path) -> None:
    write_recording(folder, steps=4, ranks=2, trajectories=16)


def ahead(folder: Path) -> None:
    Job(folder, steps=3, v1=True, seed=3).write()


MADE = {"actors": actors, "ranks": ranks, "ahead": ahead}


@pytest.fixture(params=MADE)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    MADE[request.param](tmp_path / "run")
    return tmp_path / "run"


def test_every_event_has_what_the_format_asks_for(run: Path, tmp_path: Path) -> None:
    timeline = draw(run, tmp_path / "out.json")
    needed = {
        "M": {"name", "pid", "tid", "args"},
        "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
        "s": {"name", "cat", "id", "pid", "tid", "ts"},
        "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
    }
    events = timeline["traceEvents"]
    assert [one for one in events if needed[one["ph"]] != one.keys() - {"ph"}] == []
    named = {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name"}
    assert {(one["pid"], one["tid"]) for one in bars_of(timeline)} == named
    processes = {one["pid"] for one in events if one["name"] == "process_name"}
    assert {pid for pid, _ in named} == processes
    assert all(one["dur"] >= 0 for one in bars_of(timeline))


def test_every_coarse_span_is_drawn_once_at_its_time(run: Path, tmp_path: Path) -> None:
    found = Counter(
        (one["pid"], one["name"].partition(" ")[0], one["ts"], one["dur"])
        for one in bars_of(draw(run, tmp_path / "out.json"))
        if one["tid"] < 10_000
    )
    assert found == coarse(read_run(run))
    assert found.total() > 20


def test_every_trajectory_is_drawn_with_its_turns_and_tools(tmp_path: Path) -> None:
    books = Job(tmp_path / "run", steps=3, turns=4).write()
    bars = [
        one
        for one in bars_of(draw(tmp_path / "run", tmp_path / "out.json"))
        if one["tid"] >= 10_000
    ]
    kinds = Counter(one["cat"] for one in bars)
    lived = books.trajectories.values()
    assert kinds == {
        "trajectory": len(lived),
        "turn": sum(len(one.turns) for one in lived),
        "tool_call": sum(len(one.tools) for one in lived),
    }
    starts = {round(one["ts"] * 1e3) for one in bars if one["cat"] == "trajectory"}
    assert starts == {one.start_ns for one in lived}


def test_what_lies_inside_a_bar_was_recorded_inside_it(run: Path, tmp_path: Path) -> None:
    lanes = defaultdict[tuple[int, int], list[dict[str, Any]]](list)
    for one in bars_of(draw(run, tmp_path / "out.json")):
        lanes[one["pid"], one["tid"]].append(one)
    for bars in lanes.values():
        ends = list[float]()
        for one in bars:
            begin, end = one["ts"], one["ts"] + one["dur"]
            while ends and ends[-1] <= begin + 1e-3:
                ends.pop()
            assert not ends or end <= ends[-1] + 1e-3
            ends.append(end)


@pytest.mark.parametrize("seed", range(30))
def test_in_a_lane_a_bar_is_alone_or_directly_inside_its_parent(seed: int) -> None:
    draw = random.Random(seed)
    bars = list[Bar[int]]()
    for number in range(draw.randrange(1, 120)):
        parent = draw.choice([None, *range(number)]) if number else None
        start = draw.randrange(200)
        if parent is not None and draw.random() < 0.7:
            above = bars[parent]
            start = draw.randint(above.start_ns, above.end_ns)
            end = draw.randint(start, max(start, above.end_ns))
        else:
            end = start + draw.randrange(60)
        bars.append(Bar(number, parent, start, end, number))
    placed = list(in_lanes(bars))
    assert sorted(bar.content for _, bar in placed) == list(range(len(bars)))
    lanes = defaultdict[int, list[Bar[int]]](list)
    for lane, bar in placed:
        lanes[lane].append(bar)
    for found in lanes.values():
        stack = list[Bar[int]]()
        for bar in found:
            while stack and stack[-1].end_ns <= bar.start_ns:
                stack.pop()
            if stack:
                assert stack[-1].key == bar.parent
                assert bar.end_ns <= stack[-1].end_ns
            stack.append(bar)


def test_arrows_go_from_each_call_to_what_every_rank_did(tmp_path: Path) -> None:
    books = Job(tmp_path / "run", steps=4, ranks=3).write()
    timeline = draw(tmp_path / "run", tmp_path / "out.json")
    at = {(one["pid"], one["tid"], one["ts"]) for one in bars_of(timeline) if one["cat"] == "rpc"}
    begins = {one["id"]: one for one in timeline["traceEvents"] if one["ph"] == "s"}
    ends = {one["id"]: one for one in timeline["traceEvents"] if one["ph"] == "f"}
    assert begins.keys() == ends.keys()
    assert len(begins) == 3 * len(books.calls)
    assert all(
        (one["pid"], one["tid"], one["ts"]) in at for one in (*begins.values(), *ends.values())
    )
    pairs = {(round(begins[one]["ts"] * 1e3), round(ends[one]["ts"] * 1e3)) for one in begins}
    real = {(start, done) for start, (_, found) in books.calls.items() for _, done in found}
    assert pairs == real


def test_counters_of_devices_are_tracks_and_what_counts_up_is_drawn_as_how_fast(
    tmp_path: Path,
) -> None:
    journal = JournalFile(tmp_path / "run", 1)
    training = Training(journal)
    training.begin()
    training.step(1)
    journal.close()
    sidecar = JournalFile(tmp_path / "run", 9)
    sidecar.event(names.PROCESS, 0, role=names.SIDECAR)
    real = Truth(STEP, 1)
    tell(sidecar, 0, "GPU-1", real)
    sidecar.close()
    timeline = draw(tmp_path / "run", tmp_path / "out.json")
    tracks = defaultdict[str, list[tuple[float, float]]](list)
    for one in timeline["traceEvents"]:
        if one["ph"] == "C":
            tracks[one["name"]].append((one["ts"], one["args"]["value"]))
    [series] = read_run(tmp_path / "run").devices
    assert [(t / 1e3, v) for t, v in series.points("power_w")] == tracks["power_w, W"]
    assert len(tracks["energy_j/s"]) == len(tracks["power_w, W"]) - 1
    for time_us, watts in tracks["energy_j/s"]:
        begin = round(time_us * 1e3) - 200_000_000
        drawn = real.energy_j(begin + 200_000_000) - real.energy_j(begin)
        assert watts == pytest.approx(drawn / 0.2, abs=0.1)


def test_what_was_open_when_a_process_died_lasts_until_it_was_last_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = JournalFile(tmp_path / "run")
    training = Training(journal)
    training.begin()
    training.step(1)
    whole = journal.next_span()
    journal.close(end=False)
    journal.open_table((whole, 1.5, "step", "a word"), beat_s=4.0, step=2)
    monkeypatch.setattr(Machine, "is_home_of", lambda *_: True)
    monkeypatch.setattr(Machine, "_started", lambda *_: None)
    bars = bars_of(draw(tmp_path / "run", tmp_path / "out.json"))
    [one] = [bar for bar in bars if "unfinished" in bar["args"]]
    assert (one["name"], one["ts"], one["dur"]) == ("step (unfinished)", 1.5e6, 2.5e6)
    assert one["args"] == {"unfinished": True, "step": 2, "detail": "a word"}


def test_some_steps_can_be_drawn_and_what_is_left_out_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    books = Job(tmp_path / "run", steps=4).write()
    timeline = draw(
        tmp_path / "run", tmp_path / "out.json", "--steps", "2-3", "--max-trajectories", "3"
    )
    steps = {one["args"]["step"] for one in bars_of(timeline) if one["cat"] == "step"}
    assert steps == {2, 3}
    drawn = [one for one in bars_of(timeline) if one["cat"] == "trajectory"]
    there = [one for one in books.trajectories.values() if one.place[1] in (2, 3)]
    assert len(drawn) == 6
    assert f"{len(there) - 6} trajectories are not drawn" in capsys.readouterr().out


def test_the_same_recording_gives_the_same_bytes_wherever_it_lies(
    run: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "Canary-folder-9Xz" / "run"
    shutil.copytree(run, elsewhere)
    for name in ("a.json", "a.json.gz"):
        one, other = tmp_path / name, tmp_path / f"other-{name}"
        draw(run, one)
        draw(elsewhere, other)
        assert one.read_bytes() == other.read_bytes()
        assert b"Canary" not in one.read_bytes()


def test_what_a_recording_should_not_hold_is_not_drawn_either(tmp_path: Path) -> None:
    canary = "Canary-text-3Bd"
    journal = JournalFile(tmp_path / "run")
    training = Training(journal)
    training.begin(prompt=canary)
    training.step(1)
    rollout = names.Name(
        "rollout", "", tuple(names.Attribute(one, "", "") for one in ("step", "prompt", "samples"))
    )
    journal.span(rollout, 1.0, 1.1, step=1, prompt=canary, samples=[canary])
    journal.span(names.Name(canary, ""), 1.0, 1.1, step=1)
    journal.close()
    assert "Canary" not in json.dumps(draw(tmp_path / "run", tmp_path / "out.json"))


def test_the_commands_of_the_guide_make_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    actors(tmp_path / "rlvr-probe-runs" / "run")
    monkeypatch.chdir(tmp_path)
    lines = [line[2:] for line in PAGE.read_text("utf-8").splitlines() if line.startswith("$ ")]
    for line in lines:
        program, *words = shlex.split(line)
        assert (program, cli.main(words)) == ("rlvr-probe", 0)
    files = [path for path in tmp_path.iterdir() if path.suffix == ".gz"]
    assert len(files) == len(lines) == 2
    assert all(json.loads(gzip.decompress(path.read_bytes())) for path in files)


def test_a_file_in_the_way_is_refused_and_a_failure_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks(tmp_path / "run")
    out = tmp_path / "out.json"
    out.write_text("mine")
    command = ["export", str(tmp_path / "run"), "--to", "perfetto", "--out", str(out)]
    assert cli.main(command) == cli.UNABLE
    assert out.read_text() == "mine"
    assert cli.main([*command, "--force", "--steps", "99"]) == cli.UNABLE
    assert "nothing to draw" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert cli.main([*command, "--force"]) == 0
    assert json.loads(out.read_text())["traceEvents"]
    command[-1] = str(tmp_path / "no" / "folder.json")
    assert cli.main(command) == cli.UNABLE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", "run"]
