"""What the processes of a run left behind: of each its header, rows and open-span table."""

from __future__ import annotations

import io
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rlvr_probe.exceptions import RecordingError
from rlvr_probe.model import names, schema
from rlvr_probe.model.trace import ProcessState
from rlvr_probe.recording.chunks import Chunks, open_source, read_chunks
from rlvr_probe.recording.coarse_rows import SessionRow
from rlvr_probe.recording.files import RunFiles, Segment, list_files
from rlvr_probe.recording.header import Header, parse_header
from rlvr_probe.recording.journal import Journal, JournalDecoder
from rlvr_probe.recording.journal_files import Decode, JournalFiles, decode
from rlvr_probe.recording.opentable import Table, read_table
from rlvr_probe.recording.process_state import Machine
from rlvr_probe.recording.store import FineStore

__all__ = ["Loaded", "Progress", "Recorded", "load", "load_run", "read_beginning"]

Progress = Callable[[int, int], None]
"""Called with bytes read so far and bytes to read."""

_HEADER_LIMIT_B: Final = 64 * 1024
"""A header and its sum take about 1 KB."""


@dataclass(slots=True)
class Recorded:
    """What one process left behind.

    Attributes:
        trained: Whether it took part in training; one that fills a queue for it did not.
    """

    header: Header
    journal: Journal
    table: Table | None
    state: ProcessState
    trained: bool = field(init=False)

    def __post_init__(self) -> None:
        """Note whether it trained, by rows that building a trace uses up."""
        journal = self.journal
        self.trained = not journal.queued and bool(
            journal.sessions
            or journal.trajectories
            or any(span.name == names.STEP.name for span in journal.spans)
        )

    @property
    def is_sidecar(self) -> bool:
        """Whether it read the devices of its node, and is not part of the job."""
        journal = self.journal
        return journal.role == names.SIDECAR or (bool(journal.devices) and not journal.spans)

    @property
    def heartbeat_ns(self) -> int:
        """When it was last seen alive, CLOCK_MONOTONIC, ns."""
        beat = 0 if self.table is None else self.table.heartbeat_ns
        return max(beat, self.journal.last_ns, self.header.mono_ns)

    @property
    def rank(self) -> int | None:
        """Its global rank; None if unknown.

        Where neither is recorded, one that generated a whole batch is the only one of its training.
        """
        for session in self.journal.sessions:
            rank = session.facts.get("rank")
            if type(rank) is int:
                return rank
        if self.header.rank is not None:
            return self.header.rank
        size = self.world_size()
        if size is None:
            rows = self.journal.trajectories
            whole = rows and all(len(row.response_tokens) == row.total for row in rows)
            return 0 if whole else None
        return 0 if size == 1 else None

    def world_size(self, session: int | None = None) -> int | None:
        """Ranks of the training as it saw it, in ``session`` or in any."""
        for row in self.journal.sessions:
            size = row.facts.get("world_size")
            if type(size) is int and session in (None, row.facts.get("session", 0)):
                return size
        return self.header.world_size

    def starts_of(self, session: int) -> list[SessionRow]:
        """Each start of a session, by time."""
        return [row for row in self.journal.sessions if row.facts.get("session", 0) == session]

    def life_at(self, session: int, time_ns: int) -> int:
        """How often it had started ``session`` before the time it was in at ``time_ns``.

        A script may catch an error and resume from a checkpoint in the same process.
        """
        starts = sum(row.time_ns <= time_ns for row in self.starts_of(session))
        return max(0, starts - 1)


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


def load_run(
    run: Sequence[Path],
    store: FineStore,
    machine: Machine,
    progress: Progress | None,
    decode: Decode = decode,
) -> Loaded:
    """Read the folders of a run; ``store`` gets the rows of single trajectories, as :func:`load`.

    Raises:
        RecordingError: They hold no recording, two runs, or a newer format.
    """
    files = list_files(*run)
    store.size_b = files.written_b
    loaded = load(files, machine, progress, store, decode)
    if files.spool is not None and not files.spool.exists():  # what was not read from it was moved
        store.close()
        loaded = load(list_files(*run), machine, None, store)
    store.attach_files()
    return loaded


def load(
    files: RunFiles,
    machine: Machine,
    progress: Progress | None = None,
    fine: FineStore | None = None,
    decode: Decode = decode,
) -> Loaded:
    """Read the files of a run.

    Args:
        files: Of the run.
        machine: This machine.
        progress: Called after each process.
        fine: Gets the rows of single trajectories; without it they are only counted.
        decode: Decodes the files of its processes.

    Raises:
        RecordingError: They belong to two runs, or are newer than this version can read.
    """
    loaded = Loaded()
    if files.strangers:
        some = ", ".join(files.strangers[:3]) + (", ..." if len(files.strangers) > 3 else "")
        count = len(files.strangers)
        number = "1 file" if count == 1 else f"{count} files"
        loaded.notes.append(f"{number} ignored, not of a recording: {some}")
    headers = _headers(files, loaded)
    _check_one_run(files, headers, loaded)
    done, total = _count_headless(files, headers, loaded), files.size_b
    tables = dict[str, Table | None]()

    def journals() -> Iterator[JournalFiles]:
        for process, parts in files.segments.items():
            if headers[process]:
                # Before the journal: a span that ends in between is found as a finished row.
                table = tables[process] = _table(files, process)
                watched = frozenset(() if table is None else (slot.span for slot in table.slots))
                number = 0 if fine is None else fine.number(process)
                yield JournalFiles(process, number, headers[process][0].mono_ns, watched, parts)

    for own, journal, seen in decode(journals(), fine):
        header, table = headers[own.process][0], tables[own.process]
        loaded.recorded.append(_recorded(header, journal, seen, own.parts, table, machine))
        done += own.size_b
        if progress is not None:
            progress(done, total)
    _count_silent(files, loaded)
    _note_age(files, loaded, machine)
    loaded.recorded.sort(key=lambda process: (process.header.epoch_ns, process.header.process))
    return loaded


