"""What is true of a simulated run: its ledger, who was waited for, what each fault costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tests.simulator.asynchronous import Asynchronous
from tests.simulator.asynchronous_rows import AsynchronousRows
from tests.simulator.books import Seen
from tests.simulator.cast import Cast
from tests.simulator.colocated import Colocated
from tests.simulator.colocated_rows import ColocatedRows
from tests.simulator.controlled import Controlled
from tests.simulator.controlled_rows import ControlledRows
from tests.simulator.devices import Devices
from tests.simulator.draws import SECOND, Draws
from tests.simulator.faults import Fault
from tests.simulator.setting import Fate, Scenario, Setting

__all__ = ["Truth", "play", "simulate"]


@dataclass(frozen=True)
class Truth:
    """What the judge knows of a run.

    Attributes:
        gpus: That the ledger has, whether they train or generate.
        begin_ns, end_ns: Of the training, on the clock of the run whose 0 is the start of its first
            process. The ledger covers what lies between them.
        ledger_ns: GPU time by category; sums up to ``gpus * (end_ns - begin_ns)`` exactly.
        steps_ns: The same by step.
        by_gpu_ns: The same by GPU, discarded work not told apart.
        hidden_ns: The part of ``wait.update`` inside collectives, where spans show no wait.
        occupancy: Share of the decode slots in use while there was rollout; in an asynchronous run
            over the whole run.
        waits: Every barrier at which somebody waited, by step, and who came last.
        faults: What is wrong with it, with ``saved_gpu_ns``: what a re-run without that fault
            alone saves.
        saved_gpu_ns: What a re-run without any of them saves.
    """

    seed: int
    shape: str
    gpus: int
    begin_ns: int
    end_ns: int
    ledger_ns: dict[str, int]
    steps_ns: dict[int, dict[str, int]]
    by_gpu_ns: list[dict[str, int]]
    hidden_ns: int
    occupancy: float
    trajectories: int
    tokens: int
    waits: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    saved_gpu_ns: int = 0
    rows: int = 0
    scenario: dict[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")


def play(
    scenario: Scenario, draws: Draws, faults: tuple[Fault, ...], folder: Path | None = None
) -> tuple[Fate, Cast | None]:
    """One run of a scenario with these faults, and the processes that recorded it in ``folder``.

    Raises:
        ValueError: There is no such shape.
    """
    setting = Setting(scenario, draws, faults)
    cast = None if folder is None else Cast(folder, setting)
    player: Colocated | Controlled | Asynchronous
    if scenario.shape == "trl":
        rows = ColocatedRows(cast) if cast else None
        player = Colocated(setting, rows, _seen(cast, setting))
    elif scenario.shape == "verl":
        calls = ControlledRows(cast) if cast else None
        player = Controlled(setting, calls, _seen(cast, setting))
    elif scenario.shape == "async":
        queue = AsynchronousRows(cast) if cast else None
        player = Asynchronous(setting, queue, _seen(cast, setting))
    else:
        raise ValueError(f"no shape {scenario.shape!r}; there are trl, verl and async")
    fate = player.play()
    return fate, cast


def _seen(cast: Cast | None, setting: Setting) -> Seen | None:
    if cast is None or not setting.scenario.hz:
        return None
    return Devices(cast, setting, 10 * SECOND).seen


def simulate(scenario: Scenario, folder: Path, *, again: bool = True) -> Truth:
    """Write the recording of a scenario into ``folder``, and say what is true of it.

    Args:
        scenario: What takes place.
        folder: The run folder; its name becomes the run id.
        again: Whether it is run again without its faults; without that nothing is saved.
    """
    draws = Draws(scenario.seed, scenario.lengths, scenario.group_size, keep=again)
    faults = scenario.faults
    fate, cast = play(scenario, draws, faults, folder)
    assert cast is not None
    zero = min(one.start_ns or 0 for one in cast.members)
    saved = dict[tuple[Fault, ...], int]()
    for without in {*((one,) for one in faults), faults} if again and faults else ():
        rest = tuple(one for one in faults if one not in without)
        saved[without] = fate.gpu_ns - play(scenario, draws, rest)[0].gpu_ns
    books = fate.books
    return Truth(
        scenario.seed, scenario.shape, books.gpus, fate.begin - zero, fate.end - zero,
        books.totals(), books.steps(), [dict(one) for one in books.by_gpu], books.hidden_ns,
        fate.slot_ns / (fate.capacity_ns or 1), fate.trajectories, fate.tokens,
        [one.told() for one in books.waits],
        [{**one.told(), "saved_gpu_ns": saved.get((one,), 0)} for one in faults],
        saved.get(faults, 0), cast.rows, _told(scenario),
    )  # fmt: skip


def _told(scenario: Scenario) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(scenario)
    found.pop("faults")
    return found
