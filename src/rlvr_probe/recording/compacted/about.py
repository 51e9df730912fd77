"""What a compacted segment says of itself, in the footer of its Parquet file, and its checksum.

Parquet as DuckDB writes it has no sums. Ours covers every byte of the file: it was made with zeros
in its own place.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

__all__ = ["About", "read_about", "seal"]

_MAGIC: Final = b"PAR1"
_MARK: Final = b'{"format":"rlvr-probe/segment","crc32":"'
_BLANK: Final = b"00000000"
_FOOTER_LIMIT_B: Final = 64 << 20
_BLOCK_B: Final = 4 << 20


class About(Struct, kw_only=True):
    """The same in every version of a segment that was compacted.

    Attributes:
        format, crc32: First, in this order.
        size_b: Bytes of the segment, uncompressed.
        first_lines: Its first two lines: the header and its sum.
        seen: Lines that were written, as far as is known.
        skipped: Of these, lines that cannot be used, by reason.
        rows: Rows in columns, by the table they go to.
        totals: Count and summed duration, ns, of these, by name of the span.
        last_ns: Latest end of one of them, since the header was written.
    """

    format: str = "rlvr-probe/segment"
    crc32: str = _BLANK.decode()
    version: int = 1
    size_b: int
    first_lines: str
    seen: int
    skipped: dict[str, int]
    rows: dict[str, int]
    totals: dict[str, tuple[int, int]]
    last_ns: int | None


def seal(path: Path) -> None:
    """Put the checksum into a file that was just written.

    Raises:
        OSError: It cannot be written, or holds nothing of ours.
    """
    with path.open("r+b") as file:
        crc, at, _ = _sum(file)
        file.seek(at)
        file.write(b"%08x" % crc)
        file.flush()
        os.fsync(file.fileno())


def read_about(path: Path) -> About:
    """What a file says of itself, once each of its bytes was checked.

    Raises:
        OSError: It cannot be read, was compacted by another version, or is damaged.
    """
    with path.open("rb") as file:
        crc, _, footer = _sum(file)
    end = footer.find(_MARK)
    try:
        about = _DECODER.decode(_text(footer, end))
    except (ValueError, msgspec.DecodeError, RecursionError):  # no ValueError before 0.21
        raise OSError(f"{path.name} does not say what it holds") from None
    if about.version != 1:
        raise OSError(f"{path.name} is of version {about.version}; this one reads version 1")
    if about.crc32 != f"{crc:08x}":
        raise OSError(f"{path.name} is damaged: its checksum does not fit")
    return about


_DECODER: Final = msgspec.json.Decoder(About)


def _sum(file: BinaryIO) -> tuple[int, int, bytes]:
    """Checksum of a file with zeros in its place, that place, and the footer as it is."""
    size_b = file.seek(0, os.SEEK_END)
    file.seek(max(0, size_b - 8))
    tail = file.read(8)
    footer_b = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or footer_b > min(_FOOTER_LIMIT_B, size_b - 8):
        raise OSError("not a whole Parquet file")
    begin = size_b - 8 - footer_b
    file.seek(begin)
    footer = file.read(footer_b)
    at = footer.find(_MARK)
    if at < 0:
        raise OSError("not a compacted segment")
    at += len(_MARK)
    file.seek(0)
    crc, left = 0, begin
    while left > 0 and (data := file.read(min(_BLOCK_B, left))):
        crc, left = zlib.crc32(data, crc), left - len(data)
    crc = zlib.crc32(footer[:at] + _BLANK + footer[at + len(_BLANK) :] + tail, crc)
    return crc, begin + at, footer


def _text(footer: bytes, begin: int) -> bytes:
    """The JSON object that starts there."""
    # One character for each byte: what is outside of texts is ASCII.
    _, size = json.JSONDecoder().raw_decode(footer[begin:].decode("latin-1"))
    return footer[begin : begin + size]
