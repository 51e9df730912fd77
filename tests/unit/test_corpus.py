"""Recordings of real trainings: they tell nothing of their maker, and are read as their books say.

What each framework records is compared with its books in ``test_recorded.py`` of its tests.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe import cli
from rlvr_probe.analysis.finding import standing_of
from rlvr_probe.model.trace import Span, Trace
from rlvr_probe.probe.journal.writer import build_header
from rlvr_probe.recording import read_run
from rlvr_probe.recording.follow.activity import Activity
from rlvr_probe.report.show_tables import short_state
from tests import today, trainings
from tests.agreeing import disagreements
from tests.corpus.books import BOOKS, Told
from tests.corpus.identifying import BOOT, HOST, RELEASE, told
from tests.corpus.recordings import (
    CORPUS,
    RECORDED,
    archive,
    folder_of,
    members,
    unpacked,
)
from tests.exported import exported
from tests.summarized import summary_of
from tests.watched import check_what_is_told_of_it

every_recording = pytest.mark.parametrize("name", today.some(list(RECORDED), 2))

EACH_B, ALL_B = 512 << 10, 3 << 20


class Opened:
    """One recording, unpacked.

    Attributes:
        training: The folder of the training.
        run: The folder of the recorded run.
        books: What the training wrote down itself.
    """

    def __init__(self, training: Path, name: str) -> None:
        self.training = unpacked(name, training)
        self.run = folder_of(training)
        self.books: Told = BOOKS[name](training)

    @cached_property
    def trace(self) -> Trace:
        """What was recorded."""
        return read_run(self.run)

    @cached_property
    def screen(self) -> str:
        """What ``rlvr-probe characterize`` prints of it, as one line."""
        return " ".join(said("characterize", str(self.run), "--json", str(self._answer)).split())

    @cached_property
    def characterized(self) -> dict[str, Any]:
        """What it says of it in full."""
        assert self.screen
        found: dict[str, Any] = json.loads(self._answer.read_text())
        return found

    @property
    def _answer(self) -> Path:
        return self.training / "characterized.json"


def said(*arguments: str) -> str:
    """What ``rlvr-probe`` printed, which succeeded."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert cli.main(list(arguments)) == cli.OK
    return printed.getvalue()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Opened]]:
    found: dict[str, Opened] = {}

    def of(name: str) -> Opened:
        if name not in found:
            found[name] = Opened(tmp_path_factory.mktemp(name), name)
        return found[name]

    yield of
    exported.cache_clear()


@pytest.fixture
def recording(opened: Callable[[str], Opened], name: str) -> Opened:
    return opened(name)


# ---------------------------------------------------------------- of whom they tell


@every_recording
def test_a_recording_tells_nothing_of_the_machine_that_made_it(name: str) -> None:
    found = [one for member, content in members(archive(name)) for one in told(member, content)]
    assert found == []


def test_a_recording_that_was_made_here_would_tell_of_this_machine() -> None:
    header = build_header(process="0" * 16, run="run", owner=None, mono_ns=0, epoch_ns=0)
    found = " ".join(told("recordings/run/p.0000.jsonl", json.dumps(header).encode()))
    assert f"host {header['host']}" in found
    assert f"boot {header['boot']}" in found
    assert f"uuid {header['boot']}" in found


HEADER = {"host": HOST, "boot": BOOT, "ids": {}}


def journal(*rows: object, **header: object) -> tuple[str, str]:
    lines = [HEADER | header, *rows]
    return "recordings/run/p.0000.jsonl", "".join(f"{json.dumps(one)}\n" for one in lines)


DEVICE = ["def", 0, "event", "device", ["device", "uuid", "kind", "driver"]]


def device(uuid: str, kind: str, driver: str | None) -> tuple[str, str]:
    return journal(DEVICE, [0, 1, 0, 0, uuid, kind, driver])


