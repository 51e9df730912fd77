"""Every way a disk can fail, met by the writer alone."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe import filesystem
from rlvr_probe.model import schema
from rlvr_probe.probe.journal import JournalWriter, OpenTable
from rlvr_probe.probe.journal import writer as writer_module
from rlvr_probe.recording.chunks import Chunks, read_chunks

HEADER: dict[str, Any] = {"journal": "rlvr-probe"}
DEFINITION = ("def", 0, "event", "rewards", ["values"])


def make(folder: Path, segment_b: int = 1 << 20) -> JournalWriter:
    return JournalWriter(folder, "a" * 16, HEADER, lambda n: [DEFINITION][n:], segment_b)


def parsed(path: Path) -> list[Any]:
    """Header and rows of a file in which every chunk has its sum."""
    with path.open("rb") as file:
        chunks = Chunks()
        found = read_chunks(file, path.stat().st_size, chunks)
        rows = [json.loads(line) for chunk in found for line in chunk.body.splitlines()]
    assert (chunks.lines, chunks.damaged, chunks.torn) == (len(rows), 0, 0)
    return rows


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:7]))
    writer = make(tmp_path / "run")
    writer.write([(0, i) for i in range(50)])
    writer.close()
    assert parsed(next((tmp_path / "run").glob("*.jsonl")))[2:] == [[0, i] for i in range(50)]
    assert not writer.lost


def test_a_disk_that_fills_up_keeps_whole_lines_and_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, room = os.write, [10_000]

    def write(fd: int, data: Any) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, "full")
        done = real(fd, bytes(data)[: room[0]])
        room[0] -= done
        return done

    monkeypatch.setattr(os, "write", write)
    writer = make(tmp_path / "run")
    writer.write([(0, i) for i in range(100)])
    writer.write([(0, i) for i in range(100, 5_000)])
    writer.write([(0, i) for i in range(5_000, 5_100)])
    room[0] = 1 << 20
    writer.write([(0, i) for i in range(5_100, 5_200)])
    writer.close()
    got = [row[1] for row in parsed(next((tmp_path / "run").glob("*.jsonl")))[2:]]
    assert got[:100] == list(range(100))
    assert got[-100:] == list(range(5_100, 5_200))
    assert got == sorted(set(got))
    assert writer.lost == {"disk_full": 5_200 - len(got)}


def test_what_is_left_of_a_chunk_on_a_full_disk_has_its_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    for room_b in range(100, 700, 7):

        def write(fd: int, data: Any, room_b: int = room_b) -> int:
            room = room_b - os.fstat(fd).st_size
            if room <= 0:
                raise OSError(errno.ENOSPC, "full")
            return real(fd, bytes(data)[:room])

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write)
            writer = make(tmp_path / f"run{room_b}")
            writer.write([(0, i) for i in range(60)])
            writer.write([(0, i) for i in range(60, 90)])
            writer.close()
        found = [
            row for path in (tmp_path / f"run{room_b}").glob("*.jsonl") for row in parsed(path)
        ]
        kept = [row[1] for row in found[2:]]
        assert kept == sorted(set(kept))
        assert len(kept) == 90 - sum(writer.lost.values())


def test_where_nothing_can_be_cut_off_the_next_file_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, room = os.write, [400]

    def write(fd: int, data: Any) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, "full")
        done = real(fd, bytes(data)[: room[0]])
        room[0] -= done
        return done

    def refuse(fd: int, size: int) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "ftruncate", refuse)
    writer = make(tmp_path)
    writer.write([(0, i) for i in range(60)])
    room[0] = 1 << 20
    writer.write([(0, 60)])
    writer.close()
    assert writer.lost == {"disk_full": 60}
    first, second = sorted(tmp_path.glob("*.jsonl"))
    assert parsed(second)[2:] == [[0, 60]]
    with pytest.raises(AssertionError):
        parsed(first)


def test_a_chunk_that_grew_too_large_is_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "CHUNK_B", 200)
    writer = make(tmp_path)
    writer.write([(0, "x" * (300 if i == 5 else 30), i) for i in range(40)])
    writer.close()
    [path] = tmp_path.glob("*.jsonl")
    assert [row[2] for row in parsed(path)[2:]] == list(range(40))
    sizes = [len(chunk) for chunk in path.read_bytes().split(b'["sum"')]
    assert all(size < 250 or b"x" * 300 for size in sizes)
    assert len(sizes) > 10


def test_rows_that_cannot_be_encoded_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = make(tmp_path)
    looped: list[Any] = []
    looped.append(looped)
    writer.write([(0, 1), (0, looped), (0, 2)])
    assert writer.lost == {"unencodable": 1}
    monkeypatch.setattr(os, "write", lambda fd, data: (_ for _ in ()).throw(OSError(28, "full")))
    writer.write([(0, 1), (0, looped), (0, 2)])
    assert writer.lost == {"unencodable": 1, "disk_full": 3}


def test_a_deleted_folder_is_noticed_counted_and_made_again(tmp_path: Path) -> None:
    writer = make(tmp_path / "run")
    writer.write([(0, 1)] * 30)
    shutil.rmtree(tmp_path / "run")
    writer.write([(0, 2)] * 5)
    writer.close()
    path = next((tmp_path / "run").glob("*.jsonl"))
    assert path.name.endswith(".0001.jsonl")
    assert parsed(path)[0]["segment"] == 1
    assert parsed(path)[2:] == [[0, 2]] * 5
    assert writer.lost == {"deleted": 30}


def test_rows_of_earlier_segments_that_were_deleted_are_counted(tmp_path: Path) -> None:
    writer = make(tmp_path / "run", segment_b=100)
    for _ in range(5):
        writer.write([(0, "x" * 100)] * 10)
    shutil.rmtree(tmp_path / "run")
    writer.write([(0, 2)])
    writer.close()
    assert writer.lost == {"deleted": 50}


def test_a_descriptor_that_the_user_closed_and_reused_is_never_touched_again(
    tmp_path: Path,
) -> None:
    writer = make(tmp_path / "run")
    writer.write([(0, 1)] * 3)
    os.close(writer._fd)
    with open(tmp_path / "checkpoint", "wb") as users:
        assert users.fileno() == writer._fd
        writer.write([(0, 2)] * 3)
        writer.close()
        users.write(b"weights")
    assert (tmp_path / "checkpoint").read_bytes() == b"weights"
    found = [row for path in sorted((tmp_path / "run").glob("*.jsonl")) for row in parsed(path)[2:]]
    assert found == [[0, 1]] * 3 + [[0, 2]] * 3
    assert not writer.lost


def test_a_limit_on_the_size_of_files_begins_the_next_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, limit = os.write, 2_000

    def write(fd: int, data: Any) -> int:
        room = limit - os.fstat(fd).st_size
        if room <= 0:
            raise OSError(errno.EFBIG, "too large")
        return real(fd, bytes(data)[:room])

    monkeypatch.setattr(os, "write", write)
    writer = make(tmp_path / "run")
    for i in range(100):
        writer.write([(0, "x" * 50, i)])
    writer.close()
    found = [row for path in sorted((tmp_path / "run").glob("*.jsonl")) for row in parsed(path)[2:]]
    assert [row[2] for row in found] == list(range(100))
    assert not writer.lost


def test_the_folder_around_a_run_is_left_as_it_is(tmp_path: Path) -> None:
    writer = make(tmp_path / "run")
    writer.write([(0, 1)])
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert (tmp_path / "run" / ".gitignore").read_text() == "*\n"


def test_a_folder_that_cannot_be_made_costs_the_recording_only(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    writer = make(blocked / "run")
    for _ in range(writer_module._RETRY_CHUNKS + 1):
        writer.write([(0, 1)] * 2)
    assert writer.refused == "enotdir"
    assert sum(writer.lost.values()) == 2 * (writer_module._RETRY_CHUNKS + 1)
    blocked.unlink()
    writer.write([(0, 7)])
    writer.close()
    assert parsed(next((blocked / "run").glob("*.jsonl")))[2:] == [[0, 7]]


def test_a_file_of_another_process_is_never_appended_to(tmp_path: Path) -> None:
    first = make(tmp_path)
    first.write([(0, 1)])
    first.close()
    second = make(tmp_path)
    second.write([(0, 2)])
    assert second.refused == "eexist"
    assert parsed(next(tmp_path.glob("*.jsonl")))[2:] == [[0, 1]]


def test_the_open_table_refuses_a_network_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = os.stat(tmp_path).st_dev
    line = f"9 1 {os.major(device)}:{os.minor(device)} / /x rw - nfs4 server:/x rw\n"
    (tmp_path / "mountinfo").write_text(line)
    monkeypatch.setattr(filesystem, "_MOUNTS", str(tmp_path / "mountinfo"))
    with pytest.raises(OSError, match="network"):
        OpenTable(tmp_path / "p.open", "a" * 16)
    assert [path.name for path in tmp_path.iterdir()] == ["mountinfo"]


def test_the_open_table_has_its_blocks(tmp_path: Path) -> None:
    OpenTable(tmp_path / "p.open", "a" * 16)
    status = os.stat(tmp_path / "p.open")
    assert status.st_blocks * 512 >= status.st_size


def test_a_table_that_was_cut_is_made_whole_again_and_a_strangers_file_is_left_alone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "table.open"
    table = OpenTable(path, "a" * 16)
    whole = path.stat().st_size
    os.truncate(path, 100)
    table.refill()
    assert path.stat().st_size == whole
    assert path.stat().st_blocks * 512 >= whole
    table.open(1, 0, 5, None, b"step", "")
    assert b"step" in path.read_bytes()
    path.unlink()
    path.write_bytes(b"mine")
    table.refill()
    assert path.read_bytes() == b"mine"
