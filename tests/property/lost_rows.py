"""Takes rows out of recordings of jobs of many processes and judges what is joined in the rest.

What is drawn follows from a seed alone. Nobody is told of the loss, as if the rows had never been:
a checksum that does not fit would be counted before anything is joined.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.model.batch import Batch, BatchShard, Trajectory
from rlvr_probe.model.trace import Step, Trace
from rlvr_probe.recording import read_run
from tests.actors import Books, Job
from tests.journals import summed

__all__ = ["damaged", "failures", "wrong_joins"]

SHARE = 0.01


def _lines(data: bytes) -> list[bytes]:
    return [line for line in data.split(b"\n") if line and not line.startswith(b'["sum",')]


def damaged(files: dict[str, bytes], draw: random.Random) -> dict[str, bytes]:
    """``files`` without a hundredth of their rows, some chunks of them, or one or two files."""
    kind = draw.choice(("rows", "rows", "chunks", "files", "rows and files"))
    found = dict(files)
    if "files" in kind:
        for name in draw.sample(sorted(found), draw.choice((1, 1, 2))):
            del found[name]
    for name, data in found.items():
        header, *rows = _lines(data)
        if "rows" in kind:
            rows = [row for row in rows if draw.random() >= SHARE]
        elif kind == "chunks" and rows and draw.random() < 0.5:
            begin = draw.randrange(len(rows))
            del rows[begin : begin + draw.choice((1, 5, 20, 100))]
        found[name] = summed([header, *rows], 50)
    return found


def failures(folder: Path, seeds: Iterable[int], **job: Any) -> list[str]:
    """What is joined wrongly, or not and not counted, in the job's recording without some rows."""
    whole = folder / "whole"
    whole.mkdir(parents=True)
    books = Job(whole, **job).write()
    files = {path.name: path.read_bytes() for path in sorted(whole.iterdir())}
    found = [f"whole: {book}" for book in wrong_joins(read_run(whole), books)]
    for seed in seeds:
        draw = random.Random(seed)
        shutil.rmtree(whole)
        whole.mkdir()
        for name, data in damaged(files, draw).items():
            (whole / name).write_bytes(data)
        try:
            trace = read_run(whole)
        except ProbeError as error:
            found.append(f"seed {seed}: {error}")
            continue
        found += [f"seed {seed}: {book}" for book in wrong_joins(trace, books)]
    return found


def wrong_joins(trace: Trace, books: Books) -> Iterator[str]:
    """Everything in ``trace`` that was not so by the books."""
    later = _offsets(trace, books)
    joined = Counter[str]()
    for attempt in trace.attempts:
        for step in attempt.steps:
            yield from _wrong_calls(trace, step, books, later)
            for batch in (*step.batches, *step.evaluations):
                for shard in batch.shards:
                    joined["no times"] += sum(pair is None for pair in shard.times_ns or ())
                    joined["no times"] += len(shard.response_tokens) if not shard.times_ns else 0
                yield from _wrong_batch(batch, books, later)
    missing = trace.lost.get("unjoined_trajectories", 0)
    if joined["no times"] != missing:
        yield f"{joined['no times']} trajectories are not joined, counted are {missing}"


def _offsets(trace: Trace, books: Books) -> dict[str, int]:
    """By process, what its times in the trace are later than in the books, ns."""
    by_boot = {
        process.boot: process.start_ns - books.begun[process.key] for process in trace.processes
    }
    return {key: by_boot.get(books.boots[key], 0) for key in books.begun}


def _wrong_calls(trace: Trace, step: Step, books: Books, later: dict[str, int]) -> Iterator[str]:
    for rpc in step.rpcs:
        sides = [rpc.caller, *rpc.ranks]
        keys = [trace.processes[span.process].key for span in sides]
        starts = [span.start_ns - later[key] for key, span in zip(keys, sides, strict=True)]
        number, ranks = books.calls[starts[0]]
        if number != step.number:
            yield f"{rpc.method} {rpc.call} is in step {step.number}, it was in {number}"
        if list(zip(keys[1:], starts[1:], strict=True)) != ranks:
            yield f"{rpc.method} {rpc.call} of step {step.number} is joined with another call"


def _wrong_batch(batch: Batch, books: Books, later: dict[str, int]) -> Iterator[str]:
    verified = defaultdict[int, list[int]](list)
    for shard in batch.shards:
        for call in shard.calls:
            if call.row is not None:
                verified[shard.offset + call.row].append(call.start_ns)
    for group in batch.groups():
        for trajectory in group.trajectories:
            lived = books.trajectories[batch.mode, batch.step, batch.ordinal, trajectory.row]
            shard = _shard(batch, trajectory.row)
            at = later[lived.process]
            told = _told(batch, shard, group.index, trajectory, at)
            told["verified"] = [start - at for start in verified[trajectory.row]]
            really: dict[str, tuple[object, ...]] = {
                "lengths": ((lived.prompt_tokens, lived.response_tokens),),
                "start": (None, lived.start_ns),
                "turns": tuple(lived.turns),
                "tools": tuple(lived.tools),
                "verified": (lived.verified[0],),
                "reward": (None, lived.verified[1]),
                "engine": (None, lived.engine),
                "policy": (None, lived.policy),
                "mask": (None, lived.loss_runs),
                "kept": (None, lived.kept),
                "used": (None, lived.used),
            }
            for what, values in told.items():
                if not set(values) <= set(really[what]):
                    yield f"{what} of {lived.place}: {values}, really {really[what]}"
            known = dict(enumerate(lived.turns))
            if any(known.get(turn.index) != (turn.start_ns or 0) - at for turn in trajectory.turns):
                yield f"turns of {lived.place} are not in their order"


def _shard(batch: Batch, row: int) -> BatchShard:
    """The piece of a batch that a row is in: its one process may have told of it in several."""
    [shard] = (
        shard
        for shard in batch.shards
        if shard.offset <= row < shard.offset + len(shard.response_tokens)
    )
    return shard


def _told(
    batch: Batch, shard: BatchShard, group: int, trajectory: Trajectory, at: int
) -> dict[str, list[object]]:
    local = trajectory.row - shard.offset
    times = shard.times_ns[local] if shard.times_ns else None
    return {
        "lengths": [(trajectory.prompt_tokens, trajectory.response_tokens)],
        "start": [None if times is None else times[0] - at],
        "turns": [(turn.start_ns or 0) - at for turn in trajectory.turns],
        "tools": [call.start_ns - at for call in trajectory.tool_calls],
        "reward": [reward.value for reward in trajectory.rewards],
        "engine": [trajectory.engine],
        "policy": [trajectory.policy_versions],
        "mask": [trajectory.loss_runs],
        "kept": [None if batch.kept is None else group in batch.kept],
        "used": [None if batch.used is None else group in batch.used],
    }
