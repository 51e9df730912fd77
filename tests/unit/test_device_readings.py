"""Readings that are taken in columns are those that were written, one by one."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.model import names
from rlvr_probe.model.readings import Readings
from rlvr_probe.recording import device_readings, read_run
from tests.journals import JournalFile, Training

PERIOD_NS = 200_000_000


def drawn(rng: random.Random, size: int) -> tuple[list[int], Mapping[str, list[float | None]]]:
    """Times, most of which rise, and columns that nobody knows all of."""
    time_ns, times = rng.randrange(3) * PERIOD_NS, list[int]()
    for _ in range(size):
        time_ns += rng.choice([PERIOD_NS] * 20 + [9 * PERIOD_NS, 0, -PERIOD_NS])
        times.append(max(0, time_ns))
    known = {"energy_j": 1.0, "sm_active": 0.7, "power_w": 0.0, "memory_b": rng.random()}
    return times, {
        name: [rng.random() if rng.random() < share else None for _ in times]
        for name, share in known.items()
    }


def copied(readings: Readings) -> tuple[Any, ...]:
    """All that a series is, where NaN equals itself."""
    columns = {
        name: [None if value != value else value for value in column]
        for name, column in readings.columns.items()
    }
    return list(readings.times_ns), list(readings.windows_ns), columns


@pytest.mark.parametrize("seed", range(60))
def test_columns_are_what_their_readings_are_one_after_another(seed: int) -> None:
    rng = random.Random(seed)
    one_by_one, together = Readings(PERIOD_NS), Readings(PERIOD_NS)
    for _ in range(4):
        times, columns = drawn(rng, rng.randrange(1, 30))
        window = rng.choice([None, PERIOD_NS, 7 * PERIOD_NS])
        windows = [rng.choice([window, None, -1]) for _ in times] if window else []
        period_ns = rng.choice([PERIOD_NS, PERIOD_NS, 5 * PERIOD_NS])
        for readings in (one_by_one, together):
            readings.pace(period_ns)
        for place, time_ns in enumerate(times):
            told = {name: column[place] for name, column in columns.items()}
            known = {name: value for name, value in told.items() if value is not None}
            one_by_one.add(time_ns, known, windows[place] if windows else None)
        together.extend(times, columns, windows)
        assert copied(together) == copied(one_by_one)


def written(folder: Path, rows: Sequence[tuple[int, int, Mapping[str, Any]]]) -> None:
    """A sidecar that read three GPUs; a row is a tick, a device and what was read."""
    journal = JournalFile(folder, 90)
    journal.event(names.PROCESS, 0, role=names.SIDECAR)
    for device in range(3):
        journal.event(names.DEVICE, 0, device=device, uuid=f"GPU-{device}", kind="gpu", hz=5.0)
    for tick, device, values in rows:
        name = names.DEVICE_STATE if "temperature_c" in values else names.DEVICE_SAMPLE
        journal.event(name, tick / 5, device=device, **values)
    journal.close()
    rank = JournalFile(folder, 1)
    Training(rank, rank=0, ranks=1).begin()
    rank.close()


@pytest.mark.parametrize("together", [1, 7, 4_096])
def test_every_reading_of_every_device_is_where_and_when_it_was_written(
    tmp_path: Path, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_readings, "_TOGETHER", together)
    rng, rows = random.Random(together), list[tuple[int, int, dict[str, Any]]]()
    for tick in range(1, 400):
        for device in range(3):
            values: dict[str, Any] = {"power_w": round(rng.random(), 3)}
            if device == 1 and tick % 3 == 0:  # the rows of one device have two definitions
                values = {"sm_active": 0.5, "window_s": 0.2, **values}
            if device == 2 and rng.random() < 0.2:
                values["power_w"] = None
            rows.append((tick, device, values))
            if tick % 5 == 0:
                rows.append((tick, device, {"temperature_c": tick}))
    written(tmp_path, rows)
    trace = read_run(tmp_path)
    assert trace.lost == {}
    for device, series in enumerate(trace.devices):
        for name in ("power_w", "sm_active", "temperature_c"):
            expected = [
                (tick * PERIOD_NS, values[name])
                for tick, number, values in rows
                if number == device and values.get(name) is not None
            ]
            start_ns = trace.processes[0].start_ns
            points = [(time_ns - start_ns, value) for time_ns, value in series.points(name)]
            assert points == expected, (device, name)


@pytest.mark.parametrize(
    "unsound",
    [
        {"power_w": "much"}, {"power_w": True}, {"power_w": 1e30}, {"power_w": [1.0]},
        {"power_w": 1.0, "window_s": "long"}, {"power_w": 1.0, "window_s": 1e12},
        {"a_newer_counter": "text"},
    ],
)  # fmt: skip
def test_among_thousands_of_readings_one_that_is_unsound_is_counted_and_no_other(
    tmp_path: Path, unsound: dict[str, Any]
) -> None:
    rows: list[tuple[int, int, Mapping[str, Any]]] = [
        (tick, 0, {"power_w": float(tick), "window_s": None}) for tick in range(1, 2_000)
    ]
    rows.insert(1_000, (1_000, 0, unsound))
    rows.insert(500, (500, 7, {"power_w": 1.0}))
    written(tmp_path, rows)
    trace = read_run(tmp_path)
    assert trace.lost == {"bad_row": 2}
    values = [value for _, value in trace.devices[0].points("power_w")]
    assert values == [float(tick) for tick in range(1, 2_000)]


def test_a_counter_that_was_never_known_has_no_column() -> None:
    readings = Readings(PERIOD_NS)
    readings.extend([0, PERIOD_NS], {"power_w": [None, None], "energy_j": [None, 2.0]})
    assert copied(readings)[2] == {"energy_j": [None, 2.0]}
