"""Nothing that belongs to the user is in what a job leaves behind."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from rlvr_probe_openrlhf.tests.runs import FULL, JOB, SCENARIOS, Finished

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3000)]

every_job = pytest.mark.parametrize(
    "job",
    [pytest.param(name, marks=pytest.mark.full if name in FULL else ()) for name in SCENARIOS],
)


def kept(run: Finished) -> list[tuple[str, bytes]]:
    """Every file of a recording, by name."""
    files = [path for path in run.recording.rglob("*") if path.is_file()]
    return [(path.name, path.read_bytes()) for path in files]


def canaries() -> dict[str, str]:
    sys.path.insert(0, str(JOB))
    try:
        from openrlhf_cpu_books import CANARY
    finally:
        sys.path.remove(str(JOB))
    return dict(CANARY)


@every_job
def test_no_text_and_no_path_is_in_a_recording(run: Finished) -> None:
    assert canaries()["prompt"] in run.output
    secrets = [text.encode() for text in canaries().values()]
    secrets += [bytes(path) for path in (run.folder, JOB, Path.home()) if path != Path("/")]
    assert [
        (name, secret) for name, held in kept(run) for secret in secrets if secret in held
    ] == []


@every_job
def test_no_request_is_found_by_its_tokens(run: Finished) -> None:
    whole = b"".join(held for _, held in kept(run))
    long_ones = [line["output"] for line in run.truth.requests if len(line["output"]) >= 6]
    assert long_ones
    for ids in long_ones:
        assert not re.search(rb"[\s,]+".join(str(token).encode() for token in ids[:6]), whole)
