"""Slices of any times and parents on lines."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from rlvr_probe_perfetto.slices import Slice, in_order
from rlvr_probe_perfetto.trace_events import Lanes

TIMES = st.tuples(st.integers(0, 60), st.integers(0, 30))


@st.composite
def slices(draw: st.DrawFn) -> list[Slice]:
    """Slices of which a parent may be any other one, or one that is not there."""
    times = draw(st.lists(TIMES, max_size=40))
    parents = st.one_of(st.none(), st.integers(0, len(times) + 2))
    return [
        Slice(0, number, draw(parents), "", "", start, start + length, {}, draw(st.booleans()))
        for number, (start, length) in enumerate(times)
    ]


@settings(deadline=None, derandomize=True)
@given(slices())
def test_on_a_line_a_slice_lies_apart_or_inside_one_that_may_be_around_it(
    given: list[Slice],
) -> None:
    lanes = Lanes()
    stacks = dict[int, list[Slice]]()
    ends = dict[object, int]()
    for one in in_order([(0, lambda: given)]):
        lane = lanes.place(one.start_ns, one.end_ns, one.key, one.parent, within_any=one.within_any)
        stack = stacks.setdefault(lane, [])
        while stack and stack[-1].end_ns <= one.start_ns:
            stack.pop()
        if stack:
            assert one.end_ns <= stack[-1].end_ns
            around = ends.get(one.parent, 0) > one.start_ns
            assert stack[-1].key == one.parent or (one.within_any and not around)
        ends[one.key] = one.end_ns
        stack.append(one)
    assert sorted(stacks) == list(range(len(stacks))), "no line is left out"


@settings(deadline=None, derandomize=True)
@given(st.lists(st.lists(TIMES, min_size=1, max_size=8), max_size=8))
def test_groups_come_out_in_one_order_each_slice_once(groups: list[list[tuple[int, int]]]) -> None:
    made = [
        [Slice(at, number, None, "", "", start, start + length) for number, (start, length) in part]
        for at, part in enumerate(map(list, map(enumerate, groups)))
    ]
    found = list(in_order((min(one.start_ns for one in part), part.copy) for part in made))
    assert [(one.start_ns, -one.end_ns) for one in found] == sorted(
        (one.start_ns, -one.end_ns) for part in made for one in part
    )
    assert len({(one.process, one.key) for one in found}) == sum(map(len, made))


def test_of_slices_with_the_same_times_the_parent_comes_first() -> None:
    inner = [Slice(0, key, key + 1, "", "", 5, 9) for key in range(20)]
    found = list(in_order([(5, lambda: inner)]))
    assert [one.key for one in found] == list(range(19, -1, -1))


def test_slices_that_are_parents_of_one_another_are_drawn_all_the_same() -> None:
    loop = [Slice(0, 1, 2, "", "", 5, 9), Slice(0, 2, 1, "", "", 5, 9)]
    assert len(list(in_order([(5, lambda: loop)]))) == 2


def test_of_two_parts_of_one_slice_neither_lies_in_the_other() -> None:
    lanes = Lanes()
    assert lanes.place(0, 10, "whole", None) == 0
    assert lanes.place(1, 8, "part", "whole", within_any=True) == 0
    assert lanes.place(2, 5, "other", "whole", within_any=True) == 1
    assert lanes.place(3, 4, "inside", "part") == 0
    assert lanes.place(9, 10, "late", "whole") == 0
