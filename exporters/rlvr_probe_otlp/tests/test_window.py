"""What is planned of a run while it goes on is what is planned of it afterwards."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
from rlvr_probe_otlp.planning import device_metrics
from rlvr_probe_otlp.planning.data_model import Unit
from rlvr_probe_otlp.planning.device_metrics import DeviceUnits
from rlvr_probe_otlp.planning.kept_trajectories import Choice, Limits
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.planning.plan_json import line, unit_value
from rlvr_probe_otlp.planning.run_metrics import Meter
from rlvr_probe_otlp.tests.recordings import MADE, dead, gpus, read

from rlvr_probe.model import schema
from rlvr_probe.model.trace import Step
from rlvr_probe.recording.follow.window import Over, Window
from tests import today
from tests.actors import SECOND, Job
from tests.growing import Growing
from tests.synthetic import write_recording

LIMITS = Limits(slowest=10)

ROUNDS = 30
AHEAD_NS = 300 * SECOND


class Planned:
    """What a destination plans of the windows that it gets."""

    def __init__(self) -> None:
        self.units: dict[str, str] = {}
        self.titles: list[str] = []
        self.steps: list[Step] = []
        self._meter: Meter | None = None
        self._devices = DeviceUnits("cumulative")
        self._choice = Choice(LIMITS)

    def take(self, over: Over) -> None:
        for step in over.steps:
            self._choice.learn(step)
        plan = Plan(over.window, LIMITS, choice=self._choice)
        self._meter = self._meter or Meter(plan.context.at(0))
        self.steps += over.steps
        found: list[Unit | None] = [plan.unit(step, self._meter) for step in over.steps]
        found += self._devices.units(plan.context, over.window, over.until_ns)
        for unit in found:
            if unit is not None:
                assert unit.key not in self.units
                self.titles.append(unit.title)
                self.units[unit.key] = line(unit_value(unit, plan.context.keys))


@pytest.fixture
def watch() -> Iterator[Callable[..., Window]]:
    """Makes windows, and closes them."""
    with ExitStack() as stack:
        yield lambda *given: stack.enter_context(closing(Window(*given)))


def given(window: Window) -> Iterator[Over]:
    """Everything that is over, until there is nothing more to read."""
    while True:
        behind = window.read(100_000)
        over = window.over(devices=not behind)
        if over is not None:
            yield over
            window.forget(over)
        if not behind and (over is None or not over.steps):
            return


LONG: dict[str, Callable[[Path], object]] = {
    "long": lambda folder: write_recording(folder, steps=12, ranks=2, trajectories=16),
    "long, actors": lambda folder: Job(folder, steps=12, prompts=3).write(),
    "long, ahead": lambda folder: Job(folder, steps=12, prompts=3, v1=True, seed=3).write(),
}
"""Of so many steps that it was learnt how far back one reaches."""


AWAY: dict[str, Callable[[Path], object]] = {
    "away at 14 s": partial(gpus, away_s=(14.0, 17.0)),
    "away at 20 s": partial(gpus, away_s=(20.0, 40.0)),
}
"""Nobody read the GPUs for a while, at an edge of windows and over several."""


def grown(made: str, folder: Path) -> Growing:
    {**MADE, **LONG, **AWAY}[made](folder / "run-0")
    return Growing(folder / "run-0", folder / "run", folder / "running", AHEAD_NS)


@pytest.mark.parametrize("made", today.some([*MADE, *LONG], 3))
def test_a_step_is_planned_while_the_run_goes_on_as_it_is_afterwards(
    made: str, watch: Callable[..., Window], tmp_path: Path
) -> None:
    growing = grown(made, tmp_path)
    window, planned = watch(growing.folder, growing.machine), Planned()
    early = 0
    for _ in growing.rounds(ROUNDS * 3 if made in LONG else ROUNDS):
        for over in given(window):
            planned.take(over)
            early = len(planned.steps)
    ended = watch(growing.folder, dead(tmp_path))
    # Nobody writes any more: what the last window lacks is there in one of the whole run.
    rest = Planned()
    for over in given(ended):
        rest.take(over)
    whole = Plan(read(growing.folder, tmp_path), LIMITS)
    expected = {
        unit.key: line(unit_value(unit, whole.context.keys))
        for unit in whole.units()
        if unit.title.startswith("step")
    }
    assert expected.items() <= rest.units.items()
    assert early >= len(expected) - 1
    wrong = [key for key, said in planned.units.items() if said != expected.get(key, said)]
    # That a later attempt threw a step away is not known while it is made.
    assert len(wrong) == (made == "resumed")


@pytest.mark.parametrize("made", today.some(["gpus", *AWAY], 1))
def test_windows_of_devices_come_as_they_are_over(
    made: str, watch: Callable[..., Window], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_metrics, "_PERIODS", 1)
    growing = grown(made, tmp_path)
    window, planned = watch(growing.folder, growing.machine), Planned()
    for _ in growing.rounds(ROUNDS):
        for over in given(window):
            planned.take(over)
    whole = Plan(read(growing.folder, tmp_path), LIMITS)
    expected = {
        unit.key: line(unit_value(unit, whole.context.keys))
        for unit in whole.units()
        if unit.title.startswith("device")
    }
    mine = {key: said for key, said in planned.units.items() if key in expected}
    assert len(mine) >= 4
    assert mine.items() <= expected.items()


def test_a_window_does_not_grow_with_the_run(watch: Callable[..., Window], tmp_path: Path) -> None:
    sizes = []
    for steps in (10, 40):
        source = tmp_path / f"source-{steps}"
        write_recording(source, steps=steps, ranks=2, trajectories=16, fine_spans=20)
        folder = tmp_path / str(steps)
        folder.mkdir()
        growing = Growing(source, folder / "run", folder / "running")
        window, seen = watch(growing.folder, growing.machine), [0]
        for _ in growing.rounds(5 * steps):
            for over in given(window):
                seen.append(
                    sum(len(step.spans) for one in over.window.attempts for step in one.steps)
                )
        sizes.append(max(seen))
    assert sizes[0] == sizes[1] > 0


def test_a_step_waits_for_a_process_that_does_not_flush_but_not_forever(
    watch: Callable[..., Window], tmp_path: Path
) -> None:
    growing = grown("ranks", tmp_path)
    now_s = 0.0
    window = watch(growing.folder, growing.machine, lambda: now_s)
    growing.leave_out("end")
    growing.write(growing.times[-1])
    for table in growing.folder.glob(f"*{schema.OPEN_SUFFIX}"):
        table.unlink()
    first = [step.number for over in given(window) for step in over.steps]
    now_s = 31.0
    then = [step.number for over in given(window) for step in over.steps]
    assert (first, then) == ([1, 2, 3], [4])


@pytest.mark.parametrize("segment_b", [4_000, 40_000])
def test_files_that_are_full_or_compressed_meanwhile_are_read_on(
    segment_b: int, watch: Callable[..., Window], tmp_path: Path
) -> None:
    write_recording(tmp_path / "run", steps=6, ranks=2, trajectories=16, segment_b=segment_b)
    files = sorted((tmp_path / "run").glob("*.jsonl"))
    assert len(files) > 2 or segment_b > 4_000
    window, planned = watch(tmp_path / "run", dead(tmp_path)), Planned()
    window.read(3_000)
    for path in files[::2]:
        with gzip.open(f"{path}.gz", "wb") as packed:
            packed.write(path.read_bytes())
        path.unlink()
    for over in given(window):
        planned.take(over)
    assert [step.number for step in planned.steps] == [1, 2, 3, 4, 5, 6]
    whole = Plan(read(tmp_path / "run", tmp_path), LIMITS)
    expected = {
        unit.key: line(unit_value(unit, whole.context.keys))
        for unit in whole.units()
        if unit.title.startswith("step")
    }
    assert planned.units == expected
