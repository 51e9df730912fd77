"""Reads an open-span table by plain reads: it may belong to a process that hangs, or is dead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rlvr_probe.model import schema

__all__ = ["Slot", "Table", "read_table"]

_NAME = re.compile(r"[a-z][a-z0-9_]*")


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
            0 if never.
        overflow: Coarse spans that found no free slot.
        ended: The process closed its journal in an orderly way.
        slots: Open spans.
        bad_slots: Slots that hold nonsense.
        lost: Rows lost, as far as the process knew when it was last seen.
    """

    heartbeat_ns: int
    overflow: int
    ended: bool
    slots: tuple[Slot, ...]
    bad_slots: int
    lost: int = 0


def read_table(path: Path) -> Table | None:
    """The table in ``path``, or None if it cannot be read or is not one."""
    whole = (schema.OPEN_SLOTS + 1) * schema.OPEN_SLOT_BYTES
    try:
        with path.open("rb") as file:
            data = file.read(whole)
    except OSError:
        return None
    if len(data) < schema.OPEN_HEADER.size:
        return None
    magic, _, heartbeat_ns, overflow, count, ended, lost = schema.OPEN_HEADER.unpack_from(data)
    if magic != schema.OPEN_MAGIC:
        return None
    slots, bad = list[Slot](), 0
    for number in range(1, min(count, schema.OPEN_SLOTS) + 1):
        offset = number * schema.OPEN_SLOT_BYTES
        if offset + schema.OPEN_SLOT.size > len(data):
            break
        values = schema.OPEN_SLOT.unpack_from(data, offset)
        if values[0]:
            slot = _slot(*values)
            if slot is None:
                bad += 1
            else:
                slots.append(slot)
    return Table(heartbeat_ns, overflow, bool(ended), tuple(slots), bad, lost)


def _slot(
    span: int, parent: int, start_ns: int, thread: int, step: int, name: bytes, detail: bytes
) -> Slot | None:
    text = name.rstrip(b"\0").decode("utf-8", "replace")
    # A detail is cut at a byte, perhaps inside a character.
    more = detail.rstrip(b"\0").decode("utf-8", "ignore")
    if span >= 1 << 63 or start_ns >= 1 << 63 or not _NAME.fullmatch(text):
        return None
    return Slot(span, parent, start_ns, thread or None, None if step < 0 else step, text, more)
