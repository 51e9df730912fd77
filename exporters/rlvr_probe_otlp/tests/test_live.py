"""A run that is sent while it goes on is there in the end, whatever becomes of the collector."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from rlvr_probe_otlp.exporter import OTLPExporter
from rlvr_probe_otlp.live import LiveExport
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.tests.collector import GONE, Collector, http_collector
from rlvr_probe_otlp.tests.recordings import MADE
from rlvr_probe_otlp.tests.test_sending import check_all_there, expected, received
from rlvr_probe_otlp.wire import transport
from rlvr_probe_otlp.wire.offsets import FILE

from rlvr_probe import cli
from rlvr_probe.exceptions import ConfigError, ProbeError
from rlvr_probe.exporter import LiveExporter, LiveSession
from rlvr_probe.model.trace import Step, Trace
from rlvr_probe.recording import read_run
from rlvr_probe.recording.follow import growing_journal, window
from rlvr_probe.sidecar import live
from rlvr_probe.sidecar.live import Children
from tests import today
from tests.actors import Job
from tests.disks import fill, tmpfs
from tests.growing import Growing

__all__ = ["tmpfs"]

LONG_S = 120.0


@pytest.fixture(autouse=True)
def environment(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is refused is not tried again within one request.
    monkeypatch.setattr(transport, "_FIRST_S", 1_000.0)
    monkeypatch.setattr(live, "_LOOK_S", 0.02)
    monkeypatch.setattr(live, "_LONGEST_WAIT_S", 0.1)
    # Between two rounds of a recording nobody flushes, for however long a busy machine takes.
    monkeypatch.setattr(window, "_PATIENCE_S", 1e9)


def four_steps(folder: Path) -> None:
    Job(folder, steps=4, prompts=2, group_size=3).write()


class Run:
    """A recording that comes into being, with a process that seems to make it."""

    def __init__(self, growing: Growing, process: subprocess.Popen[bytes]) -> None:
        self.folder = growing.folder
        self.growing = growing
        self._process = process
        self._over = threading.Event()
        self._raised: list[BaseException] = []
        self._thread = threading.Thread(target=self._export, daemon=True)

    def start(self) -> None:
        """Begin to hand it over in a thread, where the sidecar has a process."""
        self._thread.start()

    def _export(self) -> None:
        try:
            live.export(self.folder, LiveExport(self.folder, os.environ), self._over)
        except ProbeError as error:
            self._raised.append(error)

    def die(self) -> None:
        """Nobody records any more."""
        self._process.kill()
        self._process.wait()

    def end(self) -> list[BaseException]:
        """The run is over; what the live export complains of in the end."""
        self.die()
        self._over.set()
        self._thread.join(LONG_S)
        assert not self._thread.is_alive()
        return self._raised


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    processes = list[subprocess.Popen[bytes]]()

    def made(write: Callable[[Path], object] = four_steps, place: Path | None = None) -> Run:
        folder = tmp_path / str(len(processes))
        source = folder / f"run-{len(processes)}"
        write(source)
        one = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        processes.append(one)
        growing = Growing(source, (place or folder) / "run", folder / "proc")
        growing.belong_to(one.pid)
        return Run(growing, one)

    yield made
    for one in processes:
        one.kill()
        one.communicate()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what the live export does by itself."""
    until = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)


def check_whole(collector: Collector, folder: Path) -> None:
    """The collector has what an export of the whole recording sends, each thing with one content.

    What it got twice it got with the same ids and the same content.
    """
    check_all_there(collector, read_run(folder))
    said = {
        (span.trace_id, span.span_id, span.SerializeToString()) for _, span in collector.spans()
    }
    assert len(said) == len({(trace, span) for trace, span, _ in said})


def once(collector: Collector) -> bool:
    spans = Counter((span.trace_id, span.span_id) for _, span in collector.spans())
    return {*spans.values(), *received(collector).values()} == {1}


def rest(folder: Path) -> int:
    return cli.main(["export", str(folder), "--to", "otlp"])


@pytest.mark.parametrize(
    ("made", "protocol"),
    today.some(
        [
            *((made, "http/protobuf") for made in ("ranks", "actors", "gpus", "died")),
            ("actors", "grpc"),
        ],
        3,
    ),
)
def test_a_run_is_there_when_it_is_over_and_each_thing_once(
    made: str, make: Callable[..., Run], collector: Collector
) -> None:
    run = make(MADE[made])
    run.start()
    for _ in run.growing.rounds(20):
        pass
    assert run.end() == []
    check_whole(collector, run.folder)
    assert once(collector)
    count = len(collector.requests)
    assert rest(run.folder) == 0
    assert len(collector.requests) == count


