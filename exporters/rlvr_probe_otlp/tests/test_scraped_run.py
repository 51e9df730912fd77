"""A real job with a real sidecar is scraped while it goes on, as the guide says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from rlvr_probe_otlp.exporter import VARIABLE

from rlvr_probe.probe.election import holder, lock_path, open_lock
from tests.jobs import wait_for
from tests.surroundings import surroundings

pytestmark = pytest.mark.conformance

JOB = """
import os, time
import rlvr_probe
rlvr_probe.attach()
while not os.path.exists("stop"):
    with rlvr_probe.span("work"):
        time.sleep(0.05)
"""
RUN = "one"
PATIENCE_S = 120.0


class Job:
    """A job that ends when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "rlvr-probe-runs" / RUN

    def sidecar(self) -> int | None:
        fd = open_lock(lock_path(self.path))
        found = holder(fd)
        os.close(fd)
        return found

    def page(self) -> str:
        """What its endpoint shows; empty while there is none."""
        for port in self.ports():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as got:
                    return str(got.read().decode())
            except OSError:
                pass
        return ""

    def ports(self) -> list[int]:
        found = []
        with suppress(psutil.Error, ValueError):
            for child in psutil.Process(self.sidecar() or -1).children():
                # A child that reads devices may be gone before it is asked.
                with suppress(psutil.NoSuchProcess):
                    found += child.net_connections("tcp")
        assert {one.laddr.ip for one in found} <= {"127.0.0.1"}
        return [one.laddr.port for one in found if one.status == psutil.CONN_LISTEN]

    def is_over(self) -> bool:
        """Whether the sidecar has closed its journal, after which it only waits to be asked."""
        return any('"end"' in path.read_text() for path in self.path.glob("*.jsonl")
                   if '"sidecar"' in path.read_text())  # fmt: skip

    def busy_s(self) -> float | None:
        """Time that processors of the host were busy, as it is shown; None where it is not."""
        pattern = r'^rlvr_host_cpu_time_seconds_total\{.*rl_run_id="one".*\} (\S+)$'
        found = re.search(pattern, self.page(), re.MULTILINE)
        return float(found[1]) if found else None

    def next_busy_s(self) -> float:
        """That time, as soon as it is shown."""
        shown = 0.0

        def is_shown() -> bool:
            nonlocal shown
            shown = self.busy_s() or 0.0
            return shown > 0

        wait_for(is_shown, PATIENCE_S)
        return shown


@contextmanager
def running(folder: Path, **environ: str) -> Iterator[Job]:
    job = Job(folder)
    (folder / "train.py").write_text(JOB)
    switched = {"RLVR_PROBE_SIDECAR": "1", "RLVR_PROBE_RUN_ID": RUN}
    program = str(Path(sys.executable).with_name("rlvr-probe"))
    process = subprocess.Popen(
        [program, "run", "--", sys.executable, "train.py"],
        cwd=folder, env={**surroundings(), **switched, **environ},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(lambda: job.path.exists(), PATIENCE_S)
        wait_for(lambda: job.sidecar() is not None, PATIENCE_S)
        yield job
        (folder / "stop").touch()
        assert process.wait(PATIENCE_S) == 0
        # What it said last is served until it was scraped.
        wait_for(lambda: not job.page() and job.sidecar() is None, PATIENCE_S)
    finally:
        (folder / "stop").touch()
        process.wait(PATIENCE_S)
        left = job.sidecar()
        if left:
            os.kill(left, signal.SIGKILL)
        lock_path(job.path).unlink(missing_ok=True)


def test_a_run_is_scraped_while_it_goes_on_and_counters_survive_the_sidecar(
    tmp_path: Path,
) -> None:
    with running(tmp_path, **{VARIABLE: "127.0.0.1:0"}) as job:
        before, pid = job.next_busy_s(), job.sidecar()
        assert pid
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: job.sidecar() not in (None, pid), PATIENCE_S)
        assert job.next_busy_s() >= before
        port = job.ports()[0]
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60)


def test_what_a_short_run_said_last_is_served_until_it_was_scraped(tmp_path: Path) -> None:
    with running(tmp_path, **{VARIABLE: "127.0.0.1:0"}) as job:
        wait_for(lambda: job.ports() != [], PATIENCE_S)
        [port] = job.ports()
        pid = job.sidecar()
        (tmp_path / "stop").touch()
        wait_for(job.is_over, PATIENCE_S)
        assert job.sidecar() == pid, "it stays with what is to be asked"
        shown = job.page()
        wait_for(lambda: job.sidecar() is None, PATIENCE_S)
    assert re.search(r'^rlvr_lost_total\{rl_run_id="one"\} 0$', shown, re.MULTILINE)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60)


def test_a_run_that_is_resumed_does_not_wait_for_who_scrapes_what_was_said_last(
    tmp_path: Path,
) -> None:
    with running(tmp_path, **{VARIABLE: "127.0.0.1:0"}) as job:
        wait_for(lambda: job.ports() != [], PATIENCE_S)
        first = job.sidecar()
        (tmp_path / "stop").touch()
        wait_for(job.is_over, PATIENCE_S)
        assert job.sidecar() == first
        (tmp_path / "stop").unlink()
        with running(tmp_path, **{VARIABLE: "127.0.0.1:0"}) as again:
            wait_for(lambda: again.sidecar() not in (None, first), PATIENCE_S)
            wait_for(lambda: again.ports() != [], PATIENCE_S)


def test_nobody_listens_where_nobody_asked_for_it(tmp_path: Path) -> None:
    with running(tmp_path) as job:
        sidecar = psutil.Process(job.sidecar() or -1)
        every = [sidecar, *sidecar.children(recursive=True)]
        assert [one for process in every for one in process.net_connections()] == []
