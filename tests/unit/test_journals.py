"""What exporters see of a recording, as a trace, is what the tables of it hold."""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.exceptions import RecordingError
from rlvr_probe.model import names
from rlvr_probe.recording import read_run
from rlvr_probe.recording.tables import TABLES, Tables, open_tables
from tests import today
from tests.actors import SECOND, Job
from tests.by_hand import tables_of
from tests.journals import JournalFile, summed
from tests.property import damage, lost_rows
from tests.simulator import scenario, simulate
from tests.simulator.volume import write_volume
from tests.synthetic import write_recording

_SPAN_ATTRIBUTES = 6
"""What a span row has before its attributes."""

Rows = dict[str, Counter[str]]

JOBS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ahead": {"v1": True},
    "narrow keys": {"uids": False},
    "all alike": {"alike": True},
    "a worker anew": {"restarted_worker": 3},
    "a manager anew": {"restarted_manager": 3},
    "a manager anew, narrow keys": {"restarted_manager": 3, "uids": False, "alike": True},
    "a rank anew": {"restarted_rank": 2},
    "another machine": {"other_machine": 2 * SECOND},
    "killed": {"killed": True},
    "no end": {"end": False},
}


def rows_of(tables: Tables) -> Rows:
    return {
        table.name: Counter(map(repr, tables.sql.execute(f"FROM {table.name}").fetchall()))
        for table in TABLES
    }


def assert_same(run: Path, *, threads: int = 1) -> Rows:
    with tables_of(read_run(run)) as tables:
        expected, notes = rows_of(tables), tables.notes
    with open_tables(run, threads=threads) as tables:
        rows = rows_of(tables)
        assert tables.notes == notes
    for name, table in expected.items():
        assert rows[name] == table, name
    return rows


@pytest.mark.parametrize("kind", today.some(list(JOBS), 2))
def test_jobs_of_many_processes(kind: str, tmp_path: Path) -> None:
    Job(tmp_path / "run", **JOBS[kind]).write()
    rows = assert_same(tmp_path / "run")
    assert rows["turn"] or rows["engine_call"]


# In that of TRL, ranks tell turns of trajectories that follow one another.
@pytest.mark.parametrize("shape", ["trl", *today.some(["verl", "async"], 1)])
def test_simulated_runs(shape: str, tmp_path: Path) -> None:
    drawn = scenario(6)
    lengths = replace(drawn.lengths, turns=3)
    simulate(
        replace(drawn, shape=shape, steps=3, prompts=8, faults=(), lengths=lengths, hz=1.0),
        tmp_path / "run",
        again=False,
    )
    assert assert_same(tmp_path / "run", threads=2)["tool_call"]


def test_a_training_without_keys(tmp_path: Path) -> None:
    write_recording(tmp_path / "run", steps=3, ranks=2)
    assert_same(tmp_path / "run")


def test_a_resumed_training(tmp_path: Path) -> None:
    Job(tmp_path / "run", steps=3, end=False).write()
    Job(tmp_path / "run", steps=3, resumed=1, number=100, begin_ns=300 * SECOND).write()
    assert_same(tmp_path / "run")


def test_a_recording_of_many_trajectories_is_what_its_books_say(tmp_path: Path) -> None:
    books = write_volume(tmp_path / "run", 10_000, per_step=4_800, workers=3)
    rows = assert_same(tmp_path / "run", threads=2)
    assert rows["trajectory"].total() == books.trajectories
    with open_tables(tmp_path / "run") as tables:
        query = "SELECT count(*), sum(prompt_tokens), sum(response_tokens) FROM trajectory"
        found = tables.sql.execute(query).fetchall()
    assert found == [(books.trajectories, books.prompt_tokens, books.response_tokens)]


def files_of(make: Callable[[Path], object], folder: Path) -> dict[str, bytes]:
    make(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def put(files: dict[str, bytes], run: Path) -> Path:
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    for name, data in files.items():
        (run / name).write_bytes(data)
    return run


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, bytes]]:
    folder = tmp_path_factory.mktemp("sources")
    drawn = scenario(3)
    small = replace(
        drawn, shape="trl", steps=1, prompts=8, faults=(), hz=0.0,
        lengths=replace(drawn.lengths, turns=3),
    )  # fmt: skip
    makers: list[Callable[[Path], object]] = [
        lambda run: Job(run, steps=2, prompts=3).write(),
        lambda run: Job(run, steps=2, prompts=3, v1=True, end=False).write(),
        lambda run: Job(run, steps=3, prompts=3, uids=False, restarted_worker=2).write(),
        lambda run: damage.recording(run, resumed=False),
        lambda run: simulate(small, run, again=False),
    ]
    return [files_of(make, folder / f"{at}" / "run") for at, make in enumerate(makers)]


