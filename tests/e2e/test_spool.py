"""A run with a spool: its folder is a recording at any moment, and whole once the run is over.

Real jobs, sidecars and movers. A file server that hangs is one of FUSE that is stopped, where that
can be mounted, and elsewhere a mover that is stopped: nobody else ever asks the server. Where a
test needs a moment in the life of a sidecar it waits for it.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rlvr_probe.exceptions import RecordingError
from rlvr_probe.model.trace import Trace
from rlvr_probe.probe.election import holder, lock_path, open_lock
from rlvr_probe.recording import find_run, read_run
from rlvr_probe.spool import find, home
from tests.fuse import mounted
from tests.jobs import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no spool but on Linux")

# Records and notes what it did until the file `stop` is there.
JOB = """
import os, sys, time
import rlvr_probe
rlvr_probe.attach(out={out!r}, run_id={run!r})
log = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def work(seconds=0.002):
    while not os.path.exists({stop!r}):
        with rlvr_probe.span("work"):
            time.sleep(seconds)
        os.write(log, b"x")
"""


# It waits for what it wrote to be moved, however busy the machine is.
PATIENT = "from rlvr_probe.probe import election\nelection._HAND_OVER_NS = 60_000_000_000\n"

# It waits for that in vain, and need not wait for long.
HASTY = "from rlvr_probe.probe import election\nelection._HAND_OVER_NS = 200_000_000\n"


class Run:
    """A script that records into a spool, and what there is of it."""

    def __init__(self, folder: Path, run: str = "one") -> None:
        self.folder = folder
        self.out = folder / "runs"
        self.run = run
        self.stop = folder / f"stop-{run}"
        self.log = folder / f"log-{run}"
        self.place = folder / "disk"
        self.environ = {
            **os.environ,
            "RLVR_PROBE_SIDECAR": "1",
            "RLVR_PROBE_SPOOL": str(self.place),
            "RLVR_PROBE_GPU_HZ": "0",
            "RLVR_PROBE_OWN_SHARE": "1",
        }

    @property
    def path(self) -> Path:
        return self.out / self.run

    @property
    def spool(self) -> Path | None:
        return find(self.path, self.environ)

    @property
    def done(self) -> int:
        """Spans of the job, by its own books."""
        return self.log.stat().st_size

    def script(self, body: str) -> Path:
        names = {"out": self.out, "run": self.run, "stop": self.stop, "log": self.log}
        path = self.folder / f"{self.run}.py"
        head = JOB.format(**{name: str(value) for name, value in names.items()})
        path.write_text(head + textwrap.dedent(body))
        return path

    def start(self, body: str = "work()", **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(self.script(body))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environ | environ,
        )

    def end(self, process: subprocess.Popen[str]) -> None:
        self.stop.touch()
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")

    def sidecar(self) -> int | None:
        fd = open_lock(lock_path(self.path))
        found = holder(fd)
        os.close(fd)
        return found

    def wait_for_sidecar(self) -> int:
        wait_for(lambda: self.sidecar() is not None, 60)
        return self.sidecar() or 0

    def mover(self) -> int | None:
        """Pid of the process that moves the spool; None if there is none yet, or not any more."""
        sidecar = self.sidecar()
        return next((pid for pid in children(sidecar) if comm(pid) == "rlvr-spool"), None)

    def wait_for_mover(self) -> int:
        wait_for(lambda: self.mover() is not None, 60)
        return self.mover() or 0

    def wait_until_moved(self) -> None:
        wait_for(lambda: self.sidecar() is None and self.spool is None, 60)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "rlvr_probe.cli", *arguments],
            capture_output=True,
            text=True,
            env=self.environ,
            timeout=60,
        )


def children(pid: int | None) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def kill(*pids: int | None) -> None:
    for pid in pids:
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def moved(run: Run) -> Trace:
    """What is in the run folder alone, as a machine without the spool reads it."""
    assert "RLVR_PROBE_SPOOL" not in os.environ
    return read_run(run.path)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    clean(made)


def clean(run: Run) -> None:
    run.stop.touch()
    kill(run.mover(), run.sidecar())
    lock_path(run.path).unlink()
    if run.spool is not None:
        shutil.rmtree(run.spool)


def test_a_run_lies_in_its_folder_whole_and_nothing_stays_on_the_disk_of_the_node(one: Run) -> None:
    process = one.start(f"{PATIENT}work()")
    # Its own and the sidecar's, in whatever order: each is moved behind its journal.
    wait_for(lambda: one.path.is_dir() and len(list(one.path.glob("p*.open"))) == 2, 60)
    spool = one.spool
    assert spool is not None
    while_it_runs = moved(one)
    assert [found.state for found in while_it_runs.processes] == ["running"]
    one.end(process)
    # It waited for this before it ended.
    trace = moved(one)
    assert [found.state for found in trace.processes] == ["exited"]
    assert len(trace.user_spans) == one.done >= len(while_it_runs.user_spans)
    one.wait_until_moved()
    assert trace.lost == {}
    # On a busy machine a journal has been compressed meanwhile.
    assert sorted(path.suffix.replace(".gz", ".jsonl") for path in one.path.iterdir()) == [
        "",
        *[".jsonl"] * 2,
        *[".open"] * 2,
    ]
    assert list(spool.parent.iterdir()) == []
    modes = {path.stat().st_mode & 0o777 for path in one.path.glob("p*")}
    assert (modes, one.path.stat().st_mode & 0o777) == ({0o600}, 0o700)


def test_on_its_node_a_run_is_read_as_it_was_written_and_elsewhere_as_it_was_copied(
    one: Run,
) -> None:
    one.out.write_text("in the way")
    process = one.start("work(0.05)")
    one.wait_for_mover()
    wait_for(lambda: one.log.exists() and one.done > 20)
    shown = one.command("show", str(one.out))
    assert "1 process running" in shown.stdout
    with pytest.raises(RecordingError, match="does not exist"):
        find_run(one.path)
    one.out.unlink()
    wait_for(lambda: any(one.path.glob("p*.open")), 60)
    elsewhere = subprocess.run(
        [sys.executable, "-m", "rlvr_probe.cli", "show", str(one.out)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "1 node is copied here every 4 s from a disk of its own" in elsewhere.stdout
    assert "from a disk of its own" not in one.command("show", str(one.out)).stdout
    one.end(process)
    one.wait_until_moved()
    assert "from a disk of its own" not in one.command("show", str(one.out)).stdout


@pytest.mark.parametrize(
    "seed",
    [0, *(pytest.param(one, marks=[pytest.mark.conformance, pytest.mark.full]) for one in (1, 2))],
)
def test_whoever_is_killed_whenever_the_folder_is_a_recording_and_whole_at_the_end(
    one: Run, seed: int
) -> None:
    rng = random.Random(seed)
    process = one.start("work(0.0005)", RLVR_PROBE_SEGMENT_B="100000")
    one.wait_for_mover()
    seen = 0
    for _ in range(8):
        until = time.monotonic() + rng.uniform(0, 0.8)
        while time.monotonic() < until:
            if one.path.is_dir() and any(one.path.glob("p*.0000.jsonl*")):
                trace = moved(one)
                assert set(trace.lost) <= {"torn_rows"}
                labels = len(trace.user_spans)
                assert seen <= labels <= one.done + 1
                seen = labels
            time.sleep(0.1)
        whom = rng.choice((one.sidecar, one.mover))()
        kill(whom)
    one.end(process)
    one.wait_until_moved()
    trace = moved(one)
    [found] = trace.processes
    assert (found.state, trace.lost) == ("exited", {})
    assert len(trace.user_spans) == one.done


def test_a_file_server_that_hangs_holds_up_nobody_and_gets_everything_later(one: Run) -> None:
    process = one.start()
    mover = one.wait_for_mover()
    os.kill(mover, signal.SIGSTOP)
    wait_for(lambda: one.done > 500)
    one.end(process)
    assert one.spool is not None
    pid = one.sidecar()
    assert pid
    os.kill(mover, signal.SIGCONT)
    one.wait_until_moved()
    assert len(moved(one).user_spans) == one.done


def test_what_the_sidecar_left_behind_a_server_that_hangs_the_next_one_waits_for(one: Run) -> None:
    process = one.start()
    mover = one.wait_for_mover()
    wait_for(lambda: any(one.path.glob("p*.open")), 60)
    os.kill(mover, signal.SIGSTOP)
    kill(one.sidecar())
    wait_for(lambda: one.mover() not in (None, mover), 60)
    before = {path: path.stat().st_size for path in one.path.iterdir()}
    wait_for(lambda: one.done > 1000)
    assert {path: path.stat().st_size for path in one.path.iterdir()} == before
    os.kill(mover, signal.SIGCONT)  # it finds that its sidecar is gone
    one.end(process)
    one.wait_until_moved()
    assert len(moved(one).user_spans) == one.done


def test_a_folder_that_cannot_be_made_is_made_when_it_can(one: Run) -> None:
    one.out.write_text("in the way")
    process = one.start(f"{HASTY}work()")
    one.wait_for_mover()
    wait_for(lambda: one.done > 100)
    one.end(process)
    spool = one.spool
    assert spool is not None
    wait_for(lambda: any(b'"spool.move"' in path.read_bytes() for path in spool.glob("p*.jsonl")))
    one.out.unlink()
    one.wait_until_moved()
    assert len(moved(one).user_spans) == one.done


def test_without_a_sidecar_a_run_stays_on_the_disk_until_one_is_started_by_hand(one: Run) -> None:
    process = one.start(f"{HASTY}sys.executable = '/bin/false'\nwork()")
    wait_for(lambda: one.log.exists() and one.done > 100)
    one.end(process)
    assert not one.path.exists()
    shown = one.command("show", str(one.path))
    assert "1 process exited" in shown.stdout
    by_hand = one.command("sidecar", str(one.path))
    assert (by_hand.returncode, by_hand.stderr) == (0, "")
    assert "moves" in by_hand.stdout
    assert one.spool is None
    assert len(moved(one).user_spans) == one.done


def test_what_a_crash_left_of_another_run_is_moved_by_the_next_sidecar(
    one: Run, tmp_path: Path
) -> None:
    process = one.start()
    one.wait_for_mover()
    wait_for(lambda: one.done > 100)
    kill(process.pid)
    process.communicate()
    kill(one.sidecar(), one.mover())
    wait_for(lambda: one.sidecar() is None)
    assert one.spool is not None
    two = Run(tmp_path, "two")
    other = two.start()
    wait_for(lambda: one.spool is None, 60)
    two.end(other)
    two.wait_until_moved()
    # It was killed wherever it was, also between a span and the line of its own books.
    assert 0 < len(moved(one).user_spans) <= one.done + 1
    assert len(moved(two).user_spans) == two.done
    clean(two)


def test_a_full_file_system_is_told_to_who_writes_and_gets_the_rest_when_there_is_room(
    one: Run, tmpfs: Callable[[str], Path]
) -> None:
    one.out = tmpfs("size=2m")
    process = one.start(RLVR_PROBE_FREE_B=str(512 * 1024), RLVR_PROBE_BUDGET_B=str(1 << 30))
    wait_for(lambda: any(one.path.glob("p*.open")), 60)
    fill = one.out / "fill"
    with fill.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)

    def said() -> bool:
        spool = one.spool
        paths = [] if spool is None else list(spool.glob("p*.jsonl"))
        return any(b'"low_space"' in path.read_bytes() for path in paths)

    wait_for(said, 60)
    fill.unlink()
    one.end(process)
    one.wait_until_moved()
    trace = moved(one)
    assert len(trace.user_spans) + trace.lost["low_space"] == one.done
    assert set(trace.lost) == {"low_space"}


def test_a_run_that_is_deleted_meanwhile_is_put_there_again(one: Run) -> None:
    process = one.start()
    wait_for(lambda: any(one.path.glob("p*.open")), 60)
    deleted = one.path.rename(one.folder / "deleted")  # at once, whoever writes meanwhile
    shutil.rmtree(deleted)
    wait_for(lambda: any(one.path.glob("p*.open")), 60)
    one.end(process)
    one.wait_until_moved()
    assert len(moved(one).user_spans) == one.done


def test_two_runs_at_once_have_a_spool_each(one: Run, tmp_path: Path) -> None:
    two = Run(tmp_path, "two")
    processes = [one.start(), two.start()]
    one.wait_for_mover()
    two.wait_for_mover()
    assert one.spool != two.spool
    for run, process in zip((one, two), processes, strict=True):
        run.end(process)
        run.wait_until_moved()
        assert len(moved(run).user_spans) == run.done
    clean(two)


def test_the_launcher_counts_what_is_still_on_the_disk(one: Run) -> None:
    body = """
    for _ in range(3):
        with rlvr_probe.span("work"):
            pass
    """
    script = one.script(body)
    done = one.command(
        "run", "--out", str(one.out), "--run-id", "one", "--", sys.executable, str(script)
    )
    assert done.returncode == 0
    assert "recorded 1 process in" in done.stderr
    one.wait_until_moved()
    assert len(moved(one).user_spans) == 3


def test_a_process_that_only_lives_for_a_moment_is_moved_before_it_ends(one: Run) -> None:
    process = one.start(f"{PATIENT}with rlvr_probe.span('work'):\n    pass")
    one.end(process)
    assert [found.state for found in moved(one).processes] == ["exited"]
    one.wait_until_moved()


@pytest.fixture
def server(one: Run) -> Iterator[int]:
    """The folder of recordings is on a file system of FUSE; the pid of who serves it."""
    one.out.mkdir()
    del one.environ["RLVR_PROBE_SPOOL"]
    try:
        home("auto")
        mount = mounted(one.out)
        pid = mount.__enter__()
    except OSError as error:
        pytest.skip(f"no file system of FUSE can be mounted here, or there is no disk: {error}")
    yield pid
    mount.__exit__(None, None, None)


def test_a_run_on_a_network_file_system_is_spooled_by_itself_and_hangs_with_no_server(
    one: Run, server: int
) -> None:
    process = one.start(f"{HASTY}work()")
    wait_for(lambda: any(one.path.glob("p*.open")), 60)
    assert one.spool is not None
    while_it_runs = one.done
    os.kill(server, signal.SIGSTOP)
    # From here on whoever asks the server hangs: neither the job nor who starts anew in it does.
    kill(one.sidecar())
    wait_for(lambda: one.done > while_it_runs + 500)
    wait_for(lambda: one.sidecar() is not None)
    one.end(process)
    os.kill(server, signal.SIGCONT)
    one.wait_until_moved()
    trace = read_run(one.path)
    assert [found.state for found in trace.processes] == ["exited"]
    assert (len(trace.user_spans), trace.lost) == (one.done, {})
