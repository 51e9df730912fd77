"""Real Ray: every way into its processes, and the user's results in each."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from rlvr_probe_ray.tests.runs import PATIENCE_S, Cluster, Driver, drive

from rlvr_probe.model.trace import Process
from rlvr_probe.recording import read_run

# The first test may have to make the environment, a gigabyte.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3000)]

EVERYTHING = [
    [[11, "1"], [21, "2"]],
    [2, 3, 8],
    [8, 0],
    ["RayTaskError(ValueError)", "ValueError: of the user"],
    ["yes", "yes"],
    ["ActorDiedError"],
]
"""What the driver that starts Ray gets."""

OF_RAY = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Titles of processes of a raylet in which nothing of a user has run."""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """A driver that starts Ray, recorded."""
    return drive("starts", tmp_path_factory.mktemp("starts"))


def whole(driver: Driver, *roles: str) -> None:
    """It is one launch, and its processes are these."""
    [own] = [
        journal for journal in driver.journals if journal.header["pid"] == driver.said["driver"]
    ]
    assert sorted(role for recorded in driver.told.values() for role in recorded) == sorted(roles)
    others = [
        journal for journal in driver.journals if journal.header["pid"] != driver.said["driver"]
    ]
    owners = {journal.header["owner"] for journal in others}
    assert own.of("process")[0]["role"] == "driver"
    assert owners == {own.header["process"]}


def test_a_job_without_a_probe_gives_what_one_with_a_probe_gives(
    started: Driver, tmp_path: Path
) -> None:
    bare = drive("starts", tmp_path, probe=False)
    assert bare.said["results"] == EVERYTHING
    assert started.said["results"] == EVERYTHING
    assert not bare.recordings.exists()


def test_every_worker_process_of_the_session_tells_what_it_is(started: Driver) -> None:
    workers = {
        int(pid): title for pid, title in started.said["workers"].items() if title not in OF_RAY
    }
    unreached = [pid for pid in workers if pid not in started.told]
    assert [workers[pid] for pid in unreached] == ["ray::Counter"], "the one that opted out"
    assert started.unreached == ["Counter"]
    for pid, title in workers.items():
        if pid not in unreached:
            assert title.removeprefix("ray::") in started.told[pid]
    ran = {pid for pid, roles in started.told.items() if roles - {"driver", "task"}}
    # Two were killed: they had told of themselves before.
    assert len(ran - workers.keys()) == 2


def test_what_a_killed_actor_had_recorded_is_there(started: Driver) -> None:
    marked = [
        journal for journal in started.journals if {"label": "before the end"} in journal.of("user")
    ]
    assert len(marked) == 2
    alive = {int(pid) for pid in started.said["workers"]}
    assert not {journal.header["pid"] for journal in marked} & alive


def test_a_process_that_an_actor_starts_belongs_to_it(started: Driver) -> None:
    [child] = [journal for journal in started.journals if {"label": "child"} in journal.of("user")]
    actors = {journal.header["process"] for journal in started.journals if journal.of("process")}
    assert child.header["owner"] in actors
    assert child.header["ppid"] in {int(pid) for pid in started.said["workers"]}


def test_all_of_a_job_is_one_run_without_an_error(started: Driver) -> None:
    [run] = [path for path in started.recordings.iterdir() if path.is_dir()]
    trace = read_run(run)
    assert len(trace.attempts) <= 1
    assert len(trace.processes) == len(started.journals)
    assert sum(len(process.faults) for process in trace.processes) == 0


class Interrupted(NamedTuple):
    """What became of a driver that got Ctrl-C, and of its actors.

    Attributes:
        processes: As they are recorded, by name.
        left: Names of the actors that exited, by their own book.
    """

    processes: Mapping[str, Process]
    left: Set[str]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    """A driver that got Ctrl-C, once all of its processes are gone."""
    folder = tmp_path_factory.mktemp("interrupted")
    driver = drive("interrupted", folder, status=1)
    [run] = [path for path in driver.recordings.iterdir() if path.is_dir()]
    names = {pid: name for name, pid in driver.said.items()}
    until = time.monotonic() + PATIENCE_S
    while any(Path(f"/proc/{pid}").exists() for pid in names) and time.monotonic() < until:
        time.sleep(0.1)
    processes = {names[process.pid]: process for process in read_run(run).processes}
    return Interrupted(processes, {name for name in processes if (folder / name).exists()})


