"""The thread of a suspect is chosen from what py-spy prints, and what goes wrong is said as it is.

A program of a few lines stands for py-spy: what it can print is more than what one can make it do.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.analysis.finding import Finding, Verdict, standing_of
from rlvr_probe.cli import stacks
from rlvr_probe.cli.stacks import stacks_of
from rlvr_probe.model.trace import ProcessState
from rlvr_probe.recording.follow.member import Member, Work
from rlvr_probe.recording.header import Header
from rlvr_probe.report.stuck import lay_out_stuck, stuck_document
from tests.journals import BOOT

PID, THREAD = 100, 107
Spy = Callable[[str], None]


@pytest.fixture
def spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spy:
    """Put a shell script in the place of py-spy."""

    def put(script: str) -> None:
        path = tmp_path / "py-spy"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)
        monkeypatch.setattr(shutil, "which", lambda *_, **__: str(path))

    return put


def printing(*threads: dict[str, Any]) -> str:
    return f"cat <<'END'\n{json.dumps(threads)}\nEND"


def thread(function: str, native: int | None, name: str | None) -> dict[str, Any]:
    frame = {"name": function, "filename": f"/somewhere/{function}.py", "line": 7, "module": None}
    return {"pid": PID, "thread_name": name, "os_thread_id": native, "frames": [frame]}


def suspect(
    pid: int = PID,
    verdict: Verdict = "overdue",
    state: ProcessState = "running",
    native: int | None = THREAD,
) -> Finding:
    header = Header(
        f"{pid:016x}", 0, "run", "job", None, "host", BOOT, pid, 1, 1, 0, 0, "", 1, "", 0, None,
        None, {},
    )  # fmt: skip
    work = Work(1, 0, "turn", "", 0, thread=native)
    return Finding(Member(header, state), work, (), 60.0, 0.0, 20, 1.0, 1.0, 1.0, verdict)


def functions(findings: Sequence[Finding] = (suspect(),)) -> tuple[list[str], str]:
    found, hint = stacks_of(findings)
    return [name for frames in found.values() for name, _, _ in frames], hint


MAIN, MINE = thread("main", PID, "MainThread"), thread("mine", THREAD, "worker")


@pytest.mark.parametrize(
    ("threads", "chosen"),
    [
        ((MAIN, MINE), "mine"),
        ((MAIN, thread("mine", THREAD, None)), "mine"),
        ((MAIN, thread("other", 108, "worker")), "main"),
        # A thread without a name, and nobody of the name that the main one has.
        ((thread("other", 108, None), thread("main", PID, None)), "main"),
        ((thread("other", None, None), thread("main", None, "MainThread")), "main"),
    ],
)
def test_the_thread_of_the_span_is_shown_else_the_main_one(
    spy: Spy, threads: tuple[dict[str, Any], ...], chosen: str
) -> None:
    spy(printing(*threads))
    assert stacks_of([suspect()]) == ({(PID, THREAD): [(chosen, f"{chosen}.py", 7)]}, "")


def test_of_a_process_the_most_suspicious_thread_is_shown_and_where_it_is_at(spy: Spy) -> None:
    """Two things may be open in one thread, and a third in another."""
    spy(printing(MAIN, MINE))
    findings = [suspect(), suspect(), suspect(native=PID), suspect(native=None)]
    found, _ = stacks_of(findings)
    standing = standing_of([one.member for one in findings], findings, 0)
    document = stuck_document("run", findings, standing, found)
    stacks = [one["stack"] and one["stack"][0]["function"] for one in document["findings"]]
    assert stacks == ["mine", "mine", None, None]
    blocks = lay_out_stuck("run", findings, standing, found)
    said = [getattr(block, "text", "").strip() for block in blocks]
    assert [text.startswith("mine ") for text in said[1:6]] == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("verdict", "state", "shown"),
    [
        ("overdue", "running", ["mine"]), ("silent", "running", ["mine"]),
        ("apart", "running", ["mine"]), ("open", "running", []), ("died", "died", []),
    ],
)  # fmt: skip
def test_only_a_suspect_that_runs_is_looked_at(
    spy: Spy, verdict: Verdict, state: ProcessState, shown: list[str]
) -> None:
    spy(printing(MAIN, MINE))
    assert functions([suspect(verdict=verdict, state=state)]) == (shown, "")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo 'Error: Permission denied (os error 13)' >&2; exit 1",
            "py-spy could not read process 100: it takes the right to trace it",
        ),
        (
            "echo 'Error: Operation not permitted (os error 1)' >&2; exit 1",
            "py-spy could not read process 100: it takes the right to trace it",
        ),
        (
            "echo 'Error: No such file or directory (os error 2)' >&2; exit 1",
            "py-spy ended with 1 and said: Error: No such file or directory (os error 2);"
            " expected the threads of process 100",
        ),
        ("kill -9 $$", "py-spy ended with -9 and said: nothing"),
        ("echo nonsense", "py-spy printed something else than the threads of process 100"),
        ("echo '[{\"frames\": null}]'", "py-spy printed something else"),
        ('printf \'[{"thread_name": "\\377"}]\'', "py-spy printed something else"),
        ("echo '[]'", "py-spy found neither the thread of the open span nor the main one among 0,"),
        (
            printing(thread("other", 108, None)),
            "py-spy found neither the thread of the open span nor the main one among 1,",
        ),
    ],
)
def test_what_went_wrong_is_said_as_it_is(spy: Spy, script: str, said: str) -> None:
    spy(script)
    found, hint = functions()
    assert (found, hint[: len(said)]) == ([], said)


def test_only_who_is_refused_is_told_of_rights(spy: Spy) -> None:
    spy("echo 'Error: Failed to find the interpreter' >&2; exit 1")
    assert "ptrace" not in functions()[1]


def test_one_that_takes_too_long_is_ended(spy: Spy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_PATIENCE_S", 0.2)
    spy("exec sleep 600")
    assert functions()[1].startswith("py-spy did not end within 0.2 s, expected the threads")


def test_one_that_cannot_be_started_is_told(spy: Spy, tmp_path: Path) -> None:
    spy("")
    (tmp_path / "py-spy").write_bytes(b"\x7fELF")
    assert functions()[1].startswith("py-spy could not be started ([Errno 8]")


def test_one_that_cannot_be_read_hides_none_that_can(spy: Spy) -> None:
    spy(f'[ "$5" = {PID} ] || exit 3\n{printing(MAIN, MINE)}')
    found, hint = functions([suspect(99), suspect()])
    assert found == ["mine"]
    assert hint.startswith("py-spy ended with 3")
