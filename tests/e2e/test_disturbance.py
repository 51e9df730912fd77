"""What disturbs a training from outside keeps the book of it, and leaves with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted import Planted, disturbed, read_books

TRAINING = """
import json, os, sys, time
from pathlib import Path
path = Path(sys.argv[1]) / "steps-0.jsonl"
def write(**line):
    with path.open("a") as file:
        file.write(json.dumps(line) + "\\n")
write(pids=[os.getpid()])
time.sleep(2)  # a real training has much to load, too
longest = {}
for step in range(1, 5):
    write(step=step, begin=time.monotonic_ns())
    times = [time.monotonic()]
    while times[-1] < times[0] + 0.2:
        time.sleep(0.01)
        times.append(time.monotonic())
    longest[step] = max(after - before for before, after in zip(times, times[1:]))
write(end=time.monotonic_ns())
print(json.dumps([step for step in longest if longest[step] > 0.9]))
"""


@pytest.mark.parametrize(
    ("planted", "slept"),
    [
        (Planted("host", "stop", 1.0, steps=(2, 4)), "[2, 4]\n"),
        (Planted("host", "burner", 0.0, steps=(2, 3)), "[]\n"),
    ],
)
def test_a_training_is_disturbed_in_its_steps_alone(
    tmp_path: Path, planted: Planted, slept: str
) -> None:
    command = [sys.executable, "-c", TRAINING, str(tmp_path)]
    with disturbed(planted, tmp_path, tmp_path):
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    book = read_books(tmp_path)
    assert (done.stdout, book.steps, book.calls) == (slept, frozenset(planted.steps), 2)
    assert book.wall_s >= 2 * planted.seconds
