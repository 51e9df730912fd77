"""What is recorded of the column that the user named, without any framework."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from rlvr_probe_openrlhf.samples import RESPONSE, SAMPLES
from rlvr_probe_verl.controller import Controller
from rlvr_probe_verl.rollouts import generation_begin

from rlvr_probe import Config, guard
from rlvr_probe.adapter.batch_events import sources
from rlvr_probe.analysis.metrics.lengths import lengths
from rlvr_probe.analysis.metrics.rewards import rewards
from rlvr_probe.analysis.metrics.tools import tools
from rlvr_probe.exceptions import ConfigError
from rlvr_probe.recording.tables import Tables
from tests.chaptered import said
from tests.unit.test_adapter_kit import a_book
from tests.unit.test_chapters import SECOND, batch, put, step, tables

__all__ = ["tables"]

VARIABLE = "RLVR_PROBE_SOURCE"


def test_without_the_setting_no_row_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert sources(lambda _: pytest.fail("asked")) is None


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        (["a", None, "", 7], ["a", None, None, None]),
        (["x" * 65], ["x" * 64]),
        (["\ud800"], ["?"]),
        ([None, 3], None),
        ([], None),
        (None, None),
    ],
)
def test_a_source_is_a_name_of_64_characters_at_most(
    values: Iterable[object] | None, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "origin")
    assert sources(lambda name: values if name == "origin" else None) == kept


def test_a_column_that_cannot_be_read_is_counted_and_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "origin")
    monkeypatch.setattr(guard, "_strict", False)
    before = sum(guard.faults().values())
    assert sources(lambda _: [1 / 0]) is None
    assert sum(guard.faults().values()) == before + 1


def test_children_have_the_setting_too() -> None:
    config = Config.from_environ({}, source="data_source")
    assert config.to_environ()[VARIABLE] == "data_source"
    assert Config.from_environ({VARIABLE: "data_source"}).source == "data_source"
    assert VARIABLE not in Config.from_environ({}).to_environ()
    with pytest.raises(ConfigError, match=VARIABLE):
        Config.from_environ({VARIABLE: "a\0b"})


class Rows(SimpleNamespace):
    """A batch of verl, of which only the rest of it is there."""

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize(("column", "kept"), [("data_source", ["a", "b"]), ("elsewhere", None)])
def test_verl_has_it_beside_its_tensors(
    column: str, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, column)
    book = a_book()
    controller = Controller(session=0)
    monkeypatch.setattr(Controller, "of", lambda _: controller)
    monkeypatch.setattr(Controller, "where", lambda _: (0, 1, "train"))
    given = {"data_source": ["a", "b"], "uid": ["u", "v"]}
    pending = generation_begin(book, Rows(non_tensor_batch=given, meta_info={}, batch={}))
    assert pending is not None
    assert pending.sources == kept


class Owner(SimpleNamespace):
    """Can be referred to weakly, as a generator and what it makes."""

    __hash__ = object.__hash__  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("column", "prompt", "kept"),
    [
        ("datasource", "1+1", "sums"),
        ("datasource", "2+2", "old sums"),
        ("datasource", "3+3", None),
        ("elsewhere", "1+1", None),
    ],
)
def test_openrlhf_has_it_in_its_datasets(
    column: str, prompt: str, kept: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, column)
    train, old = (
        SimpleNamespace(dataset=SimpleNamespace(prompts=[text], datasources=[name]))
        for text, name in (("1+1", "sums"), ("2+2", "old sums"))
    )
    call: Any = SimpleNamespace(
        probe=a_book(), args=(Owner(prompts_dataloader=train, eval_dataloader=old),), kwargs={},
        error=None, result=Owner(),
    )  # fmt: skip
    call.kwargs["response"] = {"prompt": prompt}
    assert RESPONSE.after is not None
    with pytest.raises(LookupError):  # of unknown length
        RESPONSE.after(call)
    sample = SAMPLES.of(call.result)
    assert sample is not None
    assert sample.source == kept


def test_lengths_verification_and_tools_are_by_source(tables: Tables) -> None:
    step(tables, 1)
    ids = batch(tables, 0, [(10, 30), (100, 101), (7, 8)], truncated=False)
    # Prompts are of 10, 11 and 12 tokens.
    tables.sql.execute("UPDATE trajectory SET source = ['math', 'code', NULL][1 + grp]")
    tables.sql.execute("UPDATE trajectory SET truncated = true WHERE response_tokens = 101")
    for at, seconds in enumerate((1, 3, 5, 7)):
        put(tables, "verification", trajectory_id=ids[at], process=0, function="f", start_ns=0,
            end_ns=seconds * SECOND)  # fmt: skip
        put(tables, "tool_call", trajectory_id=ids[at], turn=0, tool="t", took_s=10.0 * seconds)

    found = said([lengths(tables), rewards(tables), tools(tables)])

    math, code, other = ({"source": name} for name in ("math", "code", "(unknown)"))
    assert found.value("lengths.source.count", **math) == 2
    assert found.value("lengths.source.prompt", **code) == 11
    assert found.value("lengths.source.mean", **math) == 20
    assert found.value("lengths.source.p90", **math) == 28
    assert found.value("lengths.source.max", **code) == 101
    assert found.value("lengths.source.truncated", **code) == 0.5
    assert found.value("lengths.source.count", **other) == 2
    assert found.value("rewards.source.time", **math, function="f") == 4
    assert found.value("rewards.source.mean", **code, function="f") == 6
    assert (
        found.figure("rewards.source.max", **code, function="f").evidence["trajectory"].ids[0]
        == ids[3]
    )
    assert found.value("tools.source.time", **code, tool="t") == 120
    assert found.value("tools.source.count", **math, tool="t") == 2


def test_without_a_source_it_is_said_what_names_it(tables: Tables) -> None:
    step(tables, 1)
    batch(tables, 0, [(10, 30)])
    found = said([lengths(tables)])
    assert "RLVR_PROBE_SOURCE" in found.figure("lengths.source.count").why
    assert {row["source"] for row in found.rows("lengths.source.histogram")} == {"(all)"}


def test_lengths_are_in_classes_by_source(tables: Tables) -> None:
    step(tables, 1)
    batch(tables, 0, [(0, 16), (19, 32)])  # prompts of 10, 10, 11 and 11 tokens
    tables.sql.execute("UPDATE trajectory SET source = ['math', 'code'][1 + grp]")

    found = said([lengths(tables)])

    # Classes start at 16, 19.03, 22.6, 26.9, 32; and at 9.5 and 11.3.
    rows = {
        (row["tokens"], row["source"]): (row["prompts"], row["responses"])
        for row in found.rows("lengths.source.histogram")
    }
    assert rows == {
        (0, "math"): (0, 1), (10, "math"): (2, 0), (16, "math"): (0, 1),
        (10, "code"): (2, 0), (16, "code"): (0, 1), (32, "code"): (0, 1),
    }  # fmt: skip
    quantiles = {
        (row["source"], row["quantile"]): (row["prompt"], row["response"])
        for row in found.rows("lengths.source.quantiles")
    }
    assert len(quantiles) == 2 * 21
    assert quantiles["math", 0.5] == (10, 8)
    assert quantiles["code", 1.0] == (11, 32)
    [row] = found.rows("lengths.by_prompt")
    assert (row["prompt_tokens"], row["trajectories"], row["p50"]) == (10, 4, 17.5)


def test_the_time_of_a_step_is_beside_its_tokens(tables: Tables) -> None:
    step(tables, 1)
    batch(tables, 0, [(10, 30)])
    for process, seconds in ((0, 5), (0, 6), (1, 7)):
        put(tables, "span", step_id=0, process=process, name="rollout", mode="train", start_ns=0,
            end_ns=seconds * SECOND)  # fmt: skip
    put(tables, "span", step_id=0, process=0, name="rollout", mode="eval", start_ns=0,
        end_ns=90 * SECOND)  # fmt: skip

    [row] = said([lengths(tables)]).rows("lengths.step_time")

    assert row == {"tokens": 60, "step_id": 0, "step": 100, "rollout": 11, "update_actor": None}