def test_steps_are_there_while_the_run_goes_on(make: Callable[..., Run], http: Collector) -> None:
    run = make()
    run.start()
    seen = list[int]()
    times = run.growing.times
    for number in range(1, 5):
        run.growing.write(times[(len(times) - 1) * number // 4])
        if number > 1:
            before = seen[-1] if seen else 0
            wait_until(lambda: len(list(http.spans())) > before)  # noqa: B023 - of this round
            seen.append(len(list(http.spans())))
    assert seen == sorted(set(seen))
    assert run.end() == []
    check_whole(http, run.folder)


@pytest.mark.parametrize("status", today.some([GONE, 429, 503, 500], 1))
def test_a_collector_that_is_away_for_a_while_gets_everything(
    status: int, make: Callable[..., Run], http: Collector
) -> None:
    http.answer = lambda number: 200 if number < 2 or number > 8 else status
    run = make()
    run.start()
    for _ in run.growing.rounds(10):
        pass
    wait_until(lambda: len(http.requests) > 9)
    assert run.end() == []
    check_whole(http, run.folder)
    assert once(http)


def test_a_collector_that_hangs_for_a_while_gets_everything(
    make: Callable[..., Run], http: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    http.hang = threading.Event()
    run = make()
    run.start()
    for _ in run.growing.rounds(10):
        pass
    wait_until(lambda: len(http.requests) > 2)
    http.hang.set()
    http.hang = None
    assert run.end() == []
    check_whole(http, run.folder)


def test_a_run_that_ends_while_the_collector_is_away_is_sent_afterwards(
    make: Callable[..., Run], http: Collector
) -> None:
    http.answer = lambda number: 200 if number < 2 else 503
    run = make()
    run.start()
    for _ in run.growing.rounds(10):
        pass
    [error] = run.end()
    assert "did not take" in str(error)
    http.answer = lambda number: 200
    assert rest(run.folder) == 0
    check_whole(http, run.folder)
    assert once(http)


def test_the_end_of_a_run_that_is_too_large_is_left_to_export_and_that_is_said(
    make: Callable[..., Run], http: Collector, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(live, "_WHOLE_B", 1_000)
    run = make()
    run.start()
    for _ in run.growing.rounds(10):
        pass
    assert run.end() == []
    assert capfd.readouterr().out == "end_not_sent 1\ndone 1\n", "which the sidecar hears"
    plan = Plan(read_run(run.folder))
    steps = {one.trace_id for unit in plan.units() if unit.title.startswith("step")
             for one in unit.traces}  # fmt: skip
    assert {span.trace_id.hex() for _, span in http.spans()} == steps
    assert rest(run.folder) == 0
    check_whole(http, run.folder)
    assert once(http)


def test_nobody_listens_from_the_start(
    make: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        run = make()
        run.start()
        for _ in run.growing.rounds(10):
            pass
        assert len(run.end()) == 1
    with http_collector() as there:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", there.endpoint)
        assert rest(run.folder) == 0
        check_whole(there, run.folder)


def test_without_room_for_notes_everything_is_sent_once_and_noted_later(
    make: Callable[..., Run], http: Collector, tmpfs: Callable[[str], Path]
) -> None:
    disk = tmpfs("size=4m")
    run = make(place=disk)
    *some, last = run.growing.times
    run.growing.write(some[len(some) * 3 // 4])
    filler = fill(disk)
    run.start()
    wait_until(lambda: len(http.traces) > 0)
    count = len(http.traces)
    assert (run.folder / FILE).read_bytes() == b""
    filler.unlink()
    run.growing.write(last)
    wait_until(lambda: len(http.traces) > count)
    assert run.end() == []
    check_whole(http, run.folder)
    assert once(http)
    requests = len(http.requests)
    assert rest(run.folder) == 0
    assert len(http.requests) == requests


class Killed(Exception):
    """The process was."""


class Mortal(LiveExport):
    """Is killed after it handed over so much, once it has sent that."""

    def __init__(self, folder: Path, lives: int) -> None:
        super().__init__(folder, os.environ)
        self._left = lives

    def steps(self, window: Trace, steps: Sequence[Step], until_ns: int) -> None:
        super().steps(window, steps, until_ns)
        self._left -= 1
        if not self._left:
            raise Killed


@pytest.mark.conformance
def test_an_export_that_is_killed_ten_times_sends_each_thing_once(
    make: Callable[..., Run], http: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing_journal, "_SLICE_B", 2_000)
    monkeypatch.setattr(live, "_READ_B", 2_000)
    run = make(lambda folder: Job(folder, steps=30, prompts=2, group_size=3).write())
    run.growing.leave_out("end")
    assert list(run.growing.rounds(100))
    counts = list[int]()
    for life in range(10):
        session = Mortal(run.folder, 1 + life)
        with pytest.raises(Killed):
            live.export(run.folder, session, threading.Event())
        counts.append(len(list(http.spans())))
    assert counts == sorted(set(counts))
    run.start()
    assert run.end() == []
    check_whole(http, run.folder)
    assert once(http)


def test_two_runs_at_once_do_not_mix(make: Callable[..., Run], http: Collector) -> None:
    runs = [make(), make()]
    for run in runs:
        run.start()
    for one in runs:
        for _ in one.growing.rounds(5):
            pass
    assert [run.end() for run in runs] == [[], []]
    plans = [expected(read_run(run.folder)) for run in runs]
    there = {(span.trace_id.hex(), span.span_id.hex()) for _, span in http.spans()}
    assert there == {*plans[0][0], *plans[1][0]}
    assert not plans[0][0].keys() & plans[1][0].keys()
    assert received(http) == plans[0][1] + plans[1][1]
    assert len(list(http.spans())) == len(there)


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://h:1"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1", "OTEL_TRACES_EXPORTER": "none",
          "OTEL_METRICS_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "h", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)  # fmt: skip
def test_a_run_is_sent_where_the_environment_names_a_collector(
    variables: dict[str, str], wanted: bool
) -> None:
    exporter = OTLPExporter()
    assert isinstance(exporter, LiveExporter)
    assert exporter.wanted(variables) is wanted
    assert live.wanted(variables)[0] == (["otlp"] if wanted else [])


def test_what_cannot_be_is_a_fault_of_the_recording_and_starts_nothing(tmp_path: Path) -> None:
    told = list[tuple[str, str, int]]()
    children = Children(tmp_path, lambda *fault: told.append(fault))
    children.begin({"OTEL_EXPORTER_OTLP_ENDPOINT": "h:1"})
    children.look(1)
    children.stop(0)
    assert told == [("live.otlp", "ConfigError", 1)]


def test_what_cannot_be_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        OTLPExporter().open(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": "h"})
    session: LiveSession = OTLPExporter().open(
        tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1"}
    )
    session.close(1.0)
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
