"""Lengths, masks and groups of a batch in host memory, and which generation a batch holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from rlvr_probe_verl.controller import Controller
from rlvr_probe_verl.generations import Generation, find, groups_by_size, groups_by_uid
from rlvr_probe_verl.reading import lengths, loss_runs, row_sums, truncated
from rlvr_probe_verl.rewards import rows_of
from rlvr_probe_verl.rollouts import engines

from rlvr_probe.reading import digest

END = 2


def tensor(values: list[Any]) -> Any:
    """One of torch, which takes a second to import: not while tests are collected."""
    return pytest.importorskip("torch").tensor(values)


class Batch:
    """Of it only the identity is looked at."""


def batch(prompts: list[int], responses: list[list[int]], **more: Any) -> Any:
    """As ``DataProto`` holds it: prompts padded on the left, responses on the right."""
    width, cap = max(prompts), max(map(len, responses))
    rows = [[0] * (width - prompt) + [1] * prompt for prompt in prompts]
    masks = [[1] * sum(t != 0 for t in row) for row in responses]
    held = {
        "prompts": tensor(rows),
        "responses": tensor(responses),
        "attention_mask": tensor(
            [row + mask + [0] * (cap - len(mask)) for row, mask in zip(rows, masks, strict=True)]
        ),
    }
    uids = more.pop("uid", None)
    return SimpleNamespace(
        batch={**held, **more}, non_tensor_batch={} if uids is None else {"uid": uids}
    )


def generation(prompts: list[int], responses: list[int], size: int) -> Generation:
    groups = groups_by_size(7, len(prompts), size)
    return Generation(7, "train", groups, prompts, responses)


def test_lengths_leave_padding_out() -> None:
    assert lengths(batch([3, 1], [[5, 5, 0], [5, 0, 0]])) == ([3, 1], [2, 1])
    assert lengths(SimpleNamespace(batch={}, non_tensor_batch={})) is None
    assert lengths(None) is None


def test_a_tensor_on_an_accelerator_is_never_read() -> None:
    data = batch([3, 1], [[5, 5, 0], [5, 0, 0]])
    data.batch["attention_mask"] = data.batch["attention_mask"].to("meta")
    assert lengths(data) is None


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ([1, 1, 1, 1], [4]),
        ([1, 0, 0, 1], [1, 2, 1]),
        ([0, 1, 1, 1], [0, 1, 3]),
        ([0, 0, 0, 0], [0, 4]),
        ([1, 1, 1, 0], [3, 1]),
    ],
)
def test_runs_of_the_loss_add_up_to_the_response(mask: list[int], expected: list[int]) -> None:
    data = batch([1, 1], [[5, 5, 5, 5], [5, 5, 0, 0]])
    data.batch["response_mask"] = tensor([mask, [1, 0, 0, 0]])
    assert loss_runs(data, [4, 2]) == [expected, [1, 1]]


def test_a_response_that_is_all_in_the_loss_has_no_runs_and_an_empty_one_none_at_all() -> None:
    data = batch([1, 1], [[5, 5], [5, 0]])
    assert loss_runs(data, [2, 1]) is None
    data.batch["response_mask"] = tensor([[1, 1], [1, 0]])
    assert loss_runs(data, [2, 1]) is None
    data.batch["response_mask"] = tensor([[1, 0], [0, 0]])
    assert loss_runs(data, [2, 0]) == [[1, 1], []]


def test_truncated_is_what_fills_its_place_and_does_not_end() -> None:
    data = batch([1, 1, 1], [[5, 5, 5], [5, 5, END], [5, END, 0]])
    assert truncated(data, [3, 3, 2], END) == [1, 0, 0]
    # What ends a response is not known: one that fills its place may have ended there.
    assert truncated(data, [3, 3, 2], None) is None
    assert truncated(data, [2, 1, 2], None) == [0, 0, 0]
    assert truncated(SimpleNamespace(batch={}), [], END) is None


def test_a_reward_that_is_no_number_is_unknown() -> None:
    assert str(row_sums(tensor([[1.0, 0.5], [float("nan"), 0.0]]))) == "[1.5, nan]"
    assert row_sums([1.0]) is None


def test_groups_are_runs_of_one_uid() -> None:
    groups = groups_by_uid(["a", "a", "b", "c", "c"])
    assert (groups.of_rows, groups.size, groups.names) == ([0, 0, 1, 2, 2], 2, ["a", "b", "c"])
    assert not groups.even
    assert groups_by_uid(["a", "a", "b", "b"]).even
    with pytest.raises(LookupError, match="do not follow"):
        groups_by_uid(["a", "b", "a"])


def test_rows_that_do_not_go_into_groups_are_no_groups() -> None:
    assert groups_by_size(5, 6, 3).of_rows == [0, 0, 0, 1, 1, 1]
    with pytest.raises(LookupError, match="7 rows are not 3"):
        groups_by_size(5, 7, 3)


def test_a_batch_in_another_order_is_known_again_and_tells_the_uids() -> None:
    made = generation([2, 2, 3, 3], [1, 2, 1, 3], 2)
    data = batch([3, 2, 3, 2], [[5, 5, 5], [5, 0, 0], [5, 0, 0], [5, 5, 0]], uid=list("baba"))
    assert find([made], data, [3, 0, 2, 1]) == (made, [3, 0, 2, 1])
    assert made.uids == {digest("a"): 0, digest("b"): 1}


@pytest.mark.parametrize(
    ("order", "uids"),
    [
        (None, "baba"),  # it was not moved: the lengths contradict
        ([3, 1, 2, 0], "baba"),
        ([3, 0, 2, 1], "aaab"),  # rows of two prompts in one group
        ([3, 0, 2, 1], "aaaa"),
        ([3, 0, 2, 2], "baba"),
    ],
)
def test_a_batch_whose_rows_are_not_certain_is_no_generation(
    order: list[int] | None, uids: str
) -> None:
    made = generation([2, 2, 3, 3], [1, 2, 1, 3], 2)
    data = batch([3, 2, 3, 2], [[5, 5, 5], [5, 0, 0], [5, 0, 0], [5, 5, 0]], uid=list(uids))
    assert find([made], data, order) is None
    assert made.uids == {}


def test_a_part_of_a_batch_is_told_by_its_size_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller()
    for _ in range(3):
        controller.remember(generation([2, 2, 3, 3], [1, 2, 1, 3], 2))
    monkeypatch.setattr(
        "rlvr_probe_verl.generations.lengths", None
    )  # adds up every token of the batch
    assert rows_of(controller, batch([3, 2], [[5, 5, 5], [5, 0, 0]])) is None


def test_lengths_are_added_up_once_for_all_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, calls = Controller(), list[object]()
    for _ in range(3):
        controller.remember(generation([2, 2], [1, 1], 2))

    def counted(data: Any) -> Any:
        calls.append(data)
        return lengths(data)

    monkeypatch.setattr("rlvr_probe_verl.generations.lengths", counted)
    assert rows_of(controller, batch([3, 2], [[5, 5, 5], [5, 0, 0]])) is None
    assert len(calls) == 1


def test_a_trainer_that_times_no_step_does_not_fill_the_memory() -> None:
    controller = Controller()
    for _ in range(1000):
        controller.remember(generation([2], [1], 1))
    assert len(controller.generations) < 100


def test_a_batch_that_was_moved_twice_is_put_back_twice() -> None:
    controller, data = Controller(), Batch()
    controller.remember_order(data, [2, 0, 1])
    controller.remember_order(data, [1, 2, 0])
    assert controller.order_of(data) == [0, 1, 2]
    assert controller.order_of(Batch()) is None


def test_each_engine_generates_an_equal_part_in_order() -> None:
    assert engines(4, 4, 2, 1) == [0, 0, 1, 1]
    assert engines(4, 8, 4, 2) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert engines(5, 5, 2, 1) is engines(4, 4, 3, 2) is None
