r"""Shape of a recording on disk: files, header, rows, open-span table.

A run is one folder ``DIR/RUN_ID/``. Every process start writes files of its own::

    p<process>.<segment>.jsonl    the journal, segment 0000, 0001, ... (rotation)
    p<process>.<segment>.jsonl.gz the same, compressed by gzip once it is finished
    p<process>.<segment>.jsonl.parquet the same, compacted once it is finished
    p<process>.open               the open-span table, fixed size, memory-mapped

``<process>`` is 16 hex digits: four that name the node, then random ones. A journal is JSON Lines
in UTF-8. Line 1 of every segment is the header object (:data:`HEADER_KEYS`). Every other line is an
array:

=====================================================  ==========================================
``[def, start, duration, span, parent, error, *attrs]``  a finished span of definition ``def``
``[def, time, parent, *values]``                         an event of definition ``def``
``["def", def, kind, name, [attribute, ...]]``           a definition, before its first use;
                                                         kind is "span" or "event"
``["open", def, start, span, parent]``                   a span still open after one second
``["lost", time, reason, total]``                        rows dropped so far for this reason
``["fault", time, place, error, total]``                 errors inside the probe so far, by place
``["level", time, level, reason]``                       what is recorded changed: full; stages (no
                                                         turns, no tool calls); spans (no lengths
                                                         and rewards either, nor user spans); off
``["muted", time, place, reason]``                       a hook point cost too much: nothing is read
                                                         there from here on
``["own", time, ns]``                                    time that users' threads spent in the probe
                                                         so far, and CPU time of its flush thread
``["end", time, reason]``                                the journal was closed in an orderly way
``["sum", lines, crc]``                                  checksum of the chunk before it
=====================================================  ==========================================

Times are ns relative to the header's ``mono_ns`` (CLOCK_MONOTONIC); ``span`` and ``parent`` are
counters of this process, from 1, parent 0 means none; ``error`` is an exception type name or null.
``lost``, ``fault`` and ``own`` carry running totals of the process: the last one counts.

Lines are written in chunks, each in one go with the ``sum`` that ends it (:func:`sum_row`). Lines
without a ``sum`` that fits are not used but counted: at the end of a file they are what a killed
process was writing, anywhere else they are damaged. A file is never appended to by another process
start.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

__all__ = [
    "CHUNK_B", "COMPACTED_SUFFIX", "HEADER_KEYS", "JOURNAL_SUFFIX", "MOVED_SUFFIX", "OPEN_HEADER",
    "OPEN_MAGIC", "OPEN_SLOT", "OPEN_SLOTS", "OPEN_SLOT_BYTES", "OPEN_SUFFIX", "PACKED_SUFFIX",
    "PACKED_SUFFIXES", "SCHEMA_VERSION", "pack_block", "segment_name", "sum_row", "unpack_block",
]  # fmt: skip

SCHEMA_VERSION: Final = 2
"""Version of this shape. A reader refuses another one and says so."""

CHUNK_B: Final = 16 * 1024 * 1024
"""Size above which a writer splits a chunk of several lines, bytes."""

JOURNAL_SUFFIX: Final = ".jsonl"
OPEN_SUFFIX: Final = ".open"
PACKED_SUFFIX: Final = ".gz"
COMPACTED_SUFFIX: Final = ".parquet"
PACKED_SUFFIXES: Final = (PACKED_SUFFIX, COMPACTED_SUFFIX)
"""Behind the name of a segment that was finished, and put into another form."""

MOVED_SUFFIX: Final = ".moved"
"""In a spool only, behind the name of a segment: it is in the run folder, and as long there as this
file, which holds nothing, says it is."""

HEADER_KEYS: Final[dict[str, str]] = {
    "journal": "the word 'rlvr-probe'",
    "schema": "SCHEMA_VERSION of the writer",
    "names": "NAMES_VERSION of the writer",
    "probe": "version of rlvr-probe",
    "process": "16 hex digits, the same in every segment of one process start",
    "segment": "number of this file, from 0",
    "run": "run id",
    "job": "key of the job launch (attempt) this process belongs to",
    "owner": "process key of the recording process that started this one, or null",
    "host": "host name",
    "boot": "boot id of the kernel; CLOCK_MONOTONIC is one clock per boot id",
    "pid": "process id",
    "ppid": "process id of the parent",
    "start_ticks": "start time of the process in clock ticks since boot, or null",
    "mono_ns": "CLOCK_MONOTONIC at time 0 of this journal",
    "epoch_ns": "wall clock at the same moment, ns since 1970",
    "python": "Python version",
    "rank": "RANK at start, or null",
    "local_rank": "LOCAL_RANK at start, or null",
    "world_size": "WORLD_SIZE at start, or null",
    "ids": "foreign ids by allow-list: slurm_job_id, ray_job_id, wandb_run_id, ...",
}
"""Keys of a header, each with what it holds. Nothing else is written."""


def segment_name(process: str, segment: int) -> str:
    """File name of one segment of a process's journal."""
    return f"p{process}.{segment:04d}{JOURNAL_SUFFIX}"


def sum_row(lines: int, crc: int) -> bytes:
    """The line that ends a chunk; its number covers the chunk and this line up to the number.

    Args:
        lines: Lines of the file before this one, with the header, without sums.
        crc: CRC-32 of the lines of the chunk.
    """
    head = b'["sum",%d,' % lines
    return b"%b%d]\n" % (head, zlib.crc32(head, crc))


OPEN_MAGIC: Final = b"RLVROPN2"
OPEN_HEADER: Final = struct.Struct("<8s16sQQIIQQI")
"""magic, process (hex), heartbeat (CLOCK_MONOTONIC ns), coarse spans that found no free slot,
number of slots, 1 once the process closed its journal in an orderly way, rows lost so far, lines
that its journal holds (with headers, without sums), CRC-32 of all this. At offset 0."""

OPEN_SLOTS: Final = 64
OPEN_SLOT: Final = struct.Struct("<QQQQq32s48sI")
"""span (0 = free; written last, cleared first), parent, start (CLOCK_MONOTONIC ns), native thread
id, step (-1 unknown), name, detail (both UTF-8, cut, zero-padded), CRC-32 of all this (0 in a free
slot). Slot i lies at ``(i + 1) * OPEN_SLOT_BYTES``; the first block holds the header."""

OPEN_SLOT_BYTES: Final = 128

_CRC_BYTES = 4


def pack_block(form: struct.Struct, *values: object) -> bytes:
    """``values`` as ``OPEN_HEADER`` or ``OPEN_SLOT``, with their CRC-32, which is the last field.

    Raises:
        struct.error: A value does not fit its field.
    """
    data = form.pack(*values, 0)[:-_CRC_BYTES]
    return data + zlib.crc32(data).to_bytes(_CRC_BYTES, "little")


def unpack_block(form: struct.Struct, data: bytes, offset: int) -> tuple[Any, ...] | None:
    """What :func:`pack_block` was given; None if the CRC-32 does not fit, or ``data`` is short."""
    if offset + form.size > len(data):
        return None
    *values, crc = form.unpack_from(data, offset)
    fits = zlib.crc32(data[offset : offset + form.size - _CRC_BYTES]) == crc
    return tuple(values) if fits else None
