"""Lets a finished recording come into being again, as its processes would have written it.

Rows come in the order of their ends, whole chunks at a time, and every process shows that its flush
thread runs.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlvr_probe.model import schema
from rlvr_probe.probe import identity
from rlvr_probe.recording.files import JOURNAL
from rlvr_probe.recording.process_state import Machine
from tests.journals import BOOT, fake_proc, summed

__all__ = ["Growing"]


@dataclass
class _Process:
    header: dict[str, Any]
    ahead_ns: int
    rows: list[tuple[int, bytes]] = field(default_factory=list)
    """True time of day at which each ended, ns since 1970, and the row."""
    written: int = 0
    lines: int = 0
    began: bool = False

    @property
    def offset_ns(self) -> int:
        return int(self.header["epoch_ns"] - self.ahead_ns - self.header["mono_ns"])


class Growing:
    """A recording that comes into being in ``folder``.

    Attributes:
        machine: One on which its processes run.
    """

    def __init__(self, source: Path, folder: Path, proc: Path, ahead_ns: int = 0) -> None:
        """Take the recording in ``source``, which must have one segment per process.

        Args:
            source: A run folder.
            folder: Where it comes into being; not there yet.
            proc: A folder for the machine.
            ahead_ns: What the wall clock of other machines is ahead, ns.
        """
        self.folder = folder
        folder.mkdir()
        self._processes = [
            _read(path, ahead_ns)
            for path in sorted(source.iterdir())
            if JOURNAL.fullmatch(path.name)
        ]
        running = {f"p{process.header['pid']}": ("R", 77) for process in self._processes}
        self.machine: Machine = fake_proc(proc, BOOT, **running)
        self.times = sorted({at for process in self._processes for at, _ in process.rows})

    def belong_to(self, pid: int) -> None:
        """Let every process be a real one, with its pid on this machine."""
        real = {"boot": identity.boot_id(), "pid": pid}
        for process in self._processes:
            process.header.update(real, start_ticks=identity.process_start_ticks(pid))

    def leave_out(self, tag: str) -> None:
        """Never write the rows about the recording itself that begin with ``tag``."""
        for process in self._processes:
            process.rows = [
                row for row in process.rows if not row[1].startswith(f'["{tag}"'.encode())
            ]

    def rounds(self, count: int) -> Iterator[int]:
        """Write about a ``count``-th of it at a time; until when, ns since 1970."""
        for number in range(1, count + 1):
            until = self.times[(len(self.times) - 1) * number // count]
            self.write(until)
            yield until

    def write(self, until_ns: int) -> None:
        """Write what ended until then."""
        for process in self._processes:
            if process.header["epoch_ns"] - process.ahead_ns <= until_ns:
                self._write(process, until_ns)

    def _write(self, process: _Process, until_ns: int) -> None:
        path = self.folder / schema.segment_name(process.header["process"], 0)
        if not process.began:
            process.began, process.lines = True, 1
            path.write_bytes(summed([_encode(process.header)]))
        due = [row for at, row in process.rows[process.written :] if at <= until_ns]
        process.written += len(due)
        if due:
            process.lines += len(due)
            part = b"".join(row + b"\n" for row in due)
            with path.open("ab") as file:
                file.write(part + schema.sum_row(process.lines, zlib.crc32(part)))
        block = schema.pack_block(
            schema.OPEN_HEADER, schema.OPEN_MAGIC, process.header["process"].encode(),
            until_ns - process.offset_ns, 0, schema.OPEN_SLOTS, 0, 0, process.lines,
        )  # fmt: skip
        data = bytearray((schema.OPEN_SLOTS + 1) * schema.OPEN_SLOT_BYTES)
        data[: len(block)] = block
        (self.folder / f"p{process.header['process']}{schema.OPEN_SUFFIX}").write_bytes(data)


def _read(path: Path, ahead_ns: int) -> _Process:
    header, *rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    process = _Process(header, 0 if header["boot"] == BOOT else ahead_ns)
    spans = set[int]()
    begin = header["epoch_ns"] - process.ahead_ns
    for row in rows:
        if row[0] == "sum":
            continue
        if row[0] == "def":
            at = 0
            if row[2] == "span":
                spans.add(row[1])
        else:
            at = begin + row[1] + (row[2] if row[0] in spans else 0)
        process.rows.append((at, _encode(row)))
    process.rows.sort(key=lambda found: found[0])
    return process


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
