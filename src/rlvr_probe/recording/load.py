"""Reads every file of a run: per process its header, its rows and its open-span table."""

from __future__ import annotations

import io
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rlvr_probe.exceptions import RecordingError
from rlvr_probe.model import names, schema
from rlvr_probe.model.trace import ProcessState
from rlvr_probe.recording.files import RunFiles, Segment
from rlvr_probe.recording.header import Header, parse_header
from rlvr_probe.recording.journal import Journal
from rlvr_probe.recording.journal_decoder import JournalDecoder
from rlvr_probe.recording.liveness import Machine
from rlvr_probe.recording.opentable import Table, read_table
from rlvr_probe.recording.segment import Chunks, read_chunks
from rlvr_probe.recording.store import FineStore

__all__ = [
    "Loaded",
    "Progress",
    "Recorded",
    "load",
    "read_beginning",
]

Progress = Callable[[int, int], None]
"""Called with bytes read so far and bytes to read."""

_HEADER_LIMIT_B: Final = 64 * 1024
"""A header and its sum take about 1 KB."""


@dataclass(slots=True)
class Recorded:
    """What one process left behind.

    Attributes:
        trained: Whether it took part in a training; one that fills a queue for it did not.
    """

    header: Header
    journal: Journal
    table: Table | None
    state: ProcessState
    trained: bool = field(init=False)

    def __post_init__(self) -> None:
        """Note whether it trained, which the rows say that building a trace uses up."""
        journal = self.journal
        self.trained = not journal.queued and bool(
            journal.sessions
            or journal.trajectories
            or any(span.name == names.STEP.name for span in journal.spans)
        )

    @property
    def is_sidecar(self) -> bool:
        """Whether it read the devices of its node, and is no part of the job."""
        journal = self.journal
        return journal.role == names.SIDECAR or (bool(journal.devices) and not journal.spans)

    @property
    def heartbeat_ns(self) -> int:
        """When it was last seen alive, CLOCK_MONOTONIC, ns."""
        beat = 0 if self.table is None else self.table.heartbeat_ns
        return max(beat, self.journal.last_ns, self.header.mono_ns)


@dataclass(slots=True)
class Loaded:
    """Everything readable in a run folder.

    Attributes:
        run: Run id; empty if no header could be read.
        recorded: By start.
        skipped: Rows of files whose process is unknown, by reason.
        notes: What a reader should know, as sentences.
    """

    run: str = ""
    recorded: list[Recorded] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def load(
    files: RunFiles,
    machine: Machine,
    progress: Progress | None = None,
    fine: FineStore | None = None,
) -> Loaded:
    """Read the files of a run.

    Args:
        files: Of the run.
        machine: This machine.
        progress: Called after each process.
        fine: Gets the rows of single trajectories; without it they are only counted.

    Raises:
        RecordingError: They belong to two runs, or are newer than this version can read.
    """
    loaded = Loaded()
    if files.strangers:
        some = ", ".join(files.strangers[:3]) + (", ..." if len(files.strangers) > 3 else "")
        loaded.notes.append(f"{_files(len(files.strangers))} ignored, not of a recording: {some}")
    headers = {process: _headers(parts) for process, parts in files.segments.items()}
    _leave_out_foreign(files, headers, loaded)
    _check_one_run(files, headers, loaded)
    done, total = 0, files.size_b
    for process, parts in files.segments.items():
        header = next((header for header in headers[process] if header is not None), None)
        if header is not None:
            # The table before the journal: a span that ends in between is found as a finished row.
            table = _table(files, process)
            loaded.recorded.append(_process(header, parts, table, machine, fine))
        elif any(part.size_b for part in parts):
            loaded.skipped["no_header"] += sum(_count_lines(part) for part in parts)
            loaded.notes.append(f"journal of process {process} has no readable header: left out")
        done += sum(part.size_b for part in parts)
        if progress is not None:
            progress(done, total)
    _count_silent(files, loaded)
    _note_age(files, loaded, machine)
    loaded.recorded.sort(key=lambda one: (one.header.epoch_ns, one.header.process))
    return loaded


def _table(files: RunFiles, process: str) -> Table | None:
    path = files.tables.get(process)
    return None if path is None else read_table(path, process)


def _count_silent(files: RunFiles, loaded: Loaded) -> None:
    """Say which processes have no journal, and count the lines that they say it held."""
    silent = 0
    for process in files.tables.keys() | files.segments.keys():
        if any(part.size_b for part in files.segments.get(process, ())):
            continue
        table = _table(files, process)
        if table is not None and table.written:
            loaded.skipped["missing_rows"] += table.written
            loaded.notes.append(f"journal of process {process} is gone")
        else:
            silent += 1
    if silent:
        count = "1 process" if silent == 1 else f"{silent} processes"
        loaded.notes.append(f"{count} began to record and left nothing: not counted")


def _note_age(files: RunFiles, loaded: Loaded, machine: Machine) -> None:
    """Say how old is what was read of nodes whose sidecar copies it from time to time."""
    spooled = [
        one
        for one in loaded.recorded
        if one.journal.spool_s is not None and one.state != "exited"
        if files.spool is None or not machine.is_home_of(one.header)
    ]
    written = list[float]()
    for part in (part for one in spooled for part in files.segments[one.header.process]):
        with suppress(OSError):
            written.append(part.path.stat().st_mtime)
    if written:
        every_s = max(one.journal.spool_s or 0 for one in spooled)
        nodes = "1 node is" if len(spooled) == 1 else f"{len(spooled)} nodes are"
        loaded.notes.append(
            f"{nodes} copied here every {every_s:g} s from a disk of its own; what is here was"
            f" copied {max(0.0, time.time() - max(written)):.0f} s ago at the latest"
        )


