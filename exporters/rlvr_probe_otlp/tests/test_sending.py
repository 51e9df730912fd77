"""What arrives at a collector, and what is done about one that is away, slow or refuses."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_otlp.planning.data_model import PlannedSpan, Snapshot
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.tests.collector import (
    EACH_PROTOCOL,
    Collector,
    attributes,
    grpc_collector,
    http_collector,
)
from rlvr_probe_otlp.tests.recordings import MADE, planned, read

from rlvr_probe import cli
from rlvr_probe.model.trace import Trace
from tests import today
from tests.actors import Job
from tests.disks import fill, tmpfs

__all__ = ["check_all_there", "expected", "export", "received", "tmpfs"]


@contextmanager
def impatient() -> Iterator[None]:
    """The SDK waits for 1, 2, 4, ... s where that fits into its time: here it does not."""
    with pytest.MonkeyPatch.context() as settings:
        settings.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
        yield


@pytest.fixture(autouse=True)
def environment(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a small run takes several requests."""
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "100")


def export(run: Path, *more: str) -> int:
    return cli.main(["export", str(run), "--to", "otlp", *more])


def expected(trace: Trace) -> tuple[dict[tuple[str, str], PlannedSpan], Counter[tuple[Any, ...]]]:
    spans, points = dict[tuple[str, str], PlannedSpan](), Counter[tuple[Any, ...]]()
    for unit in Plan(trace).units():
        for one in unit.traces:
            spans.update({(span.trace_id, span.span_id): span for span in one.spans})
        for point in unit.points:
            said = sorted(point.attributes.items(), key=str)
            value: Any = point.value
            if isinstance(value, Snapshot):
                value = (value.sum, value.count, value.scale, tuple(value.counts))
            start = 0 if point.kind == "gauge" else point.start_ns
            points[point.metric, point.unit, str(said), point.time_ns, start, value] += 1
    return spans, points


def received(collector: Collector) -> Counter[tuple[Any, ...]]:
    found = Counter[tuple[Any, ...]]()
    for metric, point in collector.points():
        said = sorted(attributes(point.attributes).items(), key=str)
        value: Any
        start = point.start_time_unix_nano
        if metric.HasField("exponential_histogram"):
            assert point.zero_count + sum(point.positive.bucket_counts) == point.count
            value = (point.sum, point.count, point.scale, tuple(point.positive.bucket_counts))
        else:
            value = point.as_double if point.HasField("as_double") else point.as_int
        found[metric.name, metric.unit, str(said), point.time_unix_nano, start, value] += 1
    return found


def check_all_there(collector: Collector, trace: Trace) -> None:
    """Every planned span and point is there with what it says, and nothing else is."""
    spans, points = expected(trace)
    there = {
        (one.trace_id.hex(), one.span_id.hex()): (said, one) for said, one in collector.spans()
    }
    assert there.keys() == spans.keys()
    assert len(spans) > 30
    for key, (said, one) in there.items():
        plan = spans[key]
        assert one.parent_span_id.hex() == (plan.parent_id or "")
        assert one.name == plan.name
        assert (one.start_time_unix_nano, one.end_time_unix_nano) == (plan.start_ns, plan.end_ns)
        assert attributes(one.attributes) == dict(plan.attributes)
        assert one.kind == {"internal": 1, "server": 2, "client": 3}[plan.kind]
        assert (one.status.code == 2) is plan.failed
        assert [
            (link.trace_id.hex(), link.span_id.hex(), attributes(link.attributes))
            for link in one.links
        ] == [(link.trace_id, link.span_id, dict(link.attributes)) for link in plan.links]
        assert said["service.instance.id"] == trace.processes[plan.process].key
        assert said["service.name"] == "rlvr-training"
    assert received(collector).keys() == points.keys()


