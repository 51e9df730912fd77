"""Rule-based reward of a job, which keeps a book of its calls and does the mischief asked for."""

from __future__ import annotations

import os
import signal
import time
from itertools import count
from pathlib import Path
from typing import Any

from planted_sleep import sleep_if_planted
from verl_cpu_books import CANARY, never_comes_back, step_now, write

_calls = count()
PATIENCE_S = 100


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    **__: Any,
) -> float:
    """The same for every answer to each fourth prompt: such groups are filtered."""
    start = time.monotonic_ns()
    recorded = extra_info or {}
    index = int(recorded.get("index", -1))
    time.sleep(0.01)  # stands for a verifier
    number = next(_calls)
    mischief, _, call = os.environ.get("VERL_CPU_MISCHIEF", "").partition("@")
    if mischief in MISCHIEF and number == int(call):
        MISCHIEF[mischief]()
    step, worked = step_now(), time.monotonic_ns()
    if recorded.get("split") == "val" and index == 0:
        sleep_if_planted("evaluation", compute_score.__name__, step)
    if number % int(os.environ.get("VERL_CPU_SLEEPS_EVERY", "1")) == 0:
        sleep_if_planted("reward", compute_score.__name__, step)
    value = 1.0 if index % 4 == 3 else 0.125 * (len(solution_str) % 8)
    write(
        "reward",
        split=recorded.get("split"),
        index=index,
        value=value,
        characters=len(solution_str),
        call=step,
        start=start,
        worked=worked,
        end=time.monotonic_ns(),
    )
    return value


def fail() -> None:
    """As a verifier with a defect."""
    raise RuntimeError(CANARY["exception"])


def kill_rank() -> None:
    """End rank 0 from outside, as Ray does it."""
    import ray

    [name] = [name for name in ray.util.list_named_actors() if name.endswith("WorkerDict_0:0")]
    wait()
    ray.kill(ray.get_actor(name))


def kill_itself() -> None:
    """End this process as the kernel does it when memory runs out."""
    wait()
    os.kill(os.getpid(), signal.SIGKILL)


def kill_driver() -> None:
    """End the process that started Ray, whose child is the raylet, whose child this one is."""
    wait()
    raylet = os.getppid()
    os.kill(int(Path(f"/proc/{raylet}/stat").read_text().rpartition(")")[2].split()[1]), 9)


def kill_sidecar() -> None:
    """End what reads the devices of the job, once it is there, if it is recorded at all."""
    recordings = os.environ.get("RLVR_PROBE_OUT", "")
    until = time.monotonic() + PATIENCE_S
    while os.environ.get("RLVR_PROBE") and time.monotonic() < until:
        for command in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = command.read_bytes().decode(errors="replace")
            except OSError:
                continue
            if "rlvr_probe.sidecar.startup" in words and recordings in words:
                os.kill(int(command.parent.name), signal.SIGKILL)
                return
        time.sleep(0.1)


def wait() -> None:
    """As long as a record may take to reach the disk, on a machine that is free."""
    write("killed", end=time.monotonic_ns())
    time.sleep(0.2)


MISCHIEF = {
    "fail": fail,
    "hang": never_comes_back,
    "kill_driver": kill_driver,
    "kill_itself": kill_itself,
    "kill_rank": kill_rank,
    "kill_sidecar": kill_sidecar,
}
