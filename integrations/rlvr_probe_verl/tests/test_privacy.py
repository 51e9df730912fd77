"""Texts planted in prompts, tools, rewards and exceptions are nowhere in what is kept of a job."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rlvr_probe_verl.tests.runs import DEATHS, JOB, SCENARIOS, Finished, Runner

from tests.exported import exported

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3000)]

JOBS = {
    "0.5": SCENARIOS["0.5"],
    "0.9_v1": SCENARIOS["0.9_v1"],
    "verifier": DEATHS["verifier"],
    "0.9_tools": SCENARIOS["0.9_tools"],
}
every_job = pytest.mark.parametrize(
    "planted",
    [
        "0.5",
        "0.9_v1",
        pytest.param("verifier", marks=pytest.mark.full),
        pytest.param("0.9_tools", marks=pytest.mark.full),
    ],
)


@pytest.fixture
def run(runner: Runner, planted: str) -> Finished:
    return runner.finished(JOBS[planted])


def canaries() -> dict[str, str]:
    sys.path.insert(0, str(JOB))
    try:
        from verl_cpu_books import CANARY
    finally:
        sys.path.remove(str(JOB))
    return dict(CANARY)


def kept(run: Finished) -> Iterator[tuple[str, bytes]]:
    for path in run.recording.rglob("*"):
        yield f"the name of {path.name}", path.relative_to(run.recording).as_posix().encode()
        if path.is_file():
            yield path.name, path.read_bytes()
    yield from exported(run.recording)


def forms(text: str) -> Iterator[re.Pattern[bytes]]:
    yield re.compile(re.escape(text.encode()), re.IGNORECASE)
    for shift in range(3):  # base64 of the text wherever it starts in what was encoded
        encoded = base64.b64encode(bytes(shift) + text.encode())
        yield re.compile(re.escape(encoded[4 if shift else 0 : -4]))


@every_job
def test_a_canary_appears_nowhere(run: Finished) -> None:
    result = [
        (place, name)
        for place, text in canaries().items()
        for name, held in kept(run)
        for form in forms(text)
        if form.search(held)
    ]
    assert result == []


@every_job
def test_paths_appear_nowhere(run: Finished) -> None:
    for path in (run.folder, Path.home(), JOB):
        result = [name for name, held in kept(run) if bytes(path) in held]
        assert result == [] or path == Path("/")


@every_job
def test_no_request_and_no_sample_is_found_by_its_tokens(run: Finished) -> None:
    whole = b"".join(held for _, held in kept(run))
    lists = [line["output"] for line in run.truth.requests]
    lists += [output for line in run.truth.generations for output in line["outputs"]]
    long_ones = [ids for ids in lists if len(ids) >= 6]
    assert long_ones
    for ids in long_ones:
        assert not re.search(rb"[\s,]+".join(str(token).encode() for token in ids[:6]), whole)


@pytest.mark.full
def test_the_canaries_were_really_there(runner: Runner) -> None:
    text = canaries()
    assert text["exception"] in runner.finished(JOBS["verifier"]).output
    assert text["exception"] in runner.finished(JOBS["0.9_tools"]).output
