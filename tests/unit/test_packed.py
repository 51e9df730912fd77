"""Segments are compressed once nobody writes to them, and read as if they were not."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr_probe.launch.outcome import processes
from rlvr_probe.model import names, schema
from rlvr_probe.probe.journal import JournalWriter
from rlvr_probe.probe.recorder import Recorder
from rlvr_probe.recording import find_run, read_run
from rlvr_probe.recording.files import list_files
from rlvr_probe.sidecar.segments import compress, delete_unfinished, is_open_for_writing
from tests.journals import JournalFile, key, simple_run
from tests.summarized import summary_of


def finish(path: Path) -> Path:
    """Compress a segment and delete the original, as a sidecar does; the compressed file."""
    for _ in compress(path):
        pass
    path.unlink()
    return path.with_name(path.name + ".gz")


def rotated(folder: Path, segments: int = 3, spans: int = 50) -> list[Path]:
    """A run of one process in several segments."""
    journal = JournalFile(folder)
    for segment in range(segments):
        for i in range(spans):
            number = segment * spans + i
            journal.span(names.USER, number, number + 0.5, label="work", i=number)
        if segment < segments - 1:
            journal.rotate()
    journal.close()
    journal.open_table(ended=True)
    return sorted(folder.glob("*.jsonl"))


def test_a_compressed_run_is_the_same_run(tmp_path: Path) -> None:
    simple_run(tmp_path / "plain")
    shutil.copytree(tmp_path / "plain", tmp_path / "packed")
    for path in (tmp_path / "packed").glob("*.jsonl"):
        finish(path)
    assert list((tmp_path / "packed").glob("*.jsonl")) == []
    found, expected = (summary_of(tmp_path / name) for name in ("packed", "plain"))
    assert found == expected


def test_some_segments_may_be_compressed_and_others_not(tmp_path: Path) -> None:
    paths = rotated(tmp_path)
    before = read_run(tmp_path)
    finish(paths[1])
    assert read_run(tmp_path) == before
    assert [span.attributes["i"] for span in before.user_spans] == list(range(150))


def test_a_segment_that_is_there_in_both_forms_is_read_once(tmp_path: Path) -> None:
    paths = rotated(tmp_path)
    before = read_run(tmp_path)
    for _ in compress(paths[0]):
        pass
    assert [part.number for parts in list_files(tmp_path).segments.values() for part in parts] == [
        0,
        1,
        2,
    ]
    assert read_run(tmp_path) == before


def test_a_segment_that_is_compressed_after_it_was_listed_is_read(tmp_path: Path) -> None:
    paths = rotated(tmp_path, segments=1)
    whole = paths[0].read_bytes()
    [[part]] = list_files(tmp_path).segments.values()
    finish(paths[0])
    read = bytearray()
    with part.open() as source:
        while data := source.read(100):
            read += data
    assert bytes(read) == whole


def test_a_compressor_that_is_killed_leaves_the_recording_as_it_was(tmp_path: Path) -> None:
    paths = rotated(tmp_path)
    before = read_run(tmp_path)
    killed = compress(paths[0])
    next(killed)
    assert len(list(tmp_path.glob("*.unfinished"))) == 1
    assert read_run(tmp_path) == before
    # Another one begins anew.
    for _ in compress(paths[0]):
        pass
    killed.close()
    assert read_run(tmp_path) == before
    assert list(tmp_path.glob("*.unfinished")) == []


def test_two_that_compress_one_segment_at_once_leave_it_whole(tmp_path: Path) -> None:
    [path] = rotated(tmp_path, segments=1)
    whole = path.read_bytes()
    first, second = compress(path), compress(path)
    for work in (first, second, first, second, second, first):
        next(work, None)
    assert gzip.decompress(Path(f"{path}.gz").read_bytes()) == whole
    assert list(tmp_path.glob("*.unfinished")) == []


def test_what_a_killed_one_left_is_deleted_once_it_is_old(tmp_path: Path) -> None:
    old, young, other = (
        tmp_path / name for name in ("p0.gz.1.unfinished", "p0.gz.2.unfinished", "mine.unfinished")
    )
    for path in (old, young, other):
        path.touch()
    for path in (old, other):
        os.utime(path, (0, 0))
    delete_unfinished(tmp_path)
    assert sorted(tmp_path.iterdir()) == [other, young]


def test_a_segment_that_changes_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    path, *_ = rotated(tmp_path)
    work = compress(path)
    next(work)
    with path.open("ab") as file:
        file.write(b"[]\n")
    with pytest.raises(OSError, match="changed"):
        list(work)
    assert [item.name for item in tmp_path.glob("*0000.jsonl*")] == [path.name]


def test_what_a_name_points_to_is_not_compressed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    link = tmp_path / "p0000000000000001.0000.jsonl"
    link.symlink_to(precious)
    with pytest.raises(OSError, match="symbolic"):
        list(compress(link))
    assert precious.read_text() == "kept"


def test_the_compressed_file_has_the_rights_and_the_time_of_the_original(tmp_path: Path) -> None:
    path, *_ = rotated(tmp_path, segments=1)
    path.chmod(0o640)
    os.utime(path, ns=(1_000, 5_000_000_000))
    found = finish(path).stat()
    assert (found.st_mode & 0o777, found.st_mtime_ns) == (0o640, 5_000_000_000)


def test_the_newest_run_stays_the_newest_when_an_older_one_is_compressed(tmp_path: Path) -> None:
    for age, run in enumerate(("new", "old")):
        [path] = rotated(tmp_path / run, segments=1)
        for item in (tmp_path / run).iterdir():
            os.utime(item, (0, 1_000_000 - age))
        if run == "old":
            finish(path)
    assert find_run(tmp_path).name == "new"


@pytest.mark.parametrize("cut", [0, 5, 30, -30, -5])
def test_a_compressed_file_that_is_cut_is_counted_and_nothing_is_made_up(
    tmp_path: Path, cut: int
) -> None:
    paths = rotated(tmp_path, segments=1)
    target = finish(paths[0])
    data = target.read_bytes()
    target.write_bytes(data[:cut] if cut else b"")
    journal = JournalFile(tmp_path, number=2)
    journal.close()
    trace = read_run(tmp_path)
    kept = [span.attributes["i"] for span in trace.user_spans]
    assert kept == list(range(len(kept)))
    assert len(kept) == 50 or trace.lost


def test_a_compressed_file_that_is_damaged_is_counted_and_nothing_is_made_up(
    tmp_path: Path,
) -> None:
    paths = rotated(tmp_path, segments=1, spans=2000)
    target = finish(paths[0])
    whole = target.read_bytes()
    for place in range(12, len(whole), len(whole) // 7):
        target.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        trace = read_run(tmp_path)
        kept = {span.attributes["i"] for span in trace.user_spans}
        assert kept <= set(range(2000))
        assert len(kept) == 2000 or trace.lost


def test_a_file_made_to_unpack_without_end_is_read_no_further_than_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlvr_probe.recording.chunks._MOST_B", 1 << 20)
    journal = JournalFile(tmp_path)
    journal.close(tail=b" " * (64 << 20))
    finish(journal.path)
    with list_files(tmp_path).segments[journal.header["process"]][0].open() as source:
        assert source.size_b == 100 * (source.size_b // 100) or source.size_b == 1 << 20
    trace = read_run(tmp_path)
    assert trace.lost == {"torn_rows": 1}


def test_the_launcher_knows_the_compressed_journal_of_a_sidecar(tmp_path: Path) -> None:
    for number, role in ((1, names.SIDECAR), (2, "WorkerDict"), (3, names.SIDECAR)):
        journal = JournalFile(tmp_path, number=number)
        journal.event(names.PROCESS, 0, role=role)
        journal.close()
        if number != 3:
            finish(journal.path)
    assert processes(tmp_path, {}) == {f"p{key(2)}"}


def test_an_empty_compressed_file_is_no_journal(tmp_path: Path) -> None:
    rotated(tmp_path)
    (tmp_path / "p00000000000000ff.0000.jsonl.gz").write_bytes(b"")
    assert len(read_run(tmp_path).processes) == 1


def test_other_tools_can_unpack_it(tmp_path: Path) -> None:
    path, *_ = rotated(tmp_path)
    whole = path.read_bytes()
    assert gzip.decompress(finish(path).read_bytes()) == whole


def test_a_journal_does_not_take_a_compressed_segment_for_a_deleted_one(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "0" * 16, {"journal": "rlvr-probe"}, lambda _: [], 4096)
    rows = [["x" * 100]] * 40
    for _ in range(2):
        writer.write(rows)
    finish(tmp_path / schema.segment_name("0" * 16, 0))
    writer.write(rows)
    writer.close()
    assert writer.lost == {}
    (tmp_path / (schema.segment_name("0" * 16, 0) + ".gz")).unlink()
    writer.write(rows)
    writer.close()
    assert writer.lost == {"deleted": 40}


def test_who_writes_to_a_file_is_known_to_the_kernel(
    tmp_path: Path, record: Callable[..., Recorder]
) -> None:
    path = tmp_path / "file"
    path.touch()
    with path.open("ab"):
        assert is_open_for_writing(path)
    if is_open_for_writing(path):
        pytest.skip("this file system does not tell, which is taken for a writer")
    with path.open("rb"):
        assert not is_open_for_writing(path)
    assert is_open_for_writing(tmp_path / "absent")


def test_a_recording_is_for_its_owner_alone(record: Callable[..., Recorder]) -> None:
    recorder = record()
    recorder.event_row(recorder.define(names.USER, ()), 0, ())
    recorder.close("exit")
    modes = {path.suffix: path.stat().st_mode & 0o777 for path in recorder.folder.iterdir()}
    assert recorder.folder.stat().st_mode & 0o777 == 0o700
    assert (modes[".jsonl"], modes[".open"]) == (0o600, 0o600)


def test_the_level_of_compression_is_worth_it(tmp_path: Path) -> None:
    path, *_ = rotated(tmp_path, segments=1, spans=5000)
    size = path.stat().st_size
    assert finish(path).stat().st_size < size / 4
