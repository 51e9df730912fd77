"""Ray clusters and drivers of the conformance tests, and what drivers left."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rlvr_probe_verl.tests import environments

from tests import wheels
from tests.surroundings import surroundings

__all__ = [
    "Cluster",
    "Driver",
    "Journal",
    "bare_python",
    "cluster",
    "descendants",
    "drive",
    "environment",
    "free_ports",
    "node",
    "python",
    "temporary",
]

TESTS = Path(__file__).parent
VERL = "0.5.0"  # any: its environment has Ray
PATIENCE_S = 240


def python() -> Path:
    """A Python with Ray and this rlvr-probe."""
    return environments.python(VERL)


def bare_python() -> Path:
    """A Python with the same Ray, and without rlvr-probe."""
    pins = (wheels.REQUIREMENTS / "verl.txt").read_text()
    dependencies = wheels.installed("verl-dependencies", pins)

    def fill(folder: Path, _: Path) -> None:
        venv.create(folder, symlinks=True)
        [site_packages] = folder.glob("lib/python*/site-packages")
        (site_packages / "_folders.pth").write_text(f"{dependencies}\n")

    return wheels.made("ray-without-probe", f"{dependencies}\n", fill) / "bin" / "python"


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs before any driver comes."""

    address: str
    client: str
    folder: Path
    """Where it keeps its logs."""


@contextmanager
def cluster(*options: str, **variables: str) -> Iterator[Cluster]:
    """Start one without a probe, and end every process of it.

    Args:
        options: More of ``ray start``.
        variables: What its processes, and jobs that are submitted to it, inherit.
    """
    with temporary() as folder, (folder / "log").open("w+") as log:
        ports = free_ports(2)
        command = [str(python()), "-m", "ray.scripts.scripts", "start", "--head", "--block"]
        command += ["--num-cpus", "4", "--port", str(ports[0]), "--temp-dir", str(folder / "r")]
        command += ["--ray-client-server-port", str(ports[1]), "--include-dashboard", "false"]
        command += ["--disable-usage-stats", *options]
        with _whole(command, log, variables) as started:
            address = announced(folder / "log", r"--address='([^']+)'", started)
            yield Cluster(address, f"ray://127.0.0.1:{ports[1]}", folder)


@contextmanager
def node(cluster: Cluster, interpreter: Path, *options: str, **variables: str) -> Iterator[None]:
    """One more node of a cluster, whose tasks run with ``interpreter``."""
    command = [str(interpreter), "-m", "ray.scripts.scripts", "start", "--block"]
    command += ["--address", cluster.address, "--disable-usage-stats", *options]
    path = cluster.folder / f"{len(list(cluster.folder.glob('log*')))}.log"
    with path.open("w+") as log, _whole(command, log, variables) as started:
        announced(path, r"(Ray runtime started)", started)
        yield


@contextmanager
def _whole(
    command: Sequence[str], log: IO[str], variables: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A process, which is ended with every process of it."""
    started = subprocess.Popen(
        command,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        yield started
    finally:
        whole = descendants(started.pid)
        started.terminate()
        try:
            started.wait(PATIENCE_S)
        finally:
            started.kill()  # nothing, if it is over
            for pid in whole:
                end(pid)


def announced(log: Path, pattern: str, started: subprocess.Popen[bytes]) -> str:
    """What the first group of ``pattern`` is in the log of a process, once it is there."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and started.poll() is None:
        result = re.search(pattern, log.read_text())
        if result is not None:
            return result[1]
        time.sleep(0.2)
    raise AssertionError(log.read_text()[-3000:])


@dataclass(frozen=True)
class Journal:
    """What one process recorded."""

    header: dict[str, Any]
    rows: list[tuple[str, dict[str, Any]]]

    def of(self, name: str) -> list[dict[str, Any]]:
        """Values of every row of this name."""
        return [values for pid, values in self.rows if pid == name]


@dataclass(frozen=True)
class Driver:
    """A driver that returned, and every process it recorded."""

    said: dict[str, Any]
    recordings: Path

    @property
    def journals(self) -> list[Journal]:
        """Of all processes."""
        return [read_journal(path) for path in sorted(self.recordings.rglob("*.jsonl"))]

    @property
    def told(self) -> dict[int, set[str]]:
        """What each process that told of itself said it is, by pid."""
        return {
            journal.header["pid"]: {row["role"] for row in journal.of("process")}
            for journal in self.journals
            if journal.of("process")
        }

    @property
    def unreached(self) -> list[str]:
        """Classes of actors that were asked for and never told of themselves."""
        recorded = {row.get("actor") for journal in self.journals for row in journal.of("process")}
        started = {
            row["actor"]: row["role"] for journal in self.journals for row in journal.of("started")
        }
        return sorted(role for actor, role in started.items() if actor not in recorded)


def drive(
    way: str,
    folder: Path,
    address: str = "-",
    *,
    probe: bool = True,
    status: int = 0,
    **variables: str,
) -> Driver:
    """Run ``job.py`` in one way, recorded by the launcher or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(python()), str(TESTS / "job.py"), way]
    if probe:
        command = [str(python().with_name("rlvr-probe")), "run", "--", *command]
    with temporary() as short:
        done = subprocess.run(
            [*command, str(short), address],
            cwd=folder,
            env=environment(RLVR_PROBE_OUT=str(folder / "recordings"), **variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert (done.returncode, len(lines)) == (status, 1), done.stderr[-6000:]
    return Driver(json.loads(lines[0]), folder / "recordings")


def environment(**variables: str) -> dict[str, str]:
    """What drivers and clusters inherit."""
    # Its token would be of the machine's other clusters, too.
    return {
        # Trainings of other tests hide all GPUs from this process.
        **surroundings("CUDA_VISIBLE_DEVICES"),
        "RAY_AUTH_MODE": "disabled",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": str(TESTS),
        "BARE_PYTHON": str(bare_python()),
        "RLVR_PROBE_SIDECAR": "0",
        **variables,
    }


def read_journal(path: Path) -> Journal:
    """Header, and rows by name with their attributes."""
    header, *lines = (json.loads(line) for line in path.read_bytes().splitlines())
    definitions: dict[int, tuple[str, str, list[str]]] = {}
    rows = []
    for line in lines:
        if line[0] == "def":
            definitions[line[1]] = (line[2], line[3], line[4])
        elif isinstance(line[0], int):
            kind, name, attributes = definitions[line[0]]
            values = line[6:] if kind == "span" else line[3:]
            rows.append((name, dict(zip(attributes, values, strict=False))))
    return Journal(header, rows)


@contextmanager
def temporary() -> Iterator[Path]:
    """A folder with a short path, as the sockets of Ray need it."""
    with tempfile.TemporaryDirectory(prefix="rr", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at, nor will be given: Ray's workers take those below 20,000."""
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    first, last = map(int, given)
    below, all_ports = range(20_000, min(first, 65_000)), range(20_000, 65_000)
    candidates = [*below, *range(max(last + 1, 20_000), 65_000)] or all_ports
    result: list[int] = []
    for port in random.sample(candidates, len(candidates)):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        result.append(port)
        if len(result) == count:
            return result
    raise AssertionError(f"of {len(candidates)} ports {len(result)} are free")


def descendants(pid: int) -> list[int]:
    """Processes that ``pid`` started, and those they started."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    result = [pid]
    for entry in result:
        result += [child for child, parent in parents.items() if parent == entry]
    return result[1:]


def end(pid: int) -> None:
    """End a process of ours that is still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
