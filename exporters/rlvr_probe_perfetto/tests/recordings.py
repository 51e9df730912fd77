"""Recordings that the tests draw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlvr_probe.model import names
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from rlvr_probe.recording.process_state import Machine
from tests.actors import SECOND, Job
from tests.journals import BOOT, JournalFile, Training
from tests.synthetic import write_recording
from tests.truth import Phase, Truth, tell

__all__ = ["GPU", "MADE", "TRUTH", "dead", "died", "read", "with_devices"]

GPU = "GPU-0000000a-0000-4000-8000-000000000000"

TRUTH = Truth(
    [Phase("idle", 2.0, 80.0, 0.0), Phase("rollout", 5.0, 400.0, 0.6), Phase("idle", 4.0, 90.0, 0)],
    1,
)


def dead(tmp_path: Path) -> Machine:
    """The machine of the recordings on which none of their processes runs any more."""
    kernel = tmp_path / "proc/sys/kernel/random"
    kernel.mkdir(parents=True, exist_ok=True)
    (kernel / "boot_id").write_text(BOOT + "\n")
    return Machine(tmp_path / "proc")


def read(folder: Path, tmp_path: Path) -> Trace:
    """The trace of a recording whose processes are gone."""
    return read_run(folder, machine=dead(tmp_path))


def died(folder: Path) -> None:
    """Two ranks, killed inside their third step, with marks of the user."""
    for rank in range(2):
        journal = JournalFile(folder, number=rank + 1, start_s=0.1 * rank)
        training = Training(journal, rank=rank, ranks=2)
        training.begin()
        for step in (1, 2):
            begin = training.now_s
            training.step(step)
            journal.span(names.USER, begin + 0.1, begin + 0.2, label="mine")
        journal.span(names.USER, 0.1, 0.2, label="before")
        batch = training.generate(3, end=False)
        whole = journal.next_span()
        journal.close(end=False)
        now = training.now_s
        slots = ((whole, now - 0.6, "step", ""), (batch, now - 0.5, "experience", "mine"))
        journal.open_table(*slots, beat_s=now + 0.25, step=3)


def with_devices(folder: Path) -> None:
    """One rank of ten steps, and a sidecar that read a GPU until it ended before."""
    journal = JournalFile(folder, 1)
    training = Training(journal)
    training.begin()
    for step in range(1, 21):
        training.step(step)
    journal.close()
    sidecar = JournalFile(folder, 90)
    sidecar.event(names.PROCESS, 0, role=names.SIDECAR)
    tell(sidecar, 0, GPU, TRUTH)
    sidecar.event(names.DEVICE_FAULT, 6.5, device=0, what="xid", code=79)
    sidecar.close()


def _resumed(folder: Path) -> None:
    Job(folder, steps=4, end=False, turns=2).write()
    Job(folder, steps=3, resumed=2, number=100, begin_ns=60 * SECOND, seed=7).write()


MADE: dict[str, Callable[[Path], object]] = {
    "ranks": lambda folder: write_recording(folder, steps=4, ranks=2, trajectories=16),
    "died": died,
    "actors": lambda folder: Job(folder, steps=4, turns=4).write(),
    "ahead": lambda folder: Job(folder, steps=3, v1=True, seed=3).write(),
    "two machines": lambda folder: Job(folder, steps=4, other_machine=300 * SECOND).write(),
    "restarted": lambda folder: Job(folder, restarted_rank=3, restarted_worker=2, turns=5).write(),
    "resumed": _resumed,
    "devices": with_devices,
}
"""Recordings by what is special about them."""
