"""Recordings that no recorder wrote: read in bounded memory and time, without a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.model import names, schema
from rlvr_probe.probe.recorder import Recorder
from rlvr_probe.recording import read_run
from rlvr_probe.recording.follow import window as window_module
from rlvr_probe.recording.follow.window import Window
from rlvr_probe.report import render
from rlvr_probe.workload import build_workload
from tests.journals import JournalFile, Training, fake_proc, key, simple_run, summed
from tests.summarized import summary_of

MEMORY_B = 400_000_000
"""Address space of a reading process beyond what Python and its libraries take."""


def figures(folder: Path) -> dict[str, Any]:
    """Everything ``show`` prints; the workload is built as well."""
    trace = read_run(folder)
    found = summary_of(folder)
    json.dumps(found, allow_nan=False)
    render(found, io.StringIO())
    with contextlib.suppress(ProbeError):
        build_workload(trace)
    return found


def training(folder: Path) -> Training:
    found = Training(JournalFile(folder))
    found.begin()
    found.step(1)
    return found


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 10 << 30)


def sparse_behind_a_header(path: Path) -> None:
    _, segment, _ = path.name.split(".")
    JournalFile(path.parent, int(path.name[1:17], 16), segment=int(segment)).close(end=False)
    sparse(path)


def one_long_line(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(50):
            file.write(b"1," * 1_000_000)


def line_feeds(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(100):
            file.write(b"\n" * 1_000_000)


def rows_without_sums(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(100):
            file.write(b"[0,1,2,3,0,null]\n" * 60_000)


ENDLESS = (sparse, sparse_behind_a_header, one_long_line, line_feeds, rows_without_sums)


@pytest.mark.conformance
def test_an_endless_file_is_given_up_in_bounded_memory(tmp_path: Path) -> None:
    for make in ENDLESS:
        folder = tmp_path / make.__name__
        training(folder).journal.close()
        begun, alone = (folder / schema.segment_name(key(item), 2 - item) for item in (1, 2))
        make(begun)
        if make is sparse_behind_a_header:
            make(alone)
        else:  # the same bytes, written once
            alone.hardlink_to(begun)
    script = f"""
