"""A recording with very many trajectories, in the shape of a run with one controller.

Three rows per trajectory (its turn, its verification and itself), one step after another, so that
memory does not grow. Nothing is simulated: times only have to be possible.

    python -m tests.simulator.volume FOLDER --trajectories 1000000
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_probe.model import names
from tests.simulator.cast import Cast
from tests.simulator.devices import Devices
from tests.simulator.draws import SECOND, Draws, Lengths
from tests.simulator.setting import Scenario, Setting
from tests.synthetic import Process

__all__ = ["Written", "write_volume"]

_GROUP_SIZE = 8
_GPUS = 8
_RATE = 60
"""Tokens per second of every trajectory."""


@dataclass
class Written:
    """What the recording holds, by the books of its writer."""

    steps: int = 0
    trajectories: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    rows: int = 0
    bytes: int = 0


def write_volume(
    folder: Path,
    trajectories: int,
    *,
    per_step: int = 8_192,
    workers: int = 8,
    seed: int = 0,
    hz: float = 0.0,
) -> Written:
    """Write it.

    Args:
        folder: The run folder; its name becomes the run id.
        trajectories: As many as fit into whole groups, at least.
        per_step: Trajectories of one step, the last one's fewer; a multiple of 8.
        workers: Processes that generate.
        seed: Of the lengths.
        hz: How often each of the eight GPUs of its machine is read, 1/s; 0 is never.
    """
    scenario = Scenario(
        seed, workers=workers, hz=hz, group_size=_GROUP_SIZE, ranks=_GPUS, gpus_per_node=_GPUS
    )
    setting = Setting(scenario, Draws(seed, Lengths(), _GROUP_SIZE), ())
    cast = Cast(folder, setting)
    driver = cast.member("driver")
    one = cast.member("TaskRunner", start=SECOND, owner=driver, starter=driver, job="job-1")
    loops = [
        cast.member(
            "AgentLoopWorker", start=2 * SECOND, owner=driver, starter=one, job=f"loop-{number}"
        )
        for number in range(workers)
    ]
    now = 10 * SECOND
    one.event(
        names.SESSION, now - 1, session=0, framework="verl", framework_version="0.9.1",
        algorithm="grpo", resumed_step=0, rank=0, world_size=1, accelerators=8, rollout_tp=1,
        engine="vllm", group_size=_GROUP_SIZE, max_prompt_tokens=2_048, max_response_tokens=16_384,
        steps_per_generation=1, iterations=1, accumulation=1, reward_functions=["math"],
    )  # fmt: skip
    draw = random.Random(seed)
    books = Written()
    devices = Devices(cast, setting, now) if hz else None
    left = -(-trajectories // _GROUP_SIZE)
    while left:
        groups = min(left, per_step // _GROUP_SIZE)
        left -= groups
        books.steps += 1
        begin, now = now, _step(one, loops, books, draw, groups, now)
        if devices is not None:
            for gpu in range(_GPUS):
                devices.seen(gpu, books.steps, begin, now, "work.rollout")
        cast.flush()
    one.event(names.SESSION_END, now, session=0, step=books.steps)
    cast.close(now + SECOND, {})
    books.rows = cast.rows
    books.bytes = sum(path.stat().st_size for path in folder.glob("*.jsonl"))
    return books


def _step(
    one: Process,
    loops: list[Process],
    books: Written,
    draw: random.Random,
    groups: int,
    begin: int,
) -> int:
    """One step with so many groups; when it ends."""
    whole, rollout = one.next_span(), one.next_span()
    step = books.steps
    where: dict[str, Any] = {"session": 0, "step": step, "mode": "train"}
    prompts = [f"{draw.getrandbits(64):016x}" for _ in range(groups)]
    size = groups * _GROUP_SIZE
    sent = [20 + draw.randrange(400) for _ in prompts for _ in range(_GROUP_SIZE)]
    made = [1 + min(16_383, int(draw.lognormvariate(6.0, 0.8))) for _ in range(size)]
    per_loop = -(-size // len(loops))
    keys = list[str]()
    end = begin
    for row in range(size):
        worker, place = divmod(row, per_loop)
        key = f"{prompts[row // _GROUP_SIZE]}/{step - 1}/{worker}/{place}"
        keys.append(key)
        end = max(end, _live(loops[worker], key, begin + row * 1_000, row, sent[row], made[row]))
    one.event(
        names.TRAJECTORIES, end + 1_000, rollout, **where, batch=rollout, ordinal=0, keys=keys,
        prompts=prompts, offset=0, total=size, group_size=_GROUP_SIZE, prompt_tokens=sent,
        response_tokens=made,
    )  # fmt: skip
    end += SECOND
    one.span(names.ROLLOUT, begin, end, whole, rollout, **where, samples=size)
    one.span(names.UPDATE_ACTOR, end, end + 9 * SECOND, whole, **where)
    end += 10 * SECOND
    one.span(names.STEP, begin, end, 0, whole, session=0, step=step)
    books.trajectories += size
    books.prompt_tokens += sum(sent)
    books.response_tokens += sum(made)
    return end + SECOND


def _live(one: Process, key: str, begin: int, row: int, sent: int, made: int) -> int:
    """The three rows of one trajectory; when it ends."""
    span = one.next_span()
    end = begin + made * SECOND // _RATE
    one.span(
        names.TURN, begin, end, span, 0, batch=span, samples=1, turn=0, prompt_tokens=sent,
        response_tokens=made,
    )  # fmt: skip
    verified = end + 200_000_000 + row
    value = float(made % 2)
    one.span(names.VERIFY, end, verified, span, 0, batch=span, function="math", value=value)
    one.span(
        names.TRAJECTORY, begin, verified, 0, span, key=key, engine=row % 8, policy_version_min=0,
        policy_version_max=0, prompt_tokens=sent, response_tokens=made, loss_runs=[made],
        truncated=int(made == 16_384),
    )  # fmt: skip
    return verified


def main() -> None:
    """Write one and print its books."""
    parser = argparse.ArgumentParser(description="write a recording with very many trajectories")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trajectories", type=int, default=100_000)
    given = parser.parse_args()
    print(write_volume(given.folder, given.trajectories))


if __name__ == "__main__":
    main()
