"""One rank of a training that takes its time and does nothing: a process of ``tests.bench.ranks``.

It knows nothing of the probe, and keeps books of what it did. Rank 0 is there from the first step
to the last one: ranks that never met would be launches of their own, in a recording as elsewhere.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from pathlib import Path

__all__ = ["GROUP_SIZE", "Trainer", "main"]

GROUP_SIZE = 8
"""Trajectories of a rank and step: one group."""
_SLEEPS = 5
"""Methods of a step that take time."""
_PATIENCE_S = 300
"""How long a rank waits for others, of which one may have died, s."""


class Trainer:
    """Trains by itself; ranks do not wait for one another."""

    def __init__(self, rank: int, world_size: int, step_s: float) -> None:
        """Of ``world_size`` ranks; a step takes ``step_s`` seconds."""
        self.rank = rank
        self.world_size = world_size
        self.step = 0
        self.trajectories = 0
        self.response_tokens = 0
        self._pause_s = step_s / _SLEEPS
        self._draw = random.Random(rank)

    def fit(self, steps: int) -> None:
        """Train."""
        for self.step in range(1, steps + 1):
            self.train_step()

    def train_step(self) -> None:
        """One step."""
        lengths = self.generate([64] * GROUP_SIZE)
        self.score(lengths)
        self.log_probs()
        self.update()
        self.sync_weights()

    def generate(self, prompts: list[int]) -> list[int]:
        """Lengths of responses to prompts of these lengths, tokens."""
        lengths = self.decode(prompts)
        self.trajectories += len(lengths)
        self.response_tokens += sum(lengths)
        return lengths

    def decode(self, prompts: list[int]) -> list[int]:
        """What the engine does of it."""
        time.sleep(self._pause_s)
        return [self._draw.randrange(16, 1024) for _ in prompts]

    def score(self, lengths: list[int]) -> list[float]:
        """Rewards."""
        time.sleep(self._pause_s)
        return [float(length % 2) for length in lengths]

    def log_probs(self) -> None:
        """Forward."""
        time.sleep(self._pause_s)

    def update(self) -> None:
        """Backward."""
        time.sleep(self._pause_s)

    def sync_weights(self) -> None:
        """To the engine."""
        time.sleep(self._pause_s)


def main(steps: int, step_s: float, books: str) -> None:
    """Train as the rank that the environment names, and append a line to the books."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    until_s = time.monotonic() + _PATIENCE_S
    if rank == 0:
        Path(books).touch()
    while not os.path.exists(books) and time.monotonic() < until_s:
        time.sleep(0.02)
    trainer = Trainer(rank, world_size, step_s)
    trainer.fit(steps)
    status = Path("/proc/self/status").read_text(encoding="ascii")
    own = re.search(r"RssAnon:\s+(\d+) kB", status)
    line = {
        "rank": rank,
        "steps": trainer.step,
        "trajectories": trainer.trajectories,
        "response_tokens": trainer.response_tokens,
        "memory_b": int(own[1]) * 1024 if own else 0,
        "cpu_s": time.process_time(),
    }
    # One write each: lines of several processes do not mix.
    with open(books, "ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")
    if rank == 0:
        _stay(Path(books), world_size)


def _stay(books: Path, world_size: int) -> None:
    """Be there until all ranks are done, or none of them was for long."""
    size_b, grown_s = 0, time.monotonic()
    while books.read_bytes().count(b"\n") < world_size:
        if books.stat().st_size > size_b:
            size_b, grown_s = books.stat().st_size, time.monotonic()
        elif time.monotonic() - grown_s > _PATIENCE_S:
            break
        time.sleep(0.2)
