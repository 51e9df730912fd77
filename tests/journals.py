"""Writes synthetic recordings, row by row in the schema, without the recorder.

A test says what a process did; :class:`JournalFile` keeps definitions, span ids and segments. Times
are seconds from the start of the process.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rlvr_probe.model import names, schema
from rlvr_probe.recording.process_state import Machine

BOOT = "00000000-0000-4000-8000-000000000001"
MONO_NS = 5_000_000_000_000
EPOCH_NS = 1_790_000_000_000_000_000
SECOND = 1_000_000_000


def key(number: int) -> str:
    """Process key of test process ``number``."""
    return f"{number:016x}"


def summed(lines: Sequence[bytes], chunk: int = 20) -> bytes:
    """A journal of these lines, in chunks of at most ``chunk`` lines; the first is the header."""
    data = b""
    begin = 0
    while begin < len(lines):
        end = min(len(lines), begin + chunk) if begin else 1
        part = b"".join(line + b"\n" for line in lines[begin:end])
        data += part + schema.sum_row(end, zlib.crc32(part))
        begin = end
    return data


def _encode(line: object) -> bytes:
    return line if isinstance(line, bytes) else json.dumps(line, separators=(",", ":")).encode()


def fake_proc(folder: Path, boot: str = BOOT, **processes: tuple[str, int]) -> Machine:
    """A /proc with a boot id and processes as name=(state, start ticks)."""
    (folder / "sys/kernel/random").mkdir(parents=True)
    (folder / "sys/kernel/random/boot_id").write_text(boot + "\n")
    for name, (state, ticks) in processes.items():
        (folder / name[1:]).mkdir()
        text = f"{name[1:]} (a ) b) {state} 1 " + "0 " * 17 + f"{ticks} 0 0\n"
        (folder / name[1:] / "stat").write_text(text)
    return Machine(folder)


@dataclass
class JournalFile:
    """The journal of one process; rows wait until :meth:`close`, or :meth:`rotate`."""

    folder: Path
    number: int = 1
    run: str = "run-1"
    start_s: float = 0.0
    header: dict[str, Any] = field(default_factory=dict)
    segment: int = 0
    chunk: int = 20
    lines: int = 0

    def __post_init__(self) -> None:
        """Fill in the header."""
        self.folder.mkdir(parents=True, exist_ok=True)
        start_ns = round(self.start_s * SECOND)
        self.header = {
            "journal": "rlvr-probe",
            "schema": schema.SCHEMA_VERSION,
            "names": names.NAMES_VERSION,
            "probe": "0.1.0",
            "process": key(self.number),
            "segment": 0,
            "run": self.run,
            "job": "job-1",
            "owner": None,
            "host": "node-1",
            "boot": BOOT,
            "pid": 1000 + self.number,
            "ppid": 1,
            "start_ticks": 77,
            "mono_ns": MONO_NS + start_ns,
            "epoch_ns": EPOCH_NS + start_ns,
            "python": "3.11.7",
            "rank": None,
            "local_rank": None,
            "world_size": None,
            "ids": {},
        } | self.header
        self.rows: list[list[Any] | bytes] = []
        self.spans = 0
        self._definitions: dict[tuple[str, tuple[str, ...]], int] = {}
        self._defined: set[int] = set()

    @property
    def path(self) -> Path:
        """File of the current segment."""
        return self.folder / schema.segment_name(self.header["process"], self.segment)

    def next_span(self) -> int:
        """Reserve a span id."""
        self.spans += 1
        return self.spans

    def definition(self, name: names.Name, attributes: Sequence[str]) -> int:
        """Number of a definition, written to this segment if it is not there yet."""
        number = self._definitions.setdefault(
            (name.name, tuple(attributes)), len(self._definitions)
        )
        if number not in self._defined:
            self._defined.add(number)
            kind = "event" if name.event else "span"
            self.rows.append(["def", number, kind, name.name, list(attributes)])
        return number

    def span(
        self,
        name: names.Name,
        start_s: float,
        end_s: float,
        *,
        span: int | None = None,
        parent: int = 0,
        error: str | None = None,
        **attributes: Any,
    ) -> int:
        """A finished span; its id."""
        span = self.next_span() if span is None else span
        number = self.definition(name, list(attributes))
        start, end = round(start_s * SECOND), round(end_s * SECOND)
        self.rows.append([number, start, end - start, span, parent, error, *attributes.values()])
        return span

    def event(self, name: names.Name, time_s: float, *, parent: int = 0, **attributes: Any) -> None:
        """An event."""
        number = self.definition(name, list(attributes))
        self.rows.append([number, round(time_s * SECOND), parent, *attributes.values()])

    def row(self, *values: Any) -> None:
        """Any row, as it is."""
        self.rows.append(list(values))

    def raw(self, line: bytes) -> None:
        """Any line, as it is."""
        self.rows.append(line)

    def close(self, tail: bytes = b"", *, end: bool = True) -> Path:
        """Write the segment: header, rows, an ``end`` row, ``tail``."""
        if end:
            self.row("end", round(100 * SECOND), "exit")
        lines = [{**self.header, "segment": self.segment}, *self.rows]
        self.lines += len(lines)
        self.path.write_bytes(summed([_encode(line) for line in lines], self.chunk) + tail)
        self.rows.clear()
        self._defined.clear()
        return self.path

    def rotate(self) -> None:
        """Write this segment and begin the next one."""
        self.close(end=False)
        self.segment += 1

    def open_table(
        self,
        *slots: tuple[int, float, str, str],
        parents: Mapping[int, int] = MappingProxyType({}),
        beat_s: float = 0.0,
        step: int = -1,
        overflow: int = 0,
        lost: int = 0,
        ended: bool = False,
    ) -> Path:
        """An open-span table with slots of (span, start in s, name, detail), and their parents.

        It says that the journal holds what has been written to it until now.
        """
        data = bytearray((schema.OPEN_SLOTS + 1) * schema.OPEN_SLOT_BYTES)
        mono_ns = self.header["mono_ns"]
        beat_ns = mono_ns + round(beat_s * SECOND)
        process = self.header["process"].encode()
        block = schema.pack_block(
            schema.OPEN_HEADER,
            schema.OPEN_MAGIC,
            process,
            beat_ns,
            overflow,
            schema.OPEN_SLOTS,
            int(ended),
            lost,
            self.lines,
        )
        data[: len(block)] = block
        for place, (span, start_s, name, detail) in enumerate(slots, 1):
            start_ns = mono_ns + round(start_s * SECOND)
            offset = place * schema.OPEN_SLOT_BYTES
            texts = (name.encode()[:32], detail.encode()[:48])
            block = schema.pack_block(
                schema.OPEN_SLOT, span, parents.get(span, 0), start_ns, 4242, step, *texts
            )
            data[offset : offset + len(block)] = block
        path = self.folder / f"p{self.header['process']}{schema.OPEN_SUFFIX}"
        path.write_bytes(data)
        return path


@dataclass
class Training:
    """One rank of a TRL-like training, written step by step.

    Attributes:
        journal: Where to write.
        rank: Global rank.
        ranks: Number of ranks.
        group_size: Trajectories per prompt.
        per_rank: Trajectories of one rank and batch.
        step_s: Duration of a step, s.
    """

    journal: JournalFile
    rank: int = 0
    ranks: int = 1
    group_size: int = 4
    per_rank: int = 8
    step_s: float = 1.0
    session: int = 0
    now_s: float = 0.5
    ordinals: dict[tuple[int, str], int] = field(default_factory=dict)

    def begin(self, **facts: Any) -> None:
        """The ``session`` event."""
        known: dict[str, Any] = {
            "session": self.session,
            "framework": "trl",
            "framework_version": "1.16.0",
            "algorithm": "grpo",
            "resumed_step": 0,
            "rank": self.rank,
            "world_size": self.ranks,
            "engine": "transformers",
            "group_size": self.group_size,
            "max_prompt_tokens": 128,
            "max_response_tokens": 64,
            "steps_per_generation": 1,
            "iterations": 1,
            "accumulation": 1,
            "reward_functions": ["accuracy"],
        }
        self.journal.event(names.SESSION, self.now_s, **(known | facts))

    def lengths(self, step: int) -> tuple[list[int], list[int]]:
        """Prompt and response tokens of this rank's rows of a batch."""
        first = self.rank * self.per_rank
        rows = range(first, first + self.per_rank)
        prompts = [20 + step + row // self.group_size for row in rows]
        return prompts, [1 + (step * 7 + row * 5) % 64 for row in rows]

    def generate(self, step: int, *, mode: str = "train", end: bool = True, parent: int = 0) -> int:
        """Experience with rollout, reward and lengths; its span id. Takes half a step."""
        journal, begin = self.journal, self.now_s
        where: dict[str, Any] = {"session": self.session, "step": step, "mode": mode}
        batch, reward = journal.next_span(), journal.next_span()
        unit = self.step_s / 8
        ordinal = self.ordinals.get((step, mode), 0)
        self.ordinals[step, mode] = ordinal + 1
        prompts, responses = self.lengths(step)
        journal.span(
            names.ROLLOUT,
            begin,
            begin + 2 * unit,
            parent=batch,
            **where,
            policy_version=max(0, step - 1),
        )
        journal.event(
            names.TRAJECTORIES, begin + 2 * unit, parent=batch, **where, batch=batch,
            ordinal=ordinal, policy_version=max(0, step - 1), offset=self.rank * self.per_rank,
            total=self.ranks * self.per_rank, group_size=self.group_size, prompt_tokens=prompts,
            response_tokens=responses, truncated=[int(length >= 64) for length in responses],
        )  # fmt: skip
        journal.span(
            names.REWARD_FN, begin + 2 * unit, begin + 3 * unit, parent=reward, batch=batch,
            function="accuracy", samples=self.per_rank,
        )  # fmt: skip
        values = [None if row == 1 else row / 8 for row in range(self.per_rank)]
        journal.event(
            names.REWARDS, begin + 3 * unit, batch=batch, function="accuracy", index=0,
            values=values,
        )  # fmt: skip
        journal.span(
            names.REWARD, begin + 2 * unit, begin + 4 * unit, span=reward, parent=batch, **where
        )
        if end:
            end_s = begin + 4 * unit
            journal.span(names.EXPERIENCE, begin, end_s, span=batch, parent=parent, **where)
        self.now_s = begin + 4 * unit
        return batch

    def step(self, step: int, *, generate: bool = True, finish: bool = True) -> None:
        """One trainer step; with ``finish`` false the process was killed after its rollout."""
        begin = self.now_s
        where: dict[str, Any] = {"session": self.session, "step": step}
        if generate:
            self.generate(step)
        if finish:
            end = begin + self.step_s
            self.journal.span(names.UPDATE_ACTOR, self.now_s, end, **where, mode="train")
            self.journal.span(names.STEP, begin, end, **where)
            self.now_s = end

    def evaluate(self, step: int) -> None:
        """An evaluation that carries the number ``step``."""
        begin, span = self.now_s, self.journal.next_span()
        self.generate(step, mode="eval", parent=span)
        where: dict[str, Any] = {"session": self.session, "step": step, "mode": "eval"}
        self.journal.span(names.EVAL, begin, self.now_s, span=span, **where)


def simple_run(folder: Path, *, ranks: int = 2, steps: int = 3, **facts: Any) -> list[Path]:
    """A finished run: ``ranks`` processes that did ``steps`` steps; its journals."""
    paths = list[Path]()
    for rank in range(ranks):
        journal = JournalFile(folder, number=rank + 1, start_s=0.1 * rank)
        training = Training(journal, rank=rank, ranks=ranks)
        training.begin(**facts)
        for step in range(1, steps + 1):
            training.step(step)
        paths.append(journal.close())
    return paths
