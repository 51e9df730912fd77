"""Workloads of trajectories with turns and tool calls, made in code with their own books."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe_polytrace.tests.workloads import workload

from rlvr_probe.model.batch import Batch, BatchShard, RewardCall, RewardColumn, ToolCall, Turn
from rlvr_probe.model.workload import Workload, WorkloadBatch

SECOND = 1_000_000_000


@dataclass
class Book:
    """What happened in one trajectory, as the format should say it.

    Attributes:
        prompt: Tokens of the prompt.
        turns: (sent, generated, kept, cached, latency s) of each.
        calls: (turn, tool, status, latency s) of each.
        appended: Tokens added after each turn.
        mask: Runs of the loss mask.
        engine: That served it.
    """

    prompt: int
    turns: list[tuple[int, int, int, int, float]] = field(default_factory=list)
    calls: list[tuple[int, str, str, float]] = field(default_factory=list)
    appended: list[int] = field(default_factory=list)
    mask: list[list[int]] = field(default_factory=list)
    engine: int = 0

    @property
    def response(self) -> int:
        """Tokens of the response."""
        return sum(run for _, run in self.mask)


def play(draw: random.Random, prompt: int, cap: int, engine: int) -> tuple[Book, list[ToolCall]]:
    """One trajectory: turns, calls of tools that answer, a response cut to its cap."""
    book = Book(prompt, engine=engine)
    calls: list[ToolCall] = []
    context, now = prompt, 10 * SECOND
    while True:
        turn = len(book.turns)
        room = prompt + cap - context
        made = min(draw.randint(1, 60), room)
        spent = draw.randint(1, 5) * SECOND // 4
        book.turns.append((context, made, made, min(context - 1, 7 * turn), spent / SECOND))
        now += spent
        book.mask.append([1, made])
        context += made
        if context - prompt >= cap or draw.random() < 0.3:
            book.appended.append(0)
            return book, calls
        for _ in range(draw.choice([1, 1, 2])):
            took = draw.randint(0, 8) * SECOND // 8
            status = draw.choice(["ok", "ok", "error", "cancelled"])
            tool = draw.choice(["canary_search", "canary_code"])
            calls.append(ToolCall(turn, tool, status, None, now, now + took))
            book.calls.append((turn, tool, status, took / SECOND))
            now += took
        added = min(draw.randint(1, 90), prompt + cap - context)
        book.appended.append(added)
        if added:
            book.mask.append([0, added])
        context += added
        if context - prompt >= cap:
            return book, calls


def agents(
    groups: int = 4,
    n: int = 4,
    *,
    seed: int = 0,
    engines: int = 1,
    batches: int = 2,
    **changes: Any,
) -> tuple[Workload, list[list[Book]]]:
    """Batches of trajectories that one controller recorded, and their books by batch and row."""
    draw = random.Random(seed)
    books = [
        [
            book
            for group in range(groups)
            for prompt in [draw.randint(20, 200)]
            for book in [play(draw, prompt, 400, (group + seed) % engines) for _ in range(n)]
        ]
        for _ in range(batches)
    ]
    made = [batch(index, n, rows, draw) for index, rows in enumerate(books)]
    values = {"max_response_tokens": 400, "max_prompt_tokens": 256} | changes
    return workload(made, **values), [[book for book, _ in rows] for rows in books]


def batch(
    index: int, n: int, rows: list[tuple[Book, list[ToolCall]]], draw: random.Random
) -> WorkloadBatch:
    """One batch of the controller, process 0; rewards of process 90 and 91, one call each."""
    books = [book for book, _ in rows]
    shard = BatchShard(
        process=0,
        rank=0,
        offset=0,
        prompt_tokens=[book.prompt for book in books],
        response_tokens=[book.response for book in books],
        truncated=[int(book.response == 400) for book in books],
        start_ns=10 * SECOND,
        end_ns=99 * SECOND,
        turns={row: _turns(book) for row, book in enumerate(books)},
        tool_calls={row: tuple(calls) for row, (_, calls) in enumerate(rows) if calls},
        loss_runs=[_runs(book) for book in books],
        engines=[book.engine for book in books],
        policy_versions=[(index, index + 1)] * len(books),
    )
    shard.rewards.append(RewardColumn("f", 0, [draw.random() for _ in books], [0.25] * len(books)))
    for row in range(len(books)):
        begin = 20 * SECOND + row * SECOND // 8
        call = RewardCall(90 + row % 2, "f", begin, begin + SECOND // 4, 1, row)
        shard.calls.append(call)
    inner = Batch("train", index + 1, 0, index, n, len(books), [shard])
    return WorkloadBatch(index, 0, inner, {0: 0}, {0: 10 * SECOND})


def _turns(book: Book) -> tuple[Turn, ...]:
    found, now = [], 10 * SECOND
    for number, (sent, made, _, cached, took) in enumerate(book.turns):
        end = now + round(took * SECOND)
        found.append(Turn(number, sent, made, cached, now, end))
        now = end + sum(round(call[3] * SECOND) for call in book.calls if call[0] == number)
    return tuple(found)


def _runs(book: Book) -> list[int]:
    """In and out of the loss in turn; the mask of a book starts in it."""
    return [run for _, run in book.mask]
