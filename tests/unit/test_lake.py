"""Runs in a lake are the runs that went into it, in a folder and in object storage."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import duckdb
import pytest
import s3fs

import rlvr_probe
from rlvr_probe.cli import OK, UNABLE, main
from rlvr_probe.cli.compare import _side
from rlvr_probe.exceptions import ProbeError, RecordingError, StorageError
from rlvr_probe.recording import read_run
from rlvr_probe.recording.lake import list_runs, put_summary, run_folder
from rlvr_probe.recording.tables import TABLES, open_saved, open_tables, save_tables
from rlvr_probe.storage import read_all, to_place
from tests.simulated import SMALL, TRAINED, Corpus


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "lake")
    return str(request.getfixturevalue("bucket"))


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command prints."""
    assert main([str(argument) for argument in arguments]) == OK
    return capsys.readouterr().out


# ---------------------------------------------------------------- tables


@pytest.mark.conformance
def test_a_run_in_a_lake_is_characterized_compared_and_opened_as_itself(
    place: str, corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = corpus.run(SMALL)
    direct = run(capsys, "characterize", folder, "--lake", place)
    stored = f"{place}/run={read_run(folder).run}"
    # Which takes the place of what is there.
    assert run(capsys, "characterize", stored, "--lake", place) == direct
    sides = [_side(source, None) for source in (to_place(stored), folder)]
    assert sides[0] == sides[1]
    with rlvr_probe.open_run(stored) as there, rlvr_probe.open_run(folder) as here:
        for name in ("steps", "stages", "groups", "trajectories", "turns", "rewards", "devices"):
            assert list(getattr(there, name)) == list(getattr(here, name))


def test_a_lake_is_as_private_as_a_recording(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = corpus.run(SMALL)
    before = os.umask(0)
    try:
        run(capsys, "characterize", folder, "--lake", tmp_path / "lake")
    finally:
        os.umask(before)
    [summary] = (tmp_path / "lake" / "summaries").iterdir()
    [stored] = (tmp_path / "lake").glob("run=*/tables")
    for path in (summary, stored):
        assert not path.stat().st_mode & 0o077


@pytest.mark.parametrize("steps", [2, 1000])
def test_no_row_is_lost_between_ranges_of_steps(
    steps: int, place: str, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlvr_probe.recording.tables.saved._STEPS", steps)
    folder, _ = corpus.run(TRAINED)
    directory = to_place(place) / "tables"
    with open_tables(folder, signals=False) as tables:
        # A verification of no trajectory, and one without a step.
        tables.sql.execute("UPDATE trajectory SET step_id = NULL WHERE trajectory_id = 3")
        tables.sql.execute("INSERT INTO verification (process, start_ns) VALUES (0, 5)")
        before = {
            table.name: sorted(tables.sql.execute(f"FROM {table.name}").fetchall(), key=repr)
            for table in TABLES
        }
        save_tables(tables, directory)
    about = json.loads((directory / "tables.json").read_text())
    assert (len(about["first_steps"]) > 2) == (steps == 2)
    for hold in (False, True):
        with open_saved(directory, signals=False, hold=hold) as tables:
            for table in TABLES:
                found = tables.sql.execute(f"FROM {table.name}").fetchall()
                assert sorted(found, key=repr) == before[table.name], table.name


def test_any_tool_reads_many_runs_by_their_folders(corpus: Corpus, tmp_path: Path) -> None:
    expected = dict[str, int]()
    for name, which in {"a": SMALL, "b": TRAINED}.items():
        folder, _ = corpus.run(which)
        with open_tables(folder, signals=False) as tables:
            save_tables(tables, run_folder(tmp_path / "lake", name) / "tables")
            [(expected[name],)] = tables.sql.execute("SELECT count(*) FROM trajectory").fetchall()
    page = (Path(__file__).parents[2] / "docs" / "reference" / "lake.md").read_text("utf-8")
    [query] = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    with duckdb.connect() as sql:
        found = sql.execute(query.replace("LAKE", str(tmp_path / "lake"))).fetchall()
    counts = Counter[str]()
    for name, _, count, _ in found:
        counts[name] += count
    assert counts == expected


def test_a_range_is_named_by_its_first_step(corpus: Corpus, tmp_path: Path) -> None:
    folder, _ = corpus.run(SMALL)
    with open_tables(folder, signals=False) as tables:
        tables.sql.execute("UPDATE step SET number = number + 2_000")
        save_tables(tables, tmp_path / "tables")
    assert [path.name for path in (tmp_path / "tables" / "turn").iterdir()] == ["first_step=2000"]
    with open_saved(tmp_path / "tables", signals=False) as tables:
        assert tables.sql.execute("SELECT count(*) > 0 FROM trajectory").fetchall() == [(True,)]


def test_a_storage_that_refuses_tables_is_named(
    bucket: str, corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = corpus.run(SMALL)
    assert main(["characterize", str(folder), "--lake", "s3://no-such-bucket/x"]) == UNABLE
    said = capsys.readouterr().err
    assert "run.parquet cannot be written: " in said
    assert "bucket does not exist" in said


@pytest.mark.parametrize("name", ["trajectory/first_step=0/data.parquet", "step.parquet"])
def test_what_is_missing_is_named(name: str, place: str, corpus: Corpus) -> None:
    folder, _ = corpus.run(SMALL)
    directory = to_place(place) / "tables"
    with open_tables(folder, signals=False) as tables:
        save_tables(tables, directory)
    (directory / name).unlink()
    message = f"{name.partition('/')[0].removesuffix('.parquet')} is missing or damaged"
    with pytest.raises(RecordingError, match=message), open_saved(directory, signals=False):
        pass


def test_tables_that_are_being_replaced_are_not_read(bucket: str, corpus: Corpus) -> None:
    folder, _ = corpus.run(SMALL)
    stored = to_place(bucket) / "run=x"
    with open_tables(folder, signals=False) as tables:
        save_tables(tables, stored / "tables")
        tables.sql.execute("DROP VIEW kept_rpc; DROP TABLE rpc_rank")
        with pytest.raises(StorageError, match=r"rpc_rank\.parquet cannot be written: Catalog"):
            save_tables(tables, stored / "tables")
    with pytest.raises(RecordingError, match="neither tables nor a recording"):
        rlvr_probe.open_run(str(stored))


# ---------------------------------------------------------------- the list


def test_the_list_says_what_is_known_of_each_run(
    place: str, corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = corpus.run(SMALL)
    document = json.loads(run(capsys, "characterize", folder, "--json", "-", "--lake", place))
    (to_place(place) / "run=other" / "tables").mkdir(parents=True, exist_ok=True)
    (to_place(place) / "run=other" / "tables" / "x").write_text("")
    first, other = json.loads(run(capsys, "ls", place, "--json"))["runs"]
    assert {name for name, value in other.items() if value is not None} == {"run"}
    assert first["run"] == document["source"]
    assert first["gpu_hours"] == pytest.approx(document["ledger"]["gpu_s"] / 3600)
    assert first["cause"] == document["causes"][0]["kind"]
    [counts] = document["counts"]["rows"]
    assert [first["steps"], first["trajectories"]] == counts[:2]
    asked = f"run = '{first['run']}' AND gpu_hours < 1e9 AND framework IS NOT NULL"
    assert json.loads(run(capsys, "ls", place, "--where", asked, "--json"))["runs"] == [first]
    text = run(capsys, "ls", place, "--where", "steps < 0")
    assert text == f"0 runs of 2 in {place}\n"


def test_a_condition_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_folder(tmp_path, "a").mkdir()
    assert run(capsys, "ls", tmp_path).splitlines()[-1].split(maxsplit=1) == [
        "a", "not characterized yet",
    ]  # fmt: skip
    for where in ("nothing = 1", "1; DROP TABLE runs", "run = (SELECT max(a) FROM 'x.csv')"):
        assert main(["ls", str(tmp_path), "--where", where]) == UNABLE
        assert "expected a condition on run, started," in capsys.readouterr().err
    assert main(["ls", str(tmp_path / "a")]) == UNABLE
    assert "holds no run=ID" in capsys.readouterr().err


def test_the_index_never_hides_a_newer_summary(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = to_place(bucket)
    for number in range(3):
        put_summary(place, f"r{number}", {"steps": number})
        (run_folder(place, f"r{number}") / "tables" / "tables.json").write_text("{}")
    fetched = list[Path]()

    def noted(places: list[Path]) -> list[bytes | None]:
        fetched.extend(places)
        return read_all(places)

    monkeypatch.setattr("rlvr_probe.recording.lake.read_all", noted)
    assert [run["steps"] for run in list_runs(place)] == [0, 1, 2]
    assert [path.name for path in fetched] == ["summaries.json"]
    # Two at the same time: the index of one has lost the other's.
    (place / "summaries" / "r1.json").write_text('{"steps": 7}')
    assert [run["steps"] for run in list_runs(place)] == [0, 7, 2]
    for text in ("", "{", "[]", '{"r0": 3}', '{"r0": ["x", {"steps": 9}]}'):
        (place / "summaries.json").write_text(text)
        assert [run["steps"] for run in list_runs(place)] == [0, 7, 2]
    (place / "summaries" / "r2.json").write_text("garbage")
    assert list_runs(place)[2] == {"run": "r2"}


@pytest.mark.parametrize("run", ["../../x", "a/b", "", ".x", "a b", "x" * 200])
def test_a_run_id_leads_nowhere_else(run: str, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot be a run of a lake"):
        run_folder(tmp_path, run)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nosuch://a/b", "cannot be reached: ValueError"),
        ("gs://a/b", "takes universal-pathlib and the library of its storage: .*gcsfs"),
        ("s3://bucket/x", "cannot be reached: EndpointConnectionError"),
    ],
)
def test_a_place_that_does_not_answer_is_named(
    url: str, message: str, monkeypatch: pytest.MonkeyPatch, server: dict[str, str]
) -> None:
    for name, value in (server | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}).items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(ProbeError, match=f"^{re.escape(url)} {message}"):
        to_place(url)
    s3fs.S3FileSystem.clear_instance_cache()