TOKENS = (
    b"null", b"1.0", b"-1", b'"5"', b"true", b"1e3", b"007", b"12345678901234567890", b"[1,2]",
    b'"a\\"b"', b'"\xff"', b"0", b"NaN", b"5000000000", b'"-x/0/0/0"',
)  # fmt: skip
LINES = (
    b'["def",1,"span","turn",["batch"]]',
    b'["def",2,"span","verify",["function"]]',
    b'["def",9,"span","turn",["turn","prompt_tokens","response_tokens","batch"]]',
    b'["def",[],"span","turn",[]]',
    b"[9,1,2,77,0,null,0,5,6,1]",
    b'["open",1,5,3,0]',
    b"",
)


def forged(files: dict[str, bytes], draw: random.Random) -> dict[str, bytes]:
    """Rows of any content, with sums that fit."""
    found = dict(files)
    for name in (name for name in files if name.endswith(".jsonl")):
        lines = [line for line in files[name].split(b"\n") if not line.startswith(b'["sum",')]
        lines.pop()
        for _ in range(draw.choice((1, 2, 5, 20))):
            if len(lines) < 3:
                break
            at = draw.randrange(1, len(lines))
            parts = lines[at].split(b",")
            parts[draw.randrange(len(parts))] = draw.choice(TOKENS)
            other = lines[draw.randrange(1, len(lines))]
            lines[at] = draw.choice((b",".join(parts), b",".join(parts), other, *LINES))
        found[name] = summed(lines, draw.choice((5, 50, 500)))
    return found


def packed(files: dict[str, bytes], draw: random.Random) -> dict[str, bytes]:
    return {
        name + ".gz" if name.endswith(".jsonl") and draw.random() < 0.5 else name: data
        for name, data in files.items()
    }


def torn(files: dict[str, bytes], draw: random.Random) -> dict[str, bytes]:
    name = draw.choice([name for name in files if name.endswith(".jsonl")])
    return {**files, name: files[name][: draw.randrange(len(files[name]))]}


SPOILT: dict[str, Callable[..., dict[str, bytes]]] = {
    "damaged": damage.damaged,
    "lost": lost_rows.damaged,
    "torn": torn,
    "forged": forged,
}
"""What may be wrong with a recording."""


@pytest.mark.parametrize(
    ("kind", "seed"),
    today.some([(kind, seed) for seed in range(5) for kind in SPOILT], 2),
)
def test_whatever_is_wrong_with_a_recording(
    kind: str, seed: int, sources: list[dict[str, bytes]], tmp_path: Path
) -> None:
    draw = random.Random(seed)
    files = SPOILT[kind](sources[seed % len(sources)], draw)
    run = put(files, tmp_path / "run")
    try:
        read_run(run)
    except RecordingError as error:
        with pytest.raises(RecordingError, match=re.escape(str(error))), open_tables(run):
            pass
        return
    assert_same(run)


@pytest.mark.parametrize(
    ("name", "attribute"),
    today.some(
        [
            (names.TRAJECTORY.name, "engine"),
            (names.TRAJECTORY.name, "prompt_tokens"),
            (names.TURN.name, "turn"),
        ],
        1,
    ),
)
def test_a_number_that_takes_more_than_four_bytes_is_kept_or_no_row(
    name: str, attribute: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    write_volume(run, 64, workers=2)
    assert _enlarged(run, name, attribute)
    assert_same(run)


def _enlarged(run: Path, name: str, attribute: str) -> bool:
    """Give one row of ``name`` an ``attribute`` of 5 * 10**9; whether there was one."""
    for path in sorted(run.glob("*.jsonl")):
        lines = [line for line in path.read_bytes().splitlines() if b'["sum",' not in line]
        place = None
        for at, line in enumerate(lines):
            row = json.loads(line) if at else []  # the header is none
            if row[:1] == ["def"] and row[3] == name and attribute in row[4]:
                place = row[1], _SPAN_ATTRIBUTES + row[4].index(attribute)
            elif place is not None and row[0] == place[0]:
                row[place[1]] = 5_000_000_000
                lines[at] = json.dumps(row, separators=(",", ":")).encode()
                path.write_bytes(summed(lines, 50))
                return True
    return False


@pytest.mark.parametrize("seed", today.some(range(3), 1))
def test_segments_that_were_compressed(
    seed: int, sources: list[dict[str, bytes]], tmp_path: Path
) -> None:
    files = packed(sources[seed], random.Random(seed))
    packed_files = {
        name: gzip.compress(data) if name.endswith(".gz") else data for name, data in files.items()
    }
    assert_same(put(packed_files, tmp_path / "run"))


@pytest.mark.parametrize("starts", [(7, 5), (5, 7), (5, 5)])
def test_of_two_rows_of_a_span_that_is_open_the_later_begin_counts(
    tmp_path: Path, starts: tuple[int, int]
) -> None:
    journal = JournalFile(tmp_path / "run")
    journal.span(names.STEP, 1, 2, step=1)
    turn = journal.definition(names.TURN, ["batch"])
    called = journal.definition(names.TOOL_CALL, ["batch"])
    for number, start in zip((turn, called), starts, strict=True):
        journal.row("open", number, start * SECOND, 9, 0)
    journal.close(end=False)
    [row] = assert_same(tmp_path / "run")["open_span"]
    assert f"{max(starts) * SECOND}" in row