def _table(files: RunFiles, process: str) -> Table | None:
    path = files.tables.get(process)
    return None if path is None else read_table(path, process)


def _headers(files: RunFiles, loaded: Loaded) -> dict[str, list[Header]]:
    """The readable headers of each process.

    Takes files out whose header names another process or number: renamed, or copied over.
    """
    headers = dict[str, list[Header]]()
    for process, parts in list(files.segments.items()):
        own = list[Segment]()
        headers[process] = []
        for part in parts:
            header = _read_header(part)
            if header is None:
                own.append(part)
            elif (header.process, header.segment) == (part.process, part.number):
                own.append(part)
                headers[process].append(header)
            else:
                loaded.skipped["foreign_rows"] += _count_lines(part)
                loaded.notes.append(f"{part.path.name} holds the journal of another file: skipped")
        if own:
            files.segments[process] = own
        else:
            del files.segments[process]
    return headers


def _check_one_run(files: RunFiles, headers: dict[str, list[Header]], loaded: Loaded) -> None:
    every = [header for own in headers.values() for header in own]
    runs = sorted({header.run for header in every})
    if len(runs) > 1:
        raise RecordingError(
            f"{' and '.join(map(str, (files.folder, *files.others)))}"
            f" {'hold' if files.others else 'holds'} {len(runs)} runs ({', '.join(runs[:3])});"
            " expected one: put the files of each run into a folder of its own"
        )
    loaded.run = runs[0] if runs else files.folder.resolve().name
    if any(header.names > names.NAMES_VERSION for header in every):
        loaded.notes.append("recorded by a newer rlvr-probe: names unknown here were skipped")


def _count_silent(files: RunFiles, loaded: Loaded) -> None:
    """Say which processes have no journal, and count the lines that their tables say it held."""
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
        loaded.notes.append(f"{count} started to record and left nothing: not counted")


def _note_age(files: RunFiles, loaded: Loaded, machine: Machine) -> None:
    """Say how old is what was read of nodes whose sidecar copies it from time to time."""
    spooled = [
        process
        for process in loaded.recorded
        if process.journal.spool_s is not None and process.state != "exited"
        if files.spool is None or not machine.is_home_of(process.header)
    ]
    written = list[float]()
    for process in spooled:
        for part in files.segments[process.header.process]:
            with suppress(OSError):
                written.append(part.path.stat().st_mtime)
    if written:
        every_s = max(process.journal.spool_s or 0 for process in spooled)
        nodes = "1 node is" if len(spooled) == 1 else f"{len(spooled)} nodes are"
        loaded.notes.append(
            f"{nodes} copied here every {every_s:g} s from a disk of its own; what is here was"
            f" copied {max(0.0, time.time() - max(written)):.0f} s ago at the latest"
        )


def _read_header(part: Segment) -> Header | None:
    try:
        with part.open() as file:
            return _header(file.read(_HEADER_LIMIT_B), part.path.name)
    except OSError:
        return None


def _header(data: bytes, name: str) -> Header | None:
    """The header at the start of a segment; None where it is unreadable or its sum does not fit."""
    first, *_ = lines = data.split(b"\n")
    header = parse_header(first, name)
    fits = len(lines) > 2 and lines[1] + b"\n" == schema.sum_row(1, zlib.crc32(first + b"\n"))
    return header if fits else None


def read_beginning(path: Path) -> tuple[Header | None, str]:
    """Whose a journal is, and the role that its process recorded in the first 64 KiB.

    Raises:
        OSError: It cannot be read.
        RecordingError: It is of another format than this version reads.
    """
    with open_source(path, path.stat().st_size) as file:
        data = file.read(_HEADER_LIMIT_B)
    header = _header(data, path.name)
    if header is None:
        return None, ""
    decoder = JournalDecoder(header.mono_ns)
    for chunk in read_chunks(io.BytesIO(data), len(data), Chunks()):
        decoder.rows(chunk.body)
    return header, decoder.journal.role


def _recorded(
    header: Header,
    journal: Journal,
    seen: int,
    parts: list[Segment],
    table: Table | None,
    machine: Machine,
) -> Recorded:
    state = machine.state(header, journal.ended or (table is not None and table.ended))
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


def _count_headless(files: RunFiles, headers: dict[str, list[Header]], loaded: Loaded) -> int:
    """Count the rows of processes without a readable header; bytes of their files."""
    done = 0
    for process, parts in files.segments.items():
        size_b = sum(part.size_b for part in parts)
        if size_b and not headers[process]:
            loaded.skipped["no_header"] += _headless_rows(files, process, parts)
            loaded.notes.append(f"journal of process {process} has no readable header: skipped")
            done += size_b
    return done


def _headless_rows(files: RunFiles, process: str, parts: list[Segment]) -> int:
    """Rows of a process without a readable header: those that are there, or that its table has."""
    table = _table(files, process)
    return max(sum(map(_count_lines, parts)), 0 if table is None else table.written)


def _count_lines(part: Segment) -> int:
    """Rows of a file whose process is unknown; at least 1."""
    chunks, rows = Chunks(), 0
    with suppress(OSError), part.open() as file:
        for chunk in read_chunks(file, file.size_b, chunks):
            rows += chunk.body.count(b"\n")
        rows += chunks.damaged + chunks.repeated + chunks.torn + chunks.given_up
    return max(1, rows - 1)
