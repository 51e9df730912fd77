"""Canaries planted all over a training appear nowhere in what the probe keeps or says."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rlvr_probe_trl.tests.runs import Finished, Runner, Scenario
from rlvr_probe_trl.tests.train import CANARY, EOS, SPECIAL, token_ids

from tests.exported import exported

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(2000)]

ELSEWHERE = {
    "argv": "Canary-argv-4Ys",
    "environment": "Canary-environment-9Tf",
    "home": "Canary-home-1Lp",
}
PLANTED = Scenario(
    f"--canaries --reward-model --note {ELSEWHERE['argv']}",
    "launcher",
    environment=(f"SECRET={ELSEWHERE['environment']}", f"HOME={{folder}}/{ELSEWHERE['home']}"),
)


RELEASES = ("", "0.17.0", "0.20.0")
"""The installed one, and those whose lengths come from where token ids are."""

EVERY = ["", *(pytest.param(release, marks=pytest.mark.full) for release in RELEASES[1:])]


@pytest.fixture(scope="module")
def runner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runner]:
    runner = Runner(tmp_path_factory.mktemp("privacy"))
    planted = {release: replace(PLANTED, trl=release) for release in RELEASES}
    runner.start_named(request.session, "run", planted)
    yield runner
    runner.close()


@pytest.fixture(scope="module", params=EVERY)
def run(runner: Runner, request: pytest.FixtureRequest) -> Finished:
    return runner.finished(replace(PLANTED, trl=request.param))


def kept(run: Finished) -> Iterator[tuple[str, bytes]]:
    _, workload = run.workload
    for root in (run.folder / "recordings", workload):
        for path in root.rglob("*"):
            yield f"the name of {path.name}", path.relative_to(root).as_posix().encode()
            if path.is_file():
                yield path.name, path.read_bytes()
    for recording in sorted((run.folder / "recordings").iterdir()):
        if recording.is_dir():
            yield from exported(recording)
    yield "output", run.output.encode()


def forms(text: str) -> Iterator[re.Pattern[bytes]]:
    yield re.compile(re.escape(text.encode()))
    for shift in range(3):  # base64 of the text wherever it starts in what was encoded
        encoded = base64.b64encode(bytes(shift) + text.encode())
        yield re.compile(re.escape(encoded[4 if shift else 0 : -4]))
    yield re.compile(rb"[\s,]+".join(str(token).encode() for token in token_ids(text)))


def test_the_forms_are_found_where_they_are() -> None:
    text = CANARY["prompt"]
    for hidden in (
        f"x{text}y",
        *(base64.b64encode(("ab"[:n] + text + "c").encode()).decode() for n in range(3)),
        str(token_ids(text)),
    ):
        assert any(form.search(hidden.encode()) for form in forms(text)), hidden


def test_the_canaries_were_really_there(run: Finished) -> None:
    completion = [*token_ids(CANARY["completion"]), EOS]
    books = (run.folder / "books" / "result-0.json").read_text()
    assert str(completion) in books
    shortest = len(CANARY["prompt"]) + len("0+0=?\n")
    lengths = [group["input"] for _, groups in run.truth.batches for group in groups]
    assert min(lengths) > shortest
    assert run.truth.batches[0][1][0]["output"][0] == len(completion)
    assert len(SPECIAL) == min(token_ids("0"))


@pytest.mark.parametrize("place", [*CANARY, *ELSEWHERE])
def test_a_canary_appears_nowhere(run: Finished, place: str) -> None:
    text = {**CANARY, **ELSEWHERE}[place]
    result = [name for name, held in kept(run) for form in forms(text) if form.search(held)]
    assert result == []


def test_the_home_folder_and_the_working_directory_appear_nowhere(run: Finished) -> None:
    for path in (run.folder, Path.home()):
        result = [name for name, held in kept(run) if name != "output" and bytes(path) in held]
        assert result == [] or path == Path("/")