@pytest.mark.parametrize(
    ("made", "protocol"),
    today.some([*((made, "http/protobuf") for made in MADE), ("actors", "grpc")], 3),
)
def test_everything_that_is_planned_arrives_once(
    made: str, collector: Collector, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    MADE[made](tmp_path / "run")
    assert export(tmp_path / "run") == 0
    trace = read(tmp_path / "run", tmp_path)
    if made == "died":
        # On this machine nobody can tell whether those processes run.
        trace.processes[:] = [_unknown(one) for one in trace.processes]
    check_all_there(collector, trace)
    assert received(collector) == expected(trace)[1]
    assert Counter(
        Counter((s.trace_id, s.span_id) for _, s in collector.spans()).values()
    ).keys() == {1}
    assert collector.endpoint in capsys.readouterr().out


def _unknown(process: Any) -> Any:
    from dataclasses import replace

    return replace(process, state="unknown") if process.state == "died" else process


def test_what_was_taken_is_not_sent_again(
    collector: Collector, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(run) == 0
    count = len(collector.requests)
    assert export(run) == 0
    assert len(collector.requests) == count
    assert "units were there already" in capsys.readouterr().out
    assert export(run, "--state", str(run.parent / "elsewhere")) == 0
    assert len(collector.requests) == 2 * count
    check_all_there(collector, read(run, run.parent))


def test_where_it_went_is_not_in_the_recording(collector: Collector, run: Path) -> None:
    assert export(run) == 0
    file = run / "otlp.offsets"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "127.0.0.1" not in file.read_text()
    assert file.read_text().count("\n") == 3 + 1 + 4


def test_a_step_that_came_later_is_sent_alone(collector: Collector, tmp_path: Path) -> None:
    Job(tmp_path / "run", steps=2, end=False).write()
    assert export(tmp_path / "run") == 0
    before = {one.span_id for _, one in collector.spans()}
    Job(tmp_path / "run", steps=3, resumed=2, number=100, begin_ns=60 * 10**9, seed=7).write()
    collector.traces.clear()
    collector.metrics.clear()
    assert export(tmp_path / "run") == 0
    again = {one.span_id for _, one in collector.spans()}
    assert again
    assert not before & again


@EACH_PROTOCOL
@pytest.mark.parametrize("status", today.some([429, 503], 1))
def test_a_collector_that_asks_for_patience_gets_everything_in_the_end(
    status: int, collector: Collector, run: Path
) -> None:
    """Over HTTP by Retry-After where it is there, else by repetitions of the command."""
    collector.answer = lambda number: status if number < 3 else 200
    with impatient():
        for _ in range(3):
            export(run)
    assert len(collector.requests) >= 3
    assert export(run) == 0
    check_all_there(collector, read(run, run.parent))


@pytest.mark.parametrize(
    ("status", "protocol"),
    today.some([*((status, "http/protobuf") for status in (401, 404, 500, 503)), (500, "grpc")], 2),
)
def test_a_collector_that_refuses_is_an_error_that_says_so_and_a_repetition_sends_the_rest(
    status: int, collector: Collector, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collector.answer = lambda number: 200 if number < 1 else status
    with impatient():
        assert export(run) == cli.UNABLE
    error = capsys.readouterr().err
    assert f"{collector.endpoint}" in error
    assert "repeat the command to send the rest" in error
    assert error.count("\n") == 1
    collector.answer = lambda number: 200
    assert export(run) == 0
    check_all_there(collector, read(run, run.parent))


@EACH_PROTOCOL
def test_a_collector_that_was_never_there_is_an_error_in_bounded_time(
    start: Callable[[], AbstractContextManager[Collector]],
    protocol: str,
    run: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with start() as gone:
        endpoint = gone.endpoint
    with impatient():
        assert export(run, "--endpoint", endpoint, "--protocol", protocol) == cli.UNABLE
    assert "repeat the command" in capsys.readouterr().err


@EACH_PROTOCOL
def test_a_collector_that_hangs_does_not_hang_the_export(collector: Collector, run: Path) -> None:
    collector.hang = threading.Event()
    with impatient():
        assert export(run) == cli.UNABLE
    collector.hang.set()
    collector.hang = None
    assert export(run) == 0
    spans, _ = expected(read(run, run.parent))
    assert {(s.trace_id.hex(), s.span_id.hex()) for _, s in collector.spans()} == spans.keys()


@EACH_PROTOCOL
@pytest.mark.parametrize("name", ["gzip", "none"])
def test_compression_headers_and_names_of_the_environment_are_used(
    name: str, collector: Collector, protocol: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", name)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=Canary-header-2Ke")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,host.name=h")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    assert export(run) == 0
    assert {one.get("x-key") for one in collector.requests} == {"Canary-header-2Ke"}
    if protocol != "grpc":
        encodings = {one.get("content-encoding") for one in collector.requests}
        assert encodings == {None if name == "none" else name}
    for said, _ in collector.spans():
        assert said["service.name"] == "mine"
        assert (said["deployment.environment.name"], said["host.name"]) == ("test", "h")
    assert all(b"Canary" not in path.read_bytes() for path in run.iterdir())


def test_limits_of_the_environment_are_kept(
    collector: Collector, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SPAN_LINK_COUNT_LIMIT", "2")
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "3")
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")
    assert export(run) == 0
    found = [one for _, one in collector.spans()]
    assert max(len(one.links) for one in found) == 2
    assert max(len(one.attributes) for one in found) == 3
    assert max(one.dropped_attributes_count for one in found) > 0
    texts = [v for one in found for v in attributes(one.attributes).values() if isinstance(v, str)]
    assert max(map(len, texts)) == 4
    sizes = [
        sum(len(scope.spans) for resource in one.resource_spans for scope in resource.scope_spans)
        for one in collector.traces
    ]
    assert max(sizes) == 10


def test_the_sampler_of_the_environment_chooses_whole_traces(
    collector: Collector, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans, points = expected(read(run, run.parent))
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    assert export(run) == 0
    found = {one.trace_id.hex() for _, one in collector.spans()}
    whole = {trace for trace, _ in spans}
    assert 0 < len(found) < len(whole)
    assert {(s.trace_id.hex(), s.span_id.hex()) for _, s in collector.spans()} == {
        key for key in spans if key[0] in found
    }
    assert received(collector) == points


def test_differences_are_sent_where_they_are_preferred(
    collector: Collector, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    assert export(run) == 0
    kinds = {
        metric.name: getattr(metric, metric.WhichOneof("data")).aggregation_temporality
        for metric, _ in collector.points()
        if metric.WhichOneof("data") != "gauge"
    }
    # What is open now is no difference, whatever is preferred.
    assert kinds.pop("rlvr.spans.open") == 2
    assert {*kinds.values()} == {1}
    steps = [
        point.as_int for metric, point in collector.points() if metric.name == "rl.train.steps"
    ]
    assert steps == [1, 1, 1]


def test_histograms_of_fixed_bounds_are_sent_where_they_are_asked_for(
    collector: Collector, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
    monkeypatch.setenv(name, "explicit_bucket_histogram")
    assert export(run) == 0
    kinds = Counter(metric.WhichOneof("data") for metric, _ in collector.points())
    assert kinds.keys() == {"histogram", "sum", "gauge"}
    shots = {
        (point.metric, point.time_ns, str(sorted(point.attributes.items()))): point.value
        for unit in Plan(read(run, run.parent)).units()
        for point in unit.points
    }
    for metric, point in collector.points():
        if metric.HasField("histogram"):
            where = str(sorted(attributes(point.attributes).items()))
            shot = shots[metric.name, point.time_unix_nano, where]
            assert isinstance(shot, Snapshot)
            assert sum(point.bucket_counts) == point.count == shot.count
            assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
            assert (point.sum, point.min, point.max) == (shot.sum, shot.min, shot.max)


def test_nothing_is_sent_where_the_sdk_is_disabled_or_another_exporter_is_named(
    collector: Collector, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    assert export(run) == 0
    monkeypatch.delenv("OTEL_TRACES_EXPORTER")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "True")
    assert export(run) == 0
    assert collector.requests == []
    monkeypatch.delenv("OTEL_SDK_DISABLED")
    assert export(run) == 0
    assert (len(collector.traces) > 0, len(collector.metrics)) == (True, 0)


def test_no_endpoint_is_an_error_that_says_what_to_set(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(run) == cli.UNABLE
    assert "set OTEL_EXPORTER_OTLP_ENDPOINT" in capsys.readouterr().err
    assert not (run / "otlp.offsets").exists()


GRPC = ("--endpoint", "http://h:1", "--protocol", "grpc")


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (("--endpoint", "localhost"), {}, "not a URL"),
        (("--endpoint", "http://[::1"), {}, "not a URL"),
        (("--endpoint", "http://h", "--protocol", "http/json"), {}, "not spoken here"),
        (("--json",), {}, "give --dry-run too"),
        (GRPC, {"OTEL_EXPORTER_OTLP_COMPRESSION": "deflate"}, "gzip or none"),
        (GRPC, {"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "soon"}, "expected seconds"),
        (("--endpoint", "http://h"), {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "many"}, "a number"),
    ],
)
def test_wrong_settings_are_errors_before_anything_is_sent(
    arguments: tuple[str, ...],
    variables: dict[str, str],
    said: str,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert export(run, *arguments) == cli.UNABLE
    assert said in capsys.readouterr().err


def test_one_signal_can_go_elsewhere_or_nowhere(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_collector() as one, grpc_collector() as other:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{one.endpoint}/deep/v1/traces")
        assert export(run) == 0
        assert {request[":path"] for request in one.requests} == {"/deep/v1/traces"}
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", other.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc")
        assert export(run) == 0
        assert (len(one.metrics), len(other.traces), len(other.metrics) > 0) == (0, 0, True)


def test_a_user_and_a_password_in_the_endpoint_are_not_shown(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with http_collector() as found:
        endpoint = found.endpoint.replace("http://", "http://me:Canary-secret-8Gh@")
        assert export(run, "--endpoint", endpoint) == 0
        found.answer = lambda number: 500
        with impatient():
            assert export(run, "--endpoint", endpoint + "/other") == cli.UNABLE
    printed = capsys.readouterr()
    assert "Canary" not in printed.out + printed.err
    assert found.endpoint in printed.out


def test_two_exports_of_a_run_do_not_run_into_each_other(
    collector: Collector, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collector.hang = threading.Event()
    first = threading.Thread(target=export, args=(run,))
    first.start()
    while not collector.requests:
        first.join(0.01)
        assert first.is_alive()
    assert export(run) == cli.UNABLE
    assert "another export of this run is under way" in capsys.readouterr().err
    collector.hang.set()
    collector.hang = None
    first.join()
    check_all_there(collector, read(run, run.parent))


@pytest.mark.parametrize(
    "line",
    today.some(
        [b"", b"torn", b'["a","b"', b"[1,2,3]\n", b"[" * 100_000 + b"\n", b"\xff\xfe\n", b"{}\n"], 2
    ),
)
def test_a_damaged_note_of_what_was_sent_costs_a_repetition_at_most(line: bytes, run: Path) -> None:
    with http_collector() as collector:
        assert export(run, "--endpoint", collector.endpoint) == 0
        with (run / "otlp.offsets").open("ab") as file:
            file.write(line)
        count = len(collector.requests)
        assert export(run, "--endpoint", collector.endpoint) == 0
        assert len(collector.requests) == count
        notes = (run / "otlp.offsets").read_bytes().splitlines(keepends=True)
        (run / "otlp.offsets").write_bytes(b"".join(notes[:-2])[:-5])
        assert export(run, "--endpoint", collector.endpoint) == 0
        assert len(collector.requests) > count
        assert export(run, "--endpoint", collector.endpoint) == 0


def test_a_folder_that_cannot_be_written_to_asks_for_another_place(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "otlp.offsets").symlink_to(tmp_path / "victim")
    with http_collector() as collector:
        assert export(run, "--endpoint", collector.endpoint) == cli.UNABLE
        assert "--state FILE" in capsys.readouterr().err
        assert (collector.requests, (tmp_path / "victim").exists()) == ([], False)
        state = str(tmp_path / "state")
        assert export(run, "--endpoint", collector.endpoint, "--state", state) == 0


def test_a_note_is_kept_in_a_file_only(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with http_collector() as collector:
        for state in ("/dev/full", "/dev/zero", str(tmp_path / "pipe"), str(tmp_path)):
            assert export(run, "--endpoint", collector.endpoint, "--state", state) == cli.UNABLE
            assert "--state FILE" in capsys.readouterr().err
        assert collector.requests == []


def program(run: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "rlvr_probe.cli", "export", str(run), "--to", "otlp", *more]


def test_a_full_disk_is_an_error_and_costs_a_repetition(collector: Collector, run: Path) -> None:
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (150, 150));"
        "from rlvr_probe import cli; sys.exit(cli.main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", script, *program(run)[3:]]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (cli.UNABLE, 1), ended.stderr
    assert export(run) == 0
    check_all_there(collector, read(run, run.parent))


def test_a_disk_that_is_really_full_is_too(
    collector: Collector, run: Path, tmpfs: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    disk = tmpfs("size=64k")
    state = ("--state", str(disk / "state"))
    filler = fill(disk)
    assert export(run, *state) == cli.UNABLE
    assert capsys.readouterr().err.count("\n") == 1
    filler.unlink()
    assert export(run, *state) == 0
    check_all_there(collector, read(run, run.parent))
    count = len(collector.requests)
    assert export(run, *state) == 0
    assert len(collector.requests) == count


@pytest.mark.parametrize("after", today.some([0, 1, 3], 1))
def test_an_export_that_is_killed_is_finished_by_the_next(
    after: int, collector: Collector, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "20")
    killed = list[subprocess.Popen[bytes]]()
    ready = threading.Event()

    def answer(number: int) -> int:
        if number == after:
            ready.wait()
            killed[0].kill()
            killed[0].wait()
        return 200

    collector.answer = answer
    killed.append(subprocess.Popen(program(run), stdout=subprocess.DEVNULL))
    ready.set()
    assert killed[0].wait() == -signal.SIGKILL
    assert export(run) == 0
    check_all_there(collector, read(run, run.parent))


def test_the_providers_of_the_application_are_not_touched(collector: Collector, run: Path) -> None:
    from opentelemetry import metrics, trace

    before = (trace.get_tracer_provider(), metrics.get_meter_provider())
    assert export(run) == 0
    assert (trace.get_tracer_provider(), metrics.get_meter_provider()) == before
    assert [one.name for one in threading.enumerate() if "otel" in one.name.lower()] == []


def test_the_printed_plan_is_what_arrives(
    collector: Collector, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(run, "--dry-run", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == planned(read(run, run.parent))
    assert collector.requests == []
    assert export(run) == 0
    ids = {
        (one["trace_id"], span["span_id"])
        for unit in printed["units"]
        for one in unit["traces"]
        for span in one["spans"]
    }
    assert {(s.trace_id.hex(), s.span_id.hex()) for _, s in collector.spans()} == ids
