"""Where every GPU-nanosecond went, written down while it passes.

The time of a GPU only ever moves on: whoever accounts for it says until when it did what. What all
categories hold together is the number of GPUs times the wall time, whatever was said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["CATEGORIES", "HELD", "Books", "Wait"]

CATEGORIES = (
    "work.rollout", "work.old_logprob", "work.ref_logprob", "work.update_actor",
    "work.weight_sync", "wait.rollout", "wait.reward", "wait.update", "wait.refit", "bubble",
    "overhead.data", "overhead.dispatch", "overhead.advantage", "overhead.probe", "eval",
    "checkpoint", "discarded.filtered", "discarded.surplus", "discarded.stale",
    "discarded.truncated", "discarded.redone", "unaccounted",
)  # fmt: skip
"""Every category of the ledger; the README of this folder defines them."""

HELD = "held"
"""What devices are told of a wait inside a collective of a stage."""


@dataclass(frozen=True)
class Wait:
    """One barrier of one step, and who came last.

    Attributes:
        barrier: ``rollout``, ``reward``, ``update`` or ``refit``.
        gpu_ns: What all GPUs together waited there.
        kind: What the last one was at: ``turn``, ``tool``, ``reward`` or the name of a stage.
        rank, engine, group, sample, turn, name: Who it was, as far as it has that; ``name`` is that
            of the tool or of the reward function.
    """

    step: int
    barrier: str
    gpu_ns: int
    kind: str
    rank: int | None = None
    engine: int | None = None
    group: int | None = None
    sample: int | None = None
    turn: int | None = None
    name: str | None = None

    def told(self) -> dict[str, Any]:
        """What is known of it."""
        return {key: value for key, value in asdict(self).items() if value is not None}


Seen = Callable[[int, int, int, int, str], None]
"""Gets GPU, step, begin, end and category of every interval."""


class Books:
    """The ledger of a run.

    Attributes:
        ns: GPU time by step and category.
        by_gpu: The same by GPU and category, without what was moved to ``discarded``.
        hidden_ns: Part of ``wait.update`` inside a collective of a stage, where all ranks end
            together: spans do not show it, devices do.
        waits: Every barrier at which somebody waited.
    """

    def __init__(self, gpus: int, begin: int, seen: Seen | None = None) -> None:
        self.gpus = gpus
        self.begin = begin
        self.at = [begin] * gpus
        self.ns: Counter[tuple[int, str]] = Counter()
        self.by_gpu: list[Counter[str]] = [Counter() for _ in range(gpus)]
        self.hidden_ns = 0
        self.waits: list[Wait] = []
        self._seen = seen

    def charge(self, gpu: int, step: int, category: str, until: int, *, held: bool = False) -> int:
        """Account for a GPU from where it is until then; how long that is, ns.

        Args:
            gpu, step, category: What for.
            until: Not before the end of what it was last accounted for, ns.
            held: It waits inside a collective, where devices show a busy GPU.

        Raises:
            ValueError: It was accounted for already.
        """
        begin = self.at[gpu]
        length = until - begin
        if length < 0:
            raise ValueError(f"{category} of GPU {gpu} in step {step} ends {-length} ns too early")
        if length:
            self.at[gpu] = until
            self.ns[step, category] += length
            self.by_gpu[gpu][category] += length
            if self._seen is not None:
                self._seen(gpu, step, begin, until, HELD if held else category)
            if held:
                self.hidden_ns += length
        return length

    def charge_all(self, step: int, category: str, until: int) -> None:
        """The same of every GPU."""
        for gpu in range(self.gpus):
            self.charge(gpu, step, category, until)

    def move(self, step: int, category: str, to: str, ns: int) -> None:
        """Call part of what a step holds in a category something else."""
        if ns > self.ns[step, category]:
            raise ValueError(f"step {step} holds less than {ns} ns of {category}")
        self.ns[step, category] -= ns
        self.ns[step, to] += ns

    def waited(self, wait: Wait) -> None:
        """Note a barrier, if anybody waited there."""
        if wait.gpu_ns:
            self.waits.append(wait)

    def totals(self) -> dict[str, int]:
        """GPU time by category, ns; every category is there."""
        found = dict.fromkeys(CATEGORIES, 0)
        for (_, category), ns in self.ns.items():
            found[category] += ns
        return found

    def steps(self) -> dict[int, dict[str, int]]:
        """GPU time by step and category, ns, where it is not 0."""
        found = dict[int, dict[str, int]]()
        for (step, category), ns in sorted(self.ns.items()):
            if ns:
                found.setdefault(step, {})[category] = ns
        return found