import json, pathlib, resource, sys
from rlvr_probe.recording import read_run
resource.setrlimit(resource.RLIMIT_DATA, ({MEMORY_B}, {MEMORY_B}))
traces = {{name: read_run(pathlib.Path(name)) for name in sys.argv[1:]}}
found = {{name: [len(list(trace.steps())), dict(trace.lost)] for name, trace in traces.items()}}
print(json.dumps(found))
"""
    command = [sys.executable, "-c", script, *(make.__name__ for make in ENDLESS)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {
        make.__name__: [1, {"endless_file": 2}]
        if make is sparse_behind_a_header
        else [1, {"endless_file": 1, "no_header": 1}]
        for make in ENDLESS
    }


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[" * 1_000_000, "bad_line"),
        (b"[" * 100_000 + b"]" * 100_000, "bad_line"),
        (b'["own",1,' + b"9" * 4_000 + b"]", "bad_row"),
        (b'["own",1,' + b"9" * 100 + b"]", "bad_row"),
        (b'["own",NaN,1]', "bad_line"),
        (b'["own",1,1e400]', "bad_line"),
        (b'["own",1,-5]', "bad_row"),
        (b'["lost",1,"\xff",1]', "bad_line"),
        (b'["lost",1,"x",1,1]', "bad_row"),
        (b'["def",1,"span","step",[1]]', "bad_row"),
    ],
)
def test_a_row_that_is_nonsense_is_counted(tmp_path: Path, line: bytes, reason: str) -> None:
    found = training(tmp_path)
    found.journal.raw(line)
    found.journal.close()
    result = figures(tmp_path)
    assert (sum(result["lost"].values()), result["trajectories"]) == (1, 8)
    # Where a number becomes too large to be JSON is the decoder's own affair.
    assert result["lost"].keys() <= {reason, "bad_line"}


@pytest.mark.parametrize(
    "line",
    [
        b'["def",' + b"[" * 100_000,
        b'["def",' + b"[" * 5_000 + b"]" * 5_000 + b"]",
        b'["end",' + b"[" * 100_000,
        b'["def",1e400,"event","process",["role"]]',
        b'["def",' + b"9" * 4_000 + b',"event","process",["role"]]',
        b"[0,1," + b"[" * 100_000,
        b"[0,1e308,1e308,1,0,null]",
        b"\xff\xfe",
    ],
)
def test_a_row_that_is_nonsense_keeps_no_run_that_goes_on_from_being_told(
    tmp_path: Path, line: bytes
) -> None:
    found = training(tmp_path / "run")
    found.journal.raw(line)
    found.step(2)
    found.journal.raw(line)
    found.journal.close()
    with contextlib.closing(Window(tmp_path / "run", fake_proc(tmp_path / "proc"))) as window:
        while window.read(100_000):
            pass
        over = window.over()
        assert over is not None
        window.forget(over)
    assert [step.number for step in over.steps] == [1, 2]


def test_numbers_at_their_limits_end_in_figures_or_in_a_count(tmp_path: Path) -> None:
    journal = JournalFile(
        tmp_path, header={"mono_ns": (1 << 63) - 2, "epoch_ns": (1 << 63) - 2, "rank": 1 << 62}
    )
    found = Training(journal)
    found.begin(
        world_size=1 << 62, rollout_tp=1 << 62, steps_per_generation=1 << 62, accumulation=1,
        iterations=1 << 62, max_response_tokens=-1, group_size=0, reward_functions=[[1], None],
        framework=5, session=-3,
    )  # fmt: skip
    found.step(1)
    found.step((1 << 62) - 100, generate=False)
    batch: dict[str, Any] = {
        "session": 0, "step": 2, "mode": "train", "batch": 1, "ordinal": (1 << 62) - 1,
        "prompt_tokens": [2**32 - 1] * 4, "response_tokens": [2**32 - 1] * 4,
    }  # fmt: skip
    huge = 1 << 61
    journal.event(
        names.TRAJECTORIES, 1.0, **batch, offset=huge, total=huge * 2 - 1, group_size=huge
    )
    journal.event(names.TRAJECTORIES, 1.0, **batch, offset=0, total=huge, group_size=1)
    journal.event(
        names.REWARDS, 2.0, batch=2, function="f" * 100_000, index=huge, values=[1e308] * 8
    )
    journal.span(names.STEP, -1e9, 1e9, session=0, step=3)
    journal.span(names.STEP, 5, 3, session=0, step=4)
    journal.close()
    assert figures(tmp_path)["lost"]["bad_row"] >= 1


def test_parents_in_a_circle_and_ids_that_repeat_end(tmp_path: Path) -> None:
    found = training(tmp_path)
    journal = found.journal
    journal.span(names.ROLLOUT, 1, 2, span=50, parent=51)
    journal.span(names.REWARD, 1, 2, span=51, parent=50)
    journal.span(names.REWARD, 1, 2, span=52, parent=52)
    for _ in range(50):
        journal.span(names.OTHER, 1, 2, span=60, parent=61)
    for number in range(5_000):
        journal.span(names.OTHER, 1, 2, span=100 + number, parent=101 + number)
    journal.close()
    assert figures(tmp_path)["trajectories"] == 8


def test_a_training_that_skips_to_a_step_far_away_ends(tmp_path: Path) -> None:
    found = training(tmp_path)
    found.step(10**17, generate=False)
    found.journal.close()
    assert figures(tmp_path)["steps"] == 2


def test_definitions_without_end_and_definitions_that_change(tmp_path: Path) -> None:
    found = training(tmp_path)
    for number in range(20_000):
        found.journal.row("def", 100 + number, "span", "step", [f"a{number}"])
    for kind, name in (("event", "session"), ("span", "data"), ("span", "step")):
        found.journal.row("def", 90, kind, name, ["step"])
        found.journal.row(90, 1, 2, 3, 0, None, 1)
    found.journal.close()
    assert figures(tmp_path)["trajectories"] == 8


def test_what_is_no_file_of_ours_is_never_opened(tmp_path: Path) -> None:
    training(tmp_path).journal.close()
    journal = [tmp_path / schema.segment_name(key(number), 0) for number in range(2, 8)]
    table = [tmp_path / f"p{key(number)}{schema.OPEN_SUFFIX}" for number in range(1, 4)]
    os.mkfifo(journal[0])
    os.mkfifo(table[0])
    journal[1].mkdir()
    table[1].mkdir()
    journal[2].symlink_to("/dev/zero")
    table[2].symlink_to("/dev/zero")
    journal[3].symlink_to(journal[3])
    (tmp_path / "self").symlink_to(tmp_path)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b[2J\n.jsonl")).touch()
    result = figures(tmp_path)
    assert (result["trajectories"], result["lost"]) == (8, {})
    assert result["notes"][0].startswith("8 files ignored, not of a recording")


def test_a_folder_of_many_files_is_read_in_one_pass(tmp_path: Path) -> None:
    folder, empty = tmp_path / "run", tmp_path / "empty"
    training(folder).journal.close()
    empty.touch()
    for number in range(5_000):
        # Names of one file: to make ten thousand files takes some disks seconds.
        os.link(empty, folder / f"x{number}.jsonl")
        os.link(empty, folder / schema.segment_name(key(10 + number), 0))
    result = figures(folder)
    assert (result["processes"], result["trajectories"]) == (1, 8)


def test_a_run_of_many_processes_is_told_of_in_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 300
    for number in range(count):
        journal = JournalFile(tmp_path / "run", number=number)
        journal.span(names.USER, 0, 1, label="work")
        journal.close()
    asked, real = list[object](), window_module._reached

    def reached(process: Any) -> int:
        asked.append(process)
        return real(process)

    monkeypatch.setattr(window_module, "_reached", reached)
    with contextlib.closing(Window(tmp_path / "run", fake_proc(tmp_path / "proc"))) as window:
        while window.read(1 << 30):
            pass
    assert count <= len(asked) <= 4 * count


def test_many_launches_under_one_run_id_are_told_apart(tmp_path: Path) -> None:
    for number in range(300):
        journal = JournalFile(
            tmp_path, number + 1, start_s=10 * number, header={"job": f"{number}"}
        )
        found = Training(journal)
        found.begin(resumed_step=number)
        found.step(number + 1)
        journal.close()
    result = figures(tmp_path)
    assert (result["attempts"], result["steps"], result["redone_steps"]) == (300, 300, 0)
    assert not any(item["concurrent"] for item in result["attempt_list"])


def test_a_file_that_may_not_be_read_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = training(tmp_path)
    found.journal.rotate()
    found.step(2)
    path = found.journal.close()
    simple_run(tmp_path, ranks=1, steps=1)
    open_file = Path.open

    def refuse(self: Path, *args: Any, **options: Any) -> Any:
        if self.name == path.name:
            raise PermissionError(13, "Permission denied")
        return open_file(self, *args, **options)

    monkeypatch.setattr(Path, "open", refuse)
    assert figures(tmp_path)["lost"] == {"unreadable_file": 1}


def test_a_key_that_a_header_says_twice_is_settled_before_anything_is_read(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    text = json.dumps(journal.header)[:-1] + ',"run":"other","process":"../../x"}'
    journal.path.write_bytes(summed([text.encode(), b'["own",1,2]']))
    result = figures(tmp_path)
    assert (result["processes"], result["lost"]) == (0, {"foreign_rows": 1})


def test_a_sum_that_claims_more_lines_than_were_ever_written_is_a_loss(tmp_path: Path) -> None:
    path = training(tmp_path).journal.close()
    row = b'["own",1,2]\n'
    lines = path.read_bytes().count(b"\n") - path.read_bytes().count(b'["sum"')
    path.write_bytes(path.read_bytes() + row + schema.sum_row(10**18 - 1, zlib.crc32(row)))
    assert figures(tmp_path)["lost"] == {"damaged_rows": 10**18 - 2 - lines}


@pytest.mark.parametrize("reads", [8, pytest.param(30, marks=pytest.mark.conformance)])
def test_a_run_that_is_written_and_rotated_meanwhile_is_read_without_a_loss(
    record: Callable[..., Recorder], reads: int
) -> None:
    recorder = record(segment_b=4_096)
    definition = recorder.define(names.USER, ("label",))
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.002):
            now = monotonic_ns()
            for _ in range(20):
                recorder.span_row(definition, now, now + 1, 0, ("work",))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        while not list(recorder.folder.glob("*.0003.jsonl")):
            time.sleep(0.01)
        counts = [0]
        for _ in range(reads):
            trace = read_run(recorder.folder)
            assert trace.lost == {}
            counts.append(len(trace.user_spans))
    finally:
        stop.set()
        thread.join()
    assert counts == sorted(counts)
    recorder.close("exit")
    ids = [span.id for span in read_run(recorder.folder).user_spans]
    assert len(ids) == len(set(ids)) >= counts[-1] > 0