@pytest.mark.parametrize(
    ("planted", "expected"),
    [
        (journal(host="buildbox7"), "host buildbox7"),
        (journal(boot=None), "boot None"),
        (journal(ids={"wandb_run_id": "3kq8"}), "wandb_run_id 3kq8"),
        (device("host-1", "host", "6.8.0-45-mine"), "kernel 6.8.0-45-mine"),
        (
            device("GPU-5a3c0e4f-77b0-4d0e-9f43-0a8d2f0c9b11", "gpu", None),
            "uuid 5a3c0e4f-77b0-4d0e-9f43-0a8d2f0c9b11",
        ),
        (("processes.json", '["/home/ada/rl/train.py"]'), "path /home/ada/rl/train.py"),
        (("processes.json", "python /root/rl/train.py"), "path /root/rl/train.py"),
        (("books/result.json", '{"at": "/scratch"}'), "path /scratch"),
        (("books/result.json", "in '/tmp/pytest-of-ada/pytest-0'"), "path /tmp/pytest-of-ada/"),
        (("recordings/run/otlp.offsets", "http://10.11.12.13:4318"), "address 10.11.12.13"),
        (("books/result.json", '"0a:1b:2c:3d:4e:5f"'), "address 0a:1b:2c:3d:4e:5f"),
        (
            ("books/result.json", str(Path(__file__).parents[2])),
            f"this machine's {Path(__file__).parents[2]}",
        ),
    ],
)
def test_what_tells_of_a_machine_is_found(planted: tuple[str, str], expected: str) -> None:
    name, text = planted
    found = list(told(name, text.encode()))
    assert any(expected in one for one in found), found


@pytest.mark.parametrize("place", ["getpass.getuser", "socket.gethostname"])
def test_names_of_this_machine_are_found_wherever_they_stand(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    from tests.corpus import identifying

    monkeypatch.setattr(place, lambda: "ada-7")
    identifying._of_this_machine.cache_clear()
    try:
        assert list(told("books/a.json", b'{"by": "ada-7"}')) == [
            "books/a.json: this machine's ada-7"
        ]
        assert list(told("books/a.json", b'{"by": "ada-77"}')) == []
    finally:
        identifying._of_this_machine.cache_clear()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        journal(ids={"ray_job_id": "01000000"}),
        device(f"host-{BOOT}", "host", RELEASE),
        ("processes.json", '["/srv/rlvr-probe/.venv/bin/python /srv/run/run-0/job.py"]'),
        ("books/metrics.jsonl", '{"actor/lr": 1e-6, "timing_s/step": 1.0, "at": "127.0.0.1:80"}'),
    ],
)
def test_what_any_machine_may_tell_is_not_found(name: str, text: str) -> None:
    assert list(told(name, text.encode())) == []


# ---------------------------------------------------------------- what they are


