"""Turns and tool calls: joined with their trajectories, summed up, shown."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.model import names
from rlvr_probe.model.turns import ToolCall
from rlvr_probe.recording import read_run
from rlvr_probe.report import render
from rlvr_probe.report.show import turns_line
from tests.journals import JournalFile, Training
from tests.summarized import summary_of

NS = 1_000_000_000


class Conversation:
    """A batch of four trajectories; 1 and 3 call tools."""

    def __init__(self, folder: Path, **trajectories: Any) -> None:
        self.journal = JournalFile(folder)
        self.journal.event(names.SESSION, 0.1, session=0, rank=0, world_size=1, group_size=2)
        self.batch = self.journal.next_span()
        self.trajectories: dict[str, Any] = {
            "session": 0,
            "step": 1,
            "mode": "train",
            "batch": self.batch,
            "offset": 0,
            "total": 4,
            "group_size": 2,
            "prompt_tokens": [5, 5, 6, 6],
            "response_tokens": [3, 9, 4, 20],
            "loss_runs": [[3], [4, 3, 2], [4], [2, 5, 3, 8, 2]],
            **trajectories,
        }

    def turn(self, start_s: float, **attributes: Any) -> None:
        self.journal.span(names.TURN, start_s, start_s + 0.5, batch=self.batch, **attributes)

    def tool(
        self, start_s: float, end_s: float, error: str | None = None, **attributes: Any
    ) -> None:
        self.journal.span(
            names.TOOL_CALL, start_s, end_s, error=error, batch=self.batch, **attributes
        )

    def three_turns(self) -> None:
        self.turn(1, samples=4, turn=0, prompt_tokens=[5, 5, 6, 6], response_tokens=[3, 4, 4, 2])
        self.tool(1.6, 1.7, row=1, turn=0, tool="search", status="ok")
        self.tool(1.6, 1.9, "KeyError", row=3, turn=0, tool="run", status="error")
        self.turn(2, rows=[1, 3], turn=1, prompt_tokens=[12, 13], response_tokens=[2, 3])
        self.tool(2.6, 2.6, row=3, turn=1, status="not_found")
        self.tool(2.6, 2.8, row=3, turn=1, tool="search", status="ok")
        self.turn(3, samples=1, rows=3, turn=2, prompt_tokens=24, response_tokens=2)

    def written(self) -> Path:
        """The folder, once all is in it."""
        self.journal.event(names.TRAJECTORIES, 4, **self.trajectories)
        self.journal.close()
        return self.journal.folder

    def read(self) -> Any:
        return read_run(self.written())


def rows(trace: Any) -> list[Any]:
    [batch] = [batch for step in trace.steps() for batch in step.batches]
    return [sample for group in batch.groups() for sample in group.trajectories]


def test_each_trajectory_gets_the_turns_of_the_engine_calls_it_was_in(tmp_path: Path) -> None:
    conversation = Conversation(tmp_path)
    conversation.three_turns()
    trace = conversation.read()
    assert trace.lost == {}
    assert [
        [(turn.index, turn.prompt_tokens, turn.response_tokens) for turn in row.turns]
        for row in rows(trace)
    ] == [
        [(0, 5, 3)],
        [(0, 5, 4), (1, 12, 2)],
        [(0, 6, 4)],
        [(0, 6, 2), (1, 13, 3), (2, 24, 2)],
    ]
    last = rows(trace)[3].turns[-1]
    assert (last.start_ns, last.end_ns, last.cached_tokens) == (3 * NS, round(3.5 * NS), None)


def test_each_trajectory_gets_its_tool_calls_by_start(tmp_path: Path) -> None:
    conversation = Conversation(tmp_path)
    conversation.three_turns()
    called = [row.tool_calls for row in rows(conversation.read())]
    assert called[1] == (ToolCall(0, "search", "ok", None, round(1.6 * NS), round(1.7 * NS)),)
    assert [(call.turn, call.tool, call.status, call.error) for call in called[3]] == [
        (0, "run", "error", "KeyError"),
        (1, None, "not_found", None),
        (1, "search", "ok", None),
    ]
    assert [round(call.latency_s, 3) for call in called[3]] == [0.3, 0.0, 0.2]
    assert (called[0], called[2]) == ((), ())


def test_loss_tokens_are_those_that_the_model_generated(tmp_path: Path) -> None:
    assert [row.loss_tokens for row in rows(Conversation(tmp_path / "a").read())] == [3, 6, 4, 7]
    unmasked = Conversation(tmp_path / "b", loss_runs=None).read()
    assert [row.loss_tokens for row in rows(unmasked)] == [None] * 4


def test_an_engine_call_known_only_as_a_whole_makes_no_turns(tmp_path: Path) -> None:
    conversation = Conversation(tmp_path)
    conversation.turn(1, samples=4, prompt_tokens=22, response_tokens=13)
    trace = conversation.read()
    assert [row.turns for row in rows(trace)] == [()] * 4
    assert trace.totals["turn"] == (1, 0.5)
    assert summary_of(tmp_path)["turns"] is None


def test_turns_of_trajectories_on_their_own_are_in_their_order(tmp_path: Path) -> None:
    conversation = Conversation(tmp_path)
    for start, row, index in ((1.0, 2, 0), (1.2, 0, 0), (2.0, 0, 1), (1.8, 2, 1), (3.0, 2, 2)):
        conversation.turn(start, rows=row, turn=index, prompt_tokens=1 + row, response_tokens=index)
    found = rows(conversation.read())
    assert [[turn.response_tokens for turn in result.turns] for result in found] == [
        [0, 1],
        [],
        [0, 1, 2],
        [],
    ]
    assert {turn.prompt_tokens for turn in found[2].turns} == {3}


def test_a_batch_that_was_never_finished_loses_nothing(tmp_path: Path) -> None:
    conversation = Conversation(tmp_path, batch=77)
    conversation.three_turns()
    trace = conversation.read()
    assert trace.lost == {}
    assert trace.totals["tool_call"][0] == 4


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        ({"turn": 0, "prompt_tokens": [1], "response_tokens": [1]}, "unjoined_turns"),
        ({"rows": [4], "turn": 0, "prompt_tokens": 1, "response_tokens": 1}, "unjoined_turns"),
        ({"rows": [1, 1], "turn": 0, "prompt_tokens": [1, 1], "response_tokens": [1, 1]},
         "bad_row"),
        ({"rows": [1], "turn": 0, "prompt_tokens": [1, 2], "response_tokens": [1, 2]}, "bad_row"),
        ({"rows": [1], "turn": 0, "prompt_tokens": -1, "response_tokens": 1}, "bad_row"),
        ({"rows": "1", "turn": 0, "prompt_tokens": 1, "response_tokens": 1}, "bad_row"),
        ({"rows": [1], "turn": 0, "prompt_tokens": 1}, "bad_row"),
    ],
)  # fmt: skip
def test_an_engine_call_that_contradicts_its_batch_is_counted(
    tmp_path: Path, turn: dict[str, Any], reason: str
) -> None:
    conversation = Conversation(tmp_path)
    conversation.turn(1, **turn)
    trace = conversation.read()
    assert trace.lost == {reason: 1}
    assert [row.turns for row in rows(trace)] == [()] * 4


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ({"row": 4, "turn": 0, "tool": "search", "status": "ok"}, "unjoined_turns"),
        ({"row": 0, "turn": 0, "tool": "search", "status": "fine"}, "bad_row"),
        ({"row": -1, "turn": 0, "tool": "search", "status": "ok"}, "bad_row"),
        ({"row": 0, "turn": 0, "tool": 7, "status": "ok"}, "bad_row"),
    ],
)
def test_a_tool_call_that_contradicts_its_batch_is_counted(
    tmp_path: Path, call: dict[str, Any], reason: str
) -> None:
    conversation = Conversation(tmp_path)
    conversation.tool(1, 2, **call)
    assert conversation.read().lost == {reason: 1}


@pytest.mark.parametrize(
    "runs", [[[3], [4, 3, 2], [4]], [[3], [4, 3, 1], [4], [20]], [3, 9, 4, "x"], "runs"]
)
def test_a_mask_that_does_not_fit_its_responses_is_counted(tmp_path: Path, runs: Any) -> None:
    trace = Conversation(tmp_path, loss_runs=runs).read()
    assert trace.lost == {"bad_row": 1}


def test_show_says_how_tools_did(tmp_path: Path) -> None:
    conversation = Conversation(tmp_path)
    conversation.three_turns()
    summary = summary_of(conversation.written())
    assert summary["turns"] == {
        "trajectories": 4,
        "unknown": 0,
        "turns": 7,
        "several_turns": 2,
        "per_trajectory": {
            "mean": 1.75,
            "p50": 1.5,
            "p90": 2.7,
            "p99": pytest.approx(2.97),
            "max": 3,
        },
        "loss_tokens": 20,
    }
    assert [(tool["tool"], tool["calls"]) for tool in summary["tools"]] == [
        ("search", 2),
        (None, 1),
        ("run", 1),
    ]
    search = summary["tools"][0]
    assert search["statuses"] == {"ok": 2}
    assert search["latency_s"]["max"] == pytest.approx(0.2)
    assert summary["tools"][2]["errors"] == {"KeyError": 1}
    drawn = io.StringIO()
    render(summary, drawn)
    report = drawn.getvalue()
    assert "7 turns: 1.75 per trajectory (p50 1.5, max 3), 20 of the response tokens in" in report
    [missing] = [line for line in report.splitlines() if "(no such tool)" in line]
    assert missing.split()[-2:] == ["1", "not_found"]
    [run] = [line for line in report.splitlines() if line.startswith("  run ")]
    assert run.split()[-2:] == ["1", "KeyError"]


def test_a_batch_without_turns_says_nothing_of_them(tmp_path: Path) -> None:
    summary = summary_of(Conversation(tmp_path, loss_runs=None).written())
    assert (summary["turns"], summary["tools"]) == (None, [])
    drawn = io.StringIO()
    render(summary, drawn)
    assert "Tools" not in drawn.getvalue()
    assert "turns:" not in drawn.getvalue()


def test_counts_of_turns_are_those_of_the_turns(tmp_path: Path) -> None:
    conversation = Conversation(tmp_path)
    conversation.three_turns()
    [batch] = [batch for step in conversation.read().steps() for batch in step.batches]
    turns = batch.shards[0].turns
    assert list(turns) == [0, 1, 2, 3]
    assert [len(turns[row]) for row in turns] == [1, 2, 1, 3]
    assert 4 not in turns
    assert -1 not in turns


def test_turns_that_are_known_of_some_are_said_of_those(tmp_path: Path) -> None:
    conversation = Conversation(tmp_path)
    conversation.three_turns()
    summary = summary_of(conversation.written())
    said = turns_line({**summary["turns"], "unknown": 12})
    assert ", known for 4 trajectories of 16, 20 of the response tokens in the loss" in said


def test_turns_of_a_batch_in_two_parts_are_counted_as_not_joined(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    training = Training(journal)
    training.begin()
    batch = journal.next_span()
    for offset in (0, 1):
        journal.event(
            names.TRAJECTORIES, 1.0, session=0, step=1, mode="train", batch=batch, ordinal=0,
            policy_version=0, offset=offset, total=2, group_size=2, prompt_tokens=[5],
            response_tokens=[3],
        )  # fmt: skip
    journal.span(
        names.TURN, 0.5, 0.9, batch=batch, samples=2, turn=[0, 0], prompt_tokens=[5, 5],
        response_tokens=[3, 3],
    )  # fmt: skip
    journal.span(names.TOOL_CALL, 0.6, 0.7, batch=batch, row=1, turn=0, tool="search", status="ok")
    journal.span(names.STEP, 0.1, 1.5, session=0, step=1)
    journal.close()
    assert read_run(tmp_path).lost == {"unjoined_turns": 2}


def test_an_engine_call_that_tells_a_sum_is_kept_beside_the_trajectories(tmp_path: Path) -> None:
    conversation = Conversation(tmp_path)
    conversation.turn(1, samples=4, prompt_tokens=22, response_tokens=36)
    trace = conversation.read()
    [attempt] = trace.attempts
    assert [
        (call.process, call.end_ns - call.start_ns, call.samples, call.response_tokens)
        for call in attempt.loose_calls
    ] == [(0, NS // 2, 4, 36)]
    assert [row.turns for row in rows(trace)] == [()] * 4


def test_a_turn_of_a_batch_that_was_never_finished_is_kept_beside_them(tmp_path: Path) -> None:
    conversation = Conversation(tmp_path)
    conversation.turn(
        1, samples=4, turn=0, prompt_tokens=[5, 5, 6, 6], response_tokens=[3, 4, 4, 2]
    )
    conversation.batch = conversation.journal.next_span()
    conversation.turn(2, samples=2, turn=0, prompt_tokens=[5, 5], response_tokens=[3, 4])
    conversation.turn(3, samples=1, rows=3, turn=2, prompt_tokens=24, response_tokens=2)
    [attempt] = conversation.read().attempts
    assert [(call.samples, call.response_tokens) for call in attempt.loose_calls] == [
        (2, 7),
        (1, 2),
    ]
