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
from rlvr_probe.exceptions import ConfigError
from tests.unit.test_adapter_kit import a_book

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

    __hash__ = object.__hash__


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
