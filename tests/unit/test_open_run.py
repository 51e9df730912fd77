"""``rlvr_probe.open_run``: the tables of a recording, for programs and notebooks."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import rlvr_probe
from rlvr_probe import cli
from rlvr_probe.analysis.open_run import _RELATIONS
from rlvr_probe.exceptions import ProbeError, RecordingError
from rlvr_probe.model import names
from rlvr_probe.recording.tables import open_tables, save_tables
from tests import today, wheels
from tests.actors import Job
from tests.hostile import HOSTILE
from tests.simulated import TRAINED, Corpus
from tests.synthetic import Process, write_recording

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "open-a-run-in-python.md"


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files of the test go; none is left there."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    gc.collect()
    assert list(folder.iterdir()) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks and three steps."""
    written = write_recording(
        tmp_path_factory.mktemp("runs") / "run", steps=3, ranks=2, trajectories=32
    )
    return written.folder


def shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """What ``show --json`` says."""
    assert cli.main(["show", str(folder), "--json"]) == cli.OK
    return json.loads(capsys.readouterr().out)


def relation(run: rlvr_probe.Run, name: str) -> rlvr_probe.Relation:
    found: rlvr_probe.Relation = getattr(run, name)
    return found


def one(run: rlvr_probe.Run, query: str) -> Any:
    """The one value of an answer."""
    [row] = run.sql(query)
    [value] = row.values()
    return value


