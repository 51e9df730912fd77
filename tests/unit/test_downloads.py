"""What the tests download: what becomes of a test where it cannot be had."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from tests import debian, wheels


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Sequence[object]]:
    """Commands that were run, in place of programs that find no network."""
    found: list[Sequence[object]] = []

    def run(command: Sequence[object], **_: object) -> NoReturn:
        found.append(command)
        raise subprocess.CalledProcessError(100, "program", stderr="nothing answers")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(wheels, "KEPT", tmp_path)
    for module in (wheels, debian):
        monkeypatch.setattr(module, "_failed", {})
    return found


def wheel() -> object:
    return wheels.unpacked("some", "some==1\n")


def program() -> object:
    if not debian._KEYRING.exists():
        pytest.skip("this machine is no Debian")
    return debian.program("some", "usr/bin/some")


@pytest.mark.parametrize(
    ("get", "there", "variables", "outcome"),
    [
        (wheel, True, {"CI": "true"}, AssertionError),
        (wheel, True, {}, pytest.skip.Exception),
        (program, True, {"CI": "true"}, AssertionError),
        (program, False, {"CI": "true"}, pytest.skip.Exception),
        (program, True, {}, pytest.skip.Exception),
    ],
)
def test_what_cannot_be_had_is_tried_once_and_fails_only_where_it_should_be_there(
    get: Callable[[], object],
    there: bool,
    variables: dict[str, str],
    outcome: type[BaseException],
    asked: list[Sequence[object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(debian, "_is_there", lambda: there)
    counts = list[int]()
    for _ in range(2):
        with pytest.raises(outcome, match="some could not be downloaded: nothing answers"):
            get()
        counts.append(len(asked))
    assert counts[0] == counts[1] > 0


def test_a_program_that_does_not_end_says_so() -> None:
    assert "timed out" in wheels.said(subprocess.TimeoutExpired("pip", 900, stderr=b"x"))
