"""``rlvr-probe characterize``: the answer on one screen, and all of it as JSON."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from rlvr_probe import cli
from rlvr_probe.analysis.causes import find_causes
from rlvr_probe.analysis.characterization import characterize
from rlvr_probe.analysis.ledger import make_ledger
from rlvr_probe.exceptions import ProbeError
from rlvr_probe.model import names
from rlvr_probe.recording.tables import TABLES, open_tables
from rlvr_probe.recording.tables.database import connect
from tests import today
from tests.actors import Job
from tests.journals import JournalFile
from tests.simulated import FILTERED, SMALL, TRAINED, Corpus
from tests.simulator import Scenario, scenario
from tests.synthetic import write_recording

OF_EVERYTHING = (
    "asynchronous.rollout_wait", "ledger.hidden_wait", "lengths.loss_share",
    "lengths.response.cap", "lengths.turn.generated", "lengths.turn.sent", "occupancy.slots",
    "occupancy.least", "occupancy.most", "rewards.function.queue_share",
    "rewards.trajectory_share", "rewards.wait_share", "tools.trajectory_share",
    # Where everything is one batch, generated for a queue:
    "occupancy.mean", "occupancy.under_10", "occupancy.under_25", "occupancy.under_50",
)  # fmt: skip
"""Figures of all that was recorded: no step or trajectory is more behind them than another."""


def json_of(corpus: Corpus, drawn: Scenario) -> Any:
    return json.loads(corpus.characterized(drawn).json.read_text("utf-8"))


def numbers(document: Any) -> Iterator[float]:
    if isinstance(document, dict):
        document = list(document.values())
    if isinstance(document, list):
        for one in document:
            yield from numbers(one)
    elif isinstance(document, float):
        yield document


def test_the_screen_says_where_the_time_went_and_why(corpus: Corpus) -> None:
    truth = corpus.run(FILTERED)[1]
    lines = corpus.characterized(FILTERED).screen
    assert lines[0] == f"run · verl 0.9.1 · GRPO · {truth.gpus} GPUs"
    assert max(map(len, lines)) <= 100
    at = lines.index("Why")
    assert "the filter passes" in lines[at + 1]
    assert any(line.startswith("   worst: step ") for line in lines[at:])
    shares = [
        float(line.split("%")[0].split()[-1])
        for line in lines[lines.index("Where the GPU time went") + 2 : at]
        if "%" in line
    ]
    assert sum(shares) == pytest.approx(100, abs=0.6)  # of twelve, each rounded to a tenth


def test_json_has_the_query_the_inputs_and_the_ids_of_every_number(corpus: Corpus) -> None:
    truth = corpus.run(FILTERED)[1]
    found = json_of(corpus, FILTERED)
    assert all(map(math.isfinite, numbers(found)))
    ledger = found["ledger"]
    assert ledger["gpu_s"] == pytest.approx(
        truth.gpus * (truth.end_ns - truth.begin_ns) / 1e9, rel=1e-6
    )
    assert math.fsum(one["gpu_s"] for one in ledger["categories"]) == pytest.approx(ledger["gpu_s"])
    for part in (ledger, ledger["by_step"], ledger["waits"], found["counts"]):
        assert part["query"]
        assert part["inputs"]
    first = found["causes"][0]
    assert (first["kind"], first["query"] != "") == ("aggressive_filter", True)
    figures = [figure for chapter in found["chapters"] for figure in chapter["figures"]]
    assert len(figures) > 100
    for figure in figures:
        if figure["value"] is None:
            assert figure["why"]
        else:
            assert figure["query"]
            assert figure["inputs"]


def test_json_can_be_printed_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_recording(tmp_path / "run", steps=1, trajectories=8)
    assert cli.main(["characterize", str(tmp_path / "run"), "--json", "-"]) == cli.OK
    assert json.loads(capsys.readouterr().out)["source"] == "run"


def test_a_run_without_a_finished_step_has_no_ledger_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_recording(tmp_path / "run", steps=1, trajectories=8)
    assert cli.main(["characterize", str(tmp_path / "run")]) == cli.OK
    assert "1 step, 8 trajectories of 1 prompt," in capsys.readouterr().out
    journal = JournalFile(tmp_path / "begun")
    journal.event(names.SESSION, 0.5, session=0, framework="trl", rank=0, world_size=1)
    journal.close()
    assert cli.main(["characterize", str(tmp_path / "begun")]) == cli.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == ("no ledger: no trainer step was recorded with its times")
    with pytest.raises(SystemExit):
        cli.main(["characterize", str(tmp_path / "run"), "--slots", "0"])
    assert cli.main(["characterize", str(tmp_path / "none")]) == cli.UNABLE


def test_without_duckdb_it_says_what_to_install(tmp_path: Path) -> None:
    write_recording(tmp_path / "run", steps=1, trajectories=8)
    code = (
        "import sys; sys.modules['duckdb'] = None; from rlvr_probe import cli;"
        f" sys.exit(cli.main(['characterize', {str(tmp_path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == cli.UNABLE
    assert "pip install 'rlvr-probe[cli]'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--html", "--json"])
def test_a_place_that_cannot_be_written_is_told_before_the_work(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # There is no recording either: that would be told after it was looked for.
    assert cli.main(["characterize", str(tmp_path), option, str(tmp_path / "no" / "x")]) == 2
    assert "no does not exist; expected a folder to write into" in capsys.readouterr().err
    (tmp_path / "kept").mkdir()
    assert cli.main(["characterize", str(tmp_path), "--save", str(tmp_path / "kept")]) == 2
    assert "kept is there already" in capsys.readouterr().err


ENDED = '''
import os, signal, sys, tempfile, threading
from rlvr_probe import cli
from rlvr_probe.analysis import characterization

# Takes seconds.
LONG = """SELECT max(s) FROM (SELECT sum(hash(i) % 100) OVER (PARTITION BY hash(i) % 1000
ORDER BY hash(i) ROWS BETWEEN 200 PRECEDING AND CURRENT ROW) s FROM range(5000000) t(i))"""

# Whoever starts tests in the background of a shell has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

def long(tables, **_):
    threading.Timer(0.2, os.kill, (os.getpid(), getattr(signal, sys.argv[1]))).start()
    tables.sql.execute(LONG)
    print("the query was not ended", flush=True)

characterization.characterize = long
code = cli.main(["characterize", sys.argv[2], "--json", "-"])
print(code, os.listdir(tempfile.gettempdir()))
'''


@pytest.mark.parametrize("sign", today.some(["SIGINT", "SIGTERM"], 1))
def test_who_ends_it_in_a_query_leaves_nothing_behind(sign: str, tmp_path: Path) -> None:
    write_recording(tmp_path / "run", steps=1, trajectories=8)
    (tmp_path / "temporary").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", ENDED, sign, str(tmp_path / "run")],
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"{cli.INTERRUPTED} []\n", "")


def test_no_query_draws_a_bar_between_the_answers_however_long_it_takes() -> None:
    # Python that runs no file is interactive to DuckDB: it would draw one, on stdout, after 2 s.
    code = (
        "import duckdb; from rlvr_probe.recording.tables.database import connect\n"
        "asked = \"SELECT current_setting('enable_progress_bar')\"\n"
        "with connect(None) as sql, duckdb.connect() as other:\n"
        "    print([one.execute(asked).fetchone() for one in (sql, other)])\n"
    )
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout == "[(False,), (True,)]\n"


def test_a_disk_that_is_too_small_is_told_in_a_line() -> None:
    small = "SET memory_limit = '10MB'; SET max_temp_directory_size = '1MB'"
    large = "CREATE TABLE t AS SELECT hash(i) AS h FROM range(10000000) r(i) ORDER BY h"
    with pytest.raises(ProbeError, match="TMPDIR names a larger disk"), connect(1) as sql:
        sql.execute(f"{small}; {large}")


def test_a_large_recording_has_more_memory_and_at_most_a_quarter_of_the_machine() -> None:
    given = []
    for size_b in (0, 10**9, 10**18):
        with connect(1, size_b=size_b) as sql:
            sql.execute("SELECT current_setting('memory_limit')")
            number, unit = sql.fetchall()[0][0].split()
            assert unit == "GiB"
            given.append(float(number))
    machine_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    assert given == pytest.approx([1.1, 1.1, max(1.1, machine_gib / 4)], abs=0.1)


@pytest.mark.conformance
def test_the_parts_of_a_run_that_nodes_kept_are_one_run(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = corpus.run(SMALL)[0]
    first, second = (tmp_path / name / "run" for name in ("node-1", "node-2"))
    shutil.copytree(whole, first)
    second.mkdir(parents=True)
    for number, key in enumerate(sorted({path.name[:17] for path in whole.glob("p*")})):
        if number % 2:
            for path in first.glob(f"{key}*"):
                path.rename(second / path.name)
    # Copied once more, while it was shorter.
    [early, *_] = sorted(first.glob("*.jsonl"))
    (second / early.name).write_bytes(early.read_bytes()[:1_000])

    def asked(*sources: Path, code: int = cli.OK) -> str:
        assert cli.main(["characterize", *map(str, sources), "--json", "-"]) == code
        told = capsys.readouterr()
        return told.err if code else told.out

    def values(document: Any) -> dict[str, Any]:
        figures = [one for chapter in document["chapters"] for one in chapter["figures"]]
        return {json.dumps([one["id"], one["by"]]): one["value"] for one in figures}

    expected, found = json_of(corpus, SMALL), json.loads(asked(first, second))
    assert expected["ledger"]["gpu_s"] > 0
    assert found["counts"] == expected["counts"]
    assert found["ledger"] == expected["ledger"]
    # Sums are made by several threads: their last digits vary.
    assert sorted(values(found)) == sorted(values(expected))
    for name, value in values(expected).items():
        same = value if value is None else pytest.approx(value, rel=1e-12)
        assert values(found)[name] == same, name
    with corpus.tables(SMALL) as tables, open_tables([second, first], threads=1) as parts:
        for table in TABLES:
            every = f"FROM {table.name} ORDER BY ALL"
            told = parts.sql.execute(every).fetchall()
            assert told == tables.sql.execute(every).fetchall(), table.name
    with open_tables([first.parent, second]) as tables:
        assert tables.sql.execute("SELECT count(*) FROM process").fetchone() == (
            expected["counts"]["rows"][0][expected["counts"]["columns"].index("processes")],
        )
    write_recording(tmp_path / "other", steps=1, trajectories=8)
    error = asked(first, tmp_path / "other", code=cli.UNABLE)
    assert "and" in error
    assert "hold 2 runs" in error
    assert "holds saved tables; expected folders of one run" in asked(
        first, corpus.characterized(SMALL).saved, code=cli.UNABLE
    )


def test_every_query_can_be_asked_again_of_the_saved_tables(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "characterize-json.md"
    [example] = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    monkeypatch.chdir(tmp_path)
    written = corpus.characterized(FILTERED)
    Path("found.json").symlink_to(written.json)
    Path("tables").symlink_to(written.saved)
    done = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, check=True
    )
    found = json.loads(Path("found.json").read_text())
    told = {one["category"]: round(one["gpu_s"] * 1e9) for one in found["ledger"]["categories"]}
    assert ast.literal_eval(done.stdout) == {name: ns for name, ns in told.items() if ns}
    with duckdb.connect() as sql:
        sql.execute("SET file_search_path = 'tables'")
        sql.execute(Path("tables/open.sql").read_text())
        parts = [found["counts"], found["ledger"], found["ledger"]["by_step"]]
        parts += [found["ledger"]["waits"], *found["causes"]]
        for chapter in found["chapters"]:
            parts += [*chapter["figures"], *chapter["series"]]
        queries = {part["query"] for part in parts if part["query"]}
        assert len(queries) > 60
        for one in queries:
            sql.execute(one)
        for answer in (found["counts"], found["ledger"]["by_step"], found["ledger"]["waits"]):
            assert [list(row) for row in sql.execute(answer["query"]).fetchall()] == answer["rows"]


def test_the_json_has_the_keys_that_are_documented_and_no_other(corpus: Corpus) -> None:
    found = json_of(corpus, FILTERED)
    page = (Path(__file__).parents[2] / "docs/reference/characterize-json.md").read_text("utf-8")
    documented = {
        heading: set(re.findall(r"^\| `(\w+)` \|", body, re.M))
        for heading, body in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    }
    chapter = found["chapters"][1]
    figure = next(one for one in chapter["figures"] if one["id"] == "lengths.response.p99")
    shapes = {
        "The document": found,
        "Answers": found["counts"],
        "`ledger`": found["ledger"],
        "`gpus`": found["ledger"]["gpus"][0],
        "`categories`": found["ledger"]["categories"][0],
        "`causes`": found["causes"][0],
        "`chapters`": chapter,
        "`figures`": figure,
        "`series`": chapter["series"][0],
    }
    for heading, part in shapes.items():
        assert documented[heading] == set(part), heading
    assert set(documented) == {*shapes, "Ask again", "An example"}
    assert found["schema_version"] == 1
    [text] = re.findall(r"^```json\n(.*?)^```", page, re.M | re.S)
    example = json.loads(text)
    assert set(example) == set(figure)
    assert [type(example[key]) for key in example] == [type(figure[key]) for key in example]


@pytest.mark.parametrize(
    "drawn",
    today.some([replace(scenario(3), steps=3), FILTERED, TRAINED], 1),
    ids=["async", "verl", "trl"],
)
def test_numbers_have_ids_behind_them(drawn: Scenario, corpus: Corpus) -> None:
    found = json_of(corpus, drawn)
    with corpus.tables(drawn) as tables:
        [most] = tables.sql.execute("SELECT max(trajectory_id) FROM trajectory").fetchall()
    figures = [one for chapter in found["chapters"] for one in chapter["figures"]]
    told = [one for one in figures if one["value"]]
    without = {one["id"] for one in told if not one["evidence"]}
    known = {one for one in without if one.startswith(("lengths.filter.", "lengths.turn."))}
    assert without - known <= set(OF_EVERYTHING), without - set(OF_EVERYTHING)
    for one in told:
        for kind, behind in one["evidence"].items():
            assert kind in ("step", "process", "trajectory", "batch", "device", "rank", "engine")
            assert 0 < len(behind["ids"]) <= max(behind["count"], 1)
            if kind == "trajectory":
                assert max(behind["ids"]) <= most[0]


def test_a_workload_has_steps_and_says_that_it_has_no_clock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Job(tmp_path / "run", steps=3, turns=1).write()
    target = tmp_path / "workload"
    convert = ["convert", str(tmp_path / "run"), "--to", "polytrace", "--out", str(target)]
    assert cli.main(convert) == cli.OK
    capsys.readouterr()
    assert cli.main(["characterize", str(target)]) == cli.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("3 steps, ")
    assert lines[2] == "no ledger: a workload has lengths and no clock"
    [slots] = [line for line in lines if line.startswith("decode slots: ")]
    assert slots.startswith("decode slots: in use, by lengths alone, ")


def test_ranks_that_stand_for_gpus_are_said_to(corpus: Corpus, tmp_path: Path) -> None:
    said = "no GPU recorded; each of {} ranks or engines counts as one"
    write_recording(tmp_path / "run", steps=1, ranks=2, trajectories=8)
    with open_tables(tmp_path / "run", threads=1) as tables:
        found = characterize(tables)
    assert found.ledger is not None
    assert len(found.ledger.gpus) == 2
    assert said.format(2) in found.notes
    seen = json_of(corpus, TRAINED)
    assert said.format(len(seen["ledger"]["gpus"])) not in seen["notes"]


def test_the_screen_fits_and_tells_tools_and_one_reading_of_slots(corpus: Corpus) -> None:
    lines = corpus.characterized(TRAINED).screen
    assert any(line.startswith("tools (ended calls): ") for line in lines)
    [slots] = [line for line in lines if line.startswith("decode slots: ")]
    assert slots.count("%") == 1
    [row] = [line for line in lines if line.startswith("  training ")]
    assert row.endswith("…") or row.count("%") > 3


def test_the_worst_trajectory_is_told_by_step_group_sample_and_engine(corpus: Corpus) -> None:
    with corpus.tables(replace(scenario(4), steps=1)) as tables:
        make_ledger(tables)
        causes = {one.kind: one for one in find_causes(tables)}
        [one] = causes["long_tail"].worst
        told = re.fullmatch(
            r"step (\d+), batch (\d+), group (\d+), sample (\d+): ([\d,]+) tokens on engine \d+",
            one,
        )
        assert told is not None, one
        step, batch, group, sample = map(int, told.groups()[:4])
        [[tokens]] = tables.sql.execute(
            "SELECT response_tokens FROM trajectory JOIN batch USING (batch_id) JOIN step"
            " ON step.step_id = batch.step_id WHERE number = ? AND ordinal = ? AND grp = ?"
            " AND sample = ?",
            [step, batch, group, sample],
        ).fetchall()
    assert f"{tokens:,}" == told[5]
