"""Writes recordings of any size with the real journal writer, on a clock of their own.

The rows are those of a TRL training, in its order and layout; a step takes ten seconds by its own
times and microseconds here. :func:`write_recording` returns what it wrote, for whoever counts:

    python -m tests.synthetic FOLDER --steps 100 --ranks 2 --trajectories 1000
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rlvr_probe.model import names
from rlvr_probe.model.names import Name
from rlvr_probe.probe.journal import JournalWriter
from rlvr_probe.probe.journal.writer import build_header

__all__ = ["BOOT", "SECOND", "STEP_NS", "Process", "Written", "write_recording"]

SECOND = 1_000_000_000
STEP_NS = 10 * SECOND
EPOCH_NS = 1_790_000_000 * SECOND
MONO_NS = 5_000 * SECOND
BOOT = "00000000-0000-4000-8000-000000000001"
LONGEST = 2_048
"""Cap on a response, tokens."""


@dataclass
class Written:
    """What a recording holds, by the books of its writer.

    Attributes:
        folder: The run folder.
        journal_b: Size of all journals, bytes.
        rows: Rows in them, definitions left out.
    """

    folder: Path
    steps: int = 0
    trajectories: int = 0
    groups: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    truncated: int = 0
    rows: int = 0
    journal_b: int = 0


@cache
def _any_header() -> dict[str, Any]:
    """What the headers of this machine's processes have in common; to ask takes milliseconds."""
    return build_header(process="", run="", owner=None, mono_ns=0, epoch_ns=0)


@dataclass
class Process:
    """One process that writes a journal: rows wait in ``rows`` until they are flushed.

    Attributes:
        folder: The run folder.
        number: Which of the processes of the run, from 0.
        segment_b: Size at which its journal begins its next file, bytes.
        header: What its header has that others have not; ``rank`` and ``world_size`` for example.
        clock_ns: What its clock is ahead of that of the others, as another machine's may be.
    """

    folder: Path
    number: int
    segment_b: int = 64 * 1024 * 1024
    header: dict[str, Any] = field(default_factory=dict)
    start_ns: int | None = None
    clock_ns: int = 0
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    spans: int = 0

    def __post_init__(self) -> None:
        self._definitions: list[tuple[Any, ...]] = []
        self._numbers: dict[tuple[str, tuple[str, ...]], int] = {}
        self.key = f"{self.number + 1:016x}"
        start_ns = self.number * SECOND // 100 if self.start_ns is None else self.start_ns
        self._zero_ns = start_ns if self.start_ns is not None else 0
        header = _any_header() | {"process": self.key, "run": self.folder.name}
        header |= {"mono_ns": MONO_NS + start_ns, "epoch_ns": EPOCH_NS + start_ns + self.clock_ns}
        # A process that is gone, not this one.
        header |= {"boot": BOOT, "pid": 1_000 + self.number}
        header |= {"rank": None, "local_rank": None, "world_size": None}
        header |= {"job": "00000000000000aa", "ids": {}, "start_ticks": 77}
        self.writer = JournalWriter(
            self.folder,
            self.key,
            header | self.header,
            lambda n: self._definitions[n:],
            self.segment_b,
        )

    def _definition(self, name: Name, attributes: Iterable[str]) -> int:
        key = (name.name, tuple(attributes))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._definitions)
            self._definitions.append(("def", number, "event" if name.event else "span", *key))
        return number

    def next_span(self) -> int:
        self.spans += 1
        return self.spans

    def span(
        self, name: Name, start: int, end: int, parent: int = 0, span: int = 0, /, **values: Any
    ) -> None:
        number = self._definition(name, values)
        span = span or self.next_span()
        start -= self._zero_ns
        end -= self._zero_ns
        self.rows.append((number, start, end - start, span, parent, None, *values.values()))

    def event(self, name: Name, time: int, parent: int = 0, /, **values: Any) -> None:
        time -= self._zero_ns
        self.rows.append((self._definition(name, values), time, parent, *values.values()))

    def open(self, name: Name, start: int, parent: int = 0) -> None:
        """A span that has not ended."""
        number = self._definition(name, ())
        start -= self._zero_ns
        self.rows.append(("open", number, start, self.next_span(), parent))

    def flush(self) -> int:
        """Write what waits; how many rows."""
        count, rows = len(self.rows), self.rows
        for begin in range(0, count, 1_000):
            if not self.writer.write(rows[begin : begin + 1_000]):
                raise OSError(f"rows lost while writing {self.folder}: {dict(self.writer.lost)}")
        self.rows = []
        return count

    def close(self, end: int) -> int:
        """Write what waits and end the journal in an orderly way; how many rows."""
        count = self.flush()
        end -= self._zero_ns
        self.writer.write([("own", end, 1_000_000), ("end", end, "exit")], records=False)
        self.writer.close()
        return count


