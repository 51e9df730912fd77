"""Requests of an inference engine: their two sides, their turns, and those that have none."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.model import names
from rlvr_probe.model.requests import Request, RequestColumns
from rlvr_probe.model.trace import Trace
from rlvr_probe.reading import digest
from rlvr_probe.recording import read_run
from rlvr_probe.report import render
from tests.journals import BOOT, SECOND, JournalFile
from tests.summarized import summary_of

NUMBERS = ("prompt_tokens", "response_tokens", "cached_tokens", "queue_s", "prefill_s", "decode_s")
SCHEDULED = {
    "prompt_tokens": 12,
    "response_tokens": 31,
    "cached_tokens": 8,
    "queue_s": 0.5,
    "prefill_s": 0.25,
    "decode_s": 1.0,
    "preemptions": 1,
    "finish": "abort",
}


class Run:
    """A trainer with two trajectories of one turn each, the process that asks, and the engine.

    What the engine's process tells is on the clock and the host of its parent.
    """

    def __init__(self, folder: Path, **engine: Any) -> None:
        self.trainer = JournalFile(folder, 1)
        self.trainer.event(names.SESSION, 0.1, session=0, rank=0, world_size=1, group_size=2)
        self.client = JournalFile(folder, 2)
        header = {"ppid": 1002, **engine}
        self.engine = JournalFile(folder, 3, header=header)
        self.batch = self.trainer.next_span()

    def turn(self, row: int, start_s: float, end_s: float, **attributes: Any) -> int:
        lengths = {"prompt_tokens": 12, "response_tokens": 30}
        told: dict[str, Any] = {"batch": self.batch, "rows": row, "turn": 0, **lengths}
        return self.trainer.span(names.TURN, start_s, end_s, **told, **attributes)

    def asked(
        self, journal: JournalFile, start_s: float, end_s: float, key: str, **attributes: Any
    ) -> int:
        told = {"told_by": "client", "key": digest(key), "request": digest(f"named {key}")}
        return journal.span(names.REQUEST, start_s, end_s, **{**told, **attributes})

    def scheduled(self, start_s: float, end_s: float, key: str, **attributes: Any) -> int:
        told = {"told_by": "scheduler", "key": digest(key)}
        return self.engine.span(names.REQUEST, start_s, end_s, **{**told, **attributes})

    def read(self) -> Trace:
        return read_run(self.written())

    def written(self) -> Path:
        """The folder, once all is in it."""
        self.trainer.event(
            names.TRAJECTORIES, 9, session=0, step=1, mode="train", batch=self.batch, offset=0,
            total=2, group_size=2, prompt_tokens=[12, 12], response_tokens=[30, 30],
        )  # fmt: skip
        for journal in (self.trainer, self.client, self.engine):
            journal.close()
        return self.trainer.folder


def turns(trace: Trace) -> list[Any]:
    [batch] = [batch for step in trace.steps() for batch in step.batches]
    return [
        trajectory.turns[0]
        for group in batch.groups()
        for trajectory in group.trajectories
        if trajectory.turns
    ]


def requests(trace: Trace) -> list[Request]:
    [attempt] = trace.attempts
    return list(attempt.requests)


def test_a_request_that_both_sides_tell_of_is_one(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.asked(run.client, 1, 3, "a", prompt_tokens=12, response_tokens=30, finish="stop")
    run.scheduled(1.1, 2.9, "a", **SCHEDULED)
    trace = run.read()
    assert trace.lost == {}
    [request] = requests(trace)
    # What was asked for ends as the caller says; what the engine did, the engine knows.
    assert (request.response_tokens, request.finish) == (30, "stop")
    assert (request.start_ns, request.end_ns) == (1 * SECOND, 3 * SECOND)
    assert [getattr(request, name) for name in NUMBERS] == [12, 30, 8, 0.5, 0.25, 1.0]
    assert request.preemptions == 1


@pytest.mark.parametrize(
    ("engine", "at_s"),
    [
        ({"ppid": 77}, 1.1),
        ({"boot": BOOT.replace("1", "2"), "host": "node-2"}, 1.1),
        ({}, 0.5),
    ],
    ids=["not a child", "another machine", "too early"],
)
def test_sides_that_need_not_be_of_one_request_are_not_put_together_and_not_counted_twice(
    tmp_path: Path, engine: dict[str, Any], at_s: float
) -> None:
    run = Run(tmp_path, **engine)
    run.asked(run.client, 1, 3, "a", response_tokens=30)
    run.scheduled(at_s, at_s + 0.5, "a", response_tokens=31, cached_tokens=8)
    run.scheduled(at_s, at_s + 0.5, "b", response_tokens=32)
    trace = run.read()
    found = [(request.response_tokens, request.cached_tokens) for request in requests(trace)]
    assert found == [(30, None), (32, None)]
    assert any(note.startswith("1 requests were recorded by their caller") for note in trace.notes)


def test_a_request_that_was_given_up_before_its_engine_took_it_is_one(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.asked(run.client, 1, 3, "a", finish="abort")
    run.scheduled(3.5, 4, "a", cached_tokens=8)
    assert [(request.finish, request.cached_tokens) for request in requests(run.read())] == [
        ("abort", 8)
    ]


def test_a_child_that_the_client_owns_is_its_engine_on_any_machine(tmp_path: Path) -> None:
    owner = f"{2:016x}"
    run = Run(tmp_path, boot=BOOT.replace("1", "2"), host="node-2", ppid=1, owner=owner)
    run.asked(run.client, 1, 3, "a", response_tokens=30)
    run.scheduled(1.1, 2.9, "a", cached_tokens=8)
    assert [request.cached_tokens for request in requests(run.read())] == [8]


def test_ids_that_an_engine_gives_again_are_told_by_their_time(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for at in (1, 4):
        run.asked(run.client, at, at + 2, "0", response_tokens=at)
        run.scheduled(at + 0.5, at + 1, "0", cached_tokens=at)
    found = [(request.response_tokens, request.cached_tokens) for request in requests(run.read())]
    assert found == [(1, 1), (4, 4)]


def test_two_of_one_id_at_one_time_are_not_put_together_by_guessing(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.asked(run.client, 1, 3, "0", response_tokens=30)
    run.scheduled(1.1, 2, "0", cached_tokens=4)
    run.scheduled(1.2, 2, "0", cached_tokens=8)
    assert [request.cached_tokens for request in requests(run.read())] == [None]


def test_a_turn_finds_its_request_by_id(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.turn(0, 0.9, 3.1, request=digest("named a"))
    run.turn(1, 0.9, 3.1, request=digest("named b"))
    run.asked(run.client, 1, 3, "a", response_tokens=30)
    run.scheduled(1.1, 2.9, "a", **SCHEDULED)
    run.asked(run.client, 1, 3, "b", response_tokens=29)
    trace = run.read()
    assert [turn.request.response_tokens for turn in turns(trace)] == [30, 29]
    assert turns(trace)[0].request.queue_s == 0.5
    assert (len(requests(trace)), trace.attempts[0].unjoined_requests) == (2, 0)


def test_a_request_made_inside_a_turn_is_its_request(tmp_path: Path) -> None:
    run = Run(tmp_path)
    span = run.turn(0, 0.9, 3.1)
    run.asked(run.trainer, 1, 3, "a", parent=span, response_tokens=30)
    trace = run.read()
    assert turns(trace)[0].request.response_tokens == 30
    assert trace.attempts[0].unjoined_requests == 0


@pytest.mark.parametrize("named", ["a", "other"])
def test_a_request_that_no_turn_can_have_made_stays_one_of_its_own(
    tmp_path: Path, named: str
) -> None:
    run = Run(tmp_path)
    run.turn(0, 5, 6, request=digest(f"named {named}"))
    run.asked(run.client, 1, 3, "a", response_tokens=30)
    trace = run.read()
    assert turns(trace)[0].request is None
    assert (len(requests(trace)), trace.attempts[0].unjoined_requests) == (1, 1)


def test_a_turn_of_several_requests_has_none_of_them(tmp_path: Path) -> None:
    run = Run(tmp_path)
    span = run.turn(0, 0.9, 3.1)
    for key in "ab":
        run.asked(run.trainer, 1, 3, key, parent=span, response_tokens=30)
    trace = run.read()
    assert turns(trace)[0].request is None
    assert trace.attempts[0].unjoined_requests == 2


def test_no_request_is_that_of_two_turns(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for row in (0, 1):
        run.turn(row, 0.9, 3.1, request=digest("named a"))
    run.asked(run.client, 1, 3, "a", response_tokens=30)
    trace = run.read()
    assert [turn.request is None for turn in turns(trace)] == [True, True]


def test_what_a_turn_tells_of_its_request_is_known_without_the_engine(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.turn(0, 1, 3, queue_s=0.5, prefill_s=0.25, decode_s=1, preemptions=0, finish="length")
    trace = run.read()
    request = turns(trace)[0].request
    assert (request.queue_s, request.decode_s, request.preemptions) == (0.5, 1.0, 0)
    assert (request.finish, request.prompt_tokens, request.cached_tokens) == ("length", 12, None)
    assert (requests(trace), trace.attempts[0].unjoined_requests) == ([request], 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"told_by": "nobody"},
        {"key": "no digest"},
        {"key": 5},
        {"prompt_tokens": -1},
        {"response_tokens": 2**32},
        {"cached_tokens": 1.5},
        {"queue_s": -0.1},
        {"prefill_s": "1"},
        {"decode_s": True},
        {"preemptions": -1},
        {"finish": "tired"},
    ],
)
def test_a_row_that_breaks_the_schema_is_counted_and_left_out(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    run = Run(tmp_path)
    row = {"told_by": "client", "key": digest("a"), "response_tokens": 4, **wrong}
    run.client.span(names.REQUEST, 1, 3, **row)
    run.asked(run.client, 1, 3, "b", response_tokens=3)
    trace = run.read()
    assert trace.lost == {"bad_row": 1}
    assert [request.response_tokens for request in requests(trace)] == [3]


def test_show_says_what_engines_did(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.turn(0, 0.9, 3.1, request=digest("named a"))
    run.asked(run.client, 1, 3, "a", response_tokens=30, finish="stop")
    run.scheduled(1.1, 2.9, "a", **SCHEDULED)
    run.asked(run.client, 1, 3, "b", prompt_tokens=4, queue_s=1.5)
    summary = summary_of(run.written())
    found = summary["requests"]
    assert (found["requests"], found["unjoined"]) == (2, 1)
    assert found["finishes"] == {"stop": 1, "unknown": 1}
    assert (found["preemptions"], found["preempted"]) == (1, 1)
    # Of the one request whose prompt and whose cached tokens are both known.
    assert found["cached_share"] == 8 / 12
    assert (found["queue_s"]["max"], found["total_s"]["queue_s"]) == (1.5, 2.0)
    assert found["decode_s"]["p50"] == 1.0
    shown = io.StringIO()
    render(summary, shown)
    assert (
        "2 requests to engines, 1 without a known turn, 66.7% of their prompt tokens cached,"
        " 1 preempted, 1 times in all"
    ) in " ".join(shown.getvalue().split())
    assert "prefill" in shown.getvalue()


def test_times_that_add_up_to_no_number_are_unknown(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for name in "ab":
        run.asked(run.client, 1, 3, name, queue_s=1e308)
    summary = json.loads(json.dumps(summary_of(run.written()), allow_nan=False))
    assert (summary["requests"]["queue_s"]["mean"], summary["requests"]["total_s"]) == (None, {})
    render(summary, io.StringIO())


def test_a_run_whose_engines_tell_nothing_has_no_requests(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.turn(0, 1, 2)
    summary = summary_of(run.written())
    assert summary["requests"] is None
    shown = io.StringIO()
    render(summary, shown)
    assert "request" not in shown.getvalue()


def test_a_column_gives_back_what_it_took() -> None:
    columns = RequestColumns()
    known = Request(1, 2, 3, 4, 5, 6, 0.25, 0.5, 0.75, 7, "length")
    unknown = Request(0, 0, 1, None, None, None, None, None, None, None, None)
    for item in (known, unknown):
        columns.append(item)
    assert list(columns) == columns[:] == [known, unknown]
    assert (len(columns), columns[-1]) == (2, unknown)


def test_columns_are_equal_if_their_requests_are() -> None:
    first, same, longer, other = (RequestColumns() for _ in range(4))
    one = Request(0, 0, 1, None, None, None, None, None, None, None, None)
    for columns in (first, same, longer):
        columns.append(one)
    longer.append(one)
    other.append(replace(one, queue_s=0.0))
    assert first == same
    assert first not in (longer, other)
    assert first != [one]
