"""Values of a framework are read as what they are, and anything else is unknown."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_probe.adapter import Call
from rlvr_probe.model.names import TOOL_STATUSES
from rlvr_probe.reading import (
    argument,
    attribute,
    error_of,
    foreign_ids,
    mask_runs,
    number,
    on_host,
    option,
    scalar,
    size,
    tool_status,
    word,
)


class Estimator(str, Enum):
    GRPO = "grpo"


def test_a_missing_attribute_is_unknown() -> None:
    owner = SimpleNamespace(a=SimpleNamespace(b=3, flag=True))
    assert attribute(owner, "a", "b") == 3
    assert attribute(owner, "x", "b") is None
    assert number(owner, "a", "b") == 3
    assert number(owner, "a", "flag") is None


def test_a_number_that_is_held_is_the_number_itself() -> None:
    assert number(3) == 3
    assert number(True) is number("3") is number(None) is None


def test_a_name_is_a_word_or_the_member_of_an_enum() -> None:
    assert word(Estimator.GRPO) == word("grpo") == "grpo"
    assert word(3) is word("") is None


def test_an_argument_is_found_by_position_and_by_name() -> None:
    call = Call()
    call.args, call.kwargs = ("self", "first"), {"second": 2}
    assert [argument(call, 1, "first"), argument(call, 2, "second"), argument(call, 3, "no")] == [
        "first",
        2,
        None,
    ]


def test_an_error_is_told_by_its_type_alone() -> None:
    call = Call()
    call.error = None
    assert error_of(call) is None
    call.error = ValueError("what a model wrote")
    assert error_of(call) == "ValueError"


def test_a_tool_call_is_ok_cancelled_or_failed() -> None:
    statuses = [tool_status(error) for error in (None, "CancelledError", "KeyError")]
    assert statuses == ["ok", "cancelled", "error"]
    assert set(statuses) <= set(TOOL_STATUSES)


def test_a_setting_is_the_first_of_its_names_that_is_set() -> None:
    nested = SimpleNamespace(rollout={"n": 8}, n=None)
    assert option(nested, "n", "rollout.n") == 8
    assert option({"rollout": nested}, "rollout.rollout.n") == 8
    assert option(None, "n") is option(nested, "rollout.m") is None


def test_sizes_and_numbers_are_those_in_host_memory() -> None:
    assert [size(value) for value in ([1, 2], (3,), "ab", None)] == [2, 1, None, None]
    far = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    near = SimpleNamespace(device="cpu")
    assert [on_host(value) for value in (far, near, 1.5)] == [False, True, True]
    assert [scalar(value) for value in (1, 2.5, True, "3", None)] == [1.0, 2.5, None, None, None]
    assert scalar(10**400) is None


@given(st.lists(st.integers(0, 1), max_size=40))
def test_runs_of_a_mask_say_what_the_mask_says(mask: list[int]) -> None:
    runs = mask_runs(mask, len(mask))
    assert runs is not None
    told = [1 - at % 2 for at, run in enumerate(runs) for _ in range(run)]
    assert told == mask
    assert all(runs[1:])


@pytest.mark.parametrize("mask", [None, [1, 0], [1, 2, 0], [1.0, 0, 1], "110", [1, None, 1]])
def test_what_is_no_mask_of_the_response_has_no_runs(mask: Any) -> None:
    assert mask_runs(mask, 3) is None


def test_run_ids_of_other_tools_are_taken_from_active_runs_only() -> None:
    run = SimpleNamespace(info=SimpleNamespace(run_id="0f3a"))
    modules: dict[str, Any] = {
        "wandb": SimpleNamespace(run=SimpleNamespace(id="ab12")),
        "mlflow.tracking.fluent": SimpleNamespace(active_run=lambda: run),
    }
    assert foreign_ids(modules) == {"wandb_run_id": "ab12", "mlflow_run_id": "0f3a"}
    assert foreign_ids({}) is None
    assert foreign_ids({"wandb": SimpleNamespace(run=None)}) is None
    assert foreign_ids({"wandb": SimpleNamespace(run=SimpleNamespace(id="/home/x y"))}) is None
