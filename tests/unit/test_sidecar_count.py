"""What somebody takes away of a sidecar's journal is counted, as of every other."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr_probe.config import Config
from rlvr_probe.model import names, schema
from rlvr_probe.recording import read_run
from rlvr_probe.sidecar import journal as journal_module
from rlvr_probe.sidecar.journal import Count, SidecarJournal
from tests.journals import BOOT, fake_proc

ROWS = 5


def cut(path: Path) -> None:
    """Cut the last chunk off, sum and all."""
    data = path.read_bytes()
    ends = [found.end() for found in re.finditer(rb'\["sum",.*\n', data)]
    path.write_bytes(data[: ends[-2]])


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def written(folder: Path) -> tuple[SidecarJournal, Path]:
    """A sidecar's journal of so many rows, each a chunk."""
    folder.mkdir()
    log = SidecarJournal(folder, Config.from_environ({}, out=folder.parent))
    number = log.define(names.PROCESS, ("role",))
    log.begin("run")
    for time_ns in range(ROWS):
        log.write([(number, time_ns, 0, names.SIDECAR)])
    [path] = folder.glob("p*.jsonl")
    return log, path


def lost(folder: Path, tmp_path: Path) -> dict[str, int]:
    """What is lost of the run once its processes are gone."""
    place = Path(tempfile.mkdtemp(dir=tmp_path))
    return dict(read_run(folder, machine=fake_proc(place, BOOT)).lost)


def test_nothing_is_lost_of_a_journal_that_is_whole(tmp_path: Path) -> None:
    log, _ = written(tmp_path / "run")
    assert lost(tmp_path / "run", tmp_path) == {}
    log.end("exit")
    assert lost(tmp_path / "run", tmp_path) == {}


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize(("damage", "reason"), [(cut, "missing_rows"), (torn, "torn_rows")])
def test_rows_that_were_cut_off_are_counted(
    damage: Callable[[Path], None], reason: str, ended: bool, tmp_path: Path
) -> None:
    log, path = written(tmp_path / "run")
    if ended:
        log.end("exit")
    damage(path)
    assert lost(tmp_path / "run", tmp_path).keys() == {reason}


def test_the_rows_of_a_journal_that_was_deleted_are_counted(tmp_path: Path) -> None:
    log, path = written(tmp_path / "run")
    log.end("exit")
    count = sum(not line.startswith(b'["sum",') for line in path.read_bytes().splitlines())
    path.unlink()
    assert lost(tmp_path / "run", tmp_path) == {"missing_rows": count}
    assert count > ROWS


def test_the_count_is_the_owners_alone_and_one_block(tmp_path: Path) -> None:
    written(tmp_path / "run")
    [path] = (tmp_path / "run").glob("p*.open")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_size == schema.OPEN_SLOT_BYTES


def test_a_count_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    log, _ = written(tmp_path / "run")
    [path] = (tmp_path / "run").glob("p*.open")
    path.unlink()
    log.end("exit")
    assert path.exists()


@pytest.mark.parametrize("kind", ["nfs", "lustre"])
def test_there_is_none_on_a_network_file_system(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "file_system", lambda path: kind)
    written(tmp_path / "run")
    assert list((tmp_path / "run").glob("p*.open")) == []


def test_where_none_can_be_made_the_sidecar_goes_on(tmp_path: Path) -> None:
    one = Count(tmp_path, "a" * 16)
    os.symlink(tmp_path / "elsewhere", tmp_path / f"p{'a' * 16}{schema.OPEN_SUFFIX}")
    one.note(1, 0, 1)
    one.note(2, 0, 2)
    assert not (tmp_path / "elsewhere").exists()
