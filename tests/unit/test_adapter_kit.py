"""What integrations share, with a probe that writes down what it is asked to record."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from rlvr_probe.adapter import Call, HookPoint, Probe, ray_actors
from rlvr_probe.adapter.batch_events import Batch, Groups, emit_rewards, stand_in
from rlvr_probe.adapter.controller import Controller, instrument_once, state_of
from rlvr_probe.adapter.conversation import Conversation, Current, turn_values
from rlvr_probe.adapter.spans import end_span, end_tool, start_call, start_stage, start_tool
from rlvr_probe.adapter.user_functions import Scoring, Swapped, put_all_back
from rlvr_probe.model import names
from rlvr_probe.model.names import Name
from rlvr_probe.probe.hooks.calls import Hook
from rlvr_probe.reading import digest


class Book:
    """Writes down spans as they end, and events."""

    def __init__(self) -> None:
        self.states: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
        self.open: dict[int, tuple[str, int | None]] = {}
        self.told: list[tuple[str, dict[str, Any], Any]] = []
        self.hooked: list[object] = []
        self.spans = 0

    def state(self, owner: object) -> dict[str, Any]:
        return self.states.setdefault(owner, {})

    def instrument(self, instance: object, points: Any) -> int:
        self.hooked.append(instance)
        return len(points)

    def begin(self, name: Name, *, step: int | None = None, **_: Any) -> int:
        self.spans += 1
        self.open[self.spans] = (name.name, step)
        return self.spans

    def end(self, span: int, values: Any = None, error: str | None = None) -> None:
        name, _ = self.open.pop(span)
        self.told.append((name, dict(values or {}), error))

    def drop(self, span: int) -> None:
        del self.open[span]

    def emit(self, name: Name, values: Mapping[str, Any], parent: int | None = None) -> None:
        self.told.append((name.name, dict(values), parent))


def a_book() -> Any:
    return Book()


def a_call(probe: Probe, *args: Any, error: BaseException | None = None) -> Call:
    call = Call()
    call.probe, call.args, call.kwargs = probe, args, {}
    call.result, call.error, call.state = None, error, None
    return call


class Trainer:
    pass


class Own(Controller):
    pass


# ---------------------------------------------------------------- controller


def test_a_process_has_the_trainer_that_was_made_last_for_as_long_as_it_lives() -> None:
    book, trainer = a_book(), Trainer()
    Own.learn(a_call(book, Trainer(), error=ValueError()))
    assert not Own.is_here(a_call(book))
    Own.learn(a_call(book, trainer))
    assert Own.trainer() is trainer
    assert Own.of(book) is Own.of(book)
    assert not Controller.is_here(a_call(book))  # of another framework
    del trainer
    gc.collect()
    with pytest.raises(LookupError, match="no trainer"):
        Own.of(book)


def test_a_resumed_run_goes_on_with_its_number_and_a_new_one_has_the_next() -> None:
    class Fresh(Controller):
        pass

    book, controller = a_book(), Fresh()
    numbers = []
    for resumed in (0, 4, 0):
        controller.start_session(book, {"framework": "toy"}, resumed)
        numbers.append(controller.session)
    controller.end_session(book, 9)
    assert numbers == [0, 0, 1]
    assert book.told[1][1] == {"session": 0, "framework": "toy", "resumed_step": 4}
    assert book.told[-1][:2] == ("session_end", {"session": 1, "step": 9})


def test_a_step_ends_with_its_number_and_one_that_was_none_leaves_nothing() -> None:
    book, controller = a_book(), Controller(session=2)
    controller.open_step(book, 7)
    assert book.open == {1: ("step", 7)}
    controller.close_step(book, "ValueError")
    controller.open_step(book, 8)
    controller.drop_step(book)
    assert book.told == [("step", {"session": 2, "step": 7}, "ValueError")]
    assert (book.open, controller.step_span) == ({}, 0)


def test_generations_at_one_place_are_counted() -> None:
    controller = Controller()
    places = [(0, 1, "train"), (0, 1, "train"), (0, 1, "eval"), (0, 1, "train")]
    assert [controller.ordinal(place) for place in places] == [0, 1, 0, 0]


def test_what_is_kept_of_an_object_is_made_once_and_a_class_is_hooked_once() -> None:
    book, trainer = a_book(), Trainer()
    assert state_of(book, trainer, Batch) is state_of(book, trainer, Batch)
    points = (HookPoint("fit"),)
    for owner in (trainer, Trainer(), Trainer):
        assert instrument_once(book, owner, points) == 1
    assert book.hooked == [trainer]


# ---------------------------------------------------------------- spans


def test_a_stage_ends_with_its_place_and_what_is_known_at_its_end() -> None:
    book = a_book()
    call = a_call(book, error=ValueError())
    end_span(call)  # nothing was started
    start_stage(call, names.WEIGHT_SYNC, (0, 3, "train"))
    assert book.open == {1: ("weight_sync", 3)}
    end_span(call, weight_version=3)
    place = {"session": 0, "step": 3, "mode": "train"}
    assert book.told == [("weight_sync", {**place, "weight_version": 3}, "ValueError")]


def test_both_sides_count_the_calls_of_a_method() -> None:
    book = a_book()
    for method, side in (("fit", "caller"), ("fit", "worker"), ("save", "caller")) * 2:
        call = a_call(book)
        start_call(call, side, "Kit", method, (0, 1, "train") if side == "caller" else None, rank=5)
        end_span(call)
    told = [values for _, values, _ in book.told]
    assert [values["call"] for values in told] == [0, 0, 0, 1, 1, 1]
    assert told[1] == {"side": "worker", "group": "Kit", "method": "fit", "call": 0, "rank": 5}
    assert told[0]["step"] == 1


def test_a_tool_that_raised_failed_and_one_that_is_missing_has_no_time() -> None:
    book = a_book()
    call = a_call(book)
    call.state = {"index": 3}
    start_tool(call)
    index, span = call.state
    assert index == 3
    end_tool(book, span, "ValueError", tool="search")
    end_tool(book, None, status="not_found")
    assert book.told == [
        ("tool_call", {"status": "error", "tool": "search"}, "ValueError"),
        ("tool_call", {"status": "not_found"}, None),
    ]


def _begins(call: Call) -> None:
    pass


def test_a_method_costs_under_the_name_of_its_own_adapter() -> None:
    point = HookPoint("fit", before=_begins, after=end_span)
    assert Hook(point).place == f"{__name__}:fit"
    assert Hook(HookPoint("fit", after=end_span)).place == "rlvr_probe.adapter.spans:fit"


# ---------------------------------------------------------------- conversations


def test_a_conversation_is_over_where_what_it_started_goes_on() -> None:
    current = Current[Conversation]("test_conversation")
    outer, inner = a_call(a_book()), a_call(a_book())
    first, second = Conversation(1), Conversation(2)
    current.enter(outer, first)
    current.enter(inner, second)
    assert current.get() is second
    assert current.leave(inner) is second
    assert current.get() is first
    first.over = True
    assert current.get() is None
    assert current.leave(a_call(a_book())) is None


def test_the_weights_of_a_conversation_are_those_of_all_of_its_turns_or_unknown() -> None:
    conversation = Conversation(3, "key")
    assert (conversation.turn, conversation.version()) == (None, (None, None))
    assert conversation.start_turn() == 0
    conversation.end_turn("length", (2, 3))
    assert (conversation.stop, conversation.version()) == ("length", (2, 3))
    assert conversation.start_turn() == 1
    assert (conversation.stop, conversation.turn) == (None, 1)
    conversation.end_turn(object(), None)
    assert (conversation.stop, conversation.version()) == (None, (None, None))
    conversation.versions[1] = (1, 1)
    assert conversation.version() == (1, 3)
    values = turn_values(conversation, 1, 5, 7, None, "secret")
    assert values == (3, 1, 1, 5, 7, None, digest("secret"))
    assert turn_values(conversation, 1, 5, 7, 2, 8)[-2:] == (2, None)


# ---------------------------------------------------------------- events


def test_rows_of_a_prompt_follow_each_other() -> None:
    groups = Groups.by_name("aabbb")
    assert (groups.of_rows, groups.names, groups.size) == ([0, 0, 1, 1, 1], ["a", "b"], 3)
    assert not groups.even
    assert Groups.by_name("aabb").even
    assert Groups.by_name("") == Groups([], [], 1)


def test_the_pieces_of_a_batch_are_numbered_on_until_the_last_one_ends_it() -> None:
    book, batch = a_book(), Batch({"mode": "train"})
    first = batch.add([0, 0, 1, 1], 4, 2, even=True)
    assert first == {"offset": 0, "total": 4, "group_size": 2, "groups": None}
    batch.emit(book, 7, {**first, "keys": None}, more=True)
    second = batch.add([0, 2], 3, 2, even=False)
    assert second == {"offset": 4, "total": 7, "group_size": 2, "groups": [2, 3]}
    assert batch.add([0], 1, 1, even=True)["groups"] == [4]
    batch.emit(book, 7, second, more=False)
    (_, piece, no_parent), (_, last, parent) = book.told
    assert (piece["grows"], no_parent, parent) == (1, 0, 7)
    assert "keys" not in piece
    assert "grows" not in last


def test_a_reward_that_is_not_finite_is_said_to_be_none() -> None:
    book = a_book()
    emit_rewards(book, 4, "even", [1.0, float("nan")], index=2)
    emit_rewards(book, 4, "odd", None, parent=0)
    named = {"batch": 4, "function": "even", "index": 2}
    assert book.told[0] == ("rewards", {**named, "values": [1.0, None], "not_finite": [1]}, 4)
    assert book.told[1][2] == 0


def test_what_stands_for_a_rollout_is_an_id_that_no_span_has() -> None:
    book = a_book()
    assert (stand_in(book), book.open, book.told) == (1, {}, [])


def test_each_reward_function_has_its_name_its_values_and_its_end() -> None:
    book = a_book()
    scoring = Scoring(4, ["even"], lambda call: len(call.args[0]), list)
    point = scoring.point()
    assert (point.read, point.detail, point.after) != (None, None, None)
    calls = [a_call(book, [1, 2, 3]) for _ in range(3)]
    for index, call in enumerate(calls):
        call.state, call.result, call.span, call.end_ns = {"index": index}, [1.0, 2.0], 9, 50
    calls[2].error = ValueError()
    assert [point.read(call) for call in calls[:2]] == [(4, "even", 3), (4, None, 3)]  # type: ignore[misc]
    assert [point.detail(call) for call in calls[:2]] == ["even", ""]  # type: ignore[misc]
    for call in calls:
        point.after(call)  # type: ignore[misc]
    assert [values["function"] for _, values, _ in book.told] == ["even", None]
    assert [(values["index"], parent) for _, values, parent in book.told] == [(0, 9), (1, 9)]
    assert scoring.end_ns == 50


# ---------------------------------------------------------------- swapped objects


def test_what_was_put_into_a_container_is_taken_out_again() -> None:
    functions, tools = [len, max], {"search": min}
    swapped = Swapped()
    swapped.put(functions, 0, any)
    swapped.put(functions, 1, all)
    swapped.put(tools, "search", any)
    assert swapped
    functions[1] = sum  # the user's own change stays
    del tools["search"]
    swapped.put_back()
    assert (functions, tools, bool(swapped)) == ([len, sum], {}, False)


def test_at_a_detach_everything_is_put_back_and_at_a_call_what_was_left_in_its_list() -> None:
    mine, other = [len], [max]
    for functions in (mine, other):
        Swapped().put(functions, 0, any)
    put_all_back(mine)
    assert (mine, other) == ([len], [any])
    put_all_back()
    assert other == [max]


# ---------------------------------------------------------------- actors


def test_facts_of_a_run_with_one_controller() -> None:
    facts = ray_actors.facts(nodes=2, per_node=8, epochs=3, prompts=4)
    assert facts["accelerators"] == 16
    assert (facts["iterations"], facts["accumulation"], facts["prompts_per_update"]) == (3, 3, 4)
    unknown = ray_actors.facts(nodes=None, per_node=8, epochs=3, prompts=None)
    assert (unknown["accelerators"], unknown["iterations"]) == (None, None)
    assert unknown["accumulation"] == 1


def test_an_actor_is_known_by_its_id_and_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = SimpleNamespace(_actor_id=SimpleNamespace(hex=lambda: "ab"))
    assert (ray_actors.actor_id(handle), ray_actors.actor_id(object())) == ("ab", None)
    metadata = SimpleNamespace(modified_class=Trainer)
    assert ray_actors.class_of(SimpleNamespace(__ray_metadata__=metadata)) is Trainer
    assert ray_actors.class_of(object()) is None
    ray = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: "context")
    monkeypatch.setitem(sys.modules, "ray", ray)
    assert ray_actors.context() == "context"
    ray.is_initialized = lambda: False
    assert ray_actors.context() is None
