"""Devices that are read in a process apart, over a scripted driver that may hang or crash.

The readers are real processes; the clock by which they are judged is the test's.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.model.names import DEVICE, DEVICE_FAULT, DEVICE_NOTE, DEVICE_SAMPLE, Name
from rlvr_probe.sidecar import reader_supervisor
from rlvr_probe.sidecar.device_reader import COMM
from rlvr_probe.sidecar.reader_supervisor import ReaderSupervisor, left_hanging
from tests.jobs import wait_for
from tests.nvml import Nvml, gpu_uuid
from tests.unit.test_devices import Layouts

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")

SECOND = 1_000_000_000
TWO = ("0 sys count 2", "0 0 power_mw 100000", "0 1 power_mw 300000", "0 0 gpm.2 75")


class Watch:
    """What a sidecar hears of its reader, on a clock that goes as fast as the test likes."""

    def __init__(self, nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, text in nvml.environ().items():
            monkeypatch.setenv(name, text)
        self.nvml = nvml
        self.now_ns = time.monotonic_ns()
        self.layouts = Layouts()
        self.faults: dict[tuple[str, str], int] = {}
        self.rows: list[tuple[str, dict[str, Any]]] = []
        self.readers = ReaderSupervisor(5.0, self.layouts.define, 0, self.fault)

    def fault(self, place: str, error: str, count: int) -> None:
        self.faults[place, error] = count

    def look(self, seconds: float = 0.2) -> None:
        self.now_ns += round(seconds * SECOND)
        if self.readers._process is None:
            for process in self.readers._abandoned:
                process.wait(60)
        for row in self.readers.look(self.now_ns):
            name, _, values = self.layouts.read(row)
            self.rows.append((name, values))

    def until(self, condition: Callable[[], object]) -> None:
        """Look until it is so; meanwhile the clock hardly goes on."""

        def looked() -> bool:
            self.look(0.0001)
            return bool(condition())

        wait_for(looked, 60)

    def until_abandoned(self) -> None:
        """Let time pass until the reader, which says nothing, is given up."""
        process = self.readers._process
        assert process is not None
        wait_for(self.nvml.hangs.exists, 60)

        def abandoned() -> bool:
            self.look(1.0)
            return self.readers._process is None

        # Until it stands still, which it may not at once, it is given time again.
        wait_for(abandoned, 60)
        process.wait(60)
        self.nvml.hangs.unlink()

    def told(self, name: Name, device: int | None = None) -> list[dict[str, Any]]:
        return [
            values
            for kind, values in self.rows
            if kind == name.name and device in (None, values.get("device"))
        ]

    def absent(self, device: int) -> list[str]:
        """What the device cannot tell, as it was told last."""
        found: list[str] = self.told(DEVICE, device)[-1]["absent"]
        return found

    @property
    def pid(self) -> int:
        process = self.readers._process
        assert process is not None
        return process.pid


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Watch]]:
    """Watch a reader over a script; it is ended in the end."""
    made = list[Watch]()

    def start(*rows: str) -> Watch:
        made.append(Watch(Nvml(tmp_path, *rows, virtual=False), monkeypatch))
        return made[-1]

    yield start
    for item in made:
        item.readers.close()


def samples(watched: Watch, *devices: int) -> Callable[[], bool]:
    """Each of these devices told something from here on."""
    before = {device: len(watched.told(DEVICE_SAMPLE, device)) for device in devices}
    return lambda: all(len(watched.told(DEVICE_SAMPLE, d)) > n for d, n in before.items())


def test_of_a_gpu_that_hangs_it_is_told_and_the_others_go_on(watch: Callable[..., Watch]) -> None:
    watched = watch(*TWO)
    watched.until(samples(watched, 1, 2))
    assert [values["uuid"] for values in watched.told(DEVICE)[:2]] == [gpu_uuid(0), gpu_uuid(1)]
    watched.nvml.add("0 0 hang 1")
    watched.until_abandoned()
    assert watched.told(DEVICE_FAULT) == [{"device": 1, "what": "unresponsive", "code": None}]
    assert "energy_j: does not answer" in watched.absent(1)
    watched.look(2)
    watched.until(samples(watched, 2))
    assert watched.absent(2) == [text for text in watched.absent(2) if "not supported" in text]
    assert watched.faults == {("devices.reader", "Unresponsive"): 1}
    assert watched.told(DEVICE_NOTE) == []


def test_one_that_answers_again_is_read_again_after_a_minute(watch: Callable[..., Watch]) -> None:
    watched = watch(*TWO)
    watched.until(samples(watched, 1, 2))
    watched.nvml.add("0 0 hang 1")
    watched.until_abandoned()
    watched.look(2)
    watched.until(samples(watched, 2))
    watched.nvml.add("0 0 hang 0")
    watched.look(40)
    watched.until(samples(watched, 2))
    first = watched.pid
    watched.look(20)
    watched.look(2)
    watched.until(samples(watched, 1, 2))
    assert watched.pid != first
    assert not [text for text in watched.absent(1) if "answer" in text]
    assert len(watched.told(DEVICE_FAULT)) == 1
    # Nothing is left to be tried again.
    second = watched.pid
    for _ in range(3):
        watched.look(5000)
        watched.until(samples(watched, 1, 2))
    assert watched.pid == second


def test_one_that_goes_on_hanging_is_tried_ever_more_seldom(watch: Callable[..., Watch]) -> None:
    watched = watch(*TWO, "0 0 hang 1")
    waits = list[float]()
    for _ in range(2):
        watched.until(lambda: watched.readers._process is not None)
        watched.until_abandoned()
        watched.look(2)
        left = watched.readers._left["nvidia GPU 0"]
        assert left.due_ns is not None
        waits.append(round(left.wait_ns / SECOND))
        watched.until(samples(watched, 1))
        watched.now_ns = left.due_ns
        watched.look(0)
        watched.look(2)
    assert waits == [60, 120]
    assert watched.told(DEVICE_NOTE) == [{"text": "nvidia GPU 0 does not answer"}]
    assert watched.told(DEVICE_FAULT) == [], "it never told its name"


def test_a_library_that_hangs_while_it_is_opened_costs_no_more_than_its_gpus(
    watch: Callable[..., Watch],
) -> None:
    watched = watch(*TWO, "0 sys hang.DeviceGetCount_v2 1")
    watched.until(lambda: watched.readers._process is not None)
    watched.until_abandoned()
    assert watched.told(DEVICE_NOTE) == [{"text": "nvidia does not answer"}]
    watched.look(2)
    watched.until(lambda: watched.readers._process is None and not watched.readers._over)
    watched.nvml.play(*TWO)
    watched.look(60)
    watched.until(samples(watched, 1, 2))


def test_events_that_hang_cost_the_events(watch: Callable[..., Watch]) -> None:
    watched = watch(*TWO)
    watched.until(samples(watched, 1, 2))
    watched.nvml.add("0 sys hang.EventSetWait_v2 1")
    watched.until_abandoned()
    assert watched.told(DEVICE_NOTE) == [{"text": "nvidia events does not answer"}]
    watched.look(2)
    watched.until(samples(watched, 1, 2))


def test_where_two_readers_cannot_be_killed_there_is_no_third(
    watch: Callable[..., Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = 0
    monkeypatch.setattr(reader_supervisor, "left_hanging", lambda: hanging)
    watched = watch("0 sys count 3")
    watched.until(samples(watched, 1, 2, 3))
    watched.nvml.add("0 0 hang 1")
    watched.until_abandoned()
    hanging = 1
    watched.look(2)
    watched.until(samples(watched, 2, 3))
    second = watched.pid
    for _ in range(3):  # its driver holds the first one still: no reason to try again
        watched.look(100)
        watched.until(samples(watched, 2, 3))
    assert watched.pid == second
    watched.nvml.add("0 1 hang 1")
    watched.until_abandoned()
    hanging = 2
    for _ in range(100):
        watched.look(100)
        assert watched.readers._process is None
    assert "memory_b: two readers hang in the driver" in watched.absent(3)
    watched.nvml.play("0 sys count 3")
    hanging = 0
    watched.look(100)
    watched.until(samples(watched, 1, 2, 3))
    assert watched.absent(3) == [text for text in watched.absent(3) if "not supported" in text]


def test_a_reader_whose_library_crashes_leaves_alone_what_it_asked(
    watch: Callable[..., Watch],
) -> None:
    watched = watch(*TWO)
    watched.until(samples(watched, 1, 2))
    watched.nvml.add("0 1 hang 1")
    wait_for(watched.nvml.hangs.exists, 60)
    watched.look(0)
    os.kill(watched.pid, signal.SIGSEGV)
    watched.until(lambda: watched.readers._process is None)
    assert watched.faults == {("devices.reader", "status -11"): 1}
    assert "energy_j: crashes its library" in watched.absent(2)
    watched.look(6)
    watched.until(samples(watched, 1))


def test_a_reader_that_is_killed_is_replaced_ever_more_slowly_and_blames_nobody(
    watch: Callable[..., Watch],
) -> None:
    watched = watch(*TWO)
    for wait_s in (5, 10):
        watched.until(samples(watched, 1, 2))
        os.kill(watched.pid, signal.SIGKILL)
        watched.until(lambda: watched.readers._process is None)
        assert watched.readers._begin_ns - watched.now_ns == pytest.approx(
            wait_s * SECOND, rel=0.01
        )
        watched.look(wait_s)
    assert watched.faults == {("devices.reader", "status -9"): 2}
    assert watched.told(DEVICE_FAULT) == []


def test_a_sidecar_that_stood_still_takes_nobody_for_silent(watch: Callable[..., Watch]) -> None:
    watched = watch(*TWO)
    watched.until(samples(watched, 1, 2))
    pid = watched.pid
    os.kill(pid, signal.SIGSTOP)
    for _ in range(8):
        watched.look(3600)
    os.kill(pid, signal.SIGCONT)
    watched.until(samples(watched, 1, 2))
    assert watched.pid == pid


def test_a_reader_that_somebody_stopped_is_waited_for(watch: Callable[..., Watch]) -> None:
    watched = watch(*TWO)
    watched.until(samples(watched, 1, 2))
    pid = watched.pid
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "T", 60)
    for _ in range(200):
        watched.look(1)
    os.kill(pid, signal.SIGCONT)
    watched.until(samples(watched, 1, 2))
    assert watched.pid == pid
    assert watched.told(DEVICE_FAULT) == []


def test_a_driver_that_turns_in_a_circle_is_given_a_minute(watch: Callable[..., Watch]) -> None:
    watched = watch(*TWO, "0 sys spins 1")
    watched.until(samples(watched, 1, 2))
    watched.nvml.add("0 0 hang 1")
    wait_for(watched.nvml.hangs.exists, 60)
    watched.look(0)
    pid = watched.pid
    for _ in range(50):
        watched.look(1)
    assert watched.pid == pid
    watched.until_abandoned()
    assert [fault["what"] for fault in watched.told(DEVICE_FAULT)] == ["unresponsive"]


def test_a_reader_ends_with_its_sidecar_even_in_a_call_that_hangs(
    watch: Callable[..., Watch],
) -> None:
    watched = watch(*TWO)
    watched.until(samples(watched, 1, 2))
    watched.nvml.add("0 0 hang 1")
    wait_for(watched.nvml.hangs.exists, 60)
    watched.look(0)
    process = watched.readers._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()  # as the kernel does
    assert process.wait(60) == 0


def test_where_there_is_no_gpu_one_reader_looks_and_none_follows(
    watch: Callable[..., Watch],
) -> None:
    watched = watch("0 sys count 0")
    watched.until(lambda: watched.readers._over)
    watched.look(10_000)
    assert watched.readers._process is None
    assert (watched.rows, watched.faults) == ([], {})


def test_that_there_is_no_driver_is_no_news(watch: Callable[..., Watch]) -> None:
    watched = watch("0 sys err.InitWithFlags 12")
    watched.until(lambda: watched.readers._over)
    assert watched.rows == []


def test_a_driver_that_is_not_loaded_is_noted(watch: Callable[..., Watch]) -> None:
    watched = watch("0 sys err.InitWithFlags 9")
    watched.until(lambda: watched.readers._over)
    text = "NVML does not answer (NVMLError_DriverNotLoaded)"
    assert watched.told(DEVICE_NOTE) == [{"text": text}]


def test_a_gpu_that_cannot_be_opened_is_noted(watch: Callable[..., Watch]) -> None:
    watched = watch(*TWO, "0 1 err.DeviceGetHandleByIndex_v2 4")
    watched.until(samples(watched, 1))
    text = "GPU 1 cannot be opened: no permission (4)"
    assert watched.told(DEVICE_NOTE) == [{"text": text}]


def test_a_gpu_that_is_not_found_any_more_says_so(watch: Callable[..., Watch]) -> None:
    watched = watch(*TWO)
    watched.until(samples(watched, 1, 2))
    watched.nvml.add("0 sys count 1")
    os.kill(watched.pid, signal.SIGKILL)
    watched.until(lambda: watched.readers._process is None)
    watched.look(6)
    watched.until(samples(watched, 1))
    assert "energy_j: not found any more" in watched.absent(2)


def process_folder(proc: Path, pid: int, comm: str, pending: int, letter: str = "D") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{comm}\n")
    lines = (f"Name:\t{comm}", f"State:\t{letter} (x)", f"SigPnd:\t{pending:016x}", "ShdPnd:\t0")
    (folder / "status").write_text("\n".join(lines) + "\n")


def test_readers_that_were_killed_and_are_still_there_are_counted(tmp_path: Path) -> None:
    killed = 1 << (signal.SIGKILL - 1)
    cases: Sequence[tuple[str, int, str]] = (
        (COMM, killed, "D"),
        (COMM, killed | 1, "D"),
        (COMM, 0, "D"),
        (COMM, 1, "S"),
        (COMM, killed, "Z"),
        ("other", killed, "D"),
    )
    (tmp_path / "self").mkdir()
    (tmp_path / "999").mkdir()  # gone meanwhile
    for pid, case in enumerate(cases, 1):
        process_folder(tmp_path, pid, *case)
    assert left_hanging(tmp_path) == 2
    assert left_hanging(tmp_path / "missing") == 0