def _check_one_run(
    files: RunFiles, headers: dict[str, list[Header | None]], loaded: Loaded
) -> None:
    found = [header for parts in headers.values() for header in parts if header is not None]
    runs = sorted({header.run for header in found})
    if len(runs) > 1:
        raise RecordingError(
            f"{' and '.join(map(str, (files.folder, *files.others)))}"
            f" {'hold' if files.others else 'holds'} {len(runs)} runs ({', '.join(runs[:3])});"
            " expected one: put the files of each run into a folder of its own"
        )
    loaded.run = runs[0] if runs else files.folder.resolve().name
    if any(header.names > names.NAMES_VERSION for header in found):
        loaded.notes.append("recorded by a newer rlvr-probe: names unknown here were left out")


def _leave_out_foreign(
    files: RunFiles, headers: dict[str, list[Header | None]], loaded: Loaded
) -> None:
    """Take files out whose header names another process or number: renamed, or copied over."""
    for process, parts in list(files.segments.items()):
        mine = [
            header is None or (header.process, header.segment) == (part.process, part.number)
            for header, part in zip(headers[process], parts, strict=True)
        ]
        for part in (part for part, own in zip(parts, mine, strict=True) if not own):
            loaded.skipped["foreign_rows"] += _count_lines(part)
            loaded.notes.append(f"{part.path.name} holds the journal of another file: left out")
        parts[:] = [part for part, own in zip(parts, mine, strict=True) if own]
        headers[process] = [one for one, own in zip(headers[process], mine, strict=True) if own]
        if not parts:
            del files.segments[process]


def _headers(parts: list[Segment]) -> list[Header | None]:
    """The header of each segment; None where it is unreadable or its sum does not fit."""
    headers = list[Header | None]()
    for part in parts:
        try:
            with part.open() as file:
                data = file.read(_HEADER_LIMIT_B)
        except OSError:
            data = b""
        headers.append(_header(data, part.path.name))
    return headers


def _header(data: bytes, name: str) -> Header | None:
    first, *_ = lines = data.split(b"\n")
    header = parse_header(first, name)
    fits = len(lines) > 2 and lines[1] + b"\n" == schema.sum_row(1, zlib.crc32(first + b"\n"))
    return header if fits else None


def read_beginning(path: Path) -> tuple[Header | None, str]:
    """Whose a journal is, and the role that its process had told of by the first 64 KiB.

    Raises:
        OSError: It cannot be read.
        RecordingError: It is of another format than this version reads.
    """
    with path.open("rb") as file:
        data = file.read(_HEADER_LIMIT_B)
    header = _header(data, path.name)
    if header is None:
        return None, ""
    decoder = JournalDecoder(header.mono_ns)
    for chunk in read_chunks(io.BytesIO(data), len(data), Chunks()):
        decoder.rows(chunk.body)
    return header, decoder.journal.role


def _decode(decoder: JournalDecoder, parts: Sequence[Segment]) -> tuple[Journal, int]:
    """All rows of a process, and how many lines its files held, as far as can be told."""
    seen = 0
    for part in parts:
        try:
            seen += _read_segment(decoder, part)
        except OSError:
            decoder.journal.skipped["unreadable_file"] += 1
    return decoder.finish(), seen


def _process(
    header: Header,
    parts: list[Segment],
    table: Table | None,
    machine: Machine,
    fine: FineStore | None,
) -> Recorded:
    watched = frozenset(slot.span for slot in table.slots) if table is not None else frozenset()
    sink = None if fine is None else fine.sink
    number = 0 if fine is None else fine.number(header.process)
    journal, seen = _decode(JournalDecoder(header.mono_ns, watched, sink, number), parts)
    ended = journal.ended or (table is not None and table.ended)
    state = machine.state(header, ended)
    if state == "running":
        # The writer is in the middle of its last chunk.
        del journal.skipped["torn_rows"]
    missing = 0 if table is None else table.written - seen
    if missing > 0 and state != "running" and not _growing(parts):
        journal.skipped["missing_rows"] += missing
    # Rows of segments whose folder was deleted were counted by the process itself.
    elif "deleted" not in journal.reported:
        journal.skipped["missing_segment"] += parts[-1].number + 1 - len(parts)
    journal.skipped = +journal.skipped
    return Recorded(header, journal, table, state)


def _growing(parts: list[Segment]) -> bool:
    """Whether a journal was written to since its files were listed: by a process we cannot see."""
    last = parts[-1]
    following = last.path.with_name(schema.segment_name(last.process, last.number + 1))
    try:
        return following.exists() or last.path.stat().st_size != last.size_b
    except OSError:
        return False


def _read_segment(decoder: JournalDecoder, part: Segment) -> int:
    """Decode one file, whose header was read before; lines that it held, as far as can be told."""
    chunks = Chunks()
    with part.open() as file:
        for chunk in read_chunks(file, file.size_b, chunks):
            if chunk.lines > 1:
                decoder.rows(chunk.body)
    decoder.journal.skipped.update(
        damaged_rows=chunks.damaged,
        repeated_rows=chunks.repeated,
        torn_rows=chunks.torn,
        endless_file=int(chunks.given_up),
    )
    return chunks.seen


def _count_lines(part: Segment) -> int:
    """Rows of a file that nobody can be told to have written; at least 1."""
    chunks = Chunks()
    try:
        with part.open() as file:
            found = read_chunks(file, file.size_b, chunks)
            rows = sum(chunk.body.count(b"\n") for chunk in found)
            rows += chunks.damaged + chunks.repeated + chunks.torn + chunks.given_up
            return max(1, rows - 1)
    except OSError:
        return 1


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
