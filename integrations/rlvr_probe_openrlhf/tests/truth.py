"""Reads the books that the processes of a job kept."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Lines", "Truth", "read_truth"]

Lines = list[dict[str, Any]]


@dataclass(frozen=True)
class Truth:
    """What really happened in a job; times are monotonic, ns.

    Attributes:
        metrics: What OpenRLHF logged: ``step``, ``mode``, ``data``.
        requests: Of the engines, in the order in which they ended: ``engine``, ``prompt`` and
            ``output`` (token ids), ``cached``, ``reason``, ``versions``, ``start``, ``end``.
        syncs: Weights that were whole: ``engine``, ``version``.
        weights: Digest of each parameter, as it left rank 0.
        rewards: Calls of the reward function: ``value``, ``characters``; or requests to the
            service: ``value``, ``manner``.
        steps: Of the environment: ``turn``, ``value``.
        batches: What was trained on, where a scenario asks for it: ``samples``, each with its
            ``prompt``, ``runs`` of generated and added tokens in turn, ``last`` token,
            ``truncated`` and ``reward``.
        gpus: How many GPUs of its cluster were ``taken`` when the training was over.
        processes: Python processes of the job: ``pid``, ``parent``, ``titles``.
    """

    metrics: Lines
    requests: Lines
    syncs: Lines
    weights: Lines
    rewards: Lines
    steps: Lines
    batches: Lines
    gpus: Lines
    processes: Lines

    def logged(self, mode: str = "train") -> dict[int, dict[str, float]]:
        """What OpenRLHF logged of each step."""
        return {line["step"]: line["data"] for line in self.metrics if line["mode"] == mode}

    @property
    def trajectories(self) -> list[Lines]:
        """Requests of each trajectory, turn by turn, in the order in which trajectories ended.

        A turn sends what the one before it sent and got, and more.
        """
        open_ones: list[Lines] = []
        for line in sorted(self.requests, key=lambda line: line["start"]):
            before = [
                conversation for conversation in open_ones if _continues(line, conversation[-1])
            ]
            if before:
                max(before, key=lambda conversation: len(conversation[-1]["prompt"])).append(line)
            else:
                open_ones.append([line])
        return sorted(open_ones, key=lambda conversation: conversation[-1]["end"])


def _continues(line: dict[str, Any], last: dict[str, Any]) -> bool:
    sent = last["prompt"] + last["output"]
    same = line["engine"] == last["engine"] and line["prompt"][: len(sent)] == sent
    return bool(last["end"] <= line["start"] and same)


def read_truth(folder: Path) -> Truth:
    """What a job wrote into ``folder``."""
    books = folder / "books"
    return Truth(
        metrics=_book(books, "metrics"),
        requests=_book(books, "request"),
        syncs=_book(books, "sync"),
        weights=_book(books, "weights"),
        rewards=_book(books, "reward"),
        steps=_book(books, "step"),
        batches=_book(books, "batch"),
        gpus=_book(books, "gpus"),
        processes=json.loads((folder / "processes.json").read_text()),
    )


def _book(books: Path, kind: str) -> Lines:
    """The lines of all processes, in the order in which what they tell ended."""
    paths = sorted(books.glob(f"{kind}-*.jsonl"))
    result = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return sorted(result, key=lambda line: line.get("end", 0))
