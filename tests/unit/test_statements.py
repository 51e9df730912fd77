"""SQL stands in files beside the modules that ask it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from rlvr_probe import analysis, report
from rlvr_probe.analysis.statements import Statements, fill, quantiles_of, statements

ANALYSIS, REPORT = Path(analysis.__path__[0]), Path(report.__path__[0])
FILES = sorted(ANALYSIS.rglob("*.sql"))
QUERY = re.compile(r"\bSELECT\b[^.]*\bFROM\b|\bFROM\b[^.]*\bWHERE\b|\bUPDATE\b[^.]*\bSET\b")


def strings(module: Path) -> Iterator[str]:
    """Texts of a module, those of docstrings too."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_module_has_a_query_in_it() -> None:
    found = [
        (module.name, text)
        for package in (ANALYSIS, REPORT)
        for module in sorted(package.rglob("*.py"))
        for text in strings(module)
        if QUERY.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_module_asks_all_of_the_file_beside_it_and_nothing_else(file: Path) -> None:
    code, text = file.with_suffix(".py").read_text("utf-8"), file.read_text("utf-8")
    names = re.findall(r"^-- name: (\w+)$", text, re.MULTILINE)
    assert text.startswith(f"-- name: {names[0]}\n")
    assert len(names) == len(set(names))
    # By name, or as a part of another statement.
    said = {*re.findall(r'"(\w+)"', code), *re.findall(r"\{(\w+)\}", text)}
    assert set(names) - said == set()
    assert set(re.findall(r'_SQL\["(\w+)"\]', code)) - set(names) == set()


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_of_equal_values_ids_decide_who_is_behind_a_figure(file: Path) -> None:
    text = " ".join(file.read_text("utf-8").split())
    if file.parent.name in ("causes", "ledger"):
        keys = re.findall(r"\b(?:arg_max|arg_min|max_by|min_by)\([\w.]+, (.)", text)
        assert {*keys} <= {"("}
    if file.parent.name == "metrics":
        found = re.findall(r"\barg_m\w+\(([\w.]+), \((.*?)\)(?:, \d+)?\) FILTER", text)
        assert len(found) == text.count("arg_m")
        assert [who for who, order in found if not order.endswith(f", {who}")] == []


@pytest.mark.parametrize("ids", [(1, 2), (2, 1)])
def test_of_two_that_are_as_long_the_order_of_rows_decides_nothing(ids: tuple[int, int]) -> None:
    rollout = statements("rlvr_probe.analysis.causes.stragglers_and_filters")
    barriers = statements("rlvr_probe.analysis.ledger.barriers")
    with duckdb.connect() as sql:
        sql.execute(
            "CREATE TABLE cause_path AS SELECT 7 AS step_id, 3 AS batch_id,"
            " unnest($ids::INTEGER[]) AS trajectory_id, 10 AS end_ns, 4 AS generated_ns",
            {"ids": ids},
        )
        sql.execute(
            "CREATE TABLE tool_call AS SELECT 5 AS trajectory_id, unnest($ids::INTEGER[]) AS turn,"
            " 'tool ' || turn AS tool, 0 AS start_ns, 9 AS end_ns UNION ALL BY NAME"
            " SELECT 5 AS trajectory_id, 9 AS turn, 'untimed' AS tool",
            {"ids": ids},
        )
        sql.execute("CREATE TABLE last AS SELECT 5 AS trajectory_id")
        sql.execute("CREATE TABLE prompt_group AS SELECT 3 AS batch_id")

        assert sql.execute(rollout["last"]).fetchall() == [(7, 2, 0.0)]
        assert sql.execute(barriers["used"]).fetchall() == [(5, 18, 2, "tool 2")]


NUMBERS = {
    "nothing": "0 AS value",
    "alike": "5e0 AS value",
    "few": "(random() * 4)::INTEGER - 2 AS value",
    "spread": "exp(20 * random() - 10) AS value",
    "close": "10 + 1e-6 * random() AS value",
    "some": "CASE WHEN random() < 0.5 THEN random() END AS value",
}


@pytest.mark.parametrize("rows", [1, 2, 3, 1_000])
@pytest.mark.parametrize("numbers", NUMBERS)
def test_quantiles_in_two_looks_are_those_of_all_values(numbers: str, rows: int) -> None:
    asked = [0, 0.001, 0.1, 0.5, 0.9, 0.99, 1]
    names = "nullif(i % 3, 2) AS name, i % 2 AS part"
    with duckdb.connect() as sql:
        sql.execute("SELECT setseed(0.5)")
        sql.execute(
            f"CREATE TABLE held AS SELECT {names}, {NUMBERS[numbers]} FROM range({rows}) t(i)"
        )
        query = quantiles_of("held", "name, part")
        found = sql.execute(
            f"SELECT name, part, list(value ORDER BY quantile) FROM ({query}) GROUP BY ALL"
            " ORDER BY ALL",
            {"quantiles": asked},
        ).fetchall()
        expected = sql.execute(
            f"SELECT name, part, quantile_cont(value, {asked}) FROM held WHERE value IS NOT NULL"
            " GROUP BY ALL ORDER BY ALL"
        ).fetchall()

    assert [row[:2] for row in found] == [row[:2] for row in expected]
    for (*_, values), (*_, truth) in zip(found, expected, strict=True):
        assert values == pytest.approx(truth, rel=1e-14, abs=1e-14)


def test_a_statement_has_others_of_its_file_in_it() -> None:
    sql = Statements(
        "a.sql",
        {
            "rows": "\n-- What a row is,\n-- in two lines.\nSELECT 1 AS one\nWHERE true\n",
            "sums": "\nSELECT sum(one)\n  FROM ({rows})\n  WHERE {condition}\n",
        },
    )
    assert sql.meanings["rows"] == "What a row is, in two lines."
    assert fill(sql["sums"], condition="one > $least", unused="x").splitlines() == [
        "SELECT sum(one)",
        "  FROM (",
        "    SELECT 1 AS one",
        "    WHERE true",
        "  )",
        "  WHERE one > $least",
    ]
    assert sql.derived("rows") == {"rows": (sql.meanings["rows"], sql["rows"])}


def test_what_is_missing_is_named() -> None:
    with pytest.raises(KeyError, match=r"a\.sql has no statement 'two'; it has \['one'\]"):
        Statements("a.sql", {"one": "SELECT 1"})["two"]
    with pytest.raises(KeyError, match=r"expected \['rows'\] as well, for FROM \{rows\}"):
        fill("FROM {rows}", row="t")
    with pytest.raises(FileNotFoundError, match=r"registry\.sql"):
        statements("rlvr_probe.analysis.metrics.registry")
