"""The tables hold what the trace holds, and that is what happened."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import pytest

from rlvr_probe.exceptions import RecordingError
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from rlvr_probe.recording.schema import tables_of
from rlvr_probe.recording.tables import (
    TABLES,
    VIEWS,
    Tables,
    is_saved,
    open_saved,
    open_tables,
    save_tables,
)
from tests.actors import Job
from tests.simulated import Corpus
from tests.simulator import Truth, scenario
from tests.synthetic import write_recording

SEEDS = {"trl": 7, "verl": 6, "async": 3}
"""A seed with tools of each shape of a run."""

_BY_HAND = (pytest.mark.conformance, pytest.mark.full)


@pytest.fixture(scope="module", params=SEEDS)
def opened(request: pytest.FixtureRequest, corpus: Corpus) -> Iterator[tuple[Truth, Trace, Tables]]:
    shape = str(request.param)
    drawn = scenario(SEEDS[shape])
    lengths = replace(drawn.lengths, turns=3)
    few = replace(drawn, shape=shape, steps=4, faults=(), lengths=lengths)
    folder, truth = corpus.run(few)
    with corpus.tables(few) as tables:
        yield truth, read_run(folder), tables


def asked(tables: Tables, query: str) -> list[tuple[Any, ...]]:
    return tables.sql.execute(query).fetchall()


def batches(trace: Trace) -> Iterator[tuple[int | None, Any]]:
    steps = sorted(
        (step for attempt in trace.attempts for step in attempt.steps),
        key=lambda step: min(span.start_ns for span in step.spans),
    )
    for at, step in enumerate(steps):
        for batch in (*step.batches, *step.evaluations):
            yield at, batch
    for attempt in trace.attempts:
        for batch in attempt.untrained:
            yield None, batch


def test_every_table_has_its_columns(opened: tuple[Truth, Trace, Tables]) -> None:
    tables = opened[2]
    for table in TABLES:
        done = tables.sql.execute(f"SELECT * FROM {table.name} LIMIT 0").description or ()
        assert [item[0] for item in done] == list(table.names)
        assert all(column.meaning for column in table.columns)


def test_trajectories_and_tokens_are_those_of_the_truth(
    opened: tuple[Truth, Trace, Tables],
) -> None:
    truth, _, tables = opened
    [[count]] = asked(tables, "SELECT count(*) FROM trajectory WHERE mode = 'train'")
    if truth.shape == "async":
        [[trained]] = asked(
            tables, "SELECT count(*) FROM trajectory WHERE mode = 'train' AND step_id IS NOT NULL"
        )
        assert trained == 4 * 8 * 32
        # Groups that are not scored when the run ends are told of by nobody.
        assert trained <= count <= truth.trajectories
        [[tokens]] = asked(tables, "SELECT sum(response_tokens) FROM turn")
        [[loose]] = asked(tables, "SELECT coalesce(sum(response_tokens), 0) FROM engine_call")
        assert truth.tokens <= tokens + loose
    else:
        # The model's own tokens; a response holds those of tools too.
        [[tokens]] = asked(
            tables,
            "SELECT sum(turn.response_tokens) FROM turn JOIN trajectory USING (trajectory_id)"
            " WHERE mode = 'train'",
        )
        assert (count, tokens) == (truth.trajectories, truth.tokens)


def test_steps_and_spans_are_those_of_the_trace(opened: tuple[Truth, Trace, Tables]) -> None:
    _, trace, tables = opened
    steps = sorted(
        (step for attempt in trace.attempts for step in attempt.steps),
        key=lambda step: min(span.start_ns for span in step.spans),
    )
    assert asked(
        tables, "SELECT number, done, complete, ranks, start_ns, end_ns FROM step ORDER BY step_id"
    ) == [
        (
            step.number, step.done, step.complete, step.ranks,
            min(span.start_ns for span in step.spans), max(span.end_ns for span in step.spans),
        )
        for step in steps
    ]  # fmt: skip
    spans: list[Any] = [
        (at, span.process, span.id, span.parent, span.name, span.start_ns, span.end_ns)
        for at, step in [*enumerate(steps)]
        for span in step.spans
    ]
    spans += [
        (None, span.process, span.id, span.parent, span.name, span.start_ns, span.end_ns)
        for span in (*trace.unplaced, *trace.user_spans)
    ]
    assert (
        asked(tables, "SELECT step_id, process, id, parent, name, start_ns, end_ns FROM span")
        == spans
    )
    calls = [rpc for step in steps for rpc in step.rpcs]
    assert asked(
        tables,
        "SELECT method, call, process, id FROM rpc WHERE step_id IS NOT NULL ORDER BY rpc_id",
    ) == [(rpc.method, rpc.call, rpc.caller.process, rpc.caller.id) for rpc in calls]


def test_every_trajectory_has_what_the_trace_says_of_it(
    opened: tuple[Truth, Trace, Tables],
) -> None:
    _, trace, tables = opened
    rows, turns, tools, rewards, groups = [], [], [], [], []
    number = 0
    for at, batch in batches(trace):
        for group in batch.groups():
            groups.append((at, batch.mode, group.index, group.size))
            for trajectory in group.trajectories:
                rows.append(
                    (
                        number,
                        at,
                        batch.mode,
                        trajectory.process,
                        trajectory.row,
                        group.index,
                        trajectory.sample,
                        trajectory.prompt_tokens,
                        trajectory.response_tokens,
                        trajectory.loss_tokens,
                        trajectory.truncated,
                        trajectory.engine,
                        trajectory.start_ns,
                        trajectory.end_ns,
                    )
                )
                turns += [
                    (number, turn.index, turn.response_tokens, turn.start_ns, turn.end_ns)
                    for turn in trajectory.turns
                ]
                tools += [
                    (number, call.turn, call.tool, call.status, call.start_ns, call.end_ns)
                    for call in trajectory.tool_calls
                ]
                rewards += [
                    (number, reward.function, reward.index, reward.value, reward.verify_s)
                    for reward in trajectory.rewards
                ]
                number += 1
    assert rows
    assert rewards
    assert asked(
        tables,
        "SELECT trajectory_id, step_id, mode, process, row, grp, sample, prompt_tokens,"
        " response_tokens, loss_tokens, truncated, engine, start_ns, end_ns FROM trajectory"
        " ORDER BY trajectory_id",
    ) == rows  # fmt: skip
    assert (
        asked(
            tables,
            "SELECT trajectory_id, turn, response_tokens, start_ns, end_ns FROM turn ORDER BY ALL",
        )
        == turns
    )
    assert (
        asked(
            tables,
            "SELECT trajectory_id, turn, tool, status, start_ns, end_ns FROM tool_call"
            " ORDER BY trajectory_id, start_ns",
        )
        == tools
    )
    assert (
        asked(
            tables,
            "SELECT trajectory_id, function, fn, value, verify_s FROM reward"
            " ORDER BY trajectory_id, fn",
        )
        == rewards
    )
    assert (
        asked(
            tables,
            "SELECT step_id, mode, grp, size FROM prompt_group JOIN batch USING (batch_id)"
            " ORDER BY batch_id, grp",
        )
        == groups
    )


def test_every_call_of_a_reward_function_is_there(opened: tuple[Truth, Trace, Tables]) -> None:
    _, trace, tables = opened
    calls = Counter[Any]()
    for at, batch in batches(trace):
        for shard in batch.shards:
            for call in shard.calls:
                row = None if call.row is None else shard.offset + call.row
                calls[at, batch.mode, row, call.process, call.function, call.start_ns] += 1
    found = Counter(
        asked(
            tables,
            "SELECT step_id, mode, row, v.process, function, v.start_ns FROM verification v"
            " JOIN trajectory USING (trajectory_id) UNION ALL"
            " SELECT step_id, mode, NULL, process, function, start_ns FROM reward_call"
            " JOIN batch USING (batch_id)",
        )
    )
    assert calls
    assert found == calls


def test_readings_are_those_of_the_devices(opened: tuple[Truth, Trace, Tables]) -> None:
    _, trace, tables = opened
    read = [
        (at, counter.name, time_ns, value)
        for at, device in enumerate(trace.devices)
        for counter in device.counters()
        for time_ns, value in device.points(counter.name)
    ]
    assert read
    assert asked(tables, "SELECT device, counter, end_ns, value FROM reading") == read


def test_a_view_is_no_table_and_one_that_is_missing_is_missed(
    opened: tuple[Truth, Trace, Tables],
) -> None:
    tables = opened[2]
    assert tables.has("step", "turn")
    assert not tables.has("step", "nothing")
    assert not tables.has("kept_step")


def test_what_was_thrown_away_is_in_the_tables_and_not_in_the_views(tmp_path: Path) -> None:
    Job(tmp_path / "run", steps=3, end=False).write()
    Job(tmp_path / "run", steps=3, resumed=1, number=100, begin_ns=300_000_000_000).write()
    with open_tables(tmp_path / "run", threads=1) as tables:
        numbers = "SELECT number FROM {} WHERE number > 0 ORDER BY step_id"
        assert asked(tables, numbers.format("step")) == [(1,), (2,), (3,), (2,), (3,), (4,)]
        assert asked(tables, numbers.format("kept_step")) == [(1,), (2,), (3,), (4,)]
        [[every]] = asked(tables, "SELECT count(*) FROM trajectory")
        [[kept]] = asked(tables, "SELECT count(*) FROM kept_trajectory")
        [[gone]] = asked(
            tables,
            "SELECT count(*) FROM trajectory JOIN step USING (step_id)"
            " WHERE superseded_by IS NOT NULL",
        )
        assert every == kept + gone
        assert gone > 0


def test_what_was_not_recorded_is_null_and_never_0(tmp_path: Path) -> None:
    write_recording(tmp_path / "run", steps=2)
    with open_tables(tmp_path / "run", threads=1) as tables:
        unknown = "loss_tokens", "engine", "policy_version_min", "policy_version_max"
        columns = ", ".join(f"count({name})" for name in unknown)
        assert asked(tables, f"SELECT {columns} FROM trajectory") == [(0, 0, 0, 0)]
        assert asked(tables, "SELECT DISTINCT own_times FROM trajectory") == [(False,)]
        assert asked(tables, "SELECT count(verify_s) FROM reward") == [(0,)]
        assert asked(tables, "SELECT count(*) FROM device") == [(0,)]


def test_saved_tables_are_the_same_tables(tmp_path: Path) -> None:
    Job(tmp_path / "run", steps=2, turns=2).write()
    with open_tables(tmp_path / "run", threads=1) as tables:
        every = {item.name: asked(tables, f"FROM {item.name} ORDER BY ALL") for item in TABLES}
        views = {name: asked(tables, f"FROM {name} ORDER BY ALL") for name in VIEWS}
        notes = tables.notes
        save_tables(tables, tmp_path / "saved")
        with pytest.raises(RecordingError, match="is there already"):
            save_tables(tables, tmp_path / "saved")
    assert is_saved(tmp_path / "saved")
    assert not is_saved(tmp_path / "run")
    with open_saved(tmp_path / "saved") as tables:
        assert {
            item.name: asked(tables, f"FROM {item.name} ORDER BY ALL") for item in TABLES
        } == every
        assert {name: asked(tables, f"FROM {name} ORDER BY ALL") for name in VIEWS} == views
        assert (tables.source, tables.notes) == ("run", notes)


@pytest.mark.parametrize(
    ("about", "message"),
    [
        (None, "holds no saved tables"),
        ("{", "holds no saved tables"),
        ("{}", "does not say that tables are saved"),
        ('{"format": "rlvr-probe/tables", "version": 99}', "of version 99; expected 6"),
        ('{"format": "rlvr-probe/tables", "version": 6}', "tables.json is damaged"),
    ],
)
def test_what_is_not_whole_is_refused(about: str | None, message: str, tmp_path: Path) -> None:
    if about is not None:
        (tmp_path / "tables.json").write_text(about)
    with pytest.raises(RecordingError, match=message), open_saved(tmp_path):
        pass


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=_BY_HAND) for n in range(1, 11))])
def test_saved_tables_that_were_changed_are_refused(seed: int, tmp_path: Path) -> None:
    draws, saved = random.Random(seed), tmp_path / "tables"
    Job(tmp_path / "run", steps=2).write()
    with open_tables(tmp_path / "run", threads=1) as tables:
        save_tables(tables, saved)
        names = [name for (name,) in asked(tables, "SHOW TABLES") if name not in VIEWS]
        whole = {name: asked(tables, f"FROM {name} ORDER BY ALL") for name in names}
    files = [path for path in sorted(saved.rglob("*")) if path.suffix in (".parquet", ".json")]
    unchanged = 0
    for _ in range(40 if seed == 0 else 1_000):
        path = draws.choice(files)
        data = path.read_bytes()
        at = draws.randrange(len(data))
        path.write_bytes(
            draws.choice(
                [
                    data[:at] + bytes([data[at] ^ 1 << draws.randrange(8)]) + data[at + 1 :],
                    data[:at],
                    data + data[at:],
                    data[:at] + data[at + 1 :],
                ]
            )
        )
        try:
            with open_saved(saved, threads=1) as tables:
                assert path.name == "tables.json"  # a blank that became a tab
                assert {name: asked(tables, f"FROM {name} ORDER BY ALL") for name in names} == whole
            unchanged += 1
        except RecordingError:
            pass
        path.write_bytes(data)
    assert unchanged < 10


def test_the_documented_query_of_saved_tables_works(tmp_path: Path) -> None:
    Job(tmp_path / "run", steps=2).write()
    with open_tables(tmp_path / "run", threads=1) as tables:
        save_tables(tables, tmp_path / "tables")
    page = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"
    [command] = re.findall(r"^\$ python (.*)$", page.read_text("utf-8"), re.M)
    line = ["bash", "-c", f"{sys.executable} {command}"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "count_star()" in done.stdout


@pytest.mark.parametrize("folder", ["tables", "fine"])
def test_tables_are_what_their_sql_file_makes(folder: str) -> None:
    file = f"{folder}/tables.sql"
    text = files("rlvr_probe.recording").joinpath(file).read_text(encoding="utf-8")
    with closing(duckdb.connect()) as sql:
        sql.execute(text)
        query = "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal"
        made = sql.execute(query).fetchall()
    tables = tables_of("rlvr_probe.recording", file)
    known = [(t.name, column.name, column.type) for t in tables for column in t.columns]
    assert sorted(made) == sorted(known)
    assert all(table.meaning for table in tables)
