"""Room for a recording: a budget per run and node, and a rest that stays free."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any

import pytest

from rlvr_probe.model import names
from rlvr_probe.probe import identity
from rlvr_probe.probe.journal import space as space_module
from rlvr_probe.probe.journal.space import FINE, SAMPLES, Space
from rlvr_probe.probe.recorder import Recorder, bookkeeping
from rlvr_probe.recording import read_run
from tests.unit.test_recorder import rows

Make = Callable[..., Recorder]
ALL = FINE + 1
MIB = 1 << 20
GIB = 1 << 30
_looks = itertools.count(1)


class Disk:
    """What statvfs says."""

    def __init__(self, size_b: int, free_b: int) -> None:
        self.size_b, self.free_b, self.asked = size_b, free_b, 0

    def statvfs(self, path: object) -> Any:
        self.asked += 1
        return SimpleNamespace(
            f_frsize=4096, f_blocks=self.size_b // 4096, f_bavail=self.free_b // 4096
        )


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk(100 * GIB, 90 * GIB)
    monkeypatch.setattr(os, "statvfs", made.statvfs)
    return made


def space(folder: Path, budget_b: int = 5 * GIB, free_b: int | None = None) -> Space:
    return Space(folder, "ab12" + "0" * 12, budget_b, free_b)


def look(one: Space, written_b: int = 0) -> int:
    return one.look(written_b, next(_looks) * 1_000_000_000)


def other(folder: Path, name: str, size_b: int) -> None:
    with (folder / name).open("wb") as file:
        file.truncate(size_b)


def test_a_process_alone_stops_at_its_budget_turns_first(tmp_path: Path, disk: Disk) -> None:
    one = space(tmp_path, 100 * MIB)
    written = []
    limits = []
    for mib in range(0, 120, 1):
        other(tmp_path, "pab120000.0000.jsonl", mib * MIB)
        written.append(mib)
        limits.append(look(one, mib * MIB))
    assert limits == sorted(limits, reverse=True)
    assert written[limits.index(FINE)] in (79, 80)
    assert written[limits.index(SAMPLES)] in (99, 100)
    assert (one.reason, one.said) == ("budget", "budget 100 MiB")


def test_the_budget_is_shared_by_the_files_of_a_node_and_of_no_other(
    tmp_path: Path, disk: Disk
) -> None:
    other(tmp_path, "pab12ffff.0000.jsonl", 60 * MIB)
    other(tmp_path, "pcd34ffff.0000.jsonl", 500 * MIB)
    one = space(tmp_path, 100 * MIB)
    assert look(one, MIB) == ALL
    other(tmp_path, "pab12eeee.0003.jsonl", 30 * MIB)
    assert look(one, 2 * MIB) == FINE


def test_short_processes_end_at_the_budget_as_well(tmp_path: Path, disk: Disk) -> None:
    other(tmp_path, "pab12ffff.0000.jsonl", 99 * MIB)
    assert look(space(tmp_path, 100 * MIB), 1000) == FINE
    other(tmp_path, "pab12eeee.0000.jsonl", 2 * MIB)
    assert look(space(tmp_path, 100 * MIB), 1000) == SAMPLES


@pytest.mark.parametrize("network", [False, True])
def test_who_writes_little_looks_at_the_folder_once_and_on_a_network_never(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, network: bool
) -> None:
    monkeypatch.setattr(space_module, "is_network", lambda kind: network)
    scans = list[Path]()
    real = os.scandir

    def scandir(path: Path) -> Any:
        scans.append(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    one = space(tmp_path, 5 * GIB)
    for written_kb in range(5_000):
        look(one, written_kb << 10)
    assert len(scans) == (0 if network else 1)
    look(one, 6 * MIB)
    assert len(scans) == (1 if network else 2)


def test_a_deleted_folder_is_an_empty_one(tmp_path: Path, disk: Disk) -> None:
    one = space(tmp_path / "gone", MIB)
    assert look(one, 300 << 10) == ALL


@pytest.mark.parametrize(
    ("size_b", "floor_b"), [(20 * GIB, 2 * GIB), (100 * GIB, 10 * GIB), (100_000 * GIB, 10 * GIB)]
)
def test_a_tenth_of_the_disk_stays_free_but_ten_gib_at_most(
    tmp_path: Path, disk: Disk, size_b: int, floor_b: int
) -> None:
    disk.size_b = size_b
    one = space(tmp_path)
    disk.free_b = floor_b + 2 * MIB
    assert look(one) == ALL
    disk.free_b = floor_b - 2 * MIB
    assert look(one) == FINE
    disk.free_b = floor_b // 2 + 2 * MIB
    assert look(one) == FINE
    disk.free_b = floor_b // 2 - 2 * MIB
    assert look(one) == SAMPLES
    assert one.reason == "low_space"
    mib = disk.free_b // 4096 * 4096 >> 20
    assert one.said == f"low_space {mib} MiB free of {size_b >> 20}"


def test_room_that_comes_back_is_used_once_it_is_clearly_there(tmp_path: Path, disk: Disk) -> None:
    one = space(tmp_path, free_b=GIB)
    steps = {0.9: FINE, 1.1: FINE, 1.3: ALL, 1.1001: ALL, 0.4: SAMPLES, 0.6: SAMPLES, 0.7: FINE}
    found = {}
    for share in steps:
        disk.free_b = int(share * GIB)
        found[share] = look(one)
    assert found == steps
    disk.free_b = 2 * GIB
    assert look(one) == ALL
    assert (one.reason, one.said) == ("", "")


def test_no_floor_is_a_floor_of_nothing(tmp_path: Path, disk: Disk) -> None:
    disk.free_b = MIB
    assert look(space(tmp_path, free_b=0)) == ALL


def test_a_file_system_that_does_not_tell_has_room(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.size_b = disk.free_b = 0
    assert look(space(tmp_path)) == ALL

    def gone(path: object) -> Any:
        raise OSError

    monkeypatch.setattr(os, "statvfs", gone)
    assert look(space(tmp_path)) == ALL


def test_a_file_server_is_asked_rarely(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_module, "is_network", lambda kind: True)
    one = space(tmp_path)
    for tenth in range(600):  # a minute
        one.look(tenth << 10, tenth * 100_000_000)
    assert disk.asked <= 7


def test_processes_of_one_node_are_known_by_their_names() -> None:
    keys = {identity.process_key() for _ in range(50)}
    assert len(keys) == 50
    assert len({key[: identity.NODE_DIGITS] for key in keys}) == 1
    assert all(len(key) == 16 and int(key, 16) >= 0 for key in keys)


def test_rows_that_find_no_room_are_counted_and_stages_are_written(
    record: Make, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookkeeping, "OPEN_AFTER_NS", 1)
    recorder = record(free_b=10 * GIB)
    turn, stage = recorder.define(names.TURN, ()), recorder.define(names.ROLLOUT, ())
    lengths, user = recorder.define(names.TRAJECTORIES, ()), recorder.define(names.USER, ())
    session = recorder.define(names.SESSION, ())

    def burst() -> None:
        now = monotonic_ns()
        for _ in range(10):
            recorder.span_row(turn, now, now, 0, ())
            recorder.span_row(stage, now, now, 0, ())
            recorder.span_row(user, now, now, 0, ())
            recorder.event_row(lengths, 0, ())
            recorder.event_row(session, 0, ())
        recorder.flush()

    for free_b in (90 * GIB, 9 * GIB, 4 * GIB, 90 * GIB):
        disk.free_b = free_b
        burst()
    recorder.close("exit")
    written = [row[0] for row in rows(recorder.folder)]
    assert {name: written.count(name) for name in (turn, stage, user, lengths, session)} == {
        turn: 20,
        stage: 40,
        user: 30,
        lengths: 30,
        session: 40,
    }
    assert [(row[2], row[3].split()[0]) for row in rows(recorder.folder, "level")] == [
        ("stages", "low_space"),
        ("spans", "low_space"),
        ("full", "space"),
    ]
    assert rows(recorder.folder, "lost")[-1][2:] == ["low_space", 40]
    [process] = read_run(recorder.folder).processes
    assert (process.level, process.level_reason) == ("full", "space")
