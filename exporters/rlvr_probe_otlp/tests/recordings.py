"""Recordings that the tests plan and send, each made anew and with what is known of it."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlvr_probe_otlp import OTLPExporter
from rlvr_probe_otlp.planning.data_model import PlannedSpan, PlannedTrace
from rlvr_probe_otlp.planning.kept_trajectories import Limits
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.planning.plan_json import document

from rlvr_probe.model import names
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from rlvr_probe.recording.process_state import Machine
from tests.actors import SECOND, Job
from tests.journals import BOOT, JournalFile, Training
from tests.synthetic import write_recording
from tests.truth import Phase, Truth, tell

__all__ = [
    "EPOCH_NS",
    "MADE",
    "PHASES",
    "STEPS",
    "Limits",
    "dead",
    "died",
    "gpu",
    "gpus",
    "planned",
    "read",
    "send",
    "spans",
    "text",
    "traces",
    "truth",
]

EPOCH_NS = 1_790_000_000 * SECOND
STEP_S = 16.0
STEPS = 3
BEGIN_S = 0.5
PHASES = {
    "rl.sample": Phase("rollout", STEP_S / 4, 400.0, 0.6, 1e10),
    "rl.reward": Phase("reward", STEP_S / 4, 120.0, 0.0, 1e10),
    "rl.train": Phase("update_actor", STEP_S / 2, 600.0, 0.9, 2e10),
}
IDLE = Phase("idle", BEGIN_S, 80.0, 0.0)


def gpu(number: int) -> str:
    return f"GPU-{number:08x}-0000-4000-8000-000000000000"


def truth(scale: float = 1.0) -> Truth:
    phases = [IDLE, *[*PHASES.values()] * STEPS, IDLE, IDLE]
    return Truth([Phase(p.name, p.seconds, p.watts * scale, p.sm, p.memory_b) for p in phases], 1)


def died(folder: Path) -> None:
    """Two ranks, killed inside their third step, with marks of the user and an evaluation."""
    for rank in range(2):
        journal = JournalFile(folder, number=rank + 1, start_s=0.1 * rank)
        training = Training(journal, rank=rank, ranks=2)
        training.begin()
        training.evaluate(0)
        for step in (1, 2):
            begin = training.now_s
            training.step(step)
            journal.span(names.USER, begin + 0.1, begin + 0.2, label="mine")
        journal.span(names.USER, 0.1, 0.2, label="before")
        batch = training.generate(3, end=False)
        whole = journal.next_span()
        journal.close(end=False)
        now = training.now_s
        slots = ((whole, now - 0.5, "step", ""), (batch, now - 0.5, "experience", "mine"))
        journal.open_table(*slots, beat_s=now + 0.25, step=3)


def gpus(folder: Path, *, shared: bool = False, away_s: tuple[float, float] = (0.0, 0.0)) -> None:
    """Two ranks on two GPUs, or on one of them, and the sidecar of their node, once away."""
    for number in range(2):
        journal = JournalFile(folder, number + 1)
        training = Training(journal, rank=number, ranks=2, step_s=STEP_S)
        training.begin()
        used = gpu(0 if shared else number)
        journal.event(names.DEVICES_USED, 0.6, uuids=[used], how="torch")
        for step in range(1, STEPS + 1):
            training.step(step)
        journal.close()
    sidecar = JournalFile(folder, 90)
    sidecar.event(names.PROCESS, 0, role=names.SIDECAR)
    for place in range(2):
        tell(sidecar, place, gpu(place), truth(1.0 + place), away_s=away_s)
    for second in range(1, 40):
        state: dict[str, Any] = {"sm_clock_hz": 1.5e9, "throttle_reasons": 4}
        sidecar.event(names.DEVICE_STATE, second, device=0, **state)
    sidecar.close()


def dead(tmp_path: Path) -> Machine:
    """The machine of the recordings on which none of their processes runs any more."""
    kernel = tmp_path / "proc/sys/kernel/random"
    kernel.mkdir(parents=True, exist_ok=True)
    (kernel / "boot_id").write_text(BOOT + "\n")
    return Machine(tmp_path / "proc")


def _ranks(folder: Path) -> None:
    write_recording(folder, steps=4, ranks=2, trajectories=16, fine_spans=3)


def _resumed(folder: Path) -> None:
    Job(folder, steps=4, end=False, turns=2).write()
    Job(folder, steps=3, resumed=2, number=100, begin_ns=60 * SECOND, seed=7).write()


MADE: dict[str, Callable[[Path], object]] = {
    "ranks": _ranks,
    "died": died,
    "actors": lambda folder: Job(folder, steps=4).write(),
    "ahead": lambda folder: Job(folder, steps=3, v1=True, seed=3).write(),
    "two machines": lambda folder: Job(folder, steps=4, other_machine=300 * SECOND).write(),
    "restarted": lambda folder: Job(folder, restarted_rank=3, restarted_worker=2, turns=5).write(),
    "resumed": _resumed,
    "gpus": gpus,
}
"""Recordings by what is special about them."""


def read(folder: Path, tmp_path: Path) -> Trace:
    """The trace of a recording whose processes are gone."""
    return read_run(folder, machine=dead(tmp_path))


def send(trace: Trace, folder: Path) -> None:
    """Send a run to the collector that the environment names."""
    parser = ArgumentParser()
    exporter = OTLPExporter()
    exporter.add_arguments(parser)
    list(exporter.export(trace, folder, parser.parse_args([])))


def text(trace: Trace, limits: Limits | None = None) -> str:
    """The plan as it is printed."""
    return "\n".join(document(Plan(trace, limits)))


def planned(trace: Trace, limits: Limits | None = None) -> dict[str, Any]:
    """The plan as whoever reads the printed one has it."""
    found: dict[str, Any] = json.loads(text(trace, limits))
    return found


def traces(trace: Trace, limits: Limits | None = None) -> Iterator[PlannedTrace]:
    for unit in Plan(trace, limits).units():
        yield from unit.traces


def spans(trace: Trace, limits: Limits | None = None) -> Iterator[PlannedSpan]:
    for one in traces(trace, limits):
        yield from one.spans
