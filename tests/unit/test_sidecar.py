"""Parts of a sidecar, without a process of their own: who writes, its journal, its loop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe import guard
from rlvr_probe.config import Config
from rlvr_probe.model import names, schema
from rlvr_probe.probe import election, identity
from rlvr_probe.recording import read_run
from rlvr_probe.sidecar import loop
from rlvr_probe.sidecar import writers as writers_module
from rlvr_probe.sidecar.journal import SidecarJournal
from rlvr_probe.sidecar.loop import Sidecar
from rlvr_probe.sidecar.startup import SIGNALS, Lock
from rlvr_probe.sidecar.writers import Writers
from tests.journals import JournalFile, key

NODE = identity.process_key()[: identity.NODE_DIGITS]


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Locks lie in a folder of each test."""
    (tmp_path / "locks").mkdir()
    monkeypatch.setattr(election, "PLACES", (str(tmp_path / "locks"),))


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing until it is ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as one:
        yield one
        one.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run-1"
    folder.mkdir()
    return folder


def journal_of(
    folder: Path, pid: int | None, number: int = 1, ended: bool = False, **header: Any
) -> JournalFile:
    """The journal, and the open-span table, of a process of this machine; None: of none alive."""
    journal = JournalFile(folder, number=number)
    process = NODE + journal.header["process"][identity.NODE_DIGITS :]
    ticks = 1 if pid is None else identity.process_start_ticks(pid)
    journal.header.update(
        process=process, boot=identity.boot_id(), pid=pid or os.getpid(), start_ticks=ticks
    )
    journal.header.update(header)
    journal.open_table(ended=ended)
    return journal


def lived(folder: Path, pid: int | None, **settings: Any) -> JournalFile:
    """Such a journal, with a row."""
    journal = journal_of(folder, pid, **settings)
    journal.span(names.USER, 0, 1, label="work")
    journal.close(end=False)
    return journal


def writers(folder: Path) -> Writers:
    return Writers(folder, NODE + "f" * 12)


def sidecar(folder: Path, hz: float = 0.0, beat: Callable[[], object] | None = None) -> Sidecar:
    lock = Lock.take(folder)
    assert isinstance(lock, Lock)
    return Sidecar(folder, Config(gpu_hz=hz, free_b=0), lock, SIGNALS, last_s=120.0, beat=beat)


