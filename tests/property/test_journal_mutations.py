"""A damaged recording never ends in a traceback, and never counts more than there was.

Mutations are drawn from numbered seeds: a failure names its seed, and the case can be run again.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.report import render, summarize
from rlvr_probe.trace import read_run
from rlvr_probe.workload import build_workload
from tests.journals import JournalFile, Training

ANYTHING = 1_400
GARBAGE = 600
BATCH = 100
COUNTED = ("processes", "steps", "groups", "trajectories", "prompt_tokens", "response_tokens")
SPLICES = (b"", b"\n", b"[", b"]", b"{", b'"', b",", b"-", b"null", b"1e9", b"99999999999999999999",
           b"[[[[", b"\x00", b"\xff", b'"end"', b"[0,", b"\\ud800")  # fmt: skip

Files = dict[str, bytes]
Mutation = Callable[[random.Random, bytes], bytes]


def recording(folder: Path, *, resumed: bool) -> Files:
    """Two ranks, evaluation, two segments, open spans; with ``resumed`` a killed first attempt."""
    for attempt in range(1 + resumed):
        for rank in (0, 1):
            journal = JournalFile(
                folder, 1 + rank + 2 * attempt, start_s=50.0 * attempt, header={"job": f"{attempt}"}
            )
            training = Training(journal, rank=rank, ranks=2, per_rank=4)
            training.begin(resumed_step=attempt)
            training.step(1 + attempt)
            journal.rotate()
            training.evaluate(1 + attempt)
            training.step(2 + attempt)
            training.step(3 + attempt, finish=False)
            journal.row("lost", 10, "queue_full", 2)
            journal.row("own", 10, 12345)
            journal.close(end=attempt == 1)
            journal.open_table((training.journal.spans + 1, 3.0, "step", ""), beat_s=5.0, step=3)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def anything(draw: random.Random, data: bytes) -> bytes:
    """Flip, cut, repeat, splice or move bytes."""
    begin = draw.randrange(len(data) + 1)
    end = min(len(data), begin + draw.choice((1, 1, 2, 8, 60, 4000)))
    kind = draw.randrange(6)
    if kind == 0:
        return data[:begin] + draw.randbytes(end - begin) + data[end:]
    if kind == 1:
        return data[:begin]
    if kind == 2:
        return data[:begin] + data[end:]
    if kind == 3:
        return data[:end] + data[begin:]
    if kind == 4:
        return data[:begin] + draw.choice(SPLICES) + data[begin:]
    return data[:begin] + draw.choice(SPLICES) + data[end:]


def garbage(draw: random.Random, data: bytes) -> bytes:
    """Overwrite or insert bytes that are never JSON, as a failing disk does."""
    begin = draw.randrange(len(data))
    length = draw.choice((1, 4, 64, 1500))
    bad = bytes(draw.randrange(0xF8, 0x100) for _ in range(length))
    return data[:begin] + bad + data[begin + draw.choice((0, length)) :]


def damage(folder: Path, files: Files, draw: random.Random, mutation: Mutation) -> None:
    """Write ``files`` into ``folder``, one to three of them mutated."""
    hit = draw.choices(sorted(files), k=draw.choice((1, 1, 1, 2, 3)))
    for name, data in files.items():
        for _ in range(hit.count(name)):
            data = mutation(draw, data) or b"\n"
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("batch", range(ANYTHING // BATCH))
def test_no_damage_ends_in_a_traceback(tmp_path: Path, batch: int) -> None:
    files = recording(tmp_path / "whole", resumed=True)
    folder = tmp_path / "damaged"
    folder.mkdir()
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        damage(folder, files, random.Random(seed), anything)
        try:
            trace = read_run(folder)
            render(summarize(trace), io.StringIO())
            build_workload(trace)
        except ProbeError:
            continue
        except Exception as error:
            pytest.fail(f"seed {seed}: {error!r}")


@pytest.mark.parametrize("batch", range(GARBAGE // BATCH))
def test_damage_only_lowers_counts_and_is_counted_where_it_does(tmp_path: Path, batch: int) -> None:
    files = recording(tmp_path / "whole", resumed=False)
    whole = summarize(read_run(tmp_path / "whole"))
    folder = tmp_path / "damaged"
    folder.mkdir()
    journals = {name: data for name, data in files.items() if name.endswith(".jsonl")}
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        damage(folder, journals, random.Random(seed), garbage)
        found: dict[str, Any] = summarize(read_run(folder))
        risen = {key: found[key] for key in COUNTED if found[key] > whole[key]}
        fallen = {key: found[key] for key in COUNTED if found[key] < whole[key]}
        assert not risen, f"seed {seed}: {risen}"
        # What the recorder itself counted may be what was hit.
        noticed = found["lost"].keys() - {"queue_full"}
        assert noticed or not fallen, f"seed {seed}: {fallen}"
