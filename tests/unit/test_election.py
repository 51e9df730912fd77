"""Who holds the lock of a run, and when a process starts a sidecar. No sidecar is started here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr_probe import guard
from rlvr_probe.config import Config
from rlvr_probe.probe import election
from rlvr_probe.probe.election import (
    FIRST,
    LATER,
    RECORD,
    Keeper,
    gives_way,
    holder,
    lock_path,
    open_lock,
    read_record,
)
from rlvr_probe.sidecar.startup import Lock

SECOND = 1_000_000_000

HOLDER = """
import sys, time
from pathlib import Path
from rlvr_probe.probe import election
election.PLACES = (sys.argv[1],)
from rlvr_probe.sidecar.startup import Lock
print(type(Lock.take(Path(sys.argv[2]))).__name__, flush=True)
time.sleep(60)
"""


class Recording:
    own_ns = 0
    refused: str | None = None


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where locks lie, one folder for each test."""
    folder = tmp_path / "locks"
    folder.mkdir()
    monkeypatch.setattr(election, "PLACES", (str(folder),))
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders that a sidecar was asked for."""
    found: list[Path] = []

    def start(folder: Path, config: Config, role: str) -> int:
        found.append(folder)
        return 0

    monkeypatch.setattr(election, "_start", start)
    return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets time pass for keepers, which do not wait."""
    now = [time.monotonic_ns()]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])

    def pass_time(seconds: float) -> None:
        now[0] += int(seconds * SECOND)

    return pass_time


def look(
    keeper: Keeper,
    clock: Callable[[float], None],
    seconds: float,
    recording: Recording | None = None,
) -> None:
    """Let a keeper look every 0.1 s, as a flush thread does."""
    for _ in range(round(seconds * 10)):
        clock(0.1)
        keeper.look(recording or Recording())