def run(sidecar: Sidecar) -> str:
    """Run it in this thread, whose signals are blocked as its own."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        return sidecar.run()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def own_rows(folder: Path) -> list[Any]:
    """Rows of the one sidecar of a folder, definitions by their names."""
    found = []
    for path in folder.glob("p*.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()[1:]]
        if any(row[-1] == "sidecar" for row in rows):
            found.append([row for row in rows if row[0] != "sum"])
    [rows] = found
    return rows


# ---------------------------------------------------------------- who writes


def test_a_process_that_lives_and_has_not_closed_its_journal_writes(
    folder: Path, process: subprocess.Popen[bytes]
) -> None:
    lived(folder, process.pid)
    look = writers(folder)
    assert look.look() == []
    assert (look.alive, look.run) == (1, "run-1")
    process.kill()
    process.wait()
    [(path, certain)] = look.look()
    assert (look.alive, path.name[-11:], certain) == (0, ".0000.jsonl", False)


def test_a_process_that_closed_its_journal_writes_no_more(
    folder: Path, process: subprocess.Popen[bytes]
) -> None:
    journal = lived(folder, process.pid, ended=True)
    look = writers(folder)
    assert look.look() == [(journal.path, True)]
    assert look.alive == 0


@pytest.mark.parametrize(
    "header",
    [
        {"boot": "another"},
        {"start_ticks": 1},
        {"start_ticks": None},
    ],
)
def test_a_process_of_another_machine_or_another_time_is_no_writer(
    folder: Path, process: subprocess.Popen[bytes], header: dict[str, Any]
) -> None:
    lived(folder, process.pid, **header)
    look = writers(folder)
    look.look()
    assert look.alive == 0


def test_a_file_that_was_copied_over_is_no_journal_of_a_writer(
    folder: Path, process: subprocess.Popen[bytes]
) -> None:
    journal = lived(folder, process.pid)
    journal.path.rename(folder / schema.segment_name(NODE + "e" * 12, 0))
    look = writers(folder)
    look.look()
    assert look.alive == 0


def test_files_of_other_nodes_are_not_even_looked_at(
    folder: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"{int(NODE, 16) ^ 1:04x}"
    journal = lived(folder, process.pid)
    journal.path.rename(folder / journal.path.name.replace(f"p{NODE}", f"p{other}"))
    look = writers(folder)
    assert (look.look(), look.alive) == ([], 0)


def test_what_another_node_has_finished_is_found_if_it_is_asked_for(folder: Path) -> None:
    closed, cut = JournalFile(folder, number=1), JournalFile(folder, number=2)
    closed.close()
    closed.open_table(ended=True)
    cut.rotate()
    cut.close(end=False)
    cut.open_table()
    look = Writers(folder, NODE + "f" * 12, every_node=True)
    first_of_two = cut.path.with_name(f"p{key(2)}.0000.jsonl")
    assert sorted(look.look()) == [(closed.path, True), (first_of_two, True)]
    assert look.alive == 0


def test_a_process_without_a_table_is_over_once_its_journal_has_its_closing_row(
    folder: Path,
) -> None:
    journal = lived(folder, None)
    (folder / journal.path.name.replace("0000.jsonl", "open")).unlink()
    assert writers(folder).look() == [(journal.path, False)]
    journal.close()
    assert writers(folder).look() == [(journal.path, True)]


def test_another_sidecar_keeps_none_from_leaving(
    folder: Path, process: subprocess.Popen[bytes]
) -> None:
    journal = journal_of(folder, process.pid)
    journal.event(names.PROCESS, 0, role=names.SIDECAR)
    journal.close(end=False)
    look = writers(folder)
    look.look()
    assert look.alive == 0
    process.kill()
    process.wait()
    assert look.look() == [(journal.path, False)]


def test_a_header_that_comes_late_is_found(folder: Path, process: subprocess.Popen[bytes]) -> None:
    journal = journal_of(folder, process.pid)
    journal.path.touch()
    look = writers(folder)
    look.look()
    journal.close(end=False)
    look.look()
    assert look.alive == 1


def test_segments_before_the_last_one_are_finished(
    folder: Path, process: subprocess.Popen[bytes]
) -> None:
    journal = journal_of(folder, process.pid)
    for _ in range(2):
        journal.span(names.USER, 0, 1, label="work")
        journal.rotate()
    journal.close(end=False)
    look = writers(folder)
    found = [(path.name[-11:], certain) for path, certain in look.look()]
    assert found == [(".0000.jsonl", True), (".0001.jsonl", True)]
    assert look.alive == 1


def test_files_made_to_harm_are_passed_over(folder: Path, process: subprocess.Popen[bytes]) -> None:
    lived(folder, process.pid)

    def name(number: int) -> Path:
        return folder / schema.segment_name(f"{NODE}{number:012x}", 0)

    os.mkfifo(name(100))
    name(101).symlink_to("/dev/zero")
    name(102).symlink_to(name(102))
    name(103).mkdir()
    name(104).write_bytes(b"\0" * (1 << 20))
    name(105).write_bytes(b"[" * 100_000)
    name(106).write_bytes(b'{"journal":"rlvr-probe","schema":999}\n')
    name(107).write_bytes(b'{"journal":"rlvr-probe","schema":2,"pid":"1"}\n["sum",1,1]\n')
    name(108).touch(0)
    look = writers(folder)
    for _ in range(10):
        look.look()
    assert look.alive == 1


def test_a_file_server_is_asked_every_tenth_time_while_somebody_writes(
    folder: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers_module, "is_network", lambda kind: True)
    lived(folder, process.pid)
    look = writers(folder)
    look.look()
    late = lived(folder, process.pid, number=2)
    alive = []
    for _ in range(12):
        look.look()
        alive.append(look.alive)
    assert alive.count(1) >= 8
    assert alive[-1] == 2
    late.path.unlink()
    process.kill()
    process.wait()
    look.look()
    assert look.alive == 0


def test_a_folder_that_is_gone_has_no_writers(folder: Path) -> None:
    folder.rmdir()
    look = writers(folder)
    assert (look.look(), look.alive, look.gone) == ([], 0, True)


def test_who_begins_to_write_while_it_is_asked_does_not_end_who_asks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    script = """
import fcntl, os, sys
from rlvr_probe.sidecar.segments import is_open_for_writing
real, opened = fcntl.fcntl, []
def granted(fd, command, argument=0):
    found = real(fd, command, argument)
    if (command, argument) == (fcntl.F_SETLEASE, fcntl.F_RDLCK):
        try:
            os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK)
        except BlockingIOError:
            opened.append("not yet")
    return found
