"""What a collector refuses for good keeps nothing else back, is told, and can be sent again."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_otlp import live as otlp_live
from rlvr_probe_otlp.live import LiveExport
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.tests.collector import EACH_PROTOCOL, Collector, http_collector
from rlvr_probe_otlp.tests.recordings import read
from rlvr_probe_otlp.tests.test_sending import check_all_there, expected, export
from rlvr_probe_otlp.wire import transport
from rlvr_probe_otlp.wire.answers import Verdict, of_grpc, of_http, seconds_of

from rlvr_probe import cli
from rlvr_probe.exceptions import ProbeError
from tests import today
from tests.actors import Job

WORDS = {
    "http/protobuf": {400: "http_400", 413: "http_413"},
    "grpc": {400: "grpc_invalid_argument", 413: "grpc_resource_exhausted"},
}
LATER = 1 << 62


@pytest.fixture(autouse=True)
def environment(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is refused is not tried again within one request.
    monkeypatch.setattr(transport, "_FIRST_S", 1_000.0)


def spans_of(request: Any) -> list[Any]:
    found = getattr(request, "resource_spans", ())
    return [span for one in found for scope in one.scope_spans for span in scope.spans]


def dislikes(status: int, *spans: tuple[str, str]) -> Callable[[Any], int]:
    """A judge of requests with any of these spans, by trace and span."""

    def judge(request: Any) -> int:
        there = {(span.trace_id.hex(), span.span_id.hex()) for span in spans_of(request)}
        return status if there & set(spans) else 200

    return judge


def keys(run: Path) -> dict[str, set[tuple[str, str]]]:
    """Spans of each unit of the plan."""
    return {
        unit.key: {(span.trace_id, span.span_id) for one in unit.traces for span in one.spans}
        for unit in Plan(read(run, run.parent)).units()
        if unit.traces
    }


def there(collector: Collector) -> set[tuple[str, str]]:
    return {(span.trace_id.hex(), span.span_id.hex()) for _, span in collector.spans()}


@EACH_PROTOCOL
def test_a_step_that_is_refused_for_good_keeps_no_other_back(
    collector: Collector, protocol: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    units = keys(run)
    bad = list(units)[1]
    collector.judge = dislikes(400, min(units[bad]))
    assert export(run) == cli.UNABLE
    error = capsys.readouterr().err
    said = f"{len(units[bad])} spans for good ({WORDS[protocol][400]}: {len(units[bad])};"
    assert said in error
    assert "--rejected" in error
    assert "repeat the command" not in error
    assert there(collector) == {span for unit, one in units.items() if unit != bad for span in one}

    count = len(collector.requests)
    assert export(run) == cli.UNABLE, "the collector still lacks it"
    assert f"{len(units[bad])} spans for good" in capsys.readouterr().err
    assert len(collector.requests) == count, "and was not asked again"

    collector.judge = lambda request: 200
    assert export(run, "--rejected") == 0
    check_all_there(collector, read(run, run.parent))
    count = len(collector.requests)
    assert export(run) == 0
    assert export(run, "--rejected") == 0
    assert len(collector.requests) == count


@EACH_PROTOCOL
def test_what_is_noted_of_a_refusal_is_how_much_and_a_word(
    collector: Collector, protocol: str, run: Path
) -> None:
    units = keys(run)
    bad = next(iter(units))
    collector.judge = dislikes(400, min(units[bad]))
    collector.says = "Canary-says-4Rt"
    assert export(run) == cli.UNABLE
    notes = [json.loads(line) for line in (run / "otlp.offsets").read_text().splitlines()]
    assert [note[1:2] + note[3:] for note in notes if len(note) > 3] == [
        [bad, {WORDS[protocol][400]: len(units[bad])}]
    ]
    assert all(b"Canary" not in path.read_bytes() for path in run.iterdir())


@EACH_PROTOCOL
def test_what_is_too_large_at_once_arrives_in_parts(collector: Collector, run: Path) -> None:
    largest = list[int]()

    def judge(request: Any) -> int:
        if request.ByteSize() > 3_000:
            return 413
        largest.append(request.ByteSize())
        return 200

    collector.judge = judge
    assert export(run) == 0
    check_all_there(collector, read(run, run.parent))
    assert len(list(collector.spans())) == len(there(collector))
    assert max(largest) > 1_200


@EACH_PROTOCOL
def test_a_span_that_is_too_large_by_itself_is_given_up_alone(
    collector: Collector, protocol: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spans, _ = expected(read(run, run.parent))
    bad = sorted(spans)[4]
    collector.judge = dislikes(413, bad)
    assert export(run) == cli.UNABLE
    assert f"refused 1 spans for good ({WORDS[protocol][413]}: 1;" in capsys.readouterr().err
    assert there(collector) == spans.keys() - {bad}


def test_a_collector_for_which_everything_is_too_large_is_not_asked_for_every_span(
    collector: Collector, run: Path
) -> None:
    collector.answer = lambda number: 413
    assert export(run) == cli.UNABLE
    spans, points = expected(read(run, run.parent))
    assert len(collector.requests) < (len(spans) + points.total()) / 2


@EACH_PROTOCOL
@pytest.mark.parametrize("status", today.some([401, 404], 1))
def test_what_what_was_sent_is_no_reason_for_gives_nothing_up(
    status: int, collector: Collector, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collector.answer = lambda number: status
    assert export(run) == cli.UNABLE
    error = capsys.readouterr().err
    said = {401: "the credentials are refused", 404: "the collector does not take this signal"}
    assert said[status] in error
    assert "for good" not in error
    assert len(collector.requests) == 2, "each signal once"
    assert (run / "otlp.offsets").read_bytes() == b""
    collector.answer = lambda number: 200
    assert export(run) == 0
    check_all_there(collector, read(run, run.parent))


def test_an_error_that_a_step_runs_into_keeps_no_other_back_and_is_tried_again(
    collector: Collector, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    units = keys(run)
    bad = list(units)[1]
    collector.judge = dislikes(500, min(units[bad]))
    assert export(run) == cli.UNABLE
    assert "did not take 1 units of traces" in capsys.readouterr().err
    assert there(collector) == {span for unit, one in units.items() if unit != bad for span in one}
    collector.judge = lambda request: 200
    assert export(run) == 0
    check_all_there(collector, read(run, run.parent))


def test_a_collector_that_breaks_at_everything_is_not_asked_for_every_step(
    http: Collector, tmp_path: Path
) -> None:
    Job(tmp_path / "run", steps=40).write()
    http.answer = lambda number: 500
    assert export(tmp_path / "run") == cli.UNABLE
    assert len(http.requests) < 40


@EACH_PROTOCOL
def test_what_a_collector_throws_away_of_what_it_took_is_told_and_not_sent_again(
    collector: Collector, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collector.partial = (3, "Canary-says-4Rt: no room\x1b[2J")
    assert export(run) == cli.UNABLE
    printed = capsys.readouterr()
    count = 3 * len(collector.traces)
    said = (
        f"refused {count} spans for good (partial: {count}; it said: Canary-says-4Rt: no room [2J)"
    )
    assert said in printed.err
    assert f"refused {3 * len(collector.metrics)} points for good" in printed.err
    assert all(b"Canary" not in path.read_bytes() for path in run.iterdir())
    count = len(collector.requests)
    assert export(run) == cli.UNABLE
    assert len(collector.requests) == count
    collector.partial = (0, "")
    assert export(run, "--rejected") == 0
    assert len(collector.requests) == 2 * count
    times = Counter((span.trace_id, span.span_id) for _, span in collector.spans())
    assert set(times.values()) == {2}


@EACH_PROTOCOL
def test_a_warning_of_a_collector_that_took_everything_is_shown(
    collector: Collector, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collector.partial = (0, "please use the new address")
    assert export(run) == 0
    assert "it says: please use the new address" in capsys.readouterr().out


@EACH_PROTOCOL
def test_secrets_that_a_collector_repeats_are_not_shown(
    collector: Collector, run: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20Canary-token-9Xz")
    collector.answer = lambda number: 400
    collector.says = "the token Canary-token-9Xz is not known"
    assert export(run) == cli.UNABLE
    error = capsys.readouterr().err
    assert "the token *** is not known" in error
    assert "Canary" not in error


def test_a_redirect_is_not_followed(
    http: Collector, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=Canary-header-2Ke")
    with http_collector() as elsewhere:
        http.location = f"{elsewhere.endpoint}/v1/traces"
        for status in (301, 307, 308):
            http.answer = lambda number: status  # noqa: B023 - of this round
            assert export(run) == cli.UNABLE
            assert "another address, which is not followed" in capsys.readouterr().err
        assert elsewhere.requests == []
    http.location, http.answer = "", lambda number: 200
    assert export(run) == 0
    check_all_there(http, read(run, run.parent))


class Told(LiveExport):
    """Of a run that is handed over step by step."""

    def __init__(self, run: Path) -> None:
        super().__init__(run, os.environ)
        self.trace = read(run, run.parent)
        self.steps_of_it = [step for one in self.trace.attempts for step in one.steps]

    def hand_over(self) -> None:
        for step in self.steps_of_it:
            self.steps(self.trace, [step], LATER)


def test_live_a_step_that_is_refused_for_good_is_counted_and_keeps_no_other_back(
    collector: Collector, run: Path
) -> None:
    units = keys(run)
    bad = next(iter(units))
    collector.judge = dislikes(400, min(units[bad]))
    session = Told(run)
    session.hand_over()
    session.end(session.trace)
    assert there(collector) == {span for unit, one in units.items() if unit != bad for span in one}
    assert dict(session.faults) == {"rejected": len(units[bad])}
    collector.judge = lambda request: 200
    assert export(run, "--rejected") == 0
    check_all_there(collector, read(run, run.parent))


def test_live_credentials_that_are_refused_wait(collector: Collector, run: Path) -> None:
    collector.answer = lambda number: 401
    session = Told(run)
    with pytest.raises(ProbeError, match="credentials"):
        session.hand_over()
    assert session.faults["credentials"] == 1
    collector.answer = lambda number: 200
    session.hand_over()
    session.end(session.trace)
    check_all_there(collector, session.trace)


def test_live_a_signal_that_nobody_takes_does_not_keep_the_other_back(
    http: Collector, run: Path
) -> None:
    http.judge = lambda request: 404 if hasattr(request, "resource_metrics") else 200
    session = Told(run)
    session.hand_over()
    assert there(http) == {span for one in list(keys(run).values())[:3] for span in one}
    assert session.faults["no_receiver"] == 1
    http.judge = lambda request: 200
    session.end(session.trace)
    check_all_there(http, session.trace)


def test_live_an_error_that_does_not_go_away_is_left_to_export(
    http: Collector, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = keys(run)
    bad = next(iter(units))
    http.judge = dislikes(500, min(units[bad]))
    session = Told(run)
    for _ in range(otlp_live._TRIES - 1):
        with pytest.raises(ProbeError, match="did not take 1 units"):
            session.hand_over()
    session.hand_over()
    assert there(http) == {span for one in list(units.values())[1:3] for span in one}
    assert session.faults["error"] == 1
    http.judge = lambda request: 200
    assert export(run) == 0
    check_all_there(http, session.trace)


def test_live_a_collector_that_asks_for_patience_gets_it(
    http: Collector, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(otlp_live, "clock_s", lambda: now_s[0])
    http.answer = lambda number: 503
    http.retry_after = "60"
    session = Told(run)
    with pytest.raises(ProbeError):
        session.hand_over()
    count = len(http.requests)
    for _ in range(3):
        now_s[0] += 15
        with pytest.raises(ProbeError, match="patience"):
            session.hand_over()
    assert len(http.requests) == count
    http.answer = lambda number: 200
    now_s[0] += 16
    session.hand_over()
    session.end(session.trace)
    check_all_there(http, session.trace)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0.0), ("17", 17.0), ("99999999", 600.0), ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
     ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0), ("", None), (None, None), ("soon", None), ("-5", None),
     ("9" * 400, None), ("\u0661", None)],
)  # fmt: skip
def test_what_a_collector_asks_to_wait_is_bounded(text: str | None, expected: float | None) -> None:
    assert seconds_of(text, 10.0) == expected


def test_codes_that_the_specification_calls_retryable_are_and_no_others() -> None:
    retried = [code for code in range(400, 600) if of_http(code).verdict is Verdict.LATER]
    # 408 is not among those of the specification: it says that the request came too slowly.
    assert retried == [408, 429, 502, 503, 504]
    names = ["CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
             "ALREADY_EXISTS", "PERMISSION_DENIED", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED",
             "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL",
             "UNAVAILABLE", "DATA_LOSS"]  # fmt: skip
    assert [name for name in names if of_grpc(name).verdict is Verdict.LATER] == [
        "CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS",
    ]  # fmt: skip
    assert of_grpc("RESOURCE_EXHAUSTED", "", 0.0).verdict is Verdict.LATER
    assert of_grpc("RESOURCE_EXHAUSTED").verdict is Verdict.TOO_LARGE
