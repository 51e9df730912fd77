"""Which step a planted training is in, how long its steps took, and what some of them lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests import plants
from tests.planted import ASLEEP

S = 10**9

STEPS = """
import sys
from planted_steps import begin, end, start, step_now
books = sys.argv[1]
told = [step_now(books)]
start(books)
told.append(step_now(books))
for step in range(1, 200):
    begin(books, step)
told.append(step_now(books))
end(books)
print([*told, step_now(books)])
"""


def write(path: Path, *lines: dict[str, object]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_every_process_is_told_the_step_that_began_last(tmp_path: Path) -> None:
    surroundings = os.environ | {"PYTHONPATH": str(ASLEEP)}
    command = [sys.executable, "-c", STEPS, str(tmp_path)]
    with subprocess.Popen(command, env=surroundings, stdout=subprocess.PIPE, text=True) as process:
        told, _ = process.communicate(timeout=60)
    assert told == "[None, None, 199, 199]\n"
    assert set(plants.step_times(tmp_path)) == set(range(1, 200))
    assert process.pid in plants.lines_of(tmp_path, "steps-0.jsonl")[0]["pids"]


def test_a_disturbance_costs_what_its_steps_take_longer_than_usual(tmp_path: Path) -> None:
    begun = [(1, 0), (2, 9), (3, 10), (4, 14), (5, 15)]
    steps: list[dict[str, object]] = [{"step": step, "begin": at * S} for step, at in begun]
    write(tmp_path / "steps-0.jsonl", {"pids": [1]}, *steps, {"end": 17 * S})
    assert plants.step_times(tmp_path) == {1: 9.0, 2: 1.0, 3: 4.0, 4: 1.0, 5: 2.0}
    assert plants.disturbed_s(tmp_path, (3,)) == 3.0


def test_a_step_waits_for_its_straggler_since_its_next_to_last_request() -> None:
    ends = [(1, 3), (1, 4), (2, 5), (2, 9), (2, 6), (3, 99)]
    requests = [{"step": step, "end": at * S} for step, at in ends]
    assert plants.straggled_s(requests, (1, 2)) == 1.0 + 3.0