def test_whom_ctrl_c_takes_with_it_is_told_from_who_died_before(interrupted: Interrupted) -> None:
    states = {name: process.state for name, process in interrupted.processes.items()}
    assert states.pop("driver") == "exited"
    assert states.pop("struck") == "died"
    # Ray kills an actor whose driver is gone, or it exits before that; then its own book says so.
    taken = dict.fromkeys(("actor", "other", "none"), "ended_with_training")
    exited = {name for name, state in states.items() if state == "exited"}
    assert states == {**taken, **dict.fromkeys(exited, "exited")}
    assert exited <= interrupted.left


def test_an_actor_tells_which_gpus_ray_gave_it(interrupted: Interrupted) -> None:
    given = {name: process.given for name, process in interrupted.processes.items()}
    assert given["actor"] == given["struck"] != given["other"]
    assert {given["actor"], given["other"]} == {("GPU 0",), ("GPU 1",)}
    assert given["none"] == given["driver"] == ()


@pytest.mark.parametrize(
    ("way", "results"),
    [
        ("submitted", [2, "6", 4]),
        pytest.param("hooked", [2, "7", 4], marks=pytest.mark.full),
    ],
)
def test_a_cluster_that_runs_already_is_reached(
    running: Cluster, tmp_path: Path, way: str, results: list[object]
) -> None:
    driver = drive(way, tmp_path, running.address)
    assert driver.said["results"] == results
    assert driver.unreached == []
    whole(driver, "driver", "Counter", "Counter", "task")


def test_drivers_at_once_on_one_cluster_are_launches_of_their_own(
    running: Cluster, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(
            lambda way: drive(way, tmp_path / way, running.address, RLVR_PROBE_RUN_ID="same"),
            ["joins", "configured"],
        )
    assert (first.said["results"], second.said["results"]) == ([2, "4", 4], [2, "5", 4])
    jobs = []
    for driver in (first, second):
        whole(driver, "driver", "Counter", "Counter", "task")
        ranks = [journal.header for journal in driver.journals if journal.header["owner"]]
        jobs += [{header["ids"]["ray_job_id"] for header in ranks}]
    assert [len(job) for job in jobs] == [1, 1]
    assert jobs[0] != jobs[1]
    keys = [{journal.header["job"] for journal in driver.journals} for driver in (first, second)]
    assert not keys[0] & keys[1]


def test_actors_are_reached_where_ray_was_initialised_before_the_probe(
    running: Cluster, tmp_path: Path
) -> None:
    recordings = tmp_path / "recordings"
    driver = drive("late", tmp_path, running.address, probe=False, ATTACH=str(recordings))
    assert driver.said["results"] == [2, "8", 4, 4, [[11, "1"], [21, "2"]], 5]
    assert driver.unreached == []
    counters = ["Counter"] * 4
    assert sorted(role for recorded in driver.told.values() for role in recorded) == sorted(
        ["driver", "task", "Parent", *counters]
    )
    [own] = [journal for journal in driver.journals if journal.header["owner"] is None]
    assert own.header["pid"] == driver.said["driver"]


def test_a_worker_without_the_package_runs_and_is_named(running: Cluster, tmp_path: Path) -> None:
    driver = drive("elsewhere", tmp_path, running.address)
    assert driver.said["results"] == [2, "9", 4, 2, 2]
    assert driver.unreached == ["Counter", "Hooked"]
    whole(driver, "driver", "Counter", "Counter", "task")


@pytest.mark.full
def test_a_job_is_reached_through_a_ray_client(running: Cluster, tmp_path: Path) -> None:
    driver = drive("client", tmp_path, running.client)
    assert driver.said["results"] == [2, "10", 4]
    assert driver.unreached == []
    whole(driver, "driver", "client_server", "Counter", "Counter", "task")


def test_a_switched_off_probe_adds_nothing(running: Cluster, tmp_path: Path) -> None:
    driver = drive("joins", tmp_path, running.address, RLVR_PROBE_DISABLED="1")
    assert driver.said["results"] == [2, "4", 4]
    assert driver.said["variables"] == ["THEIRS"]
    assert not driver.recordings.exists()
    assert "RLVR_PROBE_DISABLED" not in os.environ
