"""Finished segments become Parquet, come out again byte by byte, and are read as before."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr_probe.cli import OK, UNABLE, main
from rlvr_probe.launch.outcome import processes
from rlvr_probe.model import names
from rlvr_probe.probe.journal import JournalWriter
from rlvr_probe.recording import read_run
from rlvr_probe.recording.compacted.about import read_about
from rlvr_probe.recording.compacted.lines import lines_of
from rlvr_probe.recording.compacted.write import write_compacted
from rlvr_probe.recording.files import list_files
from rlvr_probe.recording.tables import TABLES, open_saved, open_tables, save_tables
from rlvr_probe.sidecar import compactor
from rlvr_probe.sidecar.compactor import Compactor
from rlvr_probe.sidecar.segments import compact, compress, unfinished
from rlvr_probe.sidecar.spool_mover import Mover
from rlvr_probe.spool import Target
from tests.damaged import cut, garble
from tests.journals import JournalFile, key, summed
from tests.simulated import SMALL, TRAINED, brief
from tests.simulator import scenario, simulate
from tests.summarized import summary_of

FULL = (pytest.mark.conformance, pytest.mark.full)
RUNS = {"small": SMALL, "trained": TRAINED, "beside": brief(scenario(3))}
DAMAGES: dict[str, Callable[[Path], object]] = {"sound": str, "cut": cut, "garbled": garble}


def finish(path: Path) -> Path | None:
    """Compact a segment and delete the original, as a sidecar does; the file, if it is of use."""
    target = Path(f"{path}.parquet")
    if not compact(path, unfinished(target)):
        return None
    path.unlink()
    return target


def trajectories(folder: Path, count: int = 300, number: int = 1, **header: Any) -> JournalFile:
    """A process that generated trajectories, each with a turn and a verification."""
    journal = JournalFile(folder, number=number, header=header)
    for row in range(count):
        own, at = journal.next_span(), row / 10
        journal.span(
            names.TURN, at, at + 1, parent=own, batch=own, samples=1, turn=0, prompt_tokens=row,
            response_tokens=2 * row,
        )  # fmt: skip
        journal.span(
            names.VERIFY, at + 1, at + 2, parent=own, batch=own, function="f", value=0.1 * row
        )
        journal.span(
            names.TRAJECTORY, at, at + 2, span=own, key=f"{row:016x}", prompt_tokens=row,
            response_tokens=2 * row, loss_runs=[2 * row], truncated=row % 2,
        )  # fmt: skip
    return journal


def all_rows(run: Path) -> dict[str, list[Any]]:
    """What is in every table of a run."""
    with open_tables(run, signals=False) as tables:
        return {
            table.name: sorted(tables.sql.execute(f"FROM {table.name}").fetchall(), key=repr)
            for table in TABLES
        }


# ---------------------------------------------------------------- what was written comes out


@pytest.mark.parametrize(
    ("run", "damage"),
    [
        pytest.param(run, damage, marks=[] if place == 4 else [pytest.mark.conformance])
        for place, (run, damage) in enumerate(product(RUNS, DAMAGES))
    ],
)
def test_a_compacted_run_is_the_same_run(tmp_path: Path, run: str, damage: str) -> None:
    folder = tmp_path / run
    simulate(RUNS[run], folder)
    DAMAGES[damage](folder)
    before, found = all_rows(folder), summary_of(folder)
    whole = {path: path.read_bytes() for path in folder.glob("*.jsonl")}
    made = {path: target for path in whole if (target := finish(path)) is not None}
    assert made or damage == "garbled"  # nearly no chunk is sound
    for path, target in made.items():
        assert b"".join(lines_of(target)) == whole[path]
    assert all_rows(folder) == before
    assert summary_of(folder) == found


LINE = st.one_of(
    st.sampled_from(
        [
            b'["def",90,"span","turn",["turn","prompt_tokens","response_tokens"]]',
            b'["def",90,"span","verify",["function","value"]]',
            b'["def",91,"span","tool_call",["tool","batch","row","strange"]]',
            b'[90,0,1,7,0,null,0,5,6]',
            b'[90,0,1,7,0,null,[0],[5],[6]]',
            b'[90,0,1,7,0,null,"f",1]',
            b'[90,0,1,7,0,null,"f",1.5]',
            b'[90, 0,1,7,0,null,0,5,6]',
            b'[90,0,1,7,0,null]',
            b'[90,0,1,4611686018427387903,0,"\\u00e9\\ud800",0,5,6]',
            b'[91,-5,1,8,0,"Error","\xc3\xa9",7,0,{"a":[1,2.50,null]}]',
            b'[91,0,9223372036854775807,8,0,null,"x",7,0,null]',
            b'["open",90,5,7,0]',
            b"",
            b"nonsense \xff\x00",
            b'{"journal":1}\r["def",91,"span","turn",[]]',
        ]
    ),
    st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"")),
)  # fmt: skip


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(lines=st.lists(LINE, max_size=30), chunk=st.integers(1, 9), tail=st.binary(max_size=9))
def test_whatever_a_segment_holds_comes_out_as_it_was_or_stays(
    tmp_path: Path, lines: list[bytes], chunk: int, tail: bytes
) -> None:
    journal = trajectories(tmp_path, 2)
    journal.close()
    path, target = journal.path, tmp_path / "made"
    path.write_bytes(path.read_bytes() + summed(lines, chunk) + tail)
    target.unlink(missing_ok=True)
    try:
        write_compacted(path, target)
    except OSError:
        return
    assert b"".join(lines_of(target)) == path.read_bytes()


def test_a_segment_can_be_read_in_pieces_of_any_size(tmp_path: Path) -> None:
    path = trajectories(tmp_path).close()
    whole, draw = path.read_bytes(), random.Random(0)
    finish(path)
    [[part]] = list_files(tmp_path).segments.values()
    with part.open() as source:
        read, at = bytearray(), 0
        while at < len(whole):
            if draw.random() < 0.3:
                size = draw.randrange(5_000)
                source.skip(size)
                read += whole[at : at + size]
                at += size
            else:
                data = source.read(draw.randrange(1, 20_000))
                read += data
                at += len(data)
        assert source.read(1) == b""
    assert bytes(read) == whole


def test_a_segment_without_fine_rows_is_of_no_use_to_compact(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    journal.span(names.USER, 0, 1, label="work")
    path = journal.close()
    assert finish(path) is None
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_spans_that_were_open_are_found_among_the_columns(tmp_path: Path) -> None:
    journal = trajectories(tmp_path, 5)
    number = journal.definition(names.TURN, ("turn", "prompt_tokens", "response_tokens"))
    for span in (2, 900):
        journal.row("open", number, 0, span, 0)
    journal.close(end=False)
    journal.open_table((4, 0.1, "turn", ""), (901, 0.1, "turn", ""))
    before = read_run(tmp_path).open_spans
    assert finish(journal.path) is not None
    assert read_run(tmp_path).open_spans == before
    assert {span.id for span in before} == {900, 901}


@pytest.mark.parametrize("held", [0, 64])
def test_the_names_of_folders_are_no_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr("rlvr_probe.recording.store._HELD", held)
    folder = tmp_path / "turn=7" / "kind=rows, seq=[1]*?" / "it's"
    whole = trajectories(folder, 20).close().read_bytes()
    before = all_rows(folder)
    target = finish(next(folder.glob("*.jsonl")))
    assert target is not None
    assert b"".join(lines_of(target)) == whole
    assert all_rows(folder) == before
    with open_tables(folder, signals=False) as tables:
        save_tables(tables, folder / "saved")
    with open_saved(folder / "saved", signals=False) as saved:
        for table in TABLES:
            assert (
                sorted(saved.sql.execute(f"FROM {table.name}").fetchall(), key=repr)
                == (before[table.name])
            )


# ---------------------------------------------------------------- damage


def damaged(data: bytes, draw: random.Random) -> bytes:
    """A file with a byte changed, cut, or with bytes of its own in another place."""
    at, kind = draw.randrange(len(data)), draw.randrange(3)
    if kind == 0:
        return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    size = draw.randrange(1, 64)
    begin = draw.randrange(len(data))
    return data[:at] + data[begin : begin + size] + data[at + size :]


@pytest.mark.parametrize("count", [60, pytest.param(10_000, marks=FULL)])
def test_what_is_damaged_is_counted_and_nothing_is_made_up(tmp_path: Path, count: int) -> None:
    journal = trajectories(tmp_path, 50)
    path = journal.close()
    journal.open_table(ended=True)
    rows = journal.lines
    target = finish(path)
    assert target is not None
    whole, draw = target.read_bytes(), random.Random(7)
    totals = read_run(tmp_path).totals
    for _ in range(count):
        data = damaged(whole, draw)
        if data == whole:
            continue
        target.write_bytes(data)
        with pytest.raises(OSError, match=r"."):
            read_about(target)
        trace = read_run(tmp_path)
        assert trace.totals == {}
        assert sum(trace.lost.values()) >= rows
    target.write_bytes(whole)
    assert read_run(tmp_path).totals == totals


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 40), *(pytest.param(seed, 1_000, marks=FULL) for seed in range(1, 11))]
)
def test_a_damaged_hand_over_loses_nothing_uncounted_and_makes_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, count: int
) -> None:
    """A spool and its run folder hold a segment in any two forms, cut or damaged, or one does."""
    monkeypatch.setattr("rlvr_probe.sidecar.spool_mover._KEPT_S", 0)
    # To look at the open files of every process takes long.
    monkeypatch.setattr("rlvr_probe.sidecar.spool_mover._is_written_to", lambda _: False)
    rows = 30
    journal = trajectories(tmp_path / "made", rows)
    path = journal.close()
    table = journal.open_table(ended=True)
    tables = {table.name: table.read_bytes()}
    recorded = read_run(path.parent).totals
    forms = {"": path.read_bytes(), ".gz": gzip.compress(path.read_bytes())}
    target = finish(path)
    assert target is not None
    forms[".parquet"] = target.read_bytes()
    draw = random.Random(seed)
    spool, folder = tmp_path / "spool", tmp_path / "folder"
    for _ in range(count):
        states = {}
        for place in (spool, folder):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            form = draw.choice([*forms])
            states[place] = state = draw.choice(("absent", "whole", "whole", "damaged"))
            data = damaged(forms[form], draw) if state == "damaged" else forms[form]
            files = tables | ({} if state == "absent" else {f"{path.name}{form}": data})
            for name, content in files.items():
                (place / name).write_bytes(content)
        with suppress(OSError):
            assert Mover(spool, Target(folder, network=False)).finish() is False
        trace = read_run(folder)
        read = sum(calls for calls, _ in trace.totals.values())
        assert read + sum(trace.lost.values()) >= 3 * rows
        for name, (calls, seconds) in trace.totals.items():
            assert calls <= recorded[name][0]
            assert seconds <= recorded[name][1] + 1e-9
        if "damaged" not in states.values() and "whole" in states.values():
            assert (trace.totals, trace.lost) == (recorded, {}), states


def test_another_version_is_named(tmp_path: Path) -> None:
    target = finish(trajectories(tmp_path).close())
    assert target is not None
    target.write_bytes(target.read_bytes().replace(b'"version":1', b'"version":2'))
    with pytest.raises(OSError, match="version 2"):
        read_about(target)


def test_a_segment_that_changes_meanwhile_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = trajectories(tmp_path).close()

    def write(source: Path, target: Path) -> object:
        about = write_compacted(source, target)
        with path.open("ab") as file:
            file.write(b"[]\n")
        return about

    monkeypatch.setattr("rlvr_probe.recording.compacted.write.write_compacted", write)
    with pytest.raises(OSError, match="changed"):
        compact(path, unfinished(Path(f"{path}.parquet")))
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_what_does_not_come_out_as_it_was_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = trajectories(tmp_path).close()
    whole = path.read_bytes()
    monkeypatch.setattr(
        "rlvr_probe.recording.compacted.write.lines_of", lambda _: iter([whole[:-1], b"!"])
    )
    with pytest.raises(OSError, match="as it was"):
        compact(path, unfinished(Path(f"{path}.parquet")))
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


# ---------------------------------------------------------------- beside others


def test_a_segment_that_is_there_in_every_form_is_read_once(tmp_path: Path) -> None:
    path = trajectories(tmp_path).close()
    before = read_run(tmp_path).totals
    for _ in compress(path):
        pass
    assert compact(path, unfinished(Path(f"{path}.parquet")))
    assert len(list(tmp_path.glob("p*"))) == 3
    assert read_run(tmp_path).totals == before
    path.unlink()
    assert read_run(tmp_path).totals == before
    assert compact(Path(f"{path}.gz"), unfinished(Path(f"{path}.parquet")))
    Path(f"{path}.gz").unlink()
    assert read_run(tmp_path).totals == before


def test_a_segment_that_is_compacted_after_it_was_listed_is_read(tmp_path: Path) -> None:
    path = trajectories(tmp_path).close()
    whole = path.read_bytes()
    [[part]] = list_files(tmp_path).segments.values()
    finish(path)
    with part.open() as source:
        assert b"".join(iter(lambda: source.read(1 << 16), b"")) == whole


def test_the_file_has_the_rights_and_the_time_of_the_original(tmp_path: Path) -> None:
    path = trajectories(tmp_path).close()
    path.chmod(0o640)
    os.utime(path, ns=(1_000, 5_000_000_000))
    target = finish(path)
    assert target is not None
    found = target.stat()
    assert (found.st_mode & 0o777, found.st_mtime_ns) == (0o640, 5_000_000_000)


def test_a_journal_does_not_take_a_compacted_segment_for_a_deleted_one(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "0" * 16, {"journal": "rlvr-probe"}, lambda _: [], 4096)
    rows = [["x" * 100]] * 40
    for _ in range(2):
        writer.write(rows)
    first = min(tmp_path.glob("*.jsonl"))
    first.rename(f"{first}.parquet")
    writer.write(rows)
    writer.close()
    assert writer.lost == {}


def test_the_launcher_counts_the_process_of_a_compacted_journal(tmp_path: Path) -> None:
    finish(trajectories(tmp_path, number=2).close())
    assert processes(tmp_path, {}) == {f"p{key(2)}"}


def test_any_reader_of_parquet_sees_the_columns(tmp_path: Path) -> None:
    target = finish(trajectories(tmp_path, 7).close())
    sql = "SELECT sum(response_tokens) FROM read_parquet(?) WHERE kind = 'q_turn'"
    assert duckdb.execute(sql, [str(target)]).fetchall() == [(2 * sum(range(7)),)]


# ---------------------------------------------------------------- the sidecar


def to_the_end(work: Generator[None, None, bool]) -> bool:
    """What a generator returns."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            return bool(ended.value)


