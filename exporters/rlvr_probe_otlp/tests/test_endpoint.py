"""What an endpoint shows of a run that goes on is what is counted of it afterwards."""

from __future__ import annotations

import re
import socket
import stat
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from rlvr_probe_otlp import PrometheusEndpoint
from rlvr_probe_otlp.exporter import VARIABLE, address_of
from rlvr_probe_otlp.planning.device_metrics import PERIOD_NS
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.scraping import endpoint
from rlvr_probe_otlp.scraping.endpoint import FILE, Endpoint
from rlvr_probe_otlp.scraping.exposition import CONTENT_TYPE, Board
from rlvr_probe_otlp.scraping.http_server import PATH
from rlvr_probe_otlp.tests.recordings import MADE, gpu, read, truth
from rlvr_probe_otlp.tests.test_window import given, grown

from rlvr_probe.doctor.environment import examine_settings
from rlvr_probe.exceptions import ConfigError, ProbeError
from rlvr_probe.exporter import LiveExporter, LiveSession
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording.follow.window import Window
from tests import today
from tests.jobs import wait_for

LATER = 1 << 62
SAMPLE = re.compile(r"^(\w+\{[^}]*\}) (\S+)$", re.MULTILINE)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Closes what a test opens."""
    with ExitStack() as stack:
        yield stack


def listening(opened: ExitStack, folder: Path) -> Endpoint:
    folder.mkdir(exist_ok=True)
    session = PrometheusEndpoint().open(folder, {VARIABLE: "127.0.0.1:0"})
    opened.callback(session.close, 0.0)
    return session


def scrape(session: Endpoint, path: str = PATH) -> str:
    host, port = session.address
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=60) as reply:
        assert reply.headers["Content-Type"] == CONTENT_TYPE
        return str(reply.read().decode())


def status(session: Endpoint, path: str = PATH) -> int:
    try:
        scrape(session, path)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    return 200


def samples(text: str) -> dict[str, float]:
    found = {name: float(value) for name, value in SAMPLE.findall(text)}
    assert len(found) == sum(not line.startswith("#") for line in text.splitlines())
    return found


def expected(trace: Trace) -> dict[str, float]:
    board = Board({"rl.run.id": trace.run})
    for unit in Plan(trace, histograms="explicit").units():
        board.take(unit.points)
    return samples(board.page().decode())


@pytest.mark.parametrize("made", today.some(list(MADE), 2))
def test_at_the_end_it_shows_what_is_exported_of_the_run(
    made: str, tmp_path: Path, opened: ExitStack
) -> None:
    growing = grown(made, tmp_path)
    session = listening(opened, growing.folder)
    window = opened.enter_context(closing(Window(growing.folder, growing.machine)))
    last = dict[str, float]()
    for _ in growing.rounds(30):
        for over in given(window):
            session.steps(over.window, over.steps, over.until_ns)
            shown = samples(scrape(session))
            back = [
                name
                for name, value in last.items()
                if "_total{" in name and not shown.get(name, -1.0) >= value
            ]
            assert back == [], "a counter never goes back"
            missing = {name: value for name, value in shown.items() if "rlvr_lost" in name}
            assert [*missing.values()] == [0], "of a window, more is absent than is lost"
            last = shown
    assert last, "something was shown while the run went on"
    trace = read(growing.folder, tmp_path)
    session.end(trace)
    shown, whole = samples(scrape(session)), expected(trace)
    if made == "gpus":
        # A mean of the last seconds may be of a window that was cut elsewhere.
        assert shown.keys() == whole.keys()
        whole = {name: value for name, value in whole.items() if "hw_id" not in name}
        shown = {name: shown[name] for name in whole}
    assert sorted(shown.keys() ^ whole.keys()) == []
    assert shown == pytest.approx(whole)


def test_gpus_are_shown_while_a_step_goes_on(tmp_path: Path, opened: ExitStack) -> None:
    growing = grown("gpus", tmp_path)
    session = listening(opened, growing.folder)
    window = opened.enter_context(closing(Window(growing.folder, growing.machine)))
    energy = list[float]()
    for _ in growing.rounds(60):
        for over in given(window):
            session.steps(over.window, over.steps, over.until_ns)
            shown = samples(scrape(session))
            energy += [value for name, value in shown.items()
                       if name.startswith("hw_energy_joules_total") and gpu(1) in name]  # fmt: skip
    assert energy == sorted(energy)
    assert len(set(energy)) >= 3


def test_what_a_gpu_drew_while_nobody_read_it_is_shown(tmp_path: Path, opened: ExitStack) -> None:
    growing = grown("away at 14 s", tmp_path)
    session = listening(opened, growing.folder)
    window = opened.enter_context(closing(Window(growing.folder, growing.machine)))
    for _ in growing.rounds(10):
        for over in given(window):
            session.steps(over.window, over.steps, over.until_ns)
    trace = read(growing.folder, tmp_path)
    session.end(trace)
    shown = samples(scrape(session))
    for number in range(2):
        drawn = {name: value for name, value in shown.items() if gpu(number) in name}
        [drawn_j] = [drawn[name] for name in drawn if name.startswith("hw_energy_joules_total")]
        [device] = [one for one in trace.devices if one.uuid == gpu(number)]
        begin_ns = device.readings["fast"].times_ns[0]
        real, end_ns = truth(1.0 + number), begin_ns + 3 * PERIOD_NS
        expected_j = real.energy_j(end_ns) - real.energy_j(begin_ns)
        assert drawn_j == pytest.approx(expected_j, abs=1.0)


def test_started_anew_it_shows_nothing_before_it_has_come_as_far(
    tmp_path: Path, opened: ExitStack
) -> None:
    folder = tmp_path / "run"
    MADE["actors"](folder)
    trace = read(folder, tmp_path)
    steps = [step for attempt in trace.attempts for step in attempt.steps]
    first = listening(opened, folder)
    first.steps(trace, steps[:3], LATER)
    before = samples(scrape(first))
    again = listening(opened, folder)
    seen = list[int]()
    for step in steps:
        seen.append(status(again))
        again.steps(trace, [step], LATER)
    assert seen == [503, 503, 503, 200]
    after = samples(scrape(again))
    assert [name for name in before if "_total{" in name and after[name] < before[name]] == []


def test_it_shows_what_there_is_if_it_never_comes_as_far(
    tmp_path: Path, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    MADE["actors"](folder)
    trace = read(folder, tmp_path)
    (folder / FILE).write_text("1000 0\n")
    assert status(listening(opened, folder)) == 503
    monkeypatch.setattr(endpoint, "_PATIENCE_S", 0.0)
    session = listening(opened, folder)
    assert status(session) == 503, "nothing at all was counted yet"
    session.steps(trace, [], LATER)
    assert status(session) == 200


@pytest.mark.parametrize("text", today.some(["", "1", "a b", "1 2 3", "\xff", "9" * 5000], 2))
def test_a_damaged_note_of_how_far_it_came_is_none(
    text: str, tmp_path: Path, opened: ExitStack
) -> None:
    folder = tmp_path / "run"
    MADE["actors"](folder)
    (folder / FILE).write_text(text, encoding="latin-1")
    session = listening(opened, folder)
    session.steps(read(folder, tmp_path), [], LATER)
    assert status(session) == 200


def test_a_step_that_comes_again_is_counted_once(tmp_path: Path, opened: ExitStack) -> None:
    folder = tmp_path / "run"
    MADE["actors"](folder)
    trace = read(folder, tmp_path)
    session = listening(opened, folder)
    for step in [step for attempt in trace.attempts for step in attempt.steps]:
        session.steps(trace, [step], LATER)
        session.steps(trace, [step], LATER)
    assert samples(scrape(session)) == pytest.approx(expected(trace))


def test_what_it_keeps_is_for_the_user_alone(tmp_path: Path, opened: ExitStack) -> None:
    folder = tmp_path / "run"
    MADE["actors"](folder)
    trace = read(folder, tmp_path)
    listening(opened, folder).steps(trace, [], LATER)
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600
    assert read(folder, tmp_path).notes == trace.notes


def test_what_processes_say_they_lost_is_shown_and_does_not_go_back(
    tmp_path: Path, opened: ExitStack
) -> None:
    folder = tmp_path / "run"
    MADE["died"](folder)
    trace = read(folder, tmp_path)
    session = listening(opened, folder)
    first, *others = trace.processes
    lost = {"queue_full": 7, "unjoined_turns": 3}
    told = replace(first, lost=lost, faults={"hook: ValueError": 2})
    session.steps(replace(trace, processes=[told, *others]), [], LATER)
    session.steps(replace(trace, processes=others, open_spans=[]), [], LATER)
    shown = samples(scrape(session))
    assert {name: value for name, value in shown.items() if "rlvr_" in name.partition("{")[0]} == {
        'rlvr_lost_total{rl_run_id="run-1",rlvr_lost_reason="queue_full"}': 7,
        'rlvr_lost_total{rl_run_id="run-1"}': 0,
        'rlvr_faults_total{rl_run_id="run-1"}': 2,
        'rlvr_spans_open{rl_run_id="run-1"}': 0,
    }


def test_what_is_open_is_shown_as_long_as_it_is(tmp_path: Path, opened: ExitStack) -> None:
    folder = tmp_path / "run"
    MADE["died"](folder)
    trace = read(folder, tmp_path)
    session = listening(opened, folder)
    session.steps(trace, [], LATER)
    assert 'rlvr_spans_open{rl_run_id="run-1",rlvr_span="step"}' in samples(scrape(session))
    session.steps(replace(trace, open_spans=[]), [], LATER)
    left = {name: value for name, value in samples(scrape(session)).items() if "open" in name}
    assert left == {'rlvr_spans_open{rl_run_id="run-1"}': 0}


def test_where_nothing_can_be_noted_it_goes_on(tmp_path: Path, opened: ExitStack) -> None:
    folder = tmp_path / "run"
    MADE["actors"](folder)
    trace = read(folder, tmp_path)
    session = listening(opened, folder)
    (folder / f"{FILE}.new").symlink_to(tmp_path / "elsewhere")
    session.steps(trace, [], LATER)
    assert status(session) == 200
    assert not (tmp_path / "elsewhere").exists()


def test_it_is_wanted_only_where_an_address_is_given() -> None:
    exporter = PrometheusEndpoint()
    assert isinstance(exporter, LiveExporter)
    assert not exporter.wanted({})
    assert not exporter.wanted({VARIABLE: " "})
    assert exporter.wanted({VARIABLE: "127.0.0.1:9464"})


def test_its_variable_is_known_to_the_doctor() -> None:
    settings, _ = examine_settings({VARIABLE: ":9464", "RLVR_PROBE_PROMETEUS": "x"}, None)
    assert settings.variables == {VARIABLE: ":9464"}
    assert settings.unknown_variables == ("RLVR_PROBE_PROMETEUS",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("9464", ("127.0.0.1", 9464)),
        (":9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:9464", ("::1", 9464)),
        ("node-1:9464", ("node-1", 9464)),
    ],
)
def test_without_a_host_an_address_is_loopback(text: str, expected: tuple[str, int]) -> None:
    assert address_of(text) == expected


@pytest.mark.parametrize(
    "text", ["", "localhost", "127.0.0.1:", "127.0.0.1:65536", ":-1", ":\u0661"]
)
def test_what_is_no_address_is_an_error_that_names_the_variable(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"{VARIABLE} is .*expected an address like 127"):
        PrometheusEndpoint().open(tmp_path, {VARIABLE: text})


def test_an_address_that_another_process_has_is_an_error(tmp_path: Path, opened: ExitStack) -> None:
    port = listening(opened, tmp_path).address[1]
    with pytest.raises(ProbeError, match=f"{VARIABLE}: cannot listen on 127.0.0.1:{port}"):
        PrometheusEndpoint().open(tmp_path, {VARIABLE: f"127.0.0.1:{port}"})


def test_nothing_but_the_page_is_served(tmp_path: Path, opened: ExitStack) -> None:
    session: LiveSession = listening(opened, tmp_path)
    assert isinstance(session, Endpoint)
    assert [status(session, path) for path in ("/", "/metrics/..", "/etc/passwd")] == [404] * 3
    host, port = session.address
    request = urllib.request.Request(f"http://{host}:{port}{PATH}", data=b"x")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=60)
    with caught.value as answer:
        assert answer.code == 501


def test_connections_that_say_nothing_keep_nobody_from_the_page(
    tmp_path: Path, opened: ExitStack
) -> None:
    MADE["actors"](tmp_path / "run")
    session = listening(opened, tmp_path / "run")
    session.steps(read(tmp_path / "run", tmp_path), [], LATER)
    for _ in range(8):
        opened.enter_context(closing(socket.create_connection(session.address)))
    assert status(session) == 200


@pytest.mark.parametrize("asked", [True, False])
def test_what_was_said_last_is_served_once_whether_anybody_asked_before_or_not(
    asked: bool, tmp_path: Path
) -> None:
    MADE["actors"](tmp_path / "run")
    trace = read(tmp_path / "run", tmp_path)
    session = PrometheusEndpoint().open(tmp_path / "run", {VARIABLE: ":0"})
    if asked:
        session.steps(trace, [], LATER)
        assert status(session) == 200
    session.end(trace)
    closed = threading.Thread(target=session.close, args=(10_000.0,), daemon=True)
    closed.start()
    assert samples(scrape(session)) == pytest.approx(expected(trace))
    closed.join(120)
    assert not closed.is_alive()


def test_a_page_from_before_the_last_counts_is_not_what_was_said_last(tmp_path: Path) -> None:
    MADE["died"](tmp_path / "run")
    trace = read(tmp_path / "run", tmp_path)
    session = PrometheusEndpoint().open(tmp_path / "run", {VARIABLE: ":0"})
    session.steps(trace, [], LATER)
    before, _ = session.page() or (0, b"")
    session.end(trace)
    after, _ = session.page() or (0, b"")
    assert after > before + 1, "steps, and what is missing for good"
    session.close(0.0)


def test_what_is_behind_an_endpoint_before_it_is_served_at_the_end(
    tmp_path: Path, opened: ExitStack
) -> None:
    MADE["actors"](tmp_path / "run")
    (tmp_path / "run" / FILE).write_text("1000 0\n")
    session = PrometheusEndpoint().open(tmp_path / "run", {VARIABLE: ":0"})
    session.end(read(tmp_path / "run", tmp_path))
    assert status(session) == 503
    closed = threading.Thread(target=session.close, args=(10_000.0,), daemon=True)
    closed.start()
    wait_for(lambda: status(session) == 200, 60)
    closed.join(120)
    assert not closed.is_alive()


@pytest.mark.parametrize("counted", [True, False])
def test_who_has_nothing_to_say_or_no_time_does_not_wait(counted: bool, tmp_path: Path) -> None:
    MADE["actors"](tmp_path / "run")
    session = PrometheusEndpoint().open(tmp_path / "run", {VARIABLE: ":0"})
    if counted:
        session.end(read(tmp_path / "run", tmp_path))
    closed = threading.Thread(
        target=session.close, args=(0.0 if counted else 10_000.0,), daemon=True
    )
    closed.start()
    closed.join(120)
    assert not closed.is_alive()
