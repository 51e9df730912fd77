"""A GPU whose power and activity are known at every moment, and what a sidecar would read of it.

How far what is then said of its phases is off, by how often it was read:

    python -m tests.truth
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from rlvr_probe.model import names
from rlvr_probe.model.device_series import DeviceFacts, DeviceSeries
from rlvr_probe.model.readings import Readings
from tests.journals import JournalFile

__all__ = ["STEP", "Error", "Phase", "Truth", "errors", "read", "tell"]


@dataclass(frozen=True)
class Phase:
    """Something that a training does for a while."""

    name: str
    seconds: float
    watts: float
    sm: float
    memory_b: float = 4e10


STEP = (
    Phase("rollout", 20.0, 450.0, 0.55),
    Phase("reward", 1.5, 130.0, 0.05),
    Phase("old_logprob", 3.0, 620.0, 0.90),
    Phase("update_actor", 6.0, 680.0, 0.80),
    Phase("weight_sync", 0.4, 160.0, 0.10),
)


class Truth:
    """Steps one after another, from 0.

    Attributes:
        spans: Name, begin and end, ns, of every phase.
        end_ns: When the last one ends.
    """

    def __init__(self, phases: Sequence[Phase], steps: int) -> None:
        """Play ``phases`` so many times."""
        self.spans: list[tuple[Phase, int, int]] = []
        self._begins: list[int] = []
        self._energy = [0.0]
        self._busy = [0.0]
        now = 0
        for phase in [*phases] * steps:
            length = round(phase.seconds * 1e9)
            self.spans.append((phase, now, now + length))
            self._begins.append(now)
            self._energy.append(self._energy[-1] + phase.watts * length / 1e9)
            self._busy.append(self._busy[-1] + phase.sm * length / 1e9)
            now += length
        self.end_ns = now

    def energy_j(self, time_ns: int) -> float:
        """Drawn until a moment, J."""
        place, inside_s = self._place(time_ns)
        return self._energy[place] + self.spans[place][0].watts * inside_s

    def at(self, time_ns: int) -> Phase:
        """What it does at a moment."""
        return self.spans[self._place(time_ns)[0]][0]

    def sm(self, start_ns: int, end_ns: int) -> float:
        """Mean from one moment to another."""
        return (self._until(end_ns) - self._until(start_ns)) / ((end_ns - start_ns) / 1e9)

    def _until(self, time_ns: int) -> float:
        place, inside_s = self._place(time_ns)
        return self._busy[place] + self.spans[place][0].sm * inside_s

    def _place(self, time_ns: int) -> tuple[int, float]:
        place = bisect_right(self._begins, time_ns) - 1
        return place, (time_ns - self._begins[place]) / 1e9


def read(
    truth: Truth, hz: float, seed: int, *, refresh_ns: int = 100_000_000, jitter: float = 0.1
) -> Readings:
    """What is read of ``truth`` so often: a counter that moves every ``refresh_ns``, and windows.

    Args:
        truth: The GPU.
        hz: Readings per second.
        seed: Of when they are taken.
        refresh_ns: The driver looks at its sensors so often.
        jitter: How much later than it should, at most, a reading is taken, in periods.
    """
    period_ns = round(1e9 / hz)
    readings = Readings(period_ns)
    before: int | None = None
    for time_ns in _moments(truth, period_ns, seed, jitter):
        values = {"energy_j": truth.energy_j(time_ns // refresh_ns * refresh_ns)}
        begin, end = (moment // refresh_ns * refresh_ns for moment in (before or 0, time_ns))
        if before is not None and end > begin:
            values["sm_active"] = truth.sm(begin, end)
        window_ns = None if before is None else time_ns - before
        readings.add(time_ns, values, window_ns)
        before = time_ns
    return readings


def _moments(truth: Truth, period_ns: int, seed: int, jitter: float) -> Iterator[int]:
    rng = random.Random(seed)
    phase = rng.random()
    for tick in range(truth.end_ns // period_ns):
        moment = round((tick + phase + jitter * rng.random()) * period_ns)
        if moment < truth.end_ns:
            yield moment


@dataclass(frozen=True)
class Error:
    """How far what is said of one phase is off: its energy, J and share, and its SM activity."""

    energy_j: float
    energy: float
    sm: float
    bound_j: float


def errors(truth: Truth, series: Iterable[DeviceSeries]) -> Mapping[str, list[Error]]:
    """Errors of the phases of ``truth``, by name, without those of its first and last step.

    Raises:
        ValueError: Energy or activity of one is not known.
    """
    found = defaultdict[str, list[Error]](list)
    for one in series:
        for phase, start_ns, end_ns in truth.spans[len(STEP) : -len(STEP)]:
            use = one.over(start_ns, end_ns)
            energy_j, sm, bound_j = use.total("energy_j"), use.mean("sm_active"), use.energy_error_j
            if energy_j is None or sm is None or bound_j is None:
                raise ValueError(f"{phase.name} is not known: {use}")
            true_j = phase.watts * phase.seconds
            off_j = abs(energy_j - true_j)
            found[phase.name].append(Error(off_j, off_j / true_j, abs(sm - phase.sm), bound_j))
    return found


def main() -> None:
    """Print the table of the documentation."""
    truth = Truth(STEP, 6)
    print("| readings per second |", *(f"{one.name} {one.seconds:g} s |" for one in STEP))
    print("|---|" + "---|" * len(STEP))
    for hz in (1, 2, 5, 9):
        facts = DeviceFacts("GPU")
        many = (DeviceSeries(facts, {"fast": read(truth, hz, seed)}) for seed in range(20))
        found = errors(truth, many)
        cells = (
            f"{mean(e.energy for e in found[one.name]):.1%}, "
            f"{100 * mean(e.sm for e in found[one.name]):.1f}"
            for one in STEP
        )
        print(f"| {hz} |", " | ".join(cells), "|")


def tell(
    sidecar: JournalFile,
    number: int,
    uuid: str,
    truth: Truth,
    *,
    hz: float = 5.0,
    gpm: bool = True,
    away_s: tuple[float, float] = (0.0, 0.0),
    **facts: Any,
) -> None:
    """Rows of a sidecar that read a GPU so often, in turn with others, without any error.

    Args:
        sidecar: Where to.
        number: Of the device in it.
        uuid: Its name.
        truth: What it does; 0 is the start of the sidecar.
        hz: Readings per second.
        gpm: Whether it tells shares of activity.
        away_s: From when to when nothing is read.
        facts: Other attributes of the device.
    """
    known: dict[str, Any] = {"kind": "gpu", "vendor": "nvidia", "model": "NVIDIA H200", "hz": hz}
    sidecar.event(names.DEVICE, 0, device=number, uuid=uuid, **(known | facts))
    period_ns = round(1e9 / hz)
    before = 0
    for time_ns in range(period_ns // (number + 2), truth.end_ns, period_ns):
        if away_s[0] <= time_ns / 1e9 < away_s[1]:
            continue
        now = truth.at(time_ns)
        values: dict[str, Any] = {
            "energy_j": round(truth.energy_j(time_ns), 3),
            "power_w": now.watts,
            "memory_b": now.memory_b,
        }
        if gpm and before:
            sm = truth.sm(before, time_ns)
            values |= {"sm_active": sm, "tensor_active": sm / 2, "dram_active": sm / 3}
        window_s = (time_ns - before) / 1e9 if before else None
        sidecar.event(
            names.DEVICE_SAMPLE, time_ns / 1e9, device=number, window_s=window_s, **values
        )
        before = time_ns


if __name__ == "__main__":
    main()