def hold(places: Path, run: Path, role: str = FIRST, **environ: str) -> subprocess.Popen[str]:
    """Another process, which holds the lock once this returns."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(places), str(run), role],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "Lock\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_run_without_a_sidecar_is_given_one(
    run: Path, started: list[Path], clock: Callable[[float], None]
) -> None:
    look(Keeper(run, Config()), clock, 1.0)
    assert started == [run]


def test_a_job_that_ends_at_once_is_given_none(
    run: Path, started: list[Path], clock: Callable[[float], None]
) -> None:
    look(Keeper(run, Config()), clock, 0.4)
    assert started == []


def test_a_run_that_wants_no_sidecar_gets_none(
    run: Path, started: list[Path], clock: Callable[[float], None], places: Path
) -> None:
    look(Keeper(run, Config(sidecar=False)), clock, 5.0)
    assert (started, list(places.iterdir())) == ([], [])


@pytest.mark.parametrize("executable", [None, ""])
def test_an_embedded_interpreter_starts_none(
    run: Path,
    started: list[Path],
    clock: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    executable: str | None,
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    look(Keeper(run, Config()), clock, 5.0)
    assert started == []


def test_a_recording_that_cannot_be_written_needs_none(
    run: Path, started: list[Path], clock: Callable[[float], None]
) -> None:
    recording = Recording()
    recording.refused = "erofs"
    look(Keeper(run, Config()), clock, 5.0, recording)
    assert started == []


def test_a_recording_that_was_deleted_needs_none(
    run: Path, started: list[Path], clock: Callable[[float], None]
) -> None:
    run.rmdir()
    look(Keeper(run, Config()), clock, 5.0)
    assert started == []


def test_of_many_processes_one_starts_the_sidecar(
    run: Path, started: list[Path], clock: Callable[[float], None]
) -> None:
    keepers = [Keeper(run, Config()) for _ in range(64)]
    for _ in range(20):
        clock(0.1)
        for keeper in keepers:
            keeper.look(Recording())
    assert started == [run]


def test_a_sidecar_that_does_not_come_is_asked_for_again(
    run: Path, started: list[Path], clock: Callable[[float], None]
) -> None:
    keeper = Keeper(run, Config())
    look(keeper, clock, 3.0)
    assert len(started) == 1
    look(keeper, clock, 2.0)
    assert len(started) == 2


def test_sidecars_that_end_again_and_again_are_asked_for_less_and_less(
    run: Path, started: list[Path], clock: Callable[[float], None]
) -> None:
    keeper = Keeper(run, Config())
    look(keeper, clock, 100.0)
    first = len(started)
    look(keeper, clock, 300.0)
    assert 16 <= first <= 34
    assert len(started) - first <= 10


def test_a_recording_says_that_its_sidecars_do_not_come(
    run: Path, started: list[Path], clock: Callable[[float], None]
) -> None:
    look(Keeper(run, Config()), clock, 30.0)
    assert len(started) > 4
    assert guard.faults() == {("election.sidecar", "NoSidecar"): 1}


def test_a_sidecar_that_holds_the_lock_is_left_alone(
    run: Path, started: list[Path], clock: Callable[[float], None], places: Path
) -> None:
    process = hold(places, run)
    keeper = Keeper(run, Config())
    look(keeper, clock, 10.0)
    before = list(started)
    end(process)
    look(keeper, clock, 1.0)
    assert (before, started) == ([], [run])


def test_a_sidecar_that_a_later_process_started_gives_way_where_the_first_one_sends_elsewhere(
    run: Path,
    started: list[Path],
    clock: Callable[[float], None],
    places: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = hold(places, run, LATER, OTEL_EXPORTER_OTLP_ENDPOINT="http://there")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://there")
    look(Keeper(run, Config()), clock, 5.0)
    assert started == []  # it knows as much
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "key=value")
    look(Keeper(run, Config(), first=False), clock, 5.0)
    assert started == []  # no better placed to say so
    look(Keeper(run, Config()), clock, 5.0)
    assert started == [run]  # and not once for every look
    end(process)


def test_a_sidecar_that_a_first_process_or_a_person_started_gives_way_to_nobody(
    run: Path, places: Path
) -> None:
    elsewhere = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://elsewhere"}
    for role, expected in ((FIRST, False), ("by hand", False), (LATER, True)):
        process = hold(places, run, role)
        assert gives_way(process.pid, elsewhere) is expected
        end(process)
        assert gives_way(process.pid, elsewhere) is False


def test_two_runs_have_a_sidecar_each(
    tmp_path: Path, run: Path, started: list[Path], clock: Callable[[float], None], places: Path
) -> None:
    process = hold(places, run)
    other = tmp_path / "other"
    other.mkdir()
    look(Keeper(other, Config()), clock, 1.0)
    end(process)
    assert started == [other]


def test_the_lock_is_held_by_one_process_and_tells_whose(places: Path, run: Path) -> None:
    process = hold(places, run)
    fd = open_lock(lock_path(run))
    assert holder(fd) == process.pid
    assert Lock.take(run) == process.pid
    end(process)
    assert holder(fd) is None
    os.close(fd)
    assert isinstance(Lock.take(run), Lock)


def test_a_forked_child_does_not_keep_the_lock(places: Path, run: Path) -> None:
    script = HOLDER.replace("time.sleep(60)", "import os; os.fork() and os._exit(0)")
    process = subprocess.Popen(
        [sys.executable, "-c", f"{script}sys.stdin.read()", str(places), str(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.wait(timeout=60) == 0  # its child reads on, with the file open
    fd = open_lock(lock_path(run))
    found = holder(fd)
    os.close(fd)
    assert process.communicate("")[0] == "Lock\n"
    assert found is None


def test_a_lock_whose_file_was_deleted_is_held_no_more(run: Path) -> None:
    lock = Lock.take(run)
    assert isinstance(lock, Lock)
    assert lock.is_held()
    lock_path(run).unlink()
    assert not lock.is_held()
    lock.release()


def test_a_lock_whose_folder_was_deleted_is_let_go_of(run: Path) -> None:
    lock = Lock.take(run)
    assert isinstance(lock, Lock)
    shutil.rmtree(lock_path(run).parent)
    lock.release()


def test_a_sidecar_that_took_the_lock_and_settled_leaves_no_wait_behind(run: Path) -> None:
    fd = open_lock(lock_path(run))
    os.pwrite(fd, RECORD.pack(1, 0, 40), 0)
    os.close(fd)  # before it is taken: to close it later would let go of it
    lock = Lock.take(run)
    assert isinstance(lock, Lock)
    lock.settle()
    lock.release()
    fd = open_lock(lock_path(run))
    asked_ns, taken_ns, in_vain = read_record(fd)
    os.close(fd)
    assert (asked_ns, in_vain) == (1, 0)
    assert taken_ns > asked_ns


def test_locks_of_a_day_ago_are_deleted_unless_they_are_held(
    tmp_path: Path, places: Path, run: Path
) -> None:
    held = tmp_path / "held"
    process = hold(places, held)
    old, young = lock_path(held).with_name("old"), lock_path(held).with_name("young")
    for path in (old, young):
        path.touch(0o600)
    for path in (old, lock_path(held)):
        os.utime(path, (0, 0))
    lock = Lock.take(run)
    assert isinstance(lock, Lock)
    lock.release()
    end(process)
    assert {path.name for path in old.parent.iterdir()} == {
        "young",
        lock_path(held).name,
        lock_path(run).name,
    }


def test_the_folder_of_locks_is_private(places: Path, run: Path) -> None:
    path = lock_path(run)
    os.close(open_lock(path))
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_place_that_others_can_write_to_or_point_elsewhere_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Path
) -> None:
    name = f"rlvr-probe-{os.geteuid()}"
    for place in ("open", "linked", "file", "good"):
        (tmp_path / place).mkdir()
    (tmp_path / "open" / name).mkdir(mode=0o700)
    (tmp_path / "open" / name).chmod(0o777)
    (tmp_path / "linked" / name).symlink_to(tmp_path)
    (tmp_path / "file" / name).touch()
    places = [str(tmp_path / place) for place in ("absent", "open", "linked", "file", "good")]
    monkeypatch.setattr(election, "PLACES", places)
    assert lock_path(run).parent == tmp_path / "good" / name
    monkeypatch.setattr(election, "PLACES", places[:-1])
    with pytest.raises(OSError, match="no place"):
        lock_path(run)


def test_a_network_file_system_is_no_place(monkeypatch: pytest.MonkeyPatch, run: Path) -> None:
    monkeypatch.setattr(election, "is_network", lambda kind: True)
    with pytest.raises(OSError, match="no place"):
        lock_path(run)


def test_a_read_only_file_system_is_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: Path, run: Path
) -> None:
    lock_path(run)
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr(election, "PLACES", (str(places), str(other)))
    monkeypatch.setattr(os, "access", lambda path, mode: places not in Path(path).parents)
    assert lock_path(run).parents[1] == other


def test_a_lock_that_was_cleaned_up_is_made_again(
    run: Path, started: list[Path], clock: Callable[[float], None], places: Path
) -> None:
    keeper = Keeper(run, Config())
    guard.set_strict(False)
    look(keeper, clock, 1.0)
    shutil.rmtree(lock_path(run).parent)
    look(keeper, clock, 11.0)
    assert started == [run, run]
    assert guard.faults() == {("election.look", "FileNotFoundError"): 1}


def test_where_there_is_no_place_it_is_counted_every_10_s(
    monkeypatch: pytest.MonkeyPatch, run: Path, clock: Callable[[float], None]
) -> None:
    monkeypatch.setattr(election, "PLACES", ())
    guard.set_strict(False)
    look(Keeper(run, Config()), clock, 30.0)
    assert guard.faults() == {("election.look", "OSError"): 3}


def test_a_lock_that_points_elsewhere_is_not_opened(tmp_path: Path, run: Path) -> None:
    path = lock_path(run)
    target = tmp_path / "precious"
    target.write_text("kept")
    path.symlink_to(target)
    with pytest.raises(OSError, match="symbolic"):
        open_lock(path)
    assert target.read_text() == "kept"


def test_a_content_that_is_not_ours_is_none(run: Path) -> None:
    path = lock_path(run)
    path.write_bytes(b"?")
    fd = open_lock(path)
    assert read_record(fd) == (0, 0, 0)
    os.close(fd)


def test_what_looking_takes_is_the_probes_own_time(
    run: Path, started: list[Path], clock: Callable[[float], None]
) -> None:
    recording = Recording()
    look(Keeper(run, Config()), clock, 5.0, recording)
    assert recording.own_ns > 0
