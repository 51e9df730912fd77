"""Makes one Parquet file of a finished segment, and proves that nothing of it is lost.

A row goes to the columns if encoding it again gives its line, and if the reader of a whole
recording would take it; any other line stays as it is. In the end the segment is made anew from the
file and compared with itself.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec

from rlvr_probe.model import names
from rlvr_probe.recording.bulk import Bulk
from rlvr_probe.recording.chunks import Chunk, Chunks, Source, open_source
from rlvr_probe.recording.compacted.about import About, seal
from rlvr_probe.recording.compacted.lines import HEAD, RAW, lines_of
from rlvr_probe.recording.decode import FINE, UNSOUND, Definition, RowDecoder
from rlvr_probe.recording.fine.rows import Columns, FineRows
from rlvr_probe.recording.header import parse_header
from rlvr_probe.recording.journal import Journal
from rlvr_probe.recording.schema import BY_NAME, SEGMENT_ROW, Table, literal
from rlvr_probe.recording.store import no_collection

__all__ = ["write_compacted"]

_TOGETHER: Final = 1_024
_BLOCK_B: Final = 1 << 20
_MEMORY: Final = "200MB"
"""Of DuckDB; what does not fit goes to a private folder of temporary files."""
_SPANS: Final = {
    "q_trajectory": names.TRAJECTORY.name,
    "q_turn": names.TURN.name,
    "q_tool": names.TOOL_CALL.name,
    "q_verification": names.VERIFY.name,
    "q_request": names.REQUEST.name,
}
"""Tables of fine rows, with the names of their spans."""

_LINE: Final = frozenset({"seq", "kind", "definition", "more"})


def _table_of(kind: str, span: str) -> Table:
    """Columns of a segment that rows of a kind have."""
    raw = {f"raw_{name}" for name in FINE[span]}
    held = {*_LINE, *HEAD, *raw, *FINE[span], *BY_NAME[kind].names}
    return Table(kind, "", [column for column in SEGMENT_ROW.columns if column.name in held])


_TABLES: Final = {
    SEGMENT_ROW.name: SEGMENT_ROW,
    **{kind: _table_of(kind, span) for kind, span in _SPANS.items()},
}

_ENCODER: Final = msgspec.json.Encoder()
_encode: Final = _ENCODER.encode


def _fit(rows: Sequence[Any], lines: bytes) -> bool:
    """Whether these lines are written of these rows."""
    try:
        return _ENCODER.encode_lines(rows) == lines
    except UNSOUND:  # half of a surrogate pair
        return False


def write_compacted(source: Path, target: Path) -> About:
    """Write what is in a segment, compressed or not, into a Parquet file.

    Returns:
        What the file says of itself. Nothing is written where no row goes to the columns.

    Raises:
        OSError: It cannot be read or written, or does not come out again byte by byte.
    """
    with no_collection(), ExitStack() as stack:
        sql = stack.enter_context(closing(duckdb.connect(config=_settings(stack))))
        sql.execute("SET enable_progress_bar = false")
        sql.execute("; ".join(table.ddl for table in _TABLES.values()))
        bulk = Bulk(sql, _TABLES)
        try:
            with open_source(source, source.stat().st_size) as file:
                about = _Compactor(bulk).read(file)
            bulk.finish()
            _describe(sql, about)
            if not about.rows:
                return about
            _write(sql, about, target)
        except (duckdb.Error, UnicodeDecodeError) as error:
            raise OSError(f"{source.name} cannot be compacted: {error}") from None
        finally:
            bulk.close()
    seal(target)
    with no_collection(), open_source(source, source.stat().st_size) as file:
        if not _is_same(file, lines_of(target)):
            raise OSError(f"{source.name} does not come out of its columns as it was")
    return about


def _settings(stack: ExitStack) -> dict[str, Any]:
    """Of a database that takes little."""
    try:
        made = tempfile.TemporaryDirectory(prefix="rlvr-probe-compact-")
        scratch = f"{stack.enter_context(made)}/overflow"
    except OSError:
        scratch = ""
    return {
        "memory_limit": _MEMORY,
        "threads": 1,
        "temp_directory": scratch,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }


def _describe(sql: duckdb.DuckDBPyConnection, about: About) -> None:
    """Note what is in the columns."""
    for kind, span in _SPANS.items():
        rows, sum_ns, last_ns = sql.execute(
            f"SELECT count(*), sum(duration)::BIGINT, max(start + duration) FROM {kind}"
        ).fetchall()[0]
        if rows:
            about.rows[kind] = rows
            about.totals[span] = rows, sum_ns
            about.last_ns = max(last_ns, last_ns if about.last_ns is None else about.last_ns)


def _write(sql: duckdb.DuckDBPyConnection, about: About, target: Path) -> None:
    told = literal(_encode(about).decode())
    # Those of a kind together, so that who wants one passes over the others.
    rows = " UNION ALL BY NAME ".join(f"(FROM {name})" for name in _TABLES)
    sql.execute(
        f"COPY ({rows}) TO {literal(target)} (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false,"
        f" KV_METADATA {{'rlvr-probe': {told}}})"
    )


def _is_same(file: Source, made: Iterator[bytes]) -> bool:
    """Whether a file holds the same bytes as blocks together do."""
    for block in made:
        view = memoryview(block)
        while view:
            data = file.read(min(_BLOCK_B, len(view)))
            if not data or data != view[: len(data)]:
                return False
            view = view[len(data) :]
    return not file.read(1)


class _Compactor(RowDecoder):
    """Reads one segment into the table ``segment_row``."""

    def __init__(self, bulk: Bulk) -> None:
        super().__init__()
        self.refused = Counter[str]()
        self._bulk = bulk
        self._scratch = Journal()
        self._fine: FineRows | None = None
        self._columns: list[tuple[str, Columns]] = []
        self._candidates: dict[Definition, list[tuple[int, Any]]] = {}
        self._found: list[tuple[Definition | None, Any]] = []
        self._seq = 0

    def read(self, file: Source) -> About:
        """Read all of it; what is in the columns is not described yet."""
        chunks, size_b, at, first_lines = Chunks(), 0, 0, b""
        rest = bytearray()
        while data := file.read(_BLOCK_B):
            size_b += len(data)
            rest += data
            for chunk in chunks.feed(data):
                self._lines("rest", bytes(rest[: chunk.begin - at]))
                whole = bytes(rest[chunk.begin - at : chunk.end - at])
                self._chunk(chunk, whole[len(chunk.body) :])
                if not chunk.begin:
                    first_lines = whole
                del rest[: chunk.end - at]
                at = chunk.end
        self._lines("rest", bytes(rest))
        for known in self._candidates:
            self._flush(known)
        skipped = {
            "damaged_rows": chunks.damaged,
            "repeated_rows": chunks.repeated,
            "torn_rows": chunks.torn,
            "endless_file": int(chunks.given_up),
        }
        return About(
            size_b=size_b, first_lines=first_lines.decode(), seen=chunks.seen,
            skipped={reason: count for reason, count in skipped.items() if count},
            rows={}, totals={}, last_ns=None,
        )  # fmt: skip

    def taker(self, known: Definition) -> Callable[[Any], object]:
        """Rows that may go to the columns are noted one by one, with their definition."""
        fine = not known.event and known.name in FINE
        return partial(self._note, known if fine else None)

    def service(self, row: list[Any]) -> None:
        """Take a definition."""
        if row[0] == "def":
            self.define(row)

    def add(self, table: str, process: int, values: Columns) -> None:
        """Take columns as the reader of a whole recording would get them."""
        self._columns.append((table, values))

    def keys(self, keys: Sequence[str | None]) -> int:
        """Take none: a batch stays a line, with its keys."""
        return -1

    def _note(self, known: Definition | None, row: Any) -> None:
        self._found.append((known, row))

    def _lines(self, kind: str, text: bytes) -> None:
        """Keep lines as they are; the last one of a file may lack its end."""
        if text:
            ends = text.endswith(b"\n")
            line = text.removesuffix(b"\n").decode()
            self._bulk.add_columns(
                SEGMENT_ROW.name,
                {"seq": [self._seq], "line": [line], "kind": [kind if ends else "torn"]},
            )
            self._seq += text.count(b"\n") + (not ends)

    def _chunk(self, chunk: Chunk, end: bytes) -> None:
        if chunk.lines == 1 or self._fine is None:
            header = parse_header(chunk.body[:-1], "segment") if chunk.lines == 1 else None
            if header is not None:
                self._fine = FineRows(self._scratch, header.mono_ns, frozenset(), self, 0)
            self._lines("rest" if chunk.lines == 1 else "rows", chunk.body)
            self._lines("rest", end)
            return
        self._found.clear()
        lines = [line + b"\n" for line in chunk.body.split(b"\n")[:-1]]
        # As a rule all lines of a chunk are rows that are written as they were.
        if (
            not self._decoded(chunk.body)
            or len(self._found) != len(lines)
            or not _fit([row for _, row in self._found], chunk.body)
        ):
            self._found = [self._row(line) for line in lines]
        kept = list[bytes]()
        for line, (known, row) in zip(lines, self._found, strict=True):
            if known is None:
                kept.append(line)
                continue
            if kept:
                self._lines("rows", b"".join(kept))
                kept.clear()
            waiting = self._candidates.setdefault(known, [])
            waiting.append((self._seq, row))
            self._seq += 1
            if len(waiting) >= _TOGETHER:
                self._flush(known)
        self._lines("rows", b"".join(kept))
        self._lines("rest", end)

    def _row(self, line: bytes) -> tuple[Definition | None, Any]:
        """The row in a line, and its definition if it may go to the columns."""
        self._found.clear()
        if not self._decoded(line):
            self._line(line[:-1])
        if len(self._found) != 1:
            return None, None
        [(known, row)] = self._found
        return (known, row) if _fit([row], line) else (None, None)

    def _flush(self, known: Definition) -> None:
        """Put the rows of a definition into columns, or all of them back into lines."""
        waiting = self._candidates[known]
        if not waiting or self._fine is None:
            return
        seqs, rows = map(list, zip(*waiting, strict=True))
        waiting.clear()
        self._columns.clear()
        self._fine.waiting(known).extend(rows)
        self._fine.flush(1)
        columns = _columns(known, rows, self._columns)
        if columns is None or +self._scratch.skipped:
            lines = [_encode(row).decode() for row in rows]
            columns = {"line": lines, "kind": ["rows"] * len(seqs)}
            self._scratch.skipped.clear()
        table = SEGMENT_ROW.name if "line" in columns else columns["kind"][0]
        self._bulk.add_columns(table, {**columns, "seq": seqs})


def _columns(known: Definition, rows: Sequence[Any], taken: list[tuple[str, Columns]]) -> Any:
    """Everything that is in rows of one definition; None where columns cannot hold it."""
    if len(taken) != 1:
        return None
    [(table, values)] = taken
    size, typed = len(rows), FINE[known.name]
    if len(values["start"] or ()) != size or values.get("call") is not None:
        return None
    columns = dict[str, Any](values)
    columns |= {name: list(map(attrgetter(name), rows)) for name in HEAD}
    for at, name in enumerate(known.attributes):
        column = list(map(attrgetter(f"a{at}"), rows))
        if name in RAW:
            if not set(map(type, column)) <= {RAW[name], type(None)}:
                return None
            columns[f"raw_{name}"] = column
        elif name in typed and values.get(name) not in (None, column):
            return None
    more = [f"a{at}" for at, name in enumerate(known.attributes) if name not in typed]
    if more:
        told = zip(*(map(attrgetter(name), rows) for name in more), strict=True)
        columns["more"] = [_encode(each).decode() for each in told]
    return columns | {"kind": [table] * size, "definition": [known.number] * size}