def test_counts_are_those_of_show(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = corpus.run(TRAINED)
    told = shown(path, capsys)
    with rlvr_probe.open_run(path) as run:
        assert sum(row["done"] and row["number"] > 0 for row in run.steps) == told["steps"]
        train = [row for row in run.trajectories if row["mode"] == "train"]
        assert len(train) == told["trajectories"] > 0
        for tokens in ("prompt_tokens", "response_tokens"):
            assert sum(row[tokens] for row in train) == told[tokens]
        groups = "SELECT count(*) AS n FROM groups JOIN batch USING (batch_id) WHERE mode = 'train'"
        assert one(run, groups) == told["groups"]
        trained = "SEMI JOIN (FROM trajectories WHERE mode = 'train') USING (trajectory_id)"
        assert one(run, f"SELECT count(*) AS n FROM turns {trained}") == told["turns"]["turns"] > 0
        values = Counter(
            row["function"] for row in run.sql(f"FROM rewards {trained} WHERE isfinite(value)")
        )
        assert values == {row["function"]: row["values"] for row in told["rewards"]}
        stages = {row["stage"] for row in told["stages"]} - {"step"}
        assert {row["name"] for row in run.stages} == stages
        assert len(run.devices) == len(told["devices"]["list"]) > 0
        assert run.source == told["run"]
        assert run.notes == tuple(told["notes"])


def test_every_relation_has_the_columns_of_its_table(folder: Path) -> None:
    with rlvr_probe.open_run(folder) as run:
        for name in _RELATIONS:
            relation_ = relation(run, name)
            done = run.sql(f"FROM {name}")
            assert relation_.columns == done.columns
            assert all(list(row) == relation_.columns for row in relation_)
            assert repr(relation_).startswith(f"<{name} of run run: {relation_.columns[0]}, ")
        assert list(run.sql("DESCRIBE steps"))
        assert repr(run) == "<rlvr_probe.Run run>"


def test_rows_come_in_the_order_of_their_ids(folder: Path) -> None:
    with rlvr_probe.open_run(folder) as run:
        assert [row["number"] for row in run.steps] == [1, 2, 3]
        assert [row["trajectory_id"] for row in run.trajectories] == list(range(96))
        starts = [row["start_ns"] for row in run.stages]
        assert starts == sorted(starts)


def test_what_a_resume_threw_away_is_in_no_relation(tmp_path: Path) -> None:
    Job(tmp_path / "run", steps=3, end=False, turns=2).write()
    Job(tmp_path / "run", steps=3, resumed=1, number=100, begin_ns=300_000_000_000).write()
    with rlvr_probe.open_run(tmp_path / "run") as run:
        assert [row["number"] for row in run.steps if row["number"]] == [1, 2, 3, 4]
        kept = {row["trajectory_id"] for row in run.trajectories}
        assert len(kept) == one(run, "SELECT count(*) AS n FROM kept_trajectory")
        assert len(kept) < one(run, "SELECT count(*) AS n FROM trajectory")
        for name in ("turns", "rewards"):
            assert {row["trajectory_id"] for row in relation(run, name)} <= kept
        assert {row["batch_id"] for row in run.groups} == (
            {row["batch_id"] for row in run.trajectories}
        )


def test_other_libraries_get_the_same_rows(folder: Path) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("pandas")
    with rlvr_probe.open_run(folder) as run:
        for name in _RELATIONS:
            rows = relation(run, name)
            assert rows.to_arrow().to_pylist() == list(rows)
            frame = rows.to_pandas()
            assert (list(frame.columns), len(frame)) == (rows.columns, len(rows))
        frame = run.trajectories.to_pandas()
    assert frame["response_tokens"].tolist() == [
        row["response_tokens"] for row in rlvr_probe.open_run(folder).trajectories
    ]


@pytest.mark.conformance
def test_polars_gets_the_same_rows_and_needs_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = (wheels.REQUIREMENTS / "polars.txt").read_text()
    monkeypatch.syspath_prepend(wheels.unpacked("polars", pins))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with rlvr_probe.open_run(folder) as run:
        for name in _RELATIONS:
            rows = relation(run, name)
            assert rows.to_polars().to_dicts() == list(rows)
        assert run.sql("SELECT 1 AS one").to_polars().shape == (1, 1)


@pytest.mark.parametrize("library", ["pyarrow", "pandas", "polars"])
def test_a_library_that_is_missing_is_named(
    library: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    method = f"to_{library.removeprefix('py')}"
    with rlvr_probe.open_run(folder) as run, pytest.raises(ProbeError) as error:
        getattr(run.steps, method)()
    assert str(error.value) == (
        f"{method}() needs {library}, which is not installed; install it with pip install {library}"
    )


def test_what_an_installed_library_lacks_is_another_matter(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "polars.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "polars", raising=False)
    with (
        rlvr_probe.open_run(folder) as run,
        pytest.raises(ModuleNotFoundError, match="no_such_library"),
    ):
        run.steps.to_polars()


def test_without_duckdb_it_says_what_to_install(folder: Path) -> None:
    code = (
        "import sys; sys.modules['duckdb'] = None; import rlvr_probe\n"
        f"try: rlvr_probe.open_run({str(folder)!r})\n"
        "except rlvr_probe.exceptions.ProbeError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "open_run() needs DuckDB, which is not installed; install it with"
        " pip install 'rlvr-probe[cli]'\n"
    )


def test_only_an_opened_run_loads_duckdb(folder: Path) -> None:
    code = (
        "import sys, rlvr_probe; rlvr_probe.Run, rlvr_probe.open_run; a = 'duckdb' in sys.modules;"
        f" rlvr_probe.open_run({str(folder)!r}); print(a, 'duckdb' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"


def test_a_closed_run_says_so(folder: Path, scratch: Path) -> None:
    run = rlvr_probe.open_run(folder)
    steps, answer = run.steps, run.sql("SELECT 1 AS one")
    assert list(scratch.iterdir())
    run.close()
    run.close()
    assert list(scratch.iterdir()) == []
    uses: list[Callable[[], object]] = [
        steps.__len__, steps._repr_html_, run._repr_html_, lambda: list(answer),
        lambda: run.sql("SELECT 1 AS one"), lambda: len(run.turns),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(ProbeError, match=r"run run was closed; rlvr_probe\.open_run\(\)"):
            use()
    assert repr(run) == "<rlvr_probe.Run run, closed>"
    assert "step_id" in repr(steps)


def test_a_run_that_nobody_holds_closes_itself_and_a_relation_holds_it(
    folder: Path, scratch: Path
) -> None:
    steps = rlvr_probe.open_run(folder).steps
    gc.collect()
    assert len(steps) == 3
    del steps
    gc.collect()
    assert list(scratch.iterdir()) == []


def test_a_program_that_ends_with_an_open_run_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    code = f"import rlvr_probe; run = rlvr_probe.open_run({str(folder)!r}); print(len(run.steps))"
    environ = {**os.environ, "TMPDIR": str(left)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr, list(left.iterdir())) == ("3\n", "", [])


@pytest.mark.parametrize(
    "child", today.some(["del run", "run.close()", "", "print(len(run.steps))"], 1)
)
def test_a_forked_child_leaves_the_run_to_its_parent(folder: Path, child: str) -> None:
    program = f"""
import os, sys, rlvr_probe
run = rlvr_probe.open_run({str(folder)!r})
pid = os.fork()
if not pid:
    try:
        {child or "pass"}
    except rlvr_probe.exceptions.ProbeError as error:
        print(error, flush=True)
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print(len(run.trajectories))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    *said, count = done.stdout.splitlines()
    assert (done.returncode, int(count) > 0) == (0, True)
    assert ["was opened by another process" in line for line in said] == [True] * ("print" in child)


def test_a_run_may_be_closed_by_another_thread(folder: Path) -> None:
    run = rlvr_probe.open_run(folder)
    thread = threading.Thread(target=run.close)
    thread.start()
    thread.join()
    with pytest.raises(ProbeError, match="was closed"):
        len(run.steps)


def test_a_run_that_is_closed_while_it_is_gone_through_says_so(tmp_path: Path) -> None:
    write_recording(tmp_path / "run", steps=10, trajectories=640)
    run = rlvr_probe.open_run(tmp_path)
    rows = iter(run.trajectories)
    assert next(rows)["trajectory_id"] == 0
    run.close()
    with pytest.raises(ProbeError, match="was closed"):
        list(rows)


def test_threads_ask_at_a_time(tmp_path: Path) -> None:
    write_recording(tmp_path / "run", steps=10, trajectories=640)
    with rlvr_probe.open_run(tmp_path) as run, ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(list, run.trajectories) for _ in range(8)]
        assert {len(item.result()) for item in asked} == {6_400}


def test_several_are_open_at_a_time(folder: Path, tmp_path: Path) -> None:
    write_recording(tmp_path / "other", steps=5, trajectories=8)
    first, second = rlvr_probe.open_run(folder), rlvr_probe.open_run(tmp_path / "other")
    pairs = zip(first.trajectories, second.trajectories, strict=False)
    assert len(list(pairs)) == 40
    first.close()
    assert (len(second.steps), second.source) == (5, "other")
    second.close()


def test_a_relation_is_asked_while_another_one_is_gone_through(folder: Path) -> None:
    with rlvr_probe.open_run(folder) as run:
        seen = [(row["trajectory_id"], len(run.steps)) for row in run.trajectories]
    assert seen == [(number, 3) for number in range(96)]


@pytest.mark.parametrize(
    "given", [str, Path, lambda folder: folder.parent, lambda folder: [folder]]
)
def test_a_folder_is_given_in_any_way(given: Callable[[Path], Any], folder: Path) -> None:
    with rlvr_probe.open_run(given(folder)) as run:
        assert (run.source, len(run.steps)) == ("run", 3)


def test_parts_of_one_run_are_opened_together(tmp_path: Path) -> None:
    whole = write_recording(tmp_path / "whole" / "run", steps=2, ranks=2, trajectories=16)
    parts = [tmp_path / node / "run" for node in ("first", "second")]
    for path in sorted(whole.folder.iterdir()):
        part = parts[0] if path.name.startswith("p0000000000000001") else parts[1]
        part.mkdir(parents=True, exist_ok=True)
        (part / path.name).write_bytes(path.read_bytes())
    with rlvr_probe.open_run(whole.folder) as run, rlvr_probe.open_run(parts) as joined:
        assert list(joined.trajectories) == list(run.trajectories)
        assert len(joined.trajectories) == whole.trajectories


def test_saved_tables_are_opened(folder: Path, tmp_path: Path) -> None:
    with open_tables(folder) as tables:
        save_tables(tables, tmp_path / "saved")
    with rlvr_probe.open_run(tmp_path / "saved") as saved, rlvr_probe.open_run(folder) as run:
        for name in _RELATIONS:
            assert list(relation(saved, name)) == list(relation(run, name))


def test_a_recording_of_nothing_has_empty_tables(tmp_path: Path) -> None:
    process = Process(tmp_path / "run", 0)
    process.event(names.PROCESS, 0)
    process.close(1)
    with rlvr_probe.open_run(tmp_path / "run") as run:
        for name in _RELATIONS:
            rows = relation(run, name)
            assert (len(rows), list(rows)) == (0, [])
            assert f"{name}, 0 of 0 rows" in rows._repr_html_()
        assert "<ul>" in run._repr_html_()


@pytest.mark.parametrize("given", ["none", []])
def test_where_there_is_no_recording_it_says_so(given: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordingError):
        rlvr_probe.open_run(tmp_path / given if isinstance(given, str) else given)


@pytest.mark.parametrize(
    ("query", "message"),
    today.some(
        [
            ("DROP TABLE step", "expected one SELECT, found 'DROP TABLE step': a run is only read"),
            ("COPY step TO 'step.csv'", "expected one SELECT"),
            ("SELECT 1; SELECT 2", "expected one SELECT"),
            ("", "expected one SELECT"),
            ("SELEC", "DuckDB cannot answer this: .*SELEC"),
            ("FROM nothing", "DuckDB cannot answer this: .*nothing"),
            ("FROM query", "DuckDB cannot answer this: .*query"),
            ("SELECT ?", "DuckDB cannot answer this"),
            (
                "SELECT 1 AS a, 2 AS b, 3 AS a",
                "two columns are called a; AS gives one another name",
            ),
        ],
        3,
    ),
)
def test_what_is_no_question_of_a_run_is_refused(query: str, message: str, folder: Path) -> None:
    with rlvr_probe.open_run(folder) as run, pytest.raises(ProbeError, match=message):
        run.sql(query)


def test_an_answer_that_fails_late_is_an_error_of_ours(folder: Path) -> None:
    with rlvr_probe.open_run(folder) as run:
        answer = run.sql("SELECT CAST(name || 'x' AS INTEGER) AS n FROM span -- a remark")
        for use in (list, type(answer)._repr_html_):
            with pytest.raises(ProbeError, match="DuckDB cannot answer this"):
                assert use(answer)


def test_a_recording_is_only_read(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with rlvr_probe.open_run(folder) as run:
        list(run.sql("SELECT * FROM steps;"))
        run._repr_html_()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_notebook_shows_the_first_rows_with_units(folder: Path) -> None:
    with rlvr_probe.open_run(folder) as run:
        page = run.trajectories._repr_html_()
        assert "trajectories, 10 of 96 rows" in page
        assert "<th>prompt_tokens<br><small>tokens</small></th>" in page
        assert "<th>mode</th>" in page
        assert (page.count("<tr>"), page.count("<td>")) == (11, 10 * len(run.trajectories.columns))
        assert "<td><i>NULL</i></td>" in page
        long = run.sql("SELECT repeat('x', 1000) AS x")._repr_html_()
        assert f"<td>{'x' * 80}…</td>" in long
        assert "<td>trajectories</td><td>96</td>" in run._repr_html_()


@pytest.mark.parametrize("hostile", today.some(list(HOSTILE), 2))
def test_a_hostile_text_stays_a_text(hostile: str, folder: Path) -> None:
    literal = hostile.replace("\x00", "").replace("'", "''")
    column = literal.replace('"', '""')
    with rlvr_probe.open_run(folder) as run:
        page = run.sql(f"SELECT '{literal}' AS \"{column}\"")._repr_html_()
        run.source, run.notes = hostile, (hostile,)
        pages = page, run._repr_html_()
    known = "table|caption|thead|tbody|tr|th|td|ul|li"
    for page in pages:
        assert re.sub(rf"</?({known})>", "", page).count("<") == 0
        assert all(char.isprintable() for char in page)


@pytest.fixture
def heeded() -> Iterator[None]:
    """Ctrl-C interrupts: a shell starts what runs in its background with that ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_ends_a_question_and_the_run_stays_open(folder: Path) -> None:
    run = rlvr_probe.open_run(folder)
    answer = run.sql("SELECT count(*) AS n FROM range(100000000) a, range(1000) b WHERE a <> b")
    timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(answer)
    assert len(run.steps) == 3
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.usefixtures("heeded")
def test_an_interrupted_program_finds_its_runs_open(folder: Path) -> None:
    """What came before a question does not end it."""
    with rlvr_probe.open_run(folder) as run:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert len(run.steps) == len(list(run.steps)) == 3


def test_the_page_that_explains_it_shows_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pandas")
    text = PAGE.read_text("utf-8")
    parts = re.findall(r"^```python\n(.*?)^```$\n\n^```\n(.*?)^```$", text, re.M | re.S)
    assert len(parts) == text.count("```python") == 4
    write_recording(tmp_path / "rlvr-probe-runs" / "run", steps=3)
    monkeypatch.chdir(tmp_path)
    variables: dict[str, Any] = {}
    for code, expected in parts:
        exec(code, variables)
        printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert printed == expected.splitlines()


def test_the_page_names_every_relation_and_its_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*#(\w+)\) \|$", PAGE.read_text("utf-8"), re.M)
    assert dict(rows) == {name: table for name, (table, *_) in _RELATIONS.items()}