fcntl.fcntl = granted
print(is_open_for_writing(sys.argv[1]), *opened)
"""
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True)
    if done.stdout == "True\n":
        pytest.skip("this file system cannot tell who writes")
    assert (done.returncode, done.stdout) == (0, "False not yet\n")


# ---------------------------------------------------------------- its journal


def test_its_journal_is_of_no_rank_and_of_no_other_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_JOB_ID"):
        monkeypatch.setenv(variable, "3")
    log = SidecarJournal(folder, Config(free_b=0))
    log.begin("run-1")
    log.end("exit")
    [path] = folder.glob("*.jsonl")
    header = json.loads(path.read_text().splitlines()[0])
    assert [header[key] for key in ("rank", "local_rank", "world_size", "owner", "ids")] == [
        None,
        None,
        None,
        None,
        {},
    ]
    assert (header["run"], header["pid"]) == ("run-1", os.getpid())


def test_a_deleted_run_is_not_made_again(folder: Path) -> None:
    log = SidecarJournal(folder, Config(free_b=0))
    log.begin("run-1")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    log.write([(0, 0, 0, "x")] * 3)
    log.write_totals()
    log.end("exit")
    assert not folder.exists()
    assert log.lost == {"deleted": 3}


def test_readings_stop_where_room_is_short_and_are_counted(folder: Path) -> None:
    log = SidecarJournal(folder, Config(free_b=1 << 60))
    log.begin("run-1")
    sample = log.define(names.DEVICE_SAMPLE, ("device", "power_w"))
    device = log.define(names.DEVICE, ("device", "uuid"))
    log.write([(device, 0, 0, 0, "GPU-1"), (sample, 1, 0, 0, 300.0)])
    log.end("exit")
    rows = own_rows(folder)
    assert [device, 0, 0, 0, "GPU-1"] in rows
    assert [row[2:] for row in rows if row[0] == "lost"] == [["low_space", 1]]
    assert not any(row[0] == sample for row in rows)


# ---------------------------------------------------------------- the loop


def test_it_leaves_when_nobody_writes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_GRACE_NS", 200_000_000)
    assert run(sidecar(folder)) == "exit"
    assert list(folder.iterdir()) == []


def test_it_compresses_what_is_left_before_it_leaves(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_GRACE_NS", 200_000_000)
    monkeypatch.setattr(loop, "LEAST_B", 1)
    ended = lived(folder, None, number=1, ended=True)
    killed = lived(folder, None, number=2)
    before = read_run(folder).totals
    assert run(sidecar(folder)) == "exit"
    assert sorted(path.suffix for path in folder.glob("p*.jsonl*")) == [".gz", ".gz"]
    assert not ended.path.exists()
    assert not killed.path.exists()
    assert read_run(folder).totals == before


def test_it_compacts_what_has_fine_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_GRACE_NS", 200_000_000)
    monkeypatch.setattr(loop, "LEAST_B", 1)
    for number in (1, 2):
        journal = journal_of(folder, None, number=number, ended=True)
        for turn in range(20):
            journal.span(names.TURN, turn, turn + 1, turn=0, prompt_tokens=1, response_tokens=2)
        journal.close()
    before = read_run(folder).totals
    assert run(sidecar(folder)) == "exit"
    assert [path.suffix for path in folder.glob("p*.jsonl*")] == [".parquet", ".parquet"]
    assert read_run(folder).totals == before == {"turn": (40, 40.0)}


def test_what_cannot_be_compressed_keeps_nothing_else_from_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard.set_strict(False)
    monkeypatch.setattr(loop, "_GRACE_NS", 200_000_000)
    monkeypatch.setattr(loop, "LEAST_B", 1)
    broken, sound = (lived(folder, None, number=n, ended=True) for n in (1, 2))
    broken.path.unlink()
    broken.path.symlink_to("/nowhere")
    monkeypatch.setattr(loop, "_PAUSE_NS", 0)
    run(sidecar(folder))
    assert not sound.path.exists()


def test_small_files_stay_as_they_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_GRACE_NS", 200_000_000)
    journal = lived(folder, None, ended=True)
    run(sidecar(folder))
    assert journal.path.exists()


def test_the_file_of_a_process_of_another_container_is_left_alone_while_it_is_open(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its pid means nothing here, so that it looks dead.
    monkeypatch.setattr(loop, "_GRACE_NS", 200_000_000)
    monkeypatch.setattr(loop, "LEAST_B", 1)
    journal = lived(folder, None)
    with journal.path.open("ab"):
        run(sidecar(folder))
    assert journal.path.exists()


def stay(folder: Path, monkeypatch: pytest.MonkeyPatch, looks: int = 5, hz: float = 0.0) -> str:
    """Run one that is told to leave after some looks; why it left."""
    monkeypatch.setattr(loop, "_LOOK_NS", 50_000_000)
    monkeypatch.setattr(loop, "_TOTALS_NS", 50_000_000)
    left = [None] * looks

    def beat() -> None:
        left.pop()
        if not left:
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    return run(sidecar(folder, hz, beat))


def test_it_stays_while_somebody_writes_and_tells_what_it_took(
    folder: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    lived(folder, process.pid)
    assert stay(folder, monkeypatch) == "signal"
    rows = own_rows(folder)
    # Of a whole test run, the journal defines what other tests record, too.
    defined = ["event", "process", ["role"]]
    [told] = [row[1] for row in rows if row[0] == "def" and row[2:] == defined]
    assert [row[3:] for row in rows if row[0] == told] == [["sidecar"]]
    assert any(row[0] == "own" for row in rows)
    assert (rows[-1][0], rows[-1][2]) == ("end", "signal")


def test_its_journal_is_no_process_of_the_job(
    folder: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    lived(folder, process.pid)
    stay(folder, monkeypatch)
    assert [process.pid for process in read_run(folder).processes] == [process.pid]


class Steady:
    """A sampler whose one device always draws 300 W."""

    def __init__(
        self, backends: object, hz: float, define: Callable[..., int], origin_ns: int
    ) -> None:
        self.next_ns = 0
        self._origin_ns = origin_ns
        self._sample = define(names.DEVICE_SAMPLE, ("device", "power_w"))

    def tick(self, now_ns: int) -> list[Any]:
        self.next_ns = now_ns + 10_000_000
        return [(self._sample, now_ns - self._origin_ns, 0, 0, 300.0)]

    def close(self) -> None:
        """Nothing to close."""


def asked_in_vain(folder: Path, times: int) -> None:
    fd = election.open_lock(election.lock_path(folder))
    os.pwrite(fd, election.RECORD.pack(1, 1, times), 0)
    os.close(fd)


@pytest.mark.parametrize(("times", "spared"), [(election.BURST, False), (election.BURST + 1, True)])
def test_where_many_ended_before_it_the_devices_are_spared_for_a_while(
    folder: Path,
    process: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    times: int,
    spared: bool,
) -> None:
    monkeypatch.setattr(loop, "Sampler", Steady)
    monkeypatch.setattr(loop, "_SETTLED_NS", 0)
    settled = list[Lock]()
    monkeypatch.setattr(Lock, "settle", lambda lock: settled.append(lock))
    asked_in_vain(folder, times)
    lived(folder, process.pid)
    stay(folder, monkeypatch, hz=5.0)
    assert len(settled) == (1 if spared else 2), "at its end, and before unless it spares them"
    rows = own_rows(folder)
    assert any(row[-1] == 300.0 for row in rows) is not spared
    said = [row[2:] for row in rows if row[0] == "fault"]
    assert said == ([["sidecar.devices", "Spared", 1]] if spared else [])


def test_devices_that_were_spared_are_read_in_the_end(
    folder: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "Sampler", Steady)
    monkeypatch.setattr(loop, "_SPARED_NS", 100_000_000)
    asked_in_vain(folder, election.BURST + 1)
    lived(folder, process.pid)
    stay(folder, monkeypatch, looks=20, hz=5.0)
    assert any(row[-1] == 300.0 for row in own_rows(folder))


class Broken(Steady):
    """A sampler that fails whenever it is asked, and is always due."""

    ticks = 0

    def tick(self, now_ns: int) -> list[Any]:
        Broken.ticks += 1
        raise OSError


def test_rows_of_devices_are_written_with_their_definitions(
    folder: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "Sampler", Steady)
    lived(folder, process.pid)
    stay(folder, monkeypatch, hz=5.0)
    rows = own_rows(folder)
    times = [row[1] for row in rows if row[-1] == 300.0]
    assert len(times) > 1
    assert times == sorted(times)
    assert any(row[3:] == ["device_sample", ["device", "power_w"]] for row in rows)


def test_an_error_of_its_own_is_counted_and_does_not_make_it_spin(
    folder: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    guard.set_strict(False)
    monkeypatch.setattr(loop, "Sampler", Broken)
    lived(folder, process.pid)
    begin = time.monotonic()
    assert stay(folder, monkeypatch, hz=5.0) == "signal"
    most = (time.monotonic() - begin) * 1e9 / loop._LEAST_NS
    [*_, last] = [row for row in own_rows(folder) if row[0] == "fault"]
    assert last[2:] == ["sidecar.read", "OSError", Broken.ticks]
    assert 0 < Broken.ticks <= most


def test_a_lock_that_was_deleted_makes_it_leave(
    folder: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_LOOK_NS", 50_000_000)
    lived(folder, process.pid)
    one = sidecar(folder)
    election.lock_path(folder).unlink()
    assert run(one) == "lock"


def test_a_beat_is_given_as_long_as_nothing_hangs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_GRACE_NS", 200_000_000)
    beats: list[float] = []
    run(sidecar(folder, beat=lambda: beats.append(time.monotonic())))
    assert beats
