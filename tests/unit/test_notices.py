"""What a process tells the launcher reaches it, or nobody, and is no reason for anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rlvr_probe.launch import _listening
from rlvr_probe.probe import launcher_notices
from rlvr_probe.probe.launcher_notices import NOTICES, Notice, notify, read


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(launcher_notices, "PLACES", (str(tmp_path / "none"), str(tmp_path)))


def test_a_launcher_hears_each_notice_once_and_leaves_nothing(tmp_path: Path) -> None:
    child = dict[str, str]()
    with _listening(child) as told:
        for _ in range(2):
            notify("imported", "toyrl\n1.2.3", child)
        notify("refused", "enospc", child)
        assert told() == [
            Notice(os.getpid(), "imported", "toyrl 1.2.3"),
            Notice(os.getpid(), "refused", "enospc"),
        ]
        assert Path(child[NOTICES]).stat().st_mode & 0o777 == 0o600
        with _listening(inner := dict(child)) as heard_below:
            assert inner == child
            assert heard_below() == told()
        assert told()
    assert list(tmp_path.iterdir()) == []
    notify("imported", "late", child)
    assert list(tmp_path.iterdir()) == []


def test_what_a_launcher_that_was_killed_left_the_next_one_deletes(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    own = f"rlvr-probe-{os.geteuid()}"
    others = (f"{own}-{os.getpid()}-ab.notices", f"{own}-x.notices", "rlvr-probe-7-1-ab.notices")
    for name in (f"{own}-{ended.pid}-ab.notices", *others):
        (tmp_path / name).touch()
    with _listening(dict[str, str]()):
        assert len(list(tmp_path.iterdir())) == len(others) + 1
    assert {path.name for path in tmp_path.iterdir()} == set(others)


def test_where_no_file_can_be_made_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(launcher_notices, "PLACES", (str(tmp_path / "none"),))
    child = dict[str, str]()
    with _listening(child) as told:
        notify("imported", "toyrl", child)
        assert (child, told()) == ({}, [])


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_somebody_put_in_its_place_is_left_alone(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "there", tmp_path / "other"
    other.touch()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(other)
    else:
        path.mkdir()
    notify("imported", "toyrl", {NOTICES: str(path)})
    assert other.read_bytes() == b""


def test_lines_that_are_none_of_ours_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "told"
    path.write_bytes(b"\xff\n12\timported\n\tx\ty\n7\timported\ttrl 1\n7\timp")
    assert read(path) == [Notice(7, "imported", "trl 1")]
