"""The sidecar of a real run sends it while it goes on, and nothing that it does keeps a job."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from rlvr_probe_otlp.tests.collector import Collector, http_collector
from rlvr_probe_otlp.tests.receiver import identifier, receiver
from rlvr_probe_otlp.tests.test_live import check_whole, once
from rlvr_probe_otlp.tests.test_sending import expected

from rlvr_probe import cli
from rlvr_probe.probe.election import holder, lock_path, open_lock
from rlvr_probe.recording import find_run, read_run
from tests.jobs import Job, wait_for
from tests.surroundings import surroundings

pytestmark = pytest.mark.conformance

LONG_S = 100.0

TRAINING = """
    def reward(rows):
        return [1.0] * len(rows)
    trainer = toyrl.Trainer(reward, steps=10_000, sleep={sleep})
    whole = trainer.one_step
    def one_step():
        if os.path.exists({stop!r}):
            sys.exit(0)
        whole()
    trainer.one_step = one_step
    trainer.train()
"""


CANARIES = {
    place: f"Canary-{place}-4Jq"
    for place in ("prompt", "completion", "exception", "environment", "folder", "header")
}

SECRETIVE = """
    held = [{prompt!r}]
    def verify_it(rows):
        if rows and {completion!r} and trainer.step % 3 == 0:
            raise ValueError({exception!r}, held)
        return [1.0] * len(rows)
    trainer = toyrl.Trainer(verify_it, steps=10_000, sleep=0.05)
    whole = trainer.one_step
    def one_step():
        if os.path.exists({{stop!r}}):
            sys.exit(0)
        try:
            with rlvr_probe.span("a label of mine"):
                whole()
        except ValueError:
            pass
    trainer.one_step = one_step
    trainer.train()