def test_a_sidecar_without_duckdb_compresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compactor, "find_spec", lambda _: None)
    work = Compactor(lambda *_: None).compact(trajectories(tmp_path).close())
    assert to_the_end(work) is False


def test_a_child_that_dies_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = list[tuple[str, str]]()
    asked = Compactor(lambda *told: faults.append(told))
    started = list[subprocess.Popen[bytes]]()

    def start(*_: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
        started.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        )
        return started[-1]

    monkeypatch.setattr(compactor, "start", start)
    path = trajectories(tmp_path).close()
    for _ in range(2):
        assert to_the_end(asked.compact(path)) is False
    assert len(started) == 1
    assert faults == [("sidecar.compact", "status -9")]
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_a_spool_hands_over_what_was_compacted(tmp_path: Path) -> None:
    spool, target = tmp_path / "spool", tmp_path / "runs" / "one"
    path = trajectories(spool).close()
    before = read_run(spool).totals
    mover = Mover(spool, Target(target, network=False))
    mover.round()
    assert (target / path.name).exists()
    assert compact(path, unfinished(Path(f"{path}.parquet")))
    assert mover.finish() is False
    assert [item.name for item in target.glob("p*")] == [f"{path.name}.parquet"]
    assert read_run(target).totals == before


def test_what_is_moved_or_deleted_while_it_is_read_is_there_to_the_end(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    targets = [finish(trajectories(spool, number=number).close()) for number in (1, 2)]
    before = all_rows(spool)

    def delete(done: int, total: int) -> None:
        for target in targets:
            if target is not None and done == total:
                target.unlink()

    with open_tables(spool, progress=delete, signals=False) as tables:
        turns = tables.sql.execute("SELECT count(*) FROM turn").fetchall()
    assert turns == [(len(before["turn"]),)]
    assert list(spool.glob("*.parquet")) == []


_LIFE = """
import sys
from pathlib import Path
from rlvr_probe.sidecar.segments import compact, unfinished
path = Path(sys.argv[1])
print(flush=True)
compact(path, unfinished(Path(f"{path}.parquet")))
path.unlink()
"""


@pytest.mark.parametrize(
    ("lives", "seed"), [(4, 0), *(pytest.param(100, seed, marks=FULL) for seed in range(1, 11))]
)
def test_one_that_is_killed_at_any_moment_loses_and_doubles_nothing(
    tmp_path: Path, lives: int, seed: int
) -> None:
    journal = trajectories(tmp_path / "run", 2_000)
    path = journal.close()
    journal.open_table(ended=True)
    whole, draw = path.read_bytes(), random.Random(seed)
    before, longest_s = read_run(tmp_path / "run").totals, 0.6
    ended = 0
    for _ in range(lives):
        path.write_bytes(whole)
        for left in (tmp_path / "run").glob("*parquet*"):
            left.unlink()
        command = [sys.executable, "-c", _LIFE, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(draw.uniform(0, longest_s))
            child.kill()
        ended += not path.exists()
        trace = read_run(tmp_path / "run")
        assert trace.totals == before
        assert trace.lost == {}
    assert ended < lives


# ---------------------------------------------------------------- the command


def test_compact_puts_a_run_into_parquet_and_says_how_much_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rlvr_probe.cli.compact._KEPT_S", 0)
    over, living = (trajectories(tmp_path, 2_000, number=number) for number in (1, 2))
    packed = trajectories(tmp_path, number=3)
    for journal in (over, packed):
        journal.close()
        journal.open_table(ended=True)
    living.close(end=False)
    for _ in compress(packed.path):
        pass
    packed.path.unlink()
    before = read_run(tmp_path)
    assert main(["compact", str(tmp_path)]) == OK
    assert "2 files compacted: " in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.glob("p*.jsonl*")) == [
        f"{over.path.name}.parquet", living.path.name, f"{packed.path.name}.parquet",
    ]  # fmt: skip
    assert read_run(tmp_path) == before
    assert main(["compact", str(tmp_path)]) == OK
    assert "0 files compacted\n" in capsys.readouterr().out


def test_what_cannot_be_compacted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = trajectories(tmp_path, 2_000)
    path = journal.close(tail=b"\xff\xfe\n")
    journal.open_table(ended=True)
    assert main(["compact", str(tmp_path)]) == UNABLE
    assert f"{path.name} stays as it is: " in capsys.readouterr().err
    assert path.exists()


@pytest.mark.parametrize("command", ["compact", "show"])
def test_without_duckdb_it_says_what_to_install(tmp_path: Path, command: str) -> None:
    journal = trajectories(tmp_path, 2_000)
    journal.close()
    journal.open_table(ended=True)
    if command == "show":
        finish(journal.path)
    code = (
        "import sys, importlib.util as util; found = util.find_spec;"
        "util.find_spec = lambda name, *more: None if name == 'duckdb' else found(name, *more);"
        "from rlvr_probe.cli import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, command, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == UNABLE
    assert "pip install 'rlvr-probe[cli]'" in done.stderr
    assert "Traceback" not in done.stderr
