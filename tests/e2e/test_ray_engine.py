"""A real Ray cluster says of a run what this machine says of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from rlvr_probe_ray.tests.runs import (
    PATIENCE_S,
    Cluster,
    bare_python,
    cluster,
    environment,
    node,
    python,
)

from rlvr_probe.analysis.characterization import HERE
from rlvr_probe.cli import INTERRUPTED, OK, UNABLE, main
from tests.apart import said
from tests.simulated import FILTERED, TRAINED
from tests.simulator import simulate
from tests.simulator.volume import write_volume

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
TOKEN = uuid4().hex
EXACT = 1e-9
"""How far sums may be apart, as a share: those of several threads add up in any order."""


@pytest.fixture(scope="module")
def whole() -> Iterator[Cluster]:
    """Two nodes of one CPU each."""
    with (
        cluster("--num-cpus", "1", THIS_CLUSTER=TOKEN) as running,
        node(running, python(), "--num-cpus", "1", THIS_CLUSTER=TOKEN),
    ):
        yield running


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated run."""
    run = tmp_path_factory.mktemp("trained") / "run"
    simulate(TRAINED, run)
    return run


def ask(address: str, killed: int, *runs: Path) -> dict[str, Any]:
    """What the cluster says of runs, and how many of its tasks were killed meanwhile."""
    done = subprocess.run(
        [python(), ROOT / "tests" / "e2e" / "ray_driver.py", address, str(killed), *runs],
        env={**variables(address), "THIS_CLUSTER": TOKEN, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def variables(address: str) -> dict[str, str]:
    return environment(**({} if address.startswith("ray://") else {"RAY_ADDRESS": address}))


def start(address: str, *arguments: object) -> subprocess.Popen[str]:
    """The command, with a Python that has Ray."""
    return subprocess.Popen(
        [python().with_name("rlvr-probe"), "characterize", *map(str, arguments)],
        env=variables(address),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def differ(run: Path, there: dict[str, Any]) -> list[str]:
    # It loads trainings, and these hide the GPUs from modules of tests that come later.
    from tests.golden import differences

    return list(differences(said(run, HERE), there, rounding=EXACT))


def test_it_says_the_same_of_runs_of_every_kind(
    whole: Cluster, trained: Path, tmp_path: Path
) -> None:
    from tests.corpus.recordings import RECORDED, folder_of, unpacked

    runs = [folder_of(unpacked(name, tmp_path / name)) for name in RECORDED]
    shutil.copytree(runs[0], tmp_path / "packed")
    assert main(["compact", str(tmp_path / "packed")]) == OK
    simulate(FILTERED, tmp_path / "filtered")
    runs += [tmp_path / "packed", trained, tmp_path / "filtered"]
    answers = ask(whole.address, 0, *runs)["said"]
    assert [difference for run in runs for difference in differ(run, answers[str(run)])] == []


def test_processes_killed_in_the_middle_of_their_tasks_change_nothing(
    whole: Cluster, tmp_path: Path
) -> None:
    write_volume(tmp_path, 100_000)
    answers = ask(whole.address, 2, tmp_path)
    assert answers["killed"] == 2
    assert differ(tmp_path, answers["said"][str(tmp_path)]) == []


@pytest.mark.full
def test_a_client_outside_of_the_cluster_says_the_same(whole: Cluster, trained: Path) -> None:
    assert differ(trained, ask(whole.client, 0, trained)["said"][str(trained)]) == []


def test_the_command_prints_what_it_prints_without(
    whole: Cluster, trained: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["characterize", str(trained)]) == OK
    printed = capfd.readouterr().out
    options = ["--save", tmp_path / "saved", "--html", tmp_path / "page.html"]
    with start(whole.address, trained, "--engine", "ray", *options) as command:
        assert command.communicate(timeout=PATIENCE_S) == (printed, "")
    assert main(["characterize", str(tmp_path / "saved")]) == OK
    assert capfd.readouterr().out == printed


@pytest.mark.parametrize("there", ["nothing", "a part"])
def test_a_run_that_nodes_do_not_see_is_named(
    whole: Cluster, trained: Path, tmp_path: Path, there: str
) -> None:
    """Of files that a node does not see, or not yet whole, rows would count as lost."""
    run = tmp_path / "run"
    run.mkdir()
    for path in trained.glob("*.jsonl*") if there == "a part" else ():
        (run / path.name).write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    # Nobody else sees what lies in a mount of its own.
    shell = (
        f"mount -t tmpfs none {run} && cp -r {trained}/. {run} &&"
        f" exec {python().with_name('rlvr-probe')} characterize {run} --engine ray"
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", shell],
        env=variables(whole.address),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if "unshare" in done.stderr:
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    assert (done.returncode, done.stdout) == (UNABLE, ""), done.stderr
    assert "of the Ray cluster does not see all of" in done.stderr
    assert "expected a folder that all nodes share and may read" in done.stderr


def test_a_node_without_the_package_is_named(whole: Cluster, trained: Path) -> None:
    with (
        node(whole, bare_python(), "--num-cpus", "1"),
        start(whole.address, trained, "--engine", "ray") as command,
    ):
        out, said = command.communicate(timeout=PATIENCE_S)
    assert (command.returncode, out, said.count("\n")) == (UNABLE, "", 1)
    assert "rlvr-probe on node" in said
    assert "found none, expected version" in said


@pytest.mark.full
def test_a_cluster_that_is_not_there_is_named(trained: Path) -> None:
    with start("", trained, "--engine", "ray://127.0.0.1:9") as command:
        out, said = command.communicate(timeout=PATIENCE_S)
    assert (command.returncode, out) == (UNABLE, "")
    assert said.startswith("rlvr-probe: Ray does not reach ray://127.0.0.1:9: ")


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)]
)
def test_it_can_be_interrupted_and_leaves_nothing(
    whole: Cluster, tmp_path: Path, number: signal.Signals
) -> None:
    write_volume(tmp_path / "run", 200_000)
    (tmp_path / "tmp").mkdir()
    os.environ["TMPDIR"] = str(tmp_path / "tmp")
    try:
        command = start(whole.address, tmp_path / "run", "--engine", "ray")
    finally:
        del os.environ["TMPDIR"]
    deadline = time.monotonic() + PATIENCE_S
    while not tasks() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert tasks()
    command.send_signal(number)
    assert command.communicate(timeout=PATIENCE_S) == ("", "")
    assert command.returncode == INTERRUPTED
    while tasks() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert tasks() == []
    assert list((tmp_path / "tmp").glob("rlvr-probe*")) == []


def tasks() -> list[int]:
    """Processes of the cluster that are in a task of the engine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith((b"ray::_decode", b"ray::_answer")):
                environ = path.with_name("environ").read_bytes()
                found += [int(path.parent.name)] if TOKEN.encode() in environ else []
        except OSError:
            pass
    return found