""".format(**CANARIES)


class Training(Job):
    """A training that goes on until it is told to stop."""

    def __init__(self, folder: Path, body: str = TRAINING) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.stop = folder / "stop"
        self._body = body
        self.process: subprocess.Popen[str] | None = None

    def begin(self, endpoint: str, sleep: float = 0.05, **environ: str) -> None:
        self.process = self.start(
            self._body.format(stop=str(self.stop), sleep=sleep),
            env={
                **surroundings(), "RLVR_PROBE_SIDECAR": "1", "RLVR_PROBE_GPU_HZ": "0",
                "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_TIMEOUT": "2",
                **environ,
            },
        )  # fmt: skip

    def end(self) -> None:
        """Let it end; it printed no error."""
        assert self.process is not None
        self.stop.touch()
        assert self.process.communicate(timeout=LONG_S) == ("", "")
        assert self.process.returncode == 0

    @property
    def run_folder(self) -> Path:
        return find_run(self.out)

    def sidecar(self) -> int | None:
        fd = open_lock(lock_path(self.run_folder))
        found = holder(fd)
        os.close(fd)
        return found

    def wait_for_sidecar(self, other_than: int | None = None) -> int:
        wait_for(lambda: self.out.exists() and any(self.out.glob("*/p*")), LONG_S)
        wait_for(lambda: self.sidecar() not in (None, other_than), LONG_S)
        found = self.sidecar()
        assert found
        return found

    def wait_for_its_end(self) -> None:
        wait_for(lambda: self.sidecar() is None, LONG_S)


def children(pid: int) -> set[int]:
    """Processes that a process has started and that are still there."""
    try:
        return {child.pid for child in psutil.Process(pid).children()}
    except psutil.NoSuchProcess:
        return set()


def arguments_of(pid: int) -> list[str]:
    return list(psutil.Process(pid).cmdline())


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    yield from ending(Training(tmp_path / "job"))


@pytest.fixture
def secretive(tmp_path: Path) -> Iterator[Training]:
    yield from ending(Training(tmp_path / CANARIES["folder"], SECRETIVE))


def ending(one: Training) -> Iterator[Training]:
    """See to it that nothing of it is left."""
    yield one
    one.stop.touch()
    if one.process is not None:
        one.process.kill()
        one.process.communicate()
    pid = one.sidecar()
    if pid:
        os.kill(pid, signal.SIGKILL)
    lock_path(one.run_folder).unlink()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with http_collector() as found:
        yield found


def rest(training: Training, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    assert cli.main(["export", str(training.run_folder), "--to", "otlp"]) == 0


def test_a_run_is_sent_while_it_goes_on_and_whole_when_its_sidecar_has_left(
    training: Training, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    training.begin(collector.endpoint)
    wait_for(lambda: len(list(collector.spans())) > 20, LONG_S)
    assert training.process is not None
    assert training.process.poll() is None
    training.end()
    training.wait_for_its_end()
    check_whole(collector, training.run_folder)
    assert once(collector)
    count = len(collector.requests)
    rest(training, collector, monkeypatch)
    assert len(collector.requests) == count


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_another_receiver_has_every_span_and_point_of_a_run_that_was_sent_meanwhile(
    protocol: str, training: Training, tmp_path: Path
) -> None:
    with receiver(tmp_path) as found:
        endpoint = found.http if protocol == "http/protobuf" else found.grpc
        training.begin(endpoint, OTEL_EXPORTER_OTLP_PROTOCOL=protocol, RLVR_PROBE_GPU_HZ="5")
        wait_for(lambda: sum(1 for _ in found.spans()) > 10, LONG_S)
        training.end()
        training.wait_for_its_end()
        there = Counter(
            (identifier(span["trace_id"]), identifier(span["span_id"])) for _, span in found.spans()
        )
        count = sum(1 for _ in found.points())
    spans, points = expected(read_run(training.run_folder))
    assert there == Counter(spans.keys())
    assert count == points.total()


def test_a_sidecar_that_is_killed_ten_times_leaves_no_process_and_sends_each_thing_once(
    training: Training, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A few steps, so that its end is read once more within the time that a sidecar has for that.
    training.begin(collector.endpoint, sleep=0.4)
    pid = training.wait_for_sidecar()
    seen = set[int]()
    for number in range(10):
        if number % 3 == 0:  # also while it sends
            before = len(collector.requests)
            wait_for(lambda: len(collector.requests) > before, LONG_S)  # noqa: B023 - of this round
        seen |= children(pid)
        os.kill(pid, signal.SIGKILL)
        pid = training.wait_for_sidecar(other_than=pid)
    # Of a run that ends before its last sidecar has read so far, the rest is left to `export`.
    before = len(list(collector.spans()))
    wait_for(lambda: len(list(collector.spans())) > before, LONG_S)
    training.end()
    training.wait_for_its_end()
    assert seen
    wait_for(lambda: not any(map(is_alive, seen)), LONG_S)
    check_whole(collector, training.run_folder)
    count = len(collector.requests)
    rest(training, collector, monkeypatch)
    assert len(collector.requests) == count


def test_a_collector_that_hangs_for_good_keeps_neither_the_job_nor_the_sidecar(
    training: Training, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector.hang = hang = threading.Event()
    training.begin(collector.endpoint, OTEL_EXPORTER_OTLP_TIMEOUT="1000")
    wait_for(lambda: len(collector.requests) > 0, LONG_S)
    training.end()
    training.wait_for_its_end()
    collector.hang = None
    hang.set()
    [sidecar] = read_run(training.run_folder).sidecars
    assert sidecar.state == "exited"
    assert sidecar.faults == {"live.otlp: Timeout": 1}
    rest(training, collector, monkeypatch)
    check_whole(collector, training.run_folder)


def test_a_collector_that_is_away_is_told_of_in_the_recording(training: Training) -> None:
    training.begin("http://127.0.0.1:9")
    training.wait_for_sidecar()

    def told() -> bool:
        return any(
            b"live.otlp" in path.read_bytes() for path in training.run_folder.glob("p*.jsonl")
        )

    wait_for(told, LONG_S)
    training.end()
    training.wait_for_its_end()
    [sidecar] = read_run(training.run_folder).sidecars
    assert sidecar.faults["live.otlp: refused"] == 1


def test_what_a_collector_refuses_for_good_is_shown_and_keeps_nothing_else_back(
    training: Training, collector: Collector, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    collector.judge = lambda request: 400 if hasattr(request, "resource_metrics") else 200
    training.begin(collector.endpoint)
    wait_for(lambda: len(list(collector.spans())) > 20, LONG_S)
    training.end()
    training.wait_for_its_end()
    trace = read_run(training.run_folder)
    spans, points = expected(trace)
    assert {(one.trace_id.hex(), one.span_id.hex()) for _, one in collector.spans()} == spans.keys()
    [sidecar] = trace.sidecars
    # The points of the end of the run are more after it was said that some were refused.
    assert 0 < sidecar.faults["live.otlp: rejected"] <= points.total()
    assert cli.main(["show", str(training.run_folder)]) == 0
    assert "live.otlp: rejected" in capsys.readouterr().out
    collector.judge = lambda request: 200
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    command = ["export", str(training.run_folder), "--to", "otlp", "--rejected"]
    assert cli.main(command) == 0
    check_whole(collector, training.run_folder)


def test_what_must_not_leave_a_training_is_in_nothing_that_is_sent_of_it(
    secretive: Training, collector: Collector
) -> None:
    secretive.begin(
        collector.endpoint,
        SECRET=CANARIES["environment"],
        OTEL_EXPORTER_OTLP_HEADERS=f"x-key={CANARIES['header']}",
    )
    pid = secretive.wait_for_sidecar()
    wait_for(lambda: len(list(collector.spans())) > 60, LONG_S)
    arguments = [arguments_of(one) for one in (pid, *children(pid))]
    assert len(arguments) == 2
    assert CANARIES["header"] not in str(arguments)
    assert collector.endpoint not in str(arguments)
    secretive.end()
    secretive.wait_for_its_end()
    check_whole(collector, secretive.run_folder)
    sent = [one.SerializeToString() for one in collector.traces]
    sent += [one.SerializeToString() for one in collector.metrics]
    sent += [str({**one, "x-key": ""}).encode() for one in collector.requests]
    kept = [path.read_bytes() for path in secretive.run_folder.iterdir() if path.is_file()]
    assert [text for text in CANARIES.values() if any(text.encode() in one for one in sent)] == []
    assert [text for text in CANARIES.values() if any(text.encode() in one for one in kept)] == []
    assert {one["x-key"] for one in collector.requests} == {CANARIES["header"]}
    # What does leave, as the documentation says: names, and the types of errors.
    assert any(b"a label of mine" in one for one in sent)
    assert any(b"ValueError" in one for one in sent)


def test_nothing_is_sent_where_it_is_switched_off(training: Training, collector: Collector) -> None:
    training.begin(collector.endpoint, RLVR_PROBE_LIVE="0")
    pid = training.wait_for_sidecar()
    until = time.monotonic() + 1
    while time.monotonic() < until:
        assert children(pid) == set()
    training.end()
    training.wait_for_its_end()
    assert collector.requests == []
