"""Where a spool is, who may have one, and how one file of it is copied."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rlvr_probe import filesystem, guard, spool
from rlvr_probe.config import Config
from rlvr_probe.doctor.storage import examine_spool, examine_storage
from rlvr_probe.exceptions import ConfigError, RecordingError
from rlvr_probe.filesystem import reach
from rlvr_probe.model import names
from rlvr_probe.probe.journal import Space
from rlvr_probe.probe.journal.space import FINE, SAMPLES, Room, write_room
from rlvr_probe.probe.recorder import Recorder
from rlvr_probe.recording import find_run, read_run
from rlvr_probe.recording.follow.window import Window
from rlvr_probe.sidecar.segment_copy import Copy
from rlvr_probe.sidecar.segments import place
from rlvr_probe.sidecar.spool_mover import Mover
from rlvr_probe.spool import Target, choose, find, home, read_target
from tests.journals import JournalFile, key

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no spool but on Linux")


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Stands in for the kernel's list of mounts: no network file system can be mounted here."""

    def mounted(**kinds: str) -> None:
        lines = ["1 0 0:1 / / rw - ext4 disk rw\n"]
        lines += [
            f"{at} 1 0:{at} / {tmp_path / name} rw - {kind} what rw\n"
            for at, (name, kind) in enumerate(kinds.items(), 2)
        ]
        path = tmp_path / "mountinfo"
        path.write_text("".join(lines))
        monkeypatch.setattr(filesystem, "_MOUNTS", str(path))

    mounted()
    return mounted


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where spools are by default."""
    path = tmp_path / "disk"
    path.mkdir()
    monkeypatch.setattr(spool, "PLACES", (str(path),))
    return path


def config(**settings: object) -> Config:
    return Config.from_environ({}, **settings)


# ---------------------------------------------------------------- where it is


def test_only_a_run_on_a_network_file_system_has_a_spool(
    tmp_path: Path, disk: Path, mount: Callable[..., None]
) -> None:
    mount(server="nfs4")
    there, here = tmp_path / "server" / "runs" / "one", tmp_path / "runs" / "one"
    found = choose(there, config())
    assert found.parent == disk / f"rlvr-probe-spool-{os.geteuid()}"
    assert found.name.startswith("one-")
    assert {path.stat().st_mode & 0o777 for path in (found, found.parent)} == {0o700}
    target = read_target(found)
    assert target is not None
    assert (target.folder, target.network) == (there, True)
    assert find(there) == found == choose(there, config())
    assert choose(here, config()) == here
    assert find(here) is None
    assert choose(there, config(spool="off")) == there
    assert choose(there, config(sidecar=False)) == there


def test_a_folder_that_is_named_is_used_wherever_the_run_is(tmp_path: Path, disk: Path) -> None:
    run, named = tmp_path / "runs" / "one", tmp_path / "named" / "deeper"
    found = choose(run, config(spool=str(named)))
    assert named in found.parents
    assert list(disk.iterdir()) == []
    assert find(run) is None
    assert find(run, {"RLVR_PROBE_SPOOL": str(named)}) == found


def test_the_place_is_the_same_by_whatever_path_a_run_is_named(
    tmp_path: Path, disk: Path, mount: Callable[..., None]
) -> None:
    mount(server="lustre")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "link").symlink_to("../server/runs")
    one, other = tmp_path / "home/link/one", tmp_path / "server/./x/../runs/one"
    assert choose(one, config()) == choose(other, config())


def test_nobody_asks_the_server(
    tmp_path: Path, disk: Path, mount: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mount(server="nfs4", disk="ext4")
    asked = list[str]()

    def watch(name: str) -> None:
        real = getattr(os, name)

        def call(path: object, *args: object, **kwargs: object) -> object:
            asked.append(os.fspath(path) if isinstance(path, str | os.PathLike) else "")
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, name, call)

    for name in ("stat", "lstat", "readlink", "mkdir", "open", "scandir", "listdir", "access"):
        watch(name)
    folder = tmp_path / "server" / "runs" / "one"
    choose(folder, config())
    find(folder)
    assert str(tmp_path) in asked
    assert [path for path in asked if path.startswith(str(tmp_path / "server"))] == []


def test_a_place_in_memory_on_a_server_or_open_to_others_is_none(
    tmp_path: Path, mount: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mount(memory="tmpfs", server="nfs4")
    for name in ("memory", "server", "open", "linked"):
        (tmp_path / name).mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "linked" / f"rlvr-probe-spool-{os.geteuid()}").symlink_to(tmp_path)
    places = [str(tmp_path / name) for name in ("gone", "memory", "server", "open", "linked")]
    monkeypatch.setattr(spool, "PLACES", places)
    with pytest.raises(OSError, match="no place for a spool") as error:
        home("auto")
    reasons = str(error.value)
    for reason in ("No such file", "is memory (tmpfs)", "(nfs4)", "everybody", "not ours alone"):
        assert reason in reasons
    folder = tmp_path / "server" / "one"
    assert choose(folder, config()) == folder  # where nobody asked for one
    for name in ("server", "open", "linked"):
        with pytest.raises(OSError, match="no place for a spool"):
            choose(folder, config(spool=str(tmp_path / name)))
    assert tmp_path / "memory" in choose(folder, config(spool=str(tmp_path / "memory"))).parents
    (tmp_path / "open").chmod(0o1777)
    assert tmp_path / "open" in choose(folder, config(spool=str(tmp_path / "open"))).parents


def test_a_spool_of_another_user_is_neither_used_nor_read(
    tmp_path: Path, disk: Path, mount: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mount(server="nfs4")
    folder = tmp_path / "server" / "one"
    found = choose(folder, config())
    found.chmod(0o755)
    assert find(folder) is None
    with pytest.raises(OSError, match="not ours alone"):
        choose(folder, config())
    found.chmod(0o700)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert find(folder) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("auto", "auto"), ("AUTO", "auto"), ("off", "off"), ("0", "off"), ("/x//y/", "/x/y")],
)
def test_the_setting_reaches_children_as_it_was_meant(text: str, value: str) -> None:
    found = Config.from_environ({"RLVR_PROBE_SPOOL": text})
    assert found.spool == value
    assert Config.from_environ(found.to_environ()).spool == value


def test_a_place_that_is_relative_is_refused() -> None:
    with pytest.raises(ConfigError, match="RLVR_PROBE_SPOOL is 'spool': expected 'auto'"):
        Config.from_environ({"RLVR_PROBE_SPOOL": "spool"})


def test_links_that_lead_nowhere_or_round_end_the_looking(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to("round")
    assert reach(tmp_path / "round" / "x")[0].parts[: len(tmp_path.parts)] == tmp_path.parts
    (tmp_path / "gone").symlink_to("away")
    assert reach(tmp_path / "gone" / "x")[0] == reach(tmp_path)[0] / "away" / "x"


def test_the_doctor_says_where_it_would_be_and_why_there_is_none(
    tmp_path: Path,
    disk: Path,
    mount: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mount(server="nfs4")
    folder = tmp_path / "server"
    folder.mkdir()
    found = examine_spool(examine_storage(folder, 30), folder, config())
    assert (found.file_system, found.open_table, found.no_spool) == ("nfs4", True, None)
    assert found.spool == str(disk / f"rlvr-probe-spool-{os.geteuid()}")
    assert [path for path, _, _ in found.rooms] == [found.path, found.spool]
    found = examine_spool(examine_storage(folder, 30), folder, config(spool="off"))
    assert (found.open_table, found.spool, found.no_spool) == (False, None, None)
    monkeypatch.setattr(spool, "PLACES", (str(tmp_path / "gone"),))
    found = examine_spool(examine_storage(folder, 30), folder, config())
    assert (found.open_table, found.spool) == (False, None)
    assert str(found.no_spool).startswith("no place for a spool")


# ---------------------------------------------------------------- who writes


def test_a_place_that_cannot_be_used_is_a_fault_and_the_run_is_recorded(
    tmp_path: Path, record: Callable[..., Recorder]
) -> None:
    (tmp_path / "file").touch()
    guard.set_strict(False)
    recorder = record(sidecar=True, spool=str(tmp_path / "file" / "x"))
    recorder.event_row(recorder.define(names.SESSION_END, ()), 0, ())
    recorder.flush()
    assert guard.faults() == {("recorder.spool", "OSError"): 1}
    assert any((tmp_path / "runs" / "run").glob("p*.jsonl"))


def test_the_room_of_both_disks_counts(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    moved = folder / "p0123456789abcdef.0000.jsonl.moved"
    moved.touch()
    os.truncate(moved, 3 << 20)

    def look(room: Room, budget_b: int = 1 << 40) -> tuple[int, str]:
        write_room(folder, room)
        space = Space(folder, "0123" + "f" * 12, budget_b, 1 << 20)
        space.look(0, 1)
        return space.look(0, 2), space.reason

    assert look(Room(1 << 30, 1 << 29, 0)) == (FINE + 1, "")
    assert look(Room(1 << 30, 1 << 20, 0)) == (FINE, "low_space")
    assert look(Room(1 << 30, 1 << 18, 0)) == (SAMPLES, "low_space")
    assert look(Room(0, 0, 0)) == (FINE + 1, "")
    assert look(Room(), 3 << 20) == (SAMPLES, "budget")
    assert look(Room(0, 0, 2 << 20), 5 << 20) == (SAMPLES, "budget")
    assert look(Room(), 5 << 20) == (FINE + 1, "")


# ---------------------------------------------------------------- one file


def journal(folder: Path, rows: int) -> Path:
    made = JournalFile(folder)
    for at in range(rows):
        made.span(names.USER, at, at + 1, label="x" * 50)
    made.close(end=False)
    return made.path


def test_whole_chunks_are_copied_and_the_rest_when_nobody_writes_any_more(tmp_path: Path) -> None:
    source, target = journal(tmp_path, 100), tmp_path / "copy"
    data = source.read_bytes()
    copy = Copy(source, target)
    for size in (0, 10, len(data) // 2, len(data) - 1):
        source.write_bytes(data[:size])
        copy.run(whole=False)
        found = target.read_bytes()
        assert data.startswith(found)
        assert found == b"" or (found.endswith(b"]\n") and b'["sum",' in found[-60:])
        assert size - len(found) < 3_000
    source.write_bytes(data)
    copy.run(whole=False)
    assert target.read_bytes() == data
    with source.open("ab") as file:
        file.write(b"[0,1,2")
    copy.run(whole=False)
    assert not copy.is_whole()
    copy.run(whole=True)
    assert copy.is_whole()
    assert target.read_bytes() == data + b"[0,1,2"


def test_a_chunk_longer_than_what_is_read_at_once_is_copied_in_one(tmp_path: Path) -> None:
    made = JournalFile(tmp_path, chunk=2)
    for _ in range(3):
        made.span(names.USER, 0, 1, label="x" * (5 << 20))
    made.close(end=False)
    copy = Copy(made.path, tmp_path / "copy")
    copy.run(whole=False)
    assert (tmp_path / "copy").read_bytes() == made.path.read_bytes()


@pytest.mark.parametrize("cut", [0, 100, 2_000, -10, -1])
def test_who_takes_over_goes_on_where_the_last_one_ended(tmp_path: Path, cut: int) -> None:
    source, target = journal(tmp_path, 100), tmp_path / "copy"
    data = source.read_bytes()
    target.write_bytes(data[:cut])
    Copy(source, target).run(whole=False)
    assert target.read_bytes() == data


def test_a_hole_that_a_crash_of_the_server_left_is_filled(tmp_path: Path) -> None:
    source, target = journal(tmp_path, 100), tmp_path / "copy"
    data = source.read_bytes()
    target.write_bytes(data[:3_000] + bytes(4_096) + data[7_096:])
    Copy(source, target).run(whole=False)
    assert target.read_bytes() == data


def test_what_a_power_cut_left_of_a_spool_never_takes_the_place_of_more(tmp_path: Path) -> None:
    source, target = journal(tmp_path, 100), tmp_path / "copy"
    data = source.read_bytes()
    for left in (data[:3_000], data[:3_000] + bytes(4_096), data[:3_000] + bytes(len(data))):
        target.write_bytes(data)
        source.write_bytes(left)
        copy = Copy(source, target)
        copy.run(whole=True)
        assert target.read_bytes() == data
        assert copy.is_whole()


def test_an_error_leaves_a_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = journal(tmp_path, 100), tmp_path / "copy"
    data, real = source.read_bytes(), os.pwrite
    full = [True]

    def short(fd: int, view: memoryview, at: int) -> int:
        if full[0] and at > 0:
            raise OSError(28, "no space left")
        return real(fd, view[:1_000] if full[0] else view, at)

    monkeypatch.setattr(os, "pwrite", short)
    copy = Copy(source, target)
    with pytest.raises(OSError, match="no space"):
        copy.run(whole=False)
    assert target.read_bytes() == b""
    full[0] = False
    copy.run(whole=False)
    assert target.read_bytes() == data


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    source, victim = journal(tmp_path, 1), tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "copy").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        Copy(source, tmp_path / "copy").run(whole=True)
    place(b"new", tmp_path / "copy")
    assert victim.read_text() == "mine"
    assert not (tmp_path / "copy").is_symlink()


def test_what_is_not_mounted_is_not_made_on_the_disk_below(
    tmp_path: Path, mount: Callable[..., None]
) -> None:
    folder = tmp_path / "spool"
    journal(folder, 1)
    mover = Mover(folder, Target(tmp_path / "server" / "runs" / "one", network=True))
    with pytest.raises(OSError, match="not mounted"):
        mover.round()
    assert not (tmp_path / "server").exists()
    mount(server="nfs4")
    mover.round()
    assert any((tmp_path / "server" / "runs" / "one").glob("p*.jsonl"))


def test_a_spool_that_somebody_writes_to_again_stays(tmp_path: Path) -> None:
    folder, target = tmp_path / "spool", tmp_path / "runs" / "one"
    source = journal(folder, 1)
    mover = Mover(folder, Target(target, network=False))
    with source.open("ab"):
        assert mover.finish() is True
        assert source.exists()
    assert mover.finish() is False
    assert not folder.exists()
    assert (target / source.name).exists()


def test_a_node_may_have_had_more_processes_than_one_may_have_open_files(tmp_path: Path) -> None:
    import resource

    folder, target = tmp_path / "spool", tmp_path / "runs" / "one"
    for number in range(2, 62):
        JournalFile(folder, number).close()
    growing = journal(folder, 100)
    data = growing.read_bytes()
    growing.write_bytes(data[:3_000])
    mover = Mover(folder, Target(target, network=False))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 30, hard))
    try:
        mover.round()
        assert open_files(tmp_path) == []
        for size in (5_000, len(data)):
            growing.write_bytes(data[:size])
            mover.round()
            assert len(open_files(tmp_path)) == 1
        assert mover.finish() is False
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (target / growing.name).read_bytes() == data
    assert len(list(target.glob("p*.jsonl"))) == 61
    assert not folder.exists()


def open_files(folder: Path) -> list[str]:
    """Those below ``folder`` that this process holds open; threads of other tests open others."""
    held = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            held.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [path for path in held if Path(path).is_relative_to(folder)]


def test_a_file_that_changed_between_two_rounds_is_compared_once_more(tmp_path: Path) -> None:
    source, target = journal(tmp_path, 100), tmp_path / "copy"
    data = source.read_bytes()
    source.write_bytes(data[:3_000])
    copy = Copy(source, target)
    copy.run(whole=False)
    there = len(target.read_bytes())
    target.write_bytes(bytes(there))
    source.write_bytes(data)
    copy.run(whole=False)
    assert target.read_bytes() == data


# ---------------------------------------------------------------- who reads


def test_a_spool_is_read_first_and_its_run_found_by_its_name(
    tmp_path: Path, disk: Path, mount: Callable[..., None]
) -> None:
    mount(server="nfs4")
    runs = tmp_path / "server" / "runs"
    folder = runs / "one"
    with pytest.raises(RecordingError, match="does not exist"):
        find_run(runs)
    place_of = choose(folder, config())
    journal(place_of, 5)
    assert find_run(folder) == folder == find_run(runs)
    assert len(read_run(folder).user_spans) == 5
    journal(folder, 2)
    assert len(read_run(folder).user_spans) == 5
    JournalFile(folder, number=2).close()
    trace = read_run(folder)
    assert len(trace.processes) == 2
    older = runs / "older"
    journal(older, 1)
    os.utime(place_of / "p0000000000000001.0000.jsonl", (time.time() + 60,) * 2)
    assert find_run(runs) == folder


def test_who_sends_a_run_while_it_goes_on_reads_the_spool_and_goes_on_in_the_folder(
    tmp_path: Path, disk: Path, mount: Callable[..., None]
) -> None:
    mount(server="nfs4")
    folder = tmp_path / "server" / "one"
    path = choose(folder, config())
    source = journal(path, 100)
    data = source.read_bytes()
    half = data.index(b'\n["sum",', len(data) // 2)
    source.write_bytes(data[: data.index(b"\n", half + 1) + 1])
    window = Window(folder)
    assert window.read(1 << 20) is False
    before = window.read_b
    assert before == source.stat().st_size
    source.write_bytes(data)
    window.read(1 << 20)
    target = read_target(path)
    assert target is not None
    assert Mover(path, target).finish() is False
    JournalFile(folder, segment=1, header={"segment": 1}).close()
    window.read(1 << 20)
    assert window.read_b == len(data) + (folder / f"p{key(1)}.0001.jsonl").stat().st_size
    window.close()


def test_what_is_moved_while_it_is_read_is_found_in_the_folder(
    tmp_path: Path, disk: Path, mount: Callable[..., None]
) -> None:
    mount(server="nfs4")
    folder = tmp_path / "server" / "one"
    source = journal(choose(folder, config()), 5)
    journal(folder, 5)

    def move(done: int, total: int) -> None:
        source.unlink(missing_ok=True)

    JournalFile(choose(folder, config()), number=2).close()
    assert len(read_run(folder, progress=move).user_spans) == 5
    assert len(read_run(folder).user_spans) == 5
