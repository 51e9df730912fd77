"""What columns say of all their values is what the values say one by one."""

from __future__ import annotations

import random
from array import array

import pytest

from rlvr_probe.model.columns import (
    PairColumn,
    RaggedColumn,
    SparseColumn,
    TextColumn,
    unknown_in,
)
from rlvr_probe.model.reward_calls import RewardCall, RewardCallColumns
from rlvr_probe.model.turns import (
    TurnColumns,
    cached_tokens,
    turn_counts,
    turn_ends,
)


@pytest.mark.parametrize(
    "lists", [[], [[3], [4], [1]], [[3], [], [4, 3, 2]], [[2, 5, 3, 8, 2], [7, 1], [9]]]
)
def test_tokens_in_the_loss(lists: list[list[int]]) -> None:
    column = RaggedColumn(lists)
    assert [*column.alternate_sums()] == [sum(runs[::2]) for runs in lists]


@pytest.mark.parametrize("texts", [[], ["a"], ["", "ab", "", "\u00f6\ud800", "c"]])
def test_texts_end_to_end(texts: list[str]) -> None:
    column = TextColumn(texts)
    assert (len(column), list(column)) == (len(texts), texts)
    assert [column[at] for at in range(-len(texts), len(texts))] == texts + texts
    with pytest.raises(IndexError):
        column[len(texts)]


@pytest.mark.parametrize("pairs", [[], [(3, 3), (0, 4)], [(3, 3), None, (0, 4)]])
def test_pairs(pairs: list[tuple[int, int] | None]) -> None:
    column = PairColumn(
        array("q", (0 if pair is None else pair[0] for pair in pairs)),
        array("q", (-1 if pair is None else pair[1] for pair in pairs)),
    )
    assert list(column) == pairs
    assert unknown_in(column) == unknown_in(pairs) == pairs.count(None)


def test_numbers_that_are_unknown() -> None:
    assert unknown_in(SparseColumn([0, None, 3, None])) == 2


def test_calls_of_reward_functions_by_their_start() -> None:
    told = [
        RewardCall(0, name, 10 * at, 11 * at + 1, 1, *known)
        for at, (name, known) in enumerate(
            zip("abab", [(0, 1, 0), (None, None, None), (2, 3, 1), (3, 0, None)], strict=True)
        )
    ]
    columns = RewardCallColumns()
    for item in reversed(told):
        columns.append(item)
    assert list(columns) == told[::-1]
    assert list(columns.by_start()) == told


def test_turns_in_columns_say_what_turns_one_by_one_do() -> None:
    draw = random.Random(7)
    for _ in range(200):
        size, count = draw.randrange(1, 6), draw.randrange(12)
        entries = [
            (draw.randrange(size), draw.randrange(3), draw.randrange(50), draw.choice((-1, 0, 9)))
            for _ in range(count)
        ]
        rows, turns, starts, cached = (
            ([*column] for column in zip(*entries, strict=True)) if (entries) else ([], [], [], [])
        )
        zeros = array("q", [0] * count)
        columns = TurnColumns(
            rows=array("q", rows), turns=array("q", turns), prompt_tokens=zeros,
            response_tokens=zeros, cached_tokens=array("q", cached), start_ns=array("q", starts),
            end_ns=array("q", range(count)), request=array("q", [-1] * count),
        )  # fmt: skip
        plain = dict(columns)
        assert turn_ends(columns, size) == turn_ends(plain, size)
        assert cached_tokens(columns, size) == cached_tokens(plain, size)
        assert turn_counts(columns) == turn_counts(plain)
