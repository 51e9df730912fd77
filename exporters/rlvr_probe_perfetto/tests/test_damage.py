"""Damaged recordings: what can be read of them is drawn, in a file that keeps to its format."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from rlvr_probe_perfetto.tests.reading import drawn

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.recording import read_run
from tests.property.damage import damaged, recording


@pytest.mark.parametrize("count", [15, pytest.param(200, marks=pytest.mark.conformance)])
@pytest.mark.parametrize("resumed", [False, True])
def test_what_is_read_of_a_damaged_recording_is_drawn(
    resumed: bool, count: int, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    files = recording(folder, resumed=resumed)
    bars = list[int]()
    for seed in range(count):
        changed = damaged(files, random.Random(seed))
        for path in os.listdir(folder):
            (folder / path).unlink()
        for path, data in changed.items():
            (folder / path).write_bytes(data)
        try:
            trace = read_run(folder)
        except ProbeError:
            continue
        bars.append(len(drawn(trace).bars))
    assert len(bars) > count * 2 / 3
    assert max(bars) > 30
