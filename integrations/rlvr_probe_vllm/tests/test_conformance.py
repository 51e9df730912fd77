"""What is recorded of requests is what vLLM itself says of them; its own code is run, no GPU.

One process for each release and scene: vLLM takes half a minute to import on a busy machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_vllm.tests import releases

from rlvr_probe.model.requests import Request
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from tests.surroundings import surroundings
from tests.wheels import numbers

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(1200)]

HERE = Path(__file__).parent
NEWEST, *EARLIER = releases.RUN
MEASURED = (
    ("num_prompt_tokens", "prompt_tokens"),
    ("num_generation_tokens", "response_tokens"),
    ("num_cached_tokens", "cached_tokens"),
    ("queued_time", "queue_s"),
    ("prefill_time", "prefill_s"),
    ("decode_time", "decode_s"),
    ("num_preemptions", "preemptions"),
    ("finish_reason", "finish"),
)
"""Names in vLLM's statistics and in ours."""

Played = tuple[Any, Path]
"""What a script printed, and the folder of its recordings."""


def play(release: str, script: str, out: Path) -> Played:
    folder, dependencies = releases.run(release)
    path = os.pathsep.join(map(str, (folder, dependencies)))
    environ = surroundings()
    environ |= {
        "PYTHONPATH": path,
        "RLVR_PROBE_OUT": str(out),
        "RLVR_PROBE_SIDECAR": "0",
    }
    environ |= {"RLVR_PROBE_OWN_SHARE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    command = [sys.executable, str(HERE / script)]
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), out


def releases_since(first: str) -> list[Any]:
    """Those that are run: the newest one always, earlier ones where there is time."""
    earlier = [release for release in EARLIER if numbers(release) >= numbers(first)]
    return [NEWEST, *(pytest.param(release, marks=pytest.mark.full) for release in earlier)]


# What stands in for a model is enough for schedulers since then.
@pytest.fixture(scope="module", params=releases_since("0.17"))
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Scheduler and OutputProcessor in one process."""
    return play(request.param, "engine.py", tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="module", params=releases_since("0.11"))
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """An OutputProcessor that is fed by hand."""
    return play(request.param, "scene.py", tmp_path_factory.mktemp("scene"))


def found(played: Played, name: str) -> tuple[Trace, list[Request]]:
    trace = read_run(played[1] / name)
    assert trace.lost == {}
    assert [process.faults for process in trace.processes] == [{}]
    [attempt] = trace.attempts
    return trace, list(attempt.requests)


def figures(records: dict[str, Any]) -> tuple[Any, ...]:
    """One request as vLLM's statistics have it."""
    return tuple(records.get(theirs) for theirs, _ in MEASURED)


def recorded(request: Request, records: dict[str, Any]) -> tuple[Any, ...]:
    """The same as it was recorded, without what a release's statistics do not tell."""
    return tuple(getattr(request, ours) if theirs in records else None for theirs, ours in MEASURED)


def test_every_request_is_there_once_though_both_sides_tell_of_it(engine: Played) -> None:
    trace, requests = found(engine, "stats")
    assert trace.totals["request"][0] == 2 * len(requests)
    assert len(requests) == len(engine[0]["stats"]["finished"]) + 1
    assert trace.attempts[0].unjoined_requests == len(requests)


def test_every_figure_is_that_of_vllms_own_statistics(engine: Played) -> None:
    records = engine[0]["stats"]["finished"]
    ended = [request for request in found(engine, "stats")[1] if request.finish != "abort"]
    assert sorted(map(figures, records)) == sorted(
        recorded(request, records[0]) for request in ended
    )
    # Not all alike: one waited, one found its prompt in the cache, one lost its place.
    assert {request.queue_s for request in ended} == {0.0, 0.0625, 0.125}
    assert {request.cached_tokens for request in ended} == {0, 16}
    assert sum(request.preemptions or 0 for request in ended) == 1


def test_a_request_that_is_given_up_while_it_waits_was_never_scheduled(engine: Played) -> None:
    [request] = [request for request in found(engine, "stats")[1] if request.finish == "abort"]
    assert (request.prompt_tokens, request.response_tokens) == (12, 0)
    assert (
        request.queue_s,
        request.prefill_s,
        request.decode_s,
        request.cached_tokens,
    ) == (None,) * 4


def test_without_vllms_statistics_everything_is_known_all_the_same(engine: Played) -> None:
    """They are off by default in an offline ``LLM``, and under verl."""
    assert engine[0]["none"] == {"finished": []}
    known, without = (
        [figures_of(request) for request in found(engine, name)[1]] for name in ("stats", "none")
    )
    assert known == without


def figures_of(request: Request) -> tuple[Any, ...]:
    return tuple(getattr(request, ours) for _, ours in MEASURED)


def test_the_side_that_asks_tells_what_vllm_tells_it(asked: Played) -> None:
    said = asked[0]["stats"]
    _, requests = found(asked, "stats")
    given_up = [request for request in requests if request.finish == "abort"]
    ended = [request for request in requests if request.finish != "abort"]
    records = said["finished"]
    assert sorted(map(figures, records)) == sorted(
        recorded(request, records[0]) for request in ended
    )
    assert len(ended) == sum(len(counts) for _, _, counts, _, _ in said["outputs"]) == 4
    assert {request.queue_s for request in ended} == {0.5}
    assert {request.decode_s for request in ended} == {0.0, 1.75}
    # Given up after its first token, and before it.
    assert sorted((request.response_tokens, request.prefill_s) for request in given_up) == [
        (0, None),
        (1, 0.75),
    ]


def test_where_vllm_tells_no_times_none_are_recorded(asked: Played) -> None:
    said = asked[0]["none"]
    _, requests = found(asked, "none")
    assert said["finished"] == []
    for request in requests:
        assert (request.queue_s, request.prefill_s, request.decode_s, request.preemptions) == (
            None,
        ) * 4
    answers = [count for _, _, counts, _, _ in said["outputs"] for count in counts]
    assert sorted(request.response_tokens or 0 for request in requests) == sorted([*answers, 0, 1])


def test_vllm_does_the_same_with_the_probe_and_without(asked: Played) -> None:
    plays = [asked[0][name] for name in ("before", "stats", "after")]
    for said in plays:
        assert said["left"] == 0
        for request in said["finished"]:
            del request["e2e_latency"]
    assert plays[0] == plays[1] == plays[2]
    assert sorted(path.name for path in asked[1].iterdir() if path.is_dir()) == [
        "none",
        "queued",
        "stats",
    ]


def test_a_request_is_its_callers_though_another_task_ends_it(asked: Played) -> None:
    trace, requests = found(asked, "queued")
    assert [request.response_tokens for request in requests] == [2, 2]
    [file] = asked[1].glob("queued/*.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    definitions = {row[1]: row[3] for row in rows if isinstance(row, list) and row[0] == "def"}
    spans = [row for row in rows if isinstance(row, list) and type(row[0]) is int]
    parents = {row[4] for row in spans if definitions[row[0]] == "request"}
    assert parents == {row[3] for row in spans if definitions[row[0]] == "user"}
    assert len(trace.user_spans) == len(parents) == 2
