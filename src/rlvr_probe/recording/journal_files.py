"""The journal of a process in its files: what of it is decoded, and by whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rlvr_probe.model import schema
from rlvr_probe.recording.chunks import Chunks, read_chunks
from rlvr_probe.recording.files import Segment
from rlvr_probe.recording.journal import Journal, JournalDecoder
from rlvr_probe.recording.store import FineStore

__all__ = ["Decode", "JournalFiles", "decode"]


@dataclass(frozen=True, slots=True)
class JournalFiles:
    """The files of one process that are to be decoded.

    Attributes:
        process: Its key.
        number: Its number in the store of fine rows.
        mono_ns: Time 0 of its rows, CLOCK_MONOTONIC.
        watched: Spans that its table had as open: it was read before.
        parts: In the order of their numbers.
    """

    process: str
    number: int
    mono_ns: int
    watched: frozenset[int]
    parts: list[Segment]

    @property
    def size_b(self) -> int:
        """Bytes of all its files."""
        return sum(part.size_b for part in self.parts)


Decode = Callable[
    [Iterable[JournalFiles], FineStore | None], Iterator[tuple[JournalFiles, Journal, int]]
]
"""Decodes the files of processes in any order, whose fine rows the store gets; gives of each what
it recorded, and how many lines it wrote, as far as is known."""


def decode(
    journals: Iterable[JournalFiles], fine: FineStore | None
) -> Iterator[tuple[JournalFiles, Journal, int]]:
    """Decode them here, one after another; see :data:`Decode`."""
    sink = None if fine is None else fine.sink
    store = fine if sink is not None else None
    for own in journals:
        decoder = JournalDecoder(own.mono_ns, own.watched, sink, own.number)
        seen = sum(_read_segment(decoder, part, store, own.number) for part in own.parts)
        yield own, decoder.finish(), seen


def _read_segment(
    decoder: JournalDecoder, part: Segment, store: FineStore | None, process: int
) -> int:
    """Decode one file, whose header was read before; lines that it held, as far as is known.

    Args:
        decoder: Of its process.
        part: The file.
        store: Gets what is in columns; None: nothing does.
        process: Number of the process there.
    """
    chunks, skipped = Chunks(), decoder.journal.skipped
    try:
        if part.path.name.endswith(schema.COMPACTED_SUFFIX):
            from rlvr_probe.recording.compacted.columns import read_compacted

            path = part.path if part.moved is None or part.path.exists() else part.moved
            path = path if store is None else store.hold(path)
            about = read_compacted(decoder, path)
            skipped.update(about.skipped)
            if store is not None:
                store.add_file(process, path, about.rows)
            return about.seen
        with part.open() as file:
            for chunk in read_chunks(file, file.size_b, chunks):
                if chunk.lines > 1:
                    decoder.rows(chunk.body)
    except OSError:
        skipped["unreadable_file"] += 1
        return 0
    skipped.update(
        damaged_rows=chunks.damaged,
        repeated_rows=chunks.repeated,
        torn_rows=chunks.torn,
        endless_file=int(chunks.given_up),
    )
    return chunks.seen
