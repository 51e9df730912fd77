"""Processes that write to a spool, somebody who compresses it, and one who moves it and is killed.

What was written is known from the spool alone: from each write on, byte for byte. A kill strikes at
a random call of the system, before, after or in the middle of it, as SIGKILL would.
"""

from __future__ import annotations

import gzip
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.model import schema
from rlvr_probe.probe import identity
from rlvr_probe.probe.journal import JournalWriter, OpenTable
from rlvr_probe.probe.journal.writer import build_header
from rlvr_probe.recording.chunks import Chunks, open_source, read_chunks
from rlvr_probe.recording.files import JOURNAL
from rlvr_probe.recording.opentable import read_table
from rlvr_probe.sidecar.segments import compress
from rlvr_probe.sidecar.spool_mover import Mover, leaving
from rlvr_probe.spool import LEAVING_SUFFIX, Target

__all__ = ["Killed", "Node", "Writer", "check", "kills", "play"]

SEGMENT_B = 6_000
_Trigger = tuple[Callable[[], None], Callable[[], None]]


class Killed(BaseException):
    """Nothing of the mover runs after it."""


class Writer:
    """One process: its rows are numbers, from 0."""

    def __init__(self, spool: Path) -> None:
        self.process = identity.process_key()
        self.spool = spool
        self.rows = 0
        self.files: dict[int, bytes] = {}
        header = build_header(process=self.process, run="run", owner=None, mono_ns=1, epoch_ns=1)
        self._writer = JournalWriter(spool, self.process, header, lambda _: (), SEGMENT_B)
        self.write(1)
        self._table = OpenTable(spool / f"p{self.process}{schema.OPEN_SUFFIX}", self.process)
        self.beat()

    def write(self, count: int) -> None:
        self._writer.write([[0, self.rows + at, "x" * 40] for at in range(count)])
        self.rows += count
        self._note()

    def beat(self, *, ended: bool = False) -> None:
        self._table.beat(self.rows, 0, self._writer.written, ended)

    def tear(self) -> None:
        """What a process that is killed in the middle of a write leaves."""
        with max(self.spool.glob(f"p{self.process}.*.jsonl")).open("ab") as file:
            file.write(b'[0,999999,"xx')
        self._note()

    def close(self) -> None:
        self._writer.close()
        self.beat(ended=True)

    def _note(self) -> None:
        for path in self.spool.glob(f"p{self.process}.*.jsonl"):
            self.files[int(path.name.split(".")[1])] = path.read_bytes()


class Node:
    """A spool, its writers, and the run folder."""

    def __init__(self, folder: Path) -> None:
        self.spool, self.target = folder / "spool", folder / "runs" / "run"
        self.spool.mkdir(0o700)
        self.writers: list[Writer] = []
        self.mover = self._new_mover()
        self.seen: Counter[str] = Counter()

    def _new_mover(self) -> Mover:
        return Mover(self.spool, Target(self.target, network=False))

    def replace_mover(self) -> None:
        """Another one goes on; the system closes what a process that is killed had open."""
        for copy in self.mover._copies.values():
            copy.close()
        self.mover = self._new_mover()

    def round(self) -> None:
        self.mover.round()
        asked = leaving(self.spool)
        if asked:
            self.mover.round(asked)

    def find_spool(self) -> bool:
        """As who takes over finds it, wherever the last one was killed; whether it is there."""
        found = list(self.spool.parent.glob("spool*"))
        if found:
            [self.spool] = found
            self.replace_mover()
        return bool(found)

    def compress(self, *, delete: bool) -> None:
        """Compress one segment that nobody writes to any more, or delete what was."""
        for writer in self.writers:
            paths = sorted(self.spool.glob(f"p{writer.process}.*.jsonl"))
            for path in paths if writer.process in leaving(self.spool) else paths[:-1]:
                if Path(f"{path}.gz").exists():
                    if delete:
                        path.unlink()
                        return
                elif not delete:
                    with suppress(FileNotFoundError):
                        for _ in compress(path):
                            pass
                    return


