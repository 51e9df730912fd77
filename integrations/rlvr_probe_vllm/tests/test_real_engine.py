"""Requests to a real engine, which runs without a GPU: what is recorded is what its caller got."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import find_run, read_run
from tests import today, vllm_cpu
from tests.surroundings import surroundings

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(2700)]

CALLER = Path(__file__).with_name("caller.py")
COUNTED = ("prompt_tokens", "response_tokens", "cached_tokens", "finish")
FULL = ("in_process", "asynchronous")


@dataclass(frozen=True)
class Called:
    """What a caller and the recording of it say; ``rows`` are those of requests, by who tells."""

    kind: str
    books: list[dict[str, Any]]
    trace: Trace
    rows: dict[str, list[dict[str, Any]]]


@pytest.fixture(
    scope="module",
    params=["offline", *(pytest.param(kind, marks=pytest.mark.full) for kind in FULL)],
)
def called(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Called:
    """A caller that has ended."""
    kind, folder = str(request.param), tmp_path_factory.mktemp("called")
    python, model = vllm_cpu.python(), vllm_cpu.random_model(folder / "model")
    books, seed = folder / "books.jsonl", today.seed()
    environ = surroundings() | vllm_cpu.VARIABLES
    environ |= {"RLVR_PROBE_OUT": str(folder / "runs"), "RLVR_PROBE_SIDECAR": "0"}
    done = subprocess.run(
        [python, CALLER, kind, model, books, str(seed)],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stdout[-4000:]}"
    run = find_run(folder / "runs")
    lines = books.read_text().splitlines()
    return Called(kind, [json.loads(line) for line in lines], read_run(run), rows_of(run))


def rows_of(run: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows of requests as the journals have them, with the label of the span that they lie in."""
    recorded: dict[str, list[dict[str, Any]]] = {"client": [], "scheduler": []}
    for file in run.glob("*.jsonl"):
        rows = [row for row in map(json.loads, file.read_text().splitlines()) if row]
        kinds = {row[1]: row[3:] for row in rows if isinstance(row, list) and row[0] == "def"}
        spans = [row for row in rows if isinstance(row, list) and type(row[0]) is int]
        labels = {row[3]: row[6] for row in spans if kinds[row[0]][0] == "user"}
        for row in spans:
            name, fields = kinds[row[0]]
            if name == "request":
                values = dict(zip(fields, row[6:], strict=True))
                values |= {"span": labels.get(row[4]), "length_s": row[2] / 1e9}
                recorded[values["told_by"]].append(values)
    return recorded


def counted(requests: Iterable[dict[str, Any]], *also: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(request[name] for name in (*COUNTED, *also)) for request in requests)


def test_every_answer_is_a_request_of_its_lengths_and_its_end(called: Called) -> None:
    [attempt] = called.trace.attempts
    recorded = [{name: getattr(request, name) for name in COUNTED} for request in attempt.requests]
    assert counted(recorded) == counted(called.books)
    assert called.trace.lost == {}
    assert [process.faults for process in called.trace.processes] == [{}] * (
        1 if called.kind == "in_process" else 2
    )


def test_both_sides_tell_of_each_and_the_caller_in_which_span_it_asked(called: Called) -> None:
    assert counted(called.rows["client"], "span") == counted(called.books, "span")
    ended, recorded = (
        counted(row for row in records if row["finish"] != "abort")
        for records in (called.books, called.rows["scheduler"])
    )
    assert ended == recorded
    # What was generated for who no longer waited, only the scheduler has.
    given_up, scheduled = (
        [row["response_tokens"] for row in records if row["finish"] == "abort"]
        for records in (called.books, called.rows["scheduler"])
    )
    assert len(given_up) == len(scheduled) == 1
    assert given_up <= scheduled
    assert called.trace.totals["request"][0] == 2 * len(called.books)


def test_not_all_are_alike(called: Called) -> None:
    """One found its prompt in the cache, one was given up."""
    assert {book["span"] for book in called.books if book["cached_tokens"]} >= {"same prompt"}
    [given_up] = [book for book in called.books if book["finish"] == "abort"]
    assert given_up["span"] == "given up"
    assert 5 <= given_up["response_tokens"] < 400
    assert len({book["response_tokens"] for book in called.books}) > 3


def test_times_are_those_of_vllms_own_statistics(called: Called) -> None:
    """Exactly those where vLLM tells them; without them those of the scheduler."""
    records = [book for book in called.books if book["times"] and book["span"] != "several answers"]
    stated = sorted(measured(row["times"]) for row in records if row["finish"] != "abort")
    recorded = sorted(
        (row["queue_s"], row["prefill_s"], row["decode_s"], row["preemptions"])
        for row in called.rows["client"]
        if "queue_s" in row and row["span"] != "several answers" and row["finish"] != "abort"
    )
    assert stated == recorded
    assert bool(stated) == (called.kind != "asynchronous")


def measured(times: dict[str, Any]) -> tuple[float, float, float, int]:
    queued, scheduled = times["queued_ts"], times["scheduled_ts"]
    first, last = times["first_token_ts"], times["last_token_ts"]
    return scheduled - queued, first - scheduled, last - first, times["num_preemptions"]


def test_queue_prefill_and_decode_are_the_whole_time_in_the_engine(called: Called) -> None:
    for row in called.rows["scheduler"]:
        parts = row["queue_s"], row["prefill_s"], row["decode_s"]
        assert sum(parts) == pytest.approx(row["length_s"], rel=0, abs=1e-8)
        assert min(parts) >= 0
