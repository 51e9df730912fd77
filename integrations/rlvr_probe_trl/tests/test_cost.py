"""The guard on the probe's own time, in a real training and with its real window of 30 s."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rlvr_probe_trl.tests.runs import run_script
from rlvr_probe_trl.tests.truth import read_truth

from rlvr_probe.recording import read_run
from rlvr_probe.report import render
from tests.summarized import summary_of

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(2000)]

SLOW = Path(__file__).with_name("slow.py")
ARGUMENTS = "--attach before --steps 400 --beta 0.1 --eval-every 1 --save-every 2 --max-tokens 8"
WINDOW_S = 30.0


def test_every_reader_that_sleeps_is_muted_within_its_window_and_the_training_completes(
    tmp_path: Path,
) -> None:
    books = tmp_path / "books"
    run_script(SLOW, tmp_path, ARGUMENTS)
    slept = json.loads((books / "slow.json").read_text())
    assert [place for place, calls, _ in slept if calls < 3] == []
    assert [place for place, _, seconds in slept if not 0 < seconds < WINDOW_S] == []

    [recording] = (path for path in (tmp_path / "recordings").iterdir() if path.is_dir())
    trace = read_run(recording)
    [process] = trace.processes
    *readers, (callback, _, _) = slept
    assert list(process.muted) == [place for place, _, _ in readers]
    assert callback.endswith("._begin_step")
    assert process.level == "off"
    for why in process.muted.values():
        word, spent, _, _, elapsed, _ = why.split()
        assert word == "own_time"
        assert 2 * float(spent) > 0.01 * WINDOW_S  # it explains most of it
        assert float(elapsed) <= WINDOW_S + 5  # it is looked at once a second, on a loaded machine
    assert process.state == "exited"
    assert not process.faults

    shown = io.StringIO()
    render(summary_of(recording), shown, color=False)
    text = " ".join(shown.getvalue().split())
    assert text.count("MUTED") == 7  # six by name
    assert f"MUTED {len(readers) - 6} more" in text
    assert "REDUCED to off in 1 process: own_time" in text
    for place, _, _ in readers:
        assert f"read nothing at {place} " in text

    # What was recorded of lengths, until nothing was, is exactly what happened.
    outputs = {
        step: [length for group in groups for length in group["output"]]
        for step, groups in read_truth(books, 4).batches
    }
    recorded = {batch.step: batch for step in trace.steps() for batch in step.batches}
    assert len(recorded) > len(readers)
    for number, batch in recorded.items():
        [shard] = batch.shards
        assert list(shard.response_tokens) == outputs[number]
