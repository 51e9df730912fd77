"""Reads the books that ``train.py`` kept, and puts the parts of all ranks together."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Truth", "read_truth"]

Groups = list[dict[str, Any]]


@dataclass(frozen=True)
class Truth:
    """What really happened in a training.

    Attributes:
        batches: Each training batch of a finished step: its step, then its groups in prompt order.
        evaluations: The same for evaluation batches.
        rewards: Rewards of the first reward function, per training batch in row order.
        stopped: Whether each completion ended by itself, per training batch in row order.
    """

    batches: list[tuple[int, Groups]]
    evaluations: list[tuple[int, Groups]]
    rewards: list[list[float]]
    stopped: list[list[bool]]

    def packed(self) -> dict[str, Any]:
        """In the form that ``polytrace_accept.py --truth`` reads."""
        return {"packed": {str(at): groups for at, (_, groups) in enumerate(self.batches)}}


def read_truth(out: Path, group_size: int, group_size_eval: int | None = None) -> Truth:
    """Merge the books of all ranks in ``out``.

    A step that was done twice (killed, resumed) counts as it was done the last time.
    """
    ranks = [_lines(path) for path in sorted(out.glob("truth-*.jsonl"))]
    lines = [_standing(rank) for rank in ranks]
    train = list(zip(*([x for x in rank if x["split"] == "train"] for rank in lines), strict=True))
    evaluations = zip(*([x for x in rank if x["split"] == "eval"] for rank in lines), strict=True)
    return Truth(
        batches=[_groups(parts, group_size) for parts in train],
        evaluations=[_groups(parts, group_size_eval or group_size) for parts in evaluations],
        rewards=[[value for part in parts for value in part["rewards"]] for parts in train],
        stopped=[[value for part in parts for value in part["stopped"]] for parts in train],
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _standing(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Batches of steps that were finished and not done again."""
    kept: list[dict[str, Any]] = []
    done = 0
    for line in lines:
        if "begun" in line:
            if line["begun"]:  # a resumed training: what came after its checkpoint is void
                kept = [x for x in kept if x["split"] == "eval" or x["step"] <= line["begun"]]
            done = line["begun"]
        elif "done" in line:
            done = line["done"]
        else:
            kept.append(line)
    last = max((at for at, x in enumerate(kept) if x["split"] == "train"), default=-1)
    return [
        x for at, x in enumerate(kept) if at < last or x["split"] == "eval" or x["step"] <= done
    ]


def _groups(parts: tuple[dict[str, Any], ...], size: int) -> tuple[int, Groups]:
    inputs = [length for part in parts for length in part["input"]]
    outputs = [length for part in parts for length in part["output"]]
    groups = [
        {"input": inputs[at], "output": outputs[at : at + size]}
        for at in range(0, len(inputs), size)
    ]
    for at, group in enumerate(groups):
        assert set(inputs[at * size : (at + 1) * size]) == {group["input"]}, "a group is one prompt"
    return parts[0]["step"], groups
