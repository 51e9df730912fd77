"""What ``show`` counts, and that it can be printed anywhere."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.model import names
from rlvr_probe.recording.process_state import Machine
from rlvr_probe.report import render
from rlvr_probe.report.blocks import clean, duration, seconds
from tests.actors import Job
from tests.journals import BOOT, MONO_NS, JournalFile, Training, fake_proc, simple_run
from tests.summarized import summary_of

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "show-json.md"


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(summary_of(folder), allow_nan=False))
    return found


def text(found: dict[str, Any], **options: Any) -> str:
    out = io.StringIO()
    render(found, out, **options)
    return out.getvalue()


def killed_and_resumed(folder: Path) -> None:
    first = Training(JournalFile(folder, 1))
    first.begin()
    first.evaluate(0)
    for step in range(1, 5):
        first.step(step)
    first.step(5, finish=False)
    first.journal.open_table((77, first.now_s, "reward_fn", "accuracy"), beat_s=12.0, step=5)
    first.journal.close(b"[1,", end=False)
    second = Training(JournalFile(folder, 2, start_s=60, header={"job": "b"}))
    second.begin(resumed_step=3)
    for step in range(4, 7):
        second.step(step)
    second.step(7, finish=False)
    second.journal.row("lost", 1, "queue_full", 3)
    second.journal.close(end=False)


def test_top_level_counts_are_of_training_and_each_step_once(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path)
    found = summary(tmp_path)
    counts = {key: value for key, value in found.items() if type(value) is int}
    training = Training(JournalFile(tmp_path / "unused"))
    lengths = [training.lengths(step) for step in range(1, 8)]
    assert counts == {
        "schema_version": 1,
        "processes": 2,
        "attempts": 2,
        "steps": 6,
        "unfinished_steps": 1,
        "redone_steps": 2,
        "groups": 14,
        "trajectories": 56,
        "prompt_tokens": sum(sum(prompts) for prompts, _ in lengths),
        "response_tokens": sum(sum(responses) for _, responses in lengths),
        "open_spans": 1,
        "lost_records": 4,
    }
    assert (found["evaluation"]["trajectories"], found["evaluation"]["steps"]) == (8, [0])
    assert found["lost"] == {"queue_full": 3, "torn_rows": 1}
    assert [one["step"] for one in found["redone"]] == [4, 5]
    assert [one["step"] for one in found["step_list"]] == [1, 2, 3, 4, 5, 6, 7]


def test_stages_name_the_slowest_rank(tmp_path: Path) -> None:
    for rank, step_s in ((0, 1.0), (1, 3.0)):
        training = Training(JournalFile(tmp_path, rank + 1), rank=rank, ranks=2, step_s=step_s)
        training.begin()
        training.step(1)
        training.journal.close()
    stages = {one["stage"]: one for one in summary(tmp_path)["stages"]}
    assert stages["step"] == {
        "stage": "step",
        "steps": 1,
        "mean_s": 2.0,
        "max_s": 3.0,
        "slowest_rank": 1,
        "share": 1.0,
    }
    assert stages["rollout"]["share"] == 0.25


def test_what_went_wrong_is_said_before_the_tables(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path)
    lines = text(summary(tmp_path)).splitlines()
    assert "2 steps were redone after a resume (steps 4, 5): not counted above" in lines[:6]
    order = [
        next(i for i, line in enumerate(lines) if line.startswith(start))
        for start in ("OPEN SPANS", "LOST: 4 records", "Attempts", "Steps", "Stages", "Processes")
    ]
    assert order == sorted(order)
    assert any(re.search("reward_fn +accuracy", line) for line in lines)


@pytest.mark.parametrize("alive", [True, False])
def test_what_a_trainer_is_at_between_two_steps_is_open_as_in_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: bool
) -> None:
    """As one that hangs in a callback: no span covers it."""
    training = Training(JournalFile(tmp_path / "run"))
    training.begin()
    for step in range(1, 4):
        training.step(step)
    training.journal.close(end=False)
    training.journal.open_table(beat_s=training.now_s + 40, step=3)
    processes = {"p1001": ("S", 77)} if alive else {}
    monkeypatch.setattr(Machine, "now_ns", lambda _: MONO_NS + round((training.now_s + 60) * 1e9))
    machine = fake_proc(tmp_path / "proc", BOOT, **processes)
    found: dict[str, Any] = summary_of(tmp_path / "run", machine=machine)
    [one] = found["open_span_list"]
    assert (one["name"], one["step"], one["thread"]) == ("between_steps", 3, None)
    assert one["age_s"] == pytest.approx(60 if alive else 40)
    assert found["open_spans"] == 0
    title = "OPEN NOW" if alive else "OPEN SPANS: never ended"
    assert re.search(rf"{title}\n.*\n.*between_steps +3 ", text(found))


def test_what_a_sidecar_could_not_do_is_said(tmp_path: Path) -> None:
    simple_run(tmp_path)
    sidecar = JournalFile(tmp_path, 90)
    sidecar.event(names.PROCESS, 0, role=names.SIDECAR)
    for number in range(6):
        sidecar.row("fault", 1, "live.otlp", f"rejected{number}", 1_200 - number)
    sidecar.close()
    said = " ".join(text(summary(tmp_path)).split())
    assert "FAULTS inside the sidecar, hidden from the run: 1,200 in live.otlp:" in said
    assert "1,196 in live.otlp: rejected4, and 1 more" in said


@pytest.mark.parametrize("color", [False, True])
def test_a_thousand_steps_fit_a_screen_and_100_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, color: bool
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    for rank in (0, 1):
        training = Training(JournalFile(tmp_path, rank + 1), rank=rank, ranks=2)
        training.begin()
        for step in range(1, 1001):
            training.step(step, finish=step % 7 != 0)
        training.journal.close()
    shown = re.sub(r"\x1b\[[0-9;]*m", "", text(summary(tmp_path), color=color))
    lines = shown.splitlines()
    assert len(lines) < 70
    assert max(map(len, lines)) <= 100
    assert "… 976 more steps" in shown
    assert "0 of 2" in shown


def test_nothing_in_a_recording_can_move_the_cursor_or_look_like_markup(tmp_path: Path) -> None:
    training = Training(JournalFile(tmp_path, header={"host": "\x1b[2J", "run": "[red]run[/red]"}))
    training.begin(framework="\x1b]0;owned\x07", algorithm="[bold]")
    training.step(1)
    training.journal.row("lost", 1, "\x1b[31m", 1)
    training.journal.close()
    found = summary(tmp_path)
    assert "\x1b" not in text(found, color=False)
    colored = text(found, color=True)
    assert "[red]run[/red]" in colored
    assert "\x1b[2J" not in colored
    assert "\x1b]0" not in colored


def test_names_are_whole_on_a_terminal_of_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Job(tmp_path, steps=2).write()
    monkeypatch.setenv("COLUMNS", "80")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", text(summary(tmp_path), color=True))
    assert max(map(len, shown.splitlines())) <= 80
    tables = shown.partition("Calls of worker groups")[2]
    for name in ("actor_rollout", "compute_log_prob", "update_weights", "AgentLoopWorker"):
        assert re.search(rf"^ +(\d+ +|actor_rollout +|){name} ", tables, re.MULTILINE)
    assert "…" not in tables


def test_an_ascii_stream_gets_question_marks_not_an_error(tmp_path: Path) -> None:
    simple_run(tmp_path, ranks=1, steps=60)
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    render(summary(tmp_path), out)
    out.flush()
    assert b"? 36 more steps" in raw.getvalue()


def test_without_rich_a_terminal_gets_plain_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simple_run(tmp_path, ranks=1, steps=1)
    found = summary(tmp_path)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert text(found, color=True) == text(found, color=False)


def test_a_recording_without_training_can_be_shown(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path)
    for start in (1.0, 3.0):
        journal.span(names.USER, start, start * 2, label="mine")
    journal.close()
    shown = text(summary(tmp_path))
    assert re.search(r"Your spans\n.*\n +mine +2 +2\.00 +3\.00 +4\.00\n", shown)
    assert "no training step recorded" in shown
    assert "1 process exited" in shown


def test_calls_of_which_nobody_told_for_whom_are_unknown_and_not_none(tmp_path: Path) -> None:
    trainer = JournalFile(tmp_path)
    trainer.event(names.SESSION, 0.1, session=0, rank=0, world_size=1)
    where: dict[str, Any] = {"session": 0, "step": 1, "mode": "train"}
    rollout = trainer.span(names.ROLLOUT, 1, 2, **where)
    trainer.event(
        names.TRAJECTORIES, 2, **where, batch=rollout, offset=0, total=2, group_size=2,
        prompt_tokens=[1, 1], response_tokens=[2, 3],
    )  # fmt: skip
    trainer.event(names.REWARDS, 2, batch=rollout, function="judge", index=0, values=[1.0, 0.0])
    trainer.close()
    # As the reward workers of verl 0.6 do it.
    worker = JournalFile(tmp_path, 2)
    for start in (1.2, 1.4):
        worker.span(names.REWARD_FN, start, start + 0.1, function="judge", samples=1)
    worker.close()
    found = summary(tmp_path)
    [judge] = found["rewards"]
    assert (judge["values"], judge["mean"]) == (2, 0.5)
    assert (judge["calls"], judge["total_s"]) == (None, None)
    [row] = [line.split() for line in text(found).splitlines() if "judge" in line]
    assert [cell for cell in row if cell not in "│|"] == ["judge", "0.500", "2"]


def test_values_that_nobody_told_are_unknown_and_not_none(tmp_path: Path) -> None:
    """As where the disk had no room for them any more."""
    trainer = JournalFile(tmp_path)
    trainer.event(names.SESSION, 0.1, session=0, rank=0, world_size=1)
    where: dict[str, Any] = {"session": 0, "step": 1, "mode": "train"}
    rollout = trainer.span(names.ROLLOUT, 1, 2, **where)
    trainer.event(
        names.TRAJECTORIES, 2, **where, batch=rollout, offset=0, total=2, group_size=2,
        prompt_tokens=[1, 1], response_tokens=[2, 3],
    )  # fmt: skip
    trainer.span(names.REWARD_FN, 2, 4, batch=rollout, function="judge", samples=2)
    trainer.close()
    found = summary(tmp_path)
    [judge] = found["rewards"]
    told = [judge[name] for name in ("values", "mean", "not_finite", "missing", "calls")]
    assert told == [None, None, None, None, 1]
    [row] = [line.split() for line in text(found).splitlines() if "judge" in line]
    assert [cell for cell in row if cell not in "│|"][:2] == ["judge", "1"]


def test_every_key_is_documented(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path)
    documented = set(re.findall(r"`([a-z_0-9]+)`", REFERENCE.read_text(encoding="utf-8")))

    def keys(value: Any, path: str = "") -> set[str]:
        if isinstance(value, list):
            return set().union(*(keys(item, path) for item in value))
        # These map names found in the recording to counts.
        if not isinstance(value, dict) or path in ("lost", "faults", "states", "ids", "stage_s"):
            return set()
        return set(value).union(*(keys(item, key) for key, item in value.items()))

    assert keys(summary(tmp_path)) - documented == set()


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, ""), (0.0123, "0.012"), (1.234, "1.23"), (12.34, "12.3"), (12345.0, "12,345")],
)
def test_seconds_have_the_digits_that_say_something(value: float | None, expected: str) -> None:
    assert seconds(value) == expected


def test_durations_have_units() -> None:
    assert [duration(value) for value in (1.5, 600, 10_000, 400_000)] == [
        "1.50 s",
        "10.0 min",
        "2.8 h",
        "4.6 days",
    ]


def test_long_names_are_cut() -> None:
    assert clean("a" * 60) == "a" * 47 + "…"
