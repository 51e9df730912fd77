"""Disturbs a training from outside, and keeps the book of it: run beside one.

Takes the folder where the training says when its steps begin, as ``planted_steps`` has it, and the
variables of ``planted_sleep``: the kind is ``host``, the place ``burner`` (in the steps, as many
processes as the machine has processors compute all the time) or ``stop`` (in each of the steps, all
processes of the training are stopped for a while). Ends with the training.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from planted_sleep import keep

INTO_STEP_S = 0.05
"""How long after a step began the training is stopped."""


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Those that a training writes, as they come."""
    text = ""
    while not path.exists():
        time.sleep(0.05)
    with path.open(encoding="utf-8") as file:
        while True:
            text += file.readline()
            if text.endswith("\n"):
                yield json.loads(text)
                text = ""
            else:
                time.sleep(0.005)


@contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    """They do nothing meanwhile."""
    send(signal.SIGSTOP, pids)
    try:
        yield
    finally:
        send(signal.SIGCONT, pids)


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def burning() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are ended at last; there are none at first."""
    burners = list[subprocess.Popen[bytes]]()
    try:
        yield burners
    finally:
        end(burners)


def end(burners: list[subprocess.Popen[bytes]]) -> None:
    while burners:
        burner = burners.pop()
        burner.kill()
        burner.wait()


def leave(*_: object) -> None:
    sys.exit(0)


def main() -> None:
    signal.signal(signal.SIGTERM, leave)
    told = os.environ
    steps = {int(step) for step in told["PLANTED_STEPS"].split(",")}
    begun_ns = 0
    written = lines(Path(sys.argv[1]) / "steps-0.jsonl")
    pids = next(written)["pids"]
    with burning() as burners:
        for line in written:
            step = line.get("step", 0)
            if burners:  # through the step that just ended
                keep(step - 1 if step else max(steps), begun_ns)
            if "end" in line:
                return
            if step not in steps:
                end(burners)
            elif told["PLANTED_PLACE"] == "stop":
                time.sleep(INTO_STEP_S)
                begin_ns = time.monotonic_ns()
                with stopped(pids):
                    time.sleep(float(told["PLANTED_S"]))
                keep(step, begin_ns)
            elif not burners:
                busy = [sys.executable, "-c", "while True: pass"]
                burners += [subprocess.Popen(busy) for _ in range(os.cpu_count() or 1)]
            begun_ns = time.monotonic_ns()


if __name__ == "__main__":
    main()
