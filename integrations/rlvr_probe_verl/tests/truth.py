"""Reads the books that the processes of a job kept."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Truth", "read_truth"]

Lines = list[dict[str, Any]]


@dataclass(frozen=True)
class Truth:
    """What really happened in a job; times are monotonic, ns.

    Attributes:
        metrics: What verl logged, by step.
        requests: Of the servers, in the order in which they ended: ``engine``, ``prompt`` and
            ``output`` (token ids), ``cached``, ``ended``, ``version``, ``start``, ``end``.
        generations: Where verl generates by itself, its calls: ``rank``, ``sampled`` (a
            validation is not), ``prompts`` (lengths), ``outputs`` (token ids), ``weights``.
        log_probs: Log-probabilities that a rank computed: ``rank``, ``call``, and when its work
            was done (``worked``) and what it sleeps behind that (``end``).
        weights: Digests of the weights, as servers received them.
        rewards: Calls of the reward function: ``split`` and ``index`` of the prompt, ``value``.
        outputs: Of sessions that may have several, as verl takes each to its queue: ``uid``,
            ``session``, ``number``, ``prompt`` and ``response`` (lengths), ``reward``.
        trained: What is trained on, from tensors of verl: ``samples`` with their ``uid``,
            ``prompt`` (token ids), ``response`` (length), ``ended`` (by an end token),
            ``inner_ends`` and ``reward``; V1 has a line for each, with its ``step``. Since 0.6.
        killed: When the last 0.2 s of a process began that was killed.
        tools: Calls of the tool: ``tool``, ``failed``.
        selected: What a recipe did with each generation batch: ``step``, ``inputs`` (lengths of its
            prompts), ``responses`` (lengths) and ``rewards`` by row, ``kept`` (which prompts
            passed, where it filters).
        used: How many prompts each step of a filtered job trained on: ``step``, ``prompts``.
        timed: How long the stages of a recipe's step took, s: ``step``, ``seconds`` by timer.
        gpus: How many GPUs of its cluster were ``taken`` when a recipe's training was over.
        processes: Python processes of the job: ``pid``, ``parent``, ``titles``.
    """

    metrics: dict[int, dict[str, Any]]
    requests: Lines
    generations: Lines
    log_probs: Lines
    weights: Lines
    rewards: Lines
    outputs: Lines
    trained: Lines
    killed: Lines
    tools: Lines
    selected: Lines
    used: Lines
    timed: Lines
    gpus: Lines
    processes: Lines

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
    return bool(last["end"] <= line["start"] and line["prompt"][: len(sent)] == sent)


def read_truth(folder: Path) -> Truth:
    """What a job wrote into ``folder``."""
    books = folder / "books"
    metrics = books / "metrics.jsonl"
    logged = _lines(metrics) if metrics.exists() else []
    return Truth(
        metrics={line["step"]: line["data"] for line in logged},
        requests=_book(books, "request"),
        generations=_book(books, "generate"),
        log_probs=_book(books, "log_prob"),
        weights=_book(books, "weights"),
        rewards=_book(books, "reward"),
        outputs=_book(books, "output"),
        trained=_book(books, "trained"),
        killed=_book(books, "killed"),
        tools=_book(books, "tool"),
        selected=_book(books, "selected"),
        used=_book(books, "used"),
        timed=_book(books, "timed"),
        gpus=_book(books, "gpus"),
        processes=json.loads((folder / "processes.json").read_text()),
    )


def _book(books: Path, kind: str) -> Lines:
    """The lines of all processes, in the order in which what they tell ended."""
    result = [line for path in sorted(books.glob(f"{kind}-*.jsonl")) for line in _lines(path)]
    return sorted(result, key=lambda line: line.get("end", 0))


def _lines(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text().splitlines()]