def write_recording(
    folder: Path,
    *,
    steps: int,
    ranks: int = 1,
    trajectories: int = 64,
    group_size: int = 8,
    reward_functions: int = 2,
    fine_spans: int = 1,
    segment_b: int = 64 * 1024 * 1024,
    seed: int = 0,
) -> Written:
    """A finished run in ``folder``, whose name becomes its run id.

    Args:
        folder: Must not hold a recording yet.
        steps: Trainer steps, each with one generation batch.
        ranks: Processes; each has a journal.
        trajectories: Of one step over all ranks; a multiple of ``ranks`` and ``group_size``.
        group_size: Trajectories of one prompt.
        reward_functions: How many reward every trajectory.
        fine_spans: Turns per rank and step.
        segment_b: Size at which a journal begins its next file, bytes.
        seed: Of the lengths.

    Raises:
        ValueError: ``trajectories`` does not fit.
    """
    if trajectories % group_size or trajectories % ranks:
        raise ValueError(f"{trajectories} trajectories in groups of {group_size} on {ranks} ranks")
    draw = random.Random(seed)
    books = Written(folder, steps=steps)
    functions = [f"verifier_{index}" for index in range(reward_functions)]
    members = [
        Process(folder, rank, segment_b, {"rank": rank, "local_rank": rank, "world_size": ranks})
        for rank in range(ranks)
    ]
    for one in members:
        _session(one, ranks, trajectories, group_size, functions)
    for step in range(1, steps + 1):
        prompts, responses = _lengths(draw, trajectories, group_size)
        cut = [int(length == LONGEST) for length in responses]
        books.trajectories += trajectories
        books.groups += trajectories // group_size
        books.prompt_tokens += sum(prompts)
        books.response_tokens += sum(responses)
        books.truncated += sum(cut)
        part = trajectories // ranks
        for one in members:
            rows = slice(one.number * part, (one.number + 1) * part)
            columns = {
                "prompt_tokens": prompts[rows],
                "response_tokens": responses[rows],
                "truncated": cut[rows],
            }
            _step(one, step, columns, trajectories, group_size, functions, fine_spans)
            books.rows += one.flush()
    for one in members:
        end = (steps + 1) * STEP_NS
        one.event(names.SESSION_END, end, session=0, step=steps)
        books.rows += one.close(end)
    books.journal_b = sum(path.stat().st_size for path in folder.glob("*.jsonl"))
    return books


def _lengths(draw: random.Random, count: int, group_size: int) -> tuple[list[int], list[int]]:
    """Prompt and response tokens of a batch; responses have a long tail up to the cap."""
    prompts: list[int] = []
    for _ in range(count // group_size):
        prompts += [draw.randrange(20, 200)] * group_size
    responses = [min(LONGEST, 1 + int(draw.expovariate(1 / 500))) for _ in range(count)]
    return prompts, responses


def _session(
    one: Process, ranks: int, trajectories: int, group_size: int, functions: list[str]
) -> None:
    one.event(
        names.SESSION, SECOND // 2, session=0, framework="trl", framework_version="1.16.0",
        algorithm="grpo", resumed_step=0, rank=one.number, world_size=ranks, rollout_tp=1,
        engine="transformers", group_size=group_size, batch_per_rank=trajectories // ranks,
        max_prompt_tokens=256, max_response_tokens=LONGEST, steps_per_generation=1, iterations=1,
        accumulation=1, model_type="qwen2", reward_functions=functions,
    )  # fmt: skip


def _step(
    one: Process,
    step: int,
    columns: dict[str, list[int]],
    total: int,
    group_size: int,
    functions: list[str],
    fine_spans: int,
) -> None:
    """Rows of one rank and step, in the order in which they end."""
    responses = columns["response_tokens"]
    count = len(responses)
    where: dict[str, Any] = {"session": 0, "step": step, "mode": "train"}
    whole, batch, rollout, reward = (one.next_span() for _ in range(4))
    begin = step * STEP_NS
    tenth = STEP_NS // 10
    one.span(names.DATA, begin, begin + tenth // 10, whole, **where)
    for turn in range(fine_spans):
        length = 5 * tenth // fine_spans
        start = begin + tenth + turn * length
        one.span(
            names.TURN, start, start + length, rollout, batch=batch, samples=count,
            prompt_tokens=sum(columns["prompt_tokens"]), response_tokens=sum(responses),
        )  # fmt: skip
    one.event(
        names.TRAJECTORIES, begin + 6 * tenth, rollout, **where, batch=batch, ordinal=0,
        policy_version=step - 1, offset=one.number * count, total=total, group_size=group_size,
        **columns,
    )  # fmt: skip
    one.span(
        names.ROLLOUT, begin + tenth, begin + 6 * tenth, batch, rollout,
        **where, policy_version=step - 1, samples=count,
    )  # fmt: skip
    for index, function in enumerate(functions):
        start = begin + 6 * tenth + index * tenth // len(functions)
        call = one.next_span()
        values = [float(length % 7 < 3 + index) for length in responses]
        one.event(
            names.REWARDS, start + tenth // len(functions), call, batch=batch, function=function,
            index=index, values=values,
        )  # fmt: skip
        one.span(
            names.REWARD_FN, start, start + tenth // len(functions), reward, call, batch=batch,
            function=function, samples=count,
        )  # fmt: skip
    one.span(names.REWARD, begin + 6 * tenth, begin + 7 * tenth, batch, reward, **where)
    one.span(names.ADVANTAGE, begin + 7 * tenth, begin + 8 * tenth, batch, **where)
    one.span(names.EXPERIENCE, begin + tenth, begin + 8 * tenth, whole, batch, **where)
    update = one.next_span()
    one.span(
        names.OPTIMIZER_STEP, begin + 9 * tenth, begin + 10 * tenth, update, session=0, step=step
    )
    one.span(names.UPDATE_ACTOR, begin + 8 * tenth, begin + 10 * tenth, whole, update, **where)
    one.span(names.STEP, begin, begin + 10 * tenth, 0, whole, session=0, step=step)


def main() -> None:
    """Write one recording and print its books."""
    parser = argparse.ArgumentParser(description="write a recording of any size")
    parser.add_argument("folder", type=Path)
    for name, default in (("steps", 100), ("ranks", 1), ("trajectories", 64), ("group-size", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    print(write_recording(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
