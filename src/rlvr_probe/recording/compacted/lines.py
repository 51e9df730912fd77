"""Reads compacted segments: their lines as they were, or their columns as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from heapq import heapify, heappop, heapreplace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec

from rlvr_probe.recording.compacted.about import read_about
from rlvr_probe.recording.decode import FINE, Definition, RowDecoder
from rlvr_probe.recording.schema import AS_IT_IS

__all__ = ["HEAD", "RAW", "Lines", "lines_of", "opened", "rows_of"]

HEAD: Final = ("start", "duration", "span", "parent", "error")
"""What every span has."""

RAW: Final[Mapping[str, type]] = {
    "batch": int, "rows": int, "truncated": int, "loss_runs": list, "function": str,
    "value": float, "not_finite": int, "told_by": str,
}  # fmt: skip
"""Attributes whose columns of a table may say something else: they have one of their own."""

_BLOCK_B: Final = 1 << 20
_ROWS: Final = 4_096
"""Rows that are taken out of a file at a time."""

_ENCODER: Final = msgspec.json.Encoder()


def opened() -> duckdb.DuckDBPyConnection:
    """A database to read files with."""
    return duckdb.connect(
        config={"threads": 1, "autoinstall_known_extensions": False, "temp_directory": ""}
    )


def lines_of(path: Path) -> Iterator[bytes]:
    """The segment as it was, block by block.

    Raises:
        OSError: It cannot be read.
    """
    try:
        with closing(opened()) as sql:
            yield from _Restored(sql, str(path)).blocks()
    except (duckdb.Error, msgspec.MsgspecError, LookupError, TypeError) as error:
        raise OSError(f"{path.name} cannot be read: {error}") from None


def rows_of(path: Path) -> Iterator[bytes]:
    """Lines that have to be decoded: all that are sound and not in columns.

    Raises:
        OSError: It cannot be read.
    """
    try:
        with closing(opened()) as sql:
            found = sql.execute(
                f"SELECT line FROM read_parquet(?, {AS_IT_IS}) WHERE kind = 'rows' ORDER BY seq",
                [str(path)],
            )
            while some := found.fetchmany(_ROWS):
                yield "".join(f"{line}\n" for (line,) in some).encode()
    except duckdb.Error as error:
        raise OSError(f"{path.name} cannot be read: {error}") from None


class Lines:
    """A compacted segment as a source of the bytes that it was made of.

    Attributes:
        size_b: How many there are.
    """

    def __init__(self, path: Path) -> None:
        """Check it.

        Raises:
            OSError: It cannot be read, or is damaged.
        """
        about = read_about(path)
        self.size_b = about.size_b
        self._blocks = lines_of(path)
        self._rest = about.first_lines.encode()
        self._skip = len(self._rest)

    def read(self, size: int, /) -> bytes:
        """As of a file."""
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return b""
            # The first two lines were there before.
            self._rest, self._skip = block[self._skip :], max(0, self._skip - len(block))
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def skip(self, size: int, /) -> None:
        """Pass over bytes."""
        while size > 0 and (data := self.read(size)):
            size -= len(data)


class _Restored(RowDecoder):
    """Makes lines of the rows of a file: those of each definition, merged by their place."""

    def __init__(self, sql: duckdb.DuckDBPyConnection, path: str) -> None:
        super().__init__()
        self.refused = Counter[str]()
        self._sql = sql
        self._path = path

    def taker(self, known: Definition) -> Callable[[Any], object]:
        """Lines are decoded for definitions alone: rows are passed over."""
        return lambda row: None

    def service(self, row: list[Any]) -> None:
        """Take a definition."""
        self.define(row)

    def blocks(self) -> Iterator[bytes]:
        """The bytes of the segment, about a MiB at a time."""
        found = self._ask("DISTINCT definition", "definition IS NOT NULL").fetchall()
        missing = {number for (number,) in found}
        texts = self._texts()
        heap = [(seq, line, 0, texts) for seq, line in islice(texts, 1)]
        block, size = list[bytes](), 0
        while heap:
            _, line, place, lines = heap[0]
            block.append(line)
            size += len(line)
            if size > _BLOCK_B:
                yield b"".join(block)
                block, size = [], 0
            following = next(lines, None)
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (*following, place, lines))
            if lines is texts and missing:
                # Rows of a definition come after it.
                for number in self._define(line) & missing:
                    missing.discard(number)
                    rows = self._rows(self.definitions[number])
                    heap += [(seq, row, len(heap), rows) for seq, row in islice(rows, 1)]
                    heapify(heap)
        yield b"".join(block)

    def _define(self, lines: bytes) -> set[int]:
        """Take the definitions in some lines; their numbers."""
        if b'["def"' not in lines:
            return set()
        before = set(self.definitions)
        for line in lines.split(b"\n"):
            if line.startswith(b'["def"'):
                self._line(line)
        return set(self.definitions) - before

    def _ask(self, what: str, where: str) -> duckdb.DuckDBPyConnection:
        return self._sql.cursor().execute(
            f"SELECT {what} FROM read_parquet(?, {AS_IT_IS}) WHERE {where}", [self._path]
        )

    def _texts(self) -> Iterator[tuple[int, bytes]]:
        """Lines that are kept as they are."""
        found = self._ask("seq, line, kind", "line IS NOT NULL ORDER BY seq")
        while some := found.fetchmany(_ROWS):
            for seq, line, kind in some:
                yield seq, line.encode() + (b"" if kind == "torn" else b"\n")

    def _rows(self, known: Definition) -> Iterator[tuple[int, bytes]]:
        """The lines of the rows of one definition."""
        typed = FINE[known.name]
        places = enumerate(known.attributes, 1 + len(HEAD))
        others = [place for place, name in places if name not in typed]
        columns = [*HEAD, *(_column(name) if name in typed else None for name in known.attributes)]
        named = ", ".join("NULL" if name is None else f'"{name}"' for name in columns)
        found = self._ask(f"seq, more, {known.number}, {named}", f"definition = {known.number}")
        while some := found.fetchmany(_ROWS):
            seqs, more, *values = zip(*some, strict=True)
            if others:
                told = list(map(msgspec.json.decode, more))
                for at, place in enumerate(others):
                    values[place] = tuple(row[at] for row in told)
            lines = _ENCODER.encode_lines(list(zip(*values, strict=True)))
            yield from zip(seqs, lines.splitlines(keepends=True), strict=True)


def _column(name: str) -> str:
    return f"raw_{name}" if name in RAW else name