def test_recordings_are_small_and_the_readme_names_each_with_its_size() -> None:
    sizes = {path.name: path.stat().st_size for path in CORPUS.glob("*.tar.gz")}
    assert set(sizes) == {archive(name).name for name in RECORDED}
    assert max(sizes.values()) < EACH_B
    assert sum(sizes.values()) < ALL_B
    text = (CORPUS / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| `(.+)\.tar\.gz` \|.*\| ([\d.]+) \| ([\d,]+) \|$", text, re.MULTILINE)
    assert {name: version for name, version, _ in rows} == {
        name: one.version for name, one in RECORDED.items()
    }
    assert {f"{name}.tar.gz": int(size.replace(",", "")) for name, _, size in rows} == sizes


@every_recording
def test_a_recording_states_the_framework_and_its_version(recording: Opened, name: str) -> None:
    [attempt] = recording.trace.attempts
    [session] = attempt.sessions
    facts = (session.facts["framework"], session.facts["framework_version"])
    assert facts == (RECORDED[name].framework, RECORDED[name].version)


@every_recording
def test_a_recording_is_whole(recording: Opened) -> None:
    trace = recording.trace
    assert (trace.lost, trace.notes, trace.unreached, trace.open_spans) == ({}, [], {}, [])
    assert (trace.unjoined_rpcs, trace.redone) == (0, [])
    assert [dict(one.faults) for one in trace.processes if one.faults] == []
    assert {one.state for one in trace.processes} <= {"exited", "ended_with_training"}
    assert [step.complete for step in trace.steps()] == [True] * recording.books.steps


# ---------------------------------------------------------------- what is said of them


@every_recording
def test_the_report_says_what_the_books_say(recording: Opened) -> None:
    books, summary = recording.books, summary_of(recording.run)
    lengths = summary["lengths"]
    assert (summary["steps"], summary["groups"]) == (books.steps, books.groups)
    assert summary["trajectories"] == len(books.responses)
    assert summary["prompt_tokens"] == sum(books.prompts)
    assert summary["response_tokens"] == sum(books.responses)
    assert lengths["prompt_tokens"]["max"] == books.prompts[-1]
    assert lengths["response_tokens"]["max"] == books.responses[-1]
    assert lengths["response_tokens"]["mean"] == pytest.approx(
        sum(books.responses) / len(books.responses)
    )
    assert lengths["truncated_share"] == pytest.approx(books.truncated / len(books.responses))
    turns = (summary["turns"] or {}).get("turns")
    assert (turns or None) == books.turns
    assert (sum(one["calls"] for one in summary["tools"] or ()) or None) == books.calls


@every_recording
def test_the_report_and_the_characterization_say_one_thing(recording: Opened) -> None:
    assert disagreements(summary_of(recording.run), recording.characterized) == []


@every_recording
def test_the_report_and_what_is_stuck_say_one_thing_of_its_processes(recording: Opened) -> None:
    found = Counter(one["state"] for one in summary_of(recording.run)["process_list"])
    with contextlib.closing(Activity(recording.run)) as pulse:
        stuck = standing_of(pulse.read(), [], 0).states
    assert {short_state(state): count for state, count in found.items()} == stuck
    assert set(stuck) <= {"exited", "ended"}


_APART = (
    r"[\d.]+ s waited, \d+% of it in the function, \d+% before it \(queue and way there\),"
    r" \d+% after it"
)


@pytest.mark.parametrize(
    ("name", "printed"),
    today.some(
        [
            ("trl", r"later [\d.]+ s, keeper"),
            ("verl", rf"compute_score {_APART}"),
            ("openrlhf", rf"reward_func {_APART}"),
            ("openrlhf-agent", r"agent [\d.]+ s waited, queues included"),
        ],
        2,
    ),
)
def test_the_wait_for_a_reward_is_not_called_the_time_of_its_function(
    recording: Opened, printed: str
) -> None:
    assert re.search(f"reward functions \\(ended calls\\): {printed}", recording.screen)
    waits = {one["function"]: one["waited"] for one in summary_of(recording.run)["rewards"]}
    assert set(waits.values()) == {"waited" in printed}


@every_recording
def test_the_report_is_printed_with_every_step(recording: Opened) -> None:
    printed = said("show", str(recording.run))
    assert f"{recording.books.steps} steps recorded over" in printed
    assert f"{len(recording.books.responses)} trajectories" in printed


def figure(characterized: dict[str, Any], identifier: str) -> list[Any]:
    """Values of a figure, for everything that it is told of."""
    return [
        one["value"]
        for chapter in characterized["chapters"]
        for one in chapter["figures"]
        if one["id"] == identifier
    ]


@every_recording
def test_figures_of_the_characterization_are_those_of_the_books(recording: Opened) -> None:
    books, found = recording.books, recording.characterized
    for kind, lengths in (("prompt", books.prompts), ("response", books.responses)):
        assert figure(found, f"lengths.{kind}.count") == [len(lengths)]
        assert figure(found, f"lengths.{kind}.mean") == [pytest.approx(sum(lengths) / len(lengths))]
        assert figure(found, f"lengths.{kind}.min") == [lengths[0]]
        assert figure(found, f"lengths.{kind}.max") == [lengths[-1]]
    assert figure(found, "lengths.response.truncated") == [
        pytest.approx(books.truncated / len(books.responses))
    ]
    assert (sum(figure(found, "tools.tool.calls")) or None) == books.calls


@every_recording
def test_the_shares_of_the_ledger_of_a_real_run_make_up_its_time(recording: Opened) -> None:
    shares = figure(recording.characterized, "ledger.share")
    assert len(shares) > 20
    assert sum(shares) == pytest.approx(1.0)
    [time] = figure(recording.characterized, "ledger.gpu_time")
    assert sum(figure(recording.characterized, "ledger.time")) == pytest.approx(time)


@every_recording
def test_nothing_in_a_run_that_ended_is_stuck(recording: Opened) -> None:
    answer = json.loads(said("stuck", "--no-stacks", "--json", str(recording.run)))
    assert answer["stuck"] is False
    assert {one["verdict"] for one in answer["findings"]} <= {"idle"}


# Ray kills actors of verl as it ends, which only the machine that they ran on can know.
@pytest.mark.parametrize("name", [name for name in RECORDED if name != "verl"])
def test_a_run_whose_processes_all_ended_is_told_to_be_over(recording: Opened) -> None:
    assert {one.state for one in recording.trace.processes} == {"exited"}
    heading, *told = said("stuck", "--no-stacks", str(recording.run)).splitlines()
    assert heading == f"{recording.run.name} · {len(recording.trace.processes)} exited"
    assert [line.partition(", last seen ")[0] for line in told] == ["finished: training returned"]


# ---------------------------------------------------------------- what is made of them


@every_recording
def test_a_workload_is_valid_and_has_every_length_of_the_books(
    recording: Opened, tmp_path: Path
) -> None:
    written, folder = trainings.write_workload(recording.trace, tmp_path / "workload")
    books = recording.books
    assert (written.groups, written.trajectories) == (books.groups, len(books.responses))
    rows = [
        json.loads(line)
        for path in folder.rglob("*_step_*.jsonl")
        if path.name.startswith(("packed_lengths_step_", "multiturn_workload_step_"))
        for line in path.read_text().splitlines()
    ]
    if "output" in rows[0]:
        assert sorted(row["input"] for row in rows for _ in row["output"]) == books.prompts
        assert sorted(length for row in rows for length in row["output"]) == books.responses
    else:
        assert sorted(row["prompt_len"] for row in rows) == books.prompts
        assert sorted(row["final_response_len"] for row in rows) == books.responses
        assert sum(len(row["turns"]) for row in rows) == books.turns


@every_recording
def test_a_recording_is_converted_and_judged_sound_by_the_command_line(
    recording: Opened, tmp_path: Path
) -> None:
    folder = tmp_path / "workload"
    said("convert", str(recording.run), "--to", "polytrace", "--out", str(folder))
    assert said("validate", str(folder))


@every_recording
def test_exports_have_every_step_and_every_turn_once(recording: Opened) -> None:
    steps = list(recording.trace.steps())
    turns = sum(
        len(sample.turns)
        for step in steps
        for batch in (*step.batches, *step.evaluations)
        for group in batch.groups()
        for sample in group.trajectories
    )
    (_, plan), (_, timeline) = exported(recording.run)
    spans = Counter(
        span["name"].partition(" ")[0]
        for unit in json.loads(plan)["units"]
        for trace in unit["traces"]
        for span in trace["spans"]
    )
    assert (spans["rl.loop"], spans["chat"]) == (recording.books.steps, turns)
    drawn = [
        (one["cat"], one["name"]) for one in json.loads(timeline)["traceEvents"] if one["ph"] == "X"
    ]
    assert {name for kind, name in drawn if kind == "step"} == {
        f"step {step.number}" for step in steps
    }
    assert sum(kind == "turn" for kind, _ in drawn) == turns


@pytest.mark.parametrize("name", ["trl", "verl"])
def test_what_a_collector_got_of_a_recording_is_what_is_exported_of_it(recording: Opened) -> None:
    check_what_is_told_of_it(
        recording.trace,
        recording.run,
        recording.training,
        lasting=len(recording.trace.processes) > 1,
    )


# ---------------------------------------------------------------- whether they are still so


Shape = Counter[tuple[Any, ...]]


def shape(trace: Trace) -> Shape:
    """What was recorded, but for when, by which process number and under which id."""

    def of(span: Span, where: str) -> tuple[Any, ...]:
        known = {key: str(value) for key, value in span.attributes.items()}
        return (where, span.name, *sorted(known.items()))

    return Counter(of(span, str(step.number)) for step in trace.steps() for span in step.spans)


def lengths(trace: Trace) -> list[Any]:
    """Every trajectory of every batch."""
    return [
        (
            batch.step,
            batch.mode,
            batch.policy_version,
            group.index,
            sample.prompt_tokens,
            sample.response_tokens,
            sample.loss_tokens,
            sample.truncated,
            [reward.value for reward in sample.rewards],
            [(turn.index, turn.prompt_tokens, turn.response_tokens) for turn in sample.turns],
            sorted((call.turn or 0, call.tool or "", call.status) for call in sample.tool_calls),
        )
        for step in trace.steps()
        for batch in (*step.batches, *step.evaluations)
        for group in batch.groups()
        for sample in group.trajectories
    ]


@pytest.mark.conformance
@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_maker_still_makes_what_is_kept(
    opened: Callable[[str], Opened], tmp_path: Path
) -> None:
    assert metadata.version("trl") == RECORDED["trl-tools"].version
    command = [sys.executable, "-m", "tests.corpus.make", "--to", str(tmp_path), "trl-tools"]
    done = subprocess.run(
        command, cwd=CORPUS.parents[1], capture_output=True, text=True, check=False
    )
    if "user namespaces are needed" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    for member, content in members(tmp_path / "trl-tools.tar.gz"):
        path = tmp_path / "again" / member
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    kept, made = opened("trl-tools"), tmp_path / "again"
    assert BOOKS["trl-tools"](made) == kept.books
    trace = read_run(folder_of(made))
    assert lengths(trace) == lengths(kept.trace)
    assert shape(trace) == shape(kept.trace)