@contextmanager
def kills(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> Iterator[_Trigger]:
    """Arms a kill at one of the next calls of the system, and disarms it."""
    left = dict[str, int]()

    def strikes() -> bool:
        if "calls" not in left:
            return False
        left["calls"] -= 1
        return left["calls"] == 0 and left.pop("calls") == 0

    def wrap(function: Any, partly: Any = None) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not strikes():
                return function(*args, **kwargs)
            when = rng.choice(("before", "after", "partly"))
            if when == "after":
                function(*args, **kwargs)
            elif when == "partly" and partly is not None:
                partly(*args)
            raise Killed

        return call

    def part_of_pwrite(fd: int, data: memoryview, at: int) -> None:
        pwrite(fd, data[: rng.randrange(len(data))], at)

    def part_of_write(fd: int, data: memoryview) -> None:
        write(fd, data[: rng.randrange(len(data))])

    pwrite, write = os.pwrite, os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", wrap(pwrite, part_of_pwrite))
        patch.setattr(os, "write", wrap(write, part_of_write))
        for name in ("fsync", "open", "rename", "replace", "unlink", "ftruncate", "mkdir"):
            patch.setattr(os, name, wrap(getattr(os, name)))

        def arm() -> None:
            left["calls"] = rng.randrange(1, 40)

        yield arm, left.clear


def check(node: Node) -> None:
    """The run folder holds a beginning of what each process wrote, and never less than before."""
    tables = {path.name[1:17] for path in node.target.glob("p*.open")}
    for writer in node.writers:
        numbers = dict[int, Path]()
        for path in sorted(node.target.glob(f"p{writer.process}.*")):
            found = JOURNAL.fullmatch(path.name)
            if found is not None:
                numbers.setdefault(int(found[2]), path)
        assert sorted(numbers) == list(range(len(numbers)))
        rows, lines = list[int](), 0
        for number, path in sorted(numbers.items()):
            with open_source(path, path.stat().st_size) as source:
                chunks = Chunks()
                for chunk in read_chunks(source, source.size_b, chunks):
                    lines_of = (line for line in chunk.body.split(b"\n") if line[:1] == b"[")
                    rows += [int(line.split(b",")[1]) for line in lines_of]
            lines += chunks.lines
            assert (chunks.damaged, chunks.repeated) == (0, 0), path
            if path.suffix == schema.PACKED_SUFFIX:
                assert gzip.decompress(path.read_bytes()) == writer.files[number]
            else:
                assert writer.files[number].startswith(path.read_bytes())
        assert rows == list(range(len(rows)))
        assert node.seen[writer.process] <= len(rows) <= writer.rows
        node.seen[writer.process] = len(rows)
        if writer.process in tables:
            table = read_table(node.target / f"p{writer.process}.open", writer.process)
            assert table is not None
            assert (table.damaged, table.bad_slots) == (False, 0)
            assert table.written <= lines


def play(folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> Node:
    """One life of a node, checked after each of its events; everybody has closed at the end."""
    rng = random.Random(seed)
    node = Node(folder)
    with kills(monkeypatch, rng) as (arm, disarm):
        for _ in range(60):
            event = rng.choices(
                ("begin", "write", "round", "kill", "compress", "delete", "leave", "tear"),
                (1, 12, 8, 6, 5, 1, 0.5, 0.5),
            )[0]
            live = [writer for writer in node.writers if writer.process not in leaving(node.spool)]
            if event == "begin" or not node.writers:
                node.writers.append(Writer(node.spool))
            elif event == "write" and live:
                one = rng.choice(live)
                one.write(rng.randrange(1, 120))
                one.beat()
            elif event == "round":
                node.round()
            elif event == "kill":
                arm()
                try:
                    node.round()
                    node.round()
                except Killed:
                    node.replace_mover()
                disarm()
            elif event in ("compress", "delete"):
                node.compress(delete=event == "delete")
            elif event in ("leave", "tear") and live:
                one = rng.choice(live)
                if event == "tear":
                    one.tear()
                one.close()
                (node.spool / f"p{one.process}{LEAVING_SUFFIX}").touch()
            check(node)
        for writer in node.writers:
            if writer.process not in leaving(node.spool):
                writer.close()
        for left in reversed(range(10)):
            if left:
                arm()
            try:
                assert not node.mover.finish()
                break
            except Killed:
                disarm()
                if not node.find_spool():
                    break
            check(node)
        disarm()
    check(node)
    return node
