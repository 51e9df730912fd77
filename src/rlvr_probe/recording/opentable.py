"""Reads an open-span table by plain reads: it may belong to a process that hangs, or is dead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rlvr_probe.model import schema

__all__ = ["Slot", "Table", "parse_table", "read_ended", "read_table", "read_whole_table"]

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SIZE = (schema.OPEN_SLOTS + 1) * schema.OPEN_SLOT_BYTES
_FREE = bytes(8)
_CRC = slice(schema.OPEN_SLOT.size - 4, schema.OPEN_SLOT.size)
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Slot:
    """One open span; times are CLOCK_MONOTONIC, ns."""

    span: int
    parent: int
    start_ns: int
    thread: int | None
    step: int | None
    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class Table:
    """The open-span table of one process.

    Attributes:
        heartbeat_ns: When the process last showed that its flush thread runs, CLOCK_MONOTONIC;
            0 if never, or unknown.
        overflow: Coarse spans that found no free slot.
        ended: The process closed its journal in an orderly way.
        slots: Open spans.
        bad_slots: Slots that are damaged.
        lost: Rows lost, as far as the process knew when it was last seen.
        written: Lines that its journal held then.
        damaged: The header is not as it was written, so that only the slots are known, or the file
            has another size.
    """

    heartbeat_ns: int
    overflow: int
    ended: bool
    slots: tuple[Slot, ...]
    bad_slots: int
    lost: int = 0
    written: int = 0
    damaged: bool = False


def read_table(path: Path, process: str) -> Table | None:
    """The table of ``process`` in ``path``, or None if there is none to read."""
    table: Table | None = None
    for _ in range(_TRIES):
        try:
            with path.open("rb") as file:
                data = file.read(_SIZE + 1)
        except OSError:
            return None
        table = parse_table(data, process)
        # A live process may write while we read.
        if not table.damaged and not table.bad_slots:
            break
    return table


def read_whole_table(path: Path, process: str) -> bytes | None:
    """A table of open spans as it was at one moment; None if there is none, or it changes."""
    for _ in range(_TRIES):
        try:
            with path.open("rb", buffering=0) as file:
                data = file.read(_SIZE + 1)
        except OSError:
            return None
        table = parse_table(data, process)
        if not table.damaged and not table.bad_slots:
            return data
    return None


def read_ended(path: Path, process: str) -> bool | None:
    """Whether ``process`` closed its journal in an orderly way; None if no table says.

    Cheap enough for every second: it reads the first block alone, once.
    """
    try:
        with path.open("rb", buffering=0) as file:
            data = file.read(schema.OPEN_SLOT_BYTES)
    except OSError:
        return None
    found = schema.unpack_block(schema.OPEN_HEADER, data, 0)
    if found is None or found[:2] != (schema.OPEN_MAGIC, process.encode()):
        return None
    return bool(found[5])


def parse_table(data: bytes, process: str) -> Table:
    """What a file that is to be the table of ``process`` says."""
    found = schema.unpack_block(schema.OPEN_HEADER, data, 0)
    if found is not None and found[1] != process.encode():
        # Renamed, or copied over: its slots are another's as well.
        return Table(0, 0, False, (), 0, damaged=True)
    slots, bad = list[Slot](), 0
    for offset in range(schema.OPEN_SLOT_BYTES, len(data), schema.OPEN_SLOT_BYTES):
        block = data[offset : offset + schema.OPEN_SLOT_BYTES]
        if block.startswith(_FREE) and not any(block[_CRC]):
            continue
        values = schema.unpack_block(schema.OPEN_SLOT, block, 0)
        slot = None if values is None else _slot(*values)
        if slot is None:
            bad += 1
        else:
            slots.append(slot)
    if found is None or found[0] != schema.OPEN_MAGIC:
        return Table(0, 0, False, tuple(slots), bad, damaged=True)
    _, _, heartbeat_ns, overflow, places, ended, lost, written = found
    # A sidecar, which has no spans, notes the first block alone.
    damaged = len(data) != (_SIZE if places else schema.OPEN_SLOT_BYTES)
    return Table(heartbeat_ns, overflow, bool(ended), tuple(slots), bad, lost, written, damaged)


def _slot(
    span: int, parent: int, start_ns: int, thread: int, step: int, name: bytes, detail: bytes
) -> Slot | None:
    text = name.rstrip(b"\0").decode("utf-8", "replace")
    # A detail is cut at a byte, perhaps inside a character.
    more = detail.rstrip(b"\0").decode("utf-8", "ignore")
    if span >= 1 << 63 or start_ns >= 1 << 63 or not _NAME.fullmatch(text):
        return None
    return Slot(span, parent, start_ns, thread or None, None if step < 0 else step, text, more)
