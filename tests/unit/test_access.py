"""Who may read what is written, and into whose folder nothing is written."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import rlvr_probe
from rlvr_probe import access
from rlvr_probe.access import PRIVATE, Access, is_safe
from rlvr_probe.sidecar.segments import place
from rlvr_probe.sidecar.spool_mover import Mover
from rlvr_probe.spool import Target
from tests.journals import JournalFile

NOBODY = 65534

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.lstat().st_mode) for path in folder.iterdir()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def another_users(folder: Path) -> None:
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)


def a_link(folder: Path) -> None:
    (folder.parent / "theirs").mkdir()
    folder.symlink_to(folder.parent / "theirs")


def a_dangling_link(folder: Path) -> None:
    folder.symlink_to(folder.parent / "theirs")


def open_to_everybody(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def a_file(folder: Path) -> None:
    folder.write_bytes(b"")


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(another_users, marks=only_root),
        a_link,
        a_dangling_link,
        open_to_everybody,
        a_file,
    ],
)
def test_a_folder_that_somebody_prepared_is_not_written_to(
    tmp_path: Path, prepare: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "runs"
    out.mkdir()
    prepare(out / "job")
    attachment = rlvr_probe.attach(out=out, run_id="job", frameworks=[])
    with rlvr_probe.span("mine"):
        pass
    rlvr_probe.detach()
    assert attachment.folder == out / "job+1"
    assert mode(out / "job+1") == 0o700
    assert [path.name for path in (out / "job+1").glob("*.0000.jsonl")]
    theirs = [path for path in (out / "job", tmp_path / "theirs") if path.is_dir()]
    assert [path for folder in theirs for path in folder.iterdir()] == []
    [said] = caplog.messages
    assert said == (
        f"the run folder {out / 'job'} is somebody else's, a link, or open to everybody: recording"
        f" to {out / 'job+1'}"
    )


def test_every_process_of_a_run_finds_the_same_folder(tmp_path: Path) -> None:
    for name in ("job", "job+1"):
        open_to_everybody(tmp_path / name)
    assert PRIVATE.find(tmp_path / "job") == tmp_path / "job+2"
    assert not (tmp_path / "job+2").exists()
    for _ in range(2):
        assert PRIVATE.own(tmp_path / "job") == tmp_path / "job+2"
    assert PRIVATE.find(tmp_path / "job") == tmp_path / "job+2"


def test_a_folder_of_ours_is_used_whoever_may_read_it(tmp_path: Path) -> None:
    for number, bits in enumerate((0o700, 0o750, 0o755, 0o770, 0o2770)):
        folder = tmp_path / str(number)
        folder.mkdir()
        folder.chmod(bits)
        assert PRIVATE.own(folder) == folder
        assert mode(folder) == bits


def test_who_was_told_to_write_to_a_folder_takes_it_as_it_is(tmp_path: Path) -> None:
    open_to_everybody(tmp_path / "job")
    assert Access(claims=False).own(tmp_path / "job") == tmp_path / "job"


def test_a_file_system_with_owners_and_modes_of_its_own_is_known_by_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_everybody(tmp_path / "job")
    found = os.lstat(tmp_path / "job")

    for bits, owner, safe in (
        (0o777, found.st_uid, True),
        (0o600, found.st_uid, False),
        (0o777, found.st_uid + 1, False),
    ):
        made = os.stat_result((stat.S_IFREG | bits, 0, 0, 1, owner, 0, 0, 0, 0, 0))
        monkeypatch.setattr(access, "_sample", lambda _, made=made: made)
        assert is_safe(tmp_path / "job") is safe


@only_root
def test_a_server_that_maps_root_to_nobody_keeps_its_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    another_users(tmp_path / "job")
    assert not is_safe(tmp_path / "job")
    assert list((tmp_path / "job").iterdir()) == []
    monkeypatch.setattr(access, "_sample", lambda _: os.lstat(tmp_path / "job"))
    assert is_safe(tmp_path / "job")


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_run_is_shared_with_the_group_if_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    monkeypatch.setenv("RLVR_PROBE_GROUP_READABLE", "1")
    before = os.umask(umask)
    try:
        attachment = rlvr_probe.attach(out=tmp_path / "all" / "runs", frameworks=[])
        with rlvr_probe.span("mine"):
            pass
        rlvr_probe.detach()
    finally:
        os.umask(before)
    assert mode(attachment.folder) == 0o750
    assert mode(tmp_path / "all") & 0o050 == 0o050
    written = {name: bits for name, bits in modes(attachment.folder).items() if name[0] == "p"}
    assert len(written) == 2
    assert set(written.values()) == {0o640}


def test_without_being_asked_nothing_is_shared(tmp_path: Path) -> None:
    attachment = rlvr_probe.attach(out=tmp_path / "runs", frameworks=[])
    with rlvr_probe.span("mine"):
        pass
    rlvr_probe.detach()
    assert mode(attachment.folder) == 0o700
    written = {name: bits for name, bits in modes(attachment.folder).items() if name[0] == "p"}
    assert set(written.values()) == {0o600}


@pytest.mark.parametrize("group", [False, True])
def test_what_is_moved_from_a_spool_is_as_private_as_the_rest(tmp_path: Path, group: bool) -> None:
    spool, target = tmp_path / "spool", tmp_path / "server" / "run"
    spool.mkdir(mode=0o700)
    journal = JournalFile(spool)
    journal.close()
    Mover(spool, Target(target, network=False), Access(group)).round()
    assert mode(target) == (0o750 if group else 0o700)
    assert modes(target)[journal.path.name] == (0o640 if group else 0o600)
    place(b"new", target / "table", Access(group))
    assert mode(target / "table") == (0o640 if group else 0o600)


def test_a_spool_is_not_moved_to_a_folder_that_somebody_prepared(tmp_path: Path) -> None:
    spool, target = tmp_path / "spool", tmp_path / "run"
    spool.mkdir(mode=0o700)
    open_to_everybody(target)
    journal = JournalFile(spool)
    journal.close()
    Mover(spool, Target(target, network=False)).round()
    assert list(target.iterdir()) == []
    assert (tmp_path / "run+1" / journal.path.name).read_bytes() == journal.path.read_bytes()
