"""Reads files nobody vouches for: bounded, strict JSON, and never anything but a regular file."""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rlvr_probe_polytrace.findings import Findings

__all__ = ["FileReader", "MalformedJson", "digest_of", "loads", "open_regular", "read_small"]

_LINE_B = 16 * 2**20
"""Longest line read, bytes. The longest published one has some ten thousand."""

_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


class MalformedJson(ValueError):
    """A text is no strict JSON; the message is short and holds no text of it but key names."""


def loads(data: bytes) -> object:
    """The JSON value in ``data``: UTF-8, no key twice, every number finite, no deep nesting.

    Raises:
        MalformedJson: It is none.
    """
    try:
        value: object = _DECODER.decode(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise MalformedJson(f"invalid UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise MalformedJson(f"invalid JSON at column {error.pos + 1}: {error.msg}") from None
    except RecursionError:
        raise MalformedJson("JSON nested too deeply") from None
    except MalformedJson:
        raise
    except ValueError:
        # Python refuses to convert integers of thousands of digits.
        raise MalformedJson("an integer of thousands of digits") from None
    return value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise MalformedJson(f"key {json.dumps(twice)[:60]} twice")
    return found


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise MalformedJson("a number too large for a float")
    return value


def _constant(name: str) -> object:
    raise MalformedJson(f"{name}, which is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)


def open_regular(path: Path) -> BinaryIO | str:
    """``path`` opened for reading, or in words what it is instead of a readable regular file."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return "a symbolic link"
        if stat.S_ISDIR(mode):
            return "a directory"
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        return f"a file that cannot be opened ({os.strerror(error.errno or 0)})"
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return "a pipe, socket or device"
    return os.fdopen(descriptor, "rb")


def read_small(path: Path, limit_b: int) -> bytes | str:
    """All of a regular file of at most ``limit_b`` bytes, or in words why it was not read."""
    opened = open_regular(path)
    if isinstance(opened, str):
        return opened
    with opened as file:
        try:
            data = file.read(limit_b + 1)
        except OSError as error:
            return f"a file that cannot be read ({os.strerror(error.errno or 0)})"
    return data if len(data) <= limit_b else f"more than {limit_b} bytes"


def digest_of(path: Path) -> tuple[str, int, int] | str:
    """(SHA-256 in hex, lines, bytes) of a regular file, or in words why it was not read."""
    opened = open_regular(path)
    if isinstance(opened, str):
        return opened
    digest = hashlib.sha256()
    lines = size = 0
    with opened as file:
        try:
            while block := file.read(2**20):
                digest.update(block)
                lines += block.count(b"\n")
                size += len(block)
        except OSError as error:
            return f"a file that cannot be read ({os.strerror(error.errno or 0)})"
    return digest.hexdigest(), lines, size


class FileReader:
    """Objects of a JSON Lines file with their line numbers; what is wrong goes to the findings.

    Attributes:
        name: As reported.
        lines, size_b: Read so far.
        sha256: Hex digest of the file; None until it was read to its end.
        whole: Whether every line was a record; meant for after the last one.
    """

    def __init__(self, directory: Path, name: str, findings: Findings) -> None:
        self.name = name
        self.lines = 0
        self.size_b = 0
        self.sha256: str | None = None
        self.whole = False
        self._path = directory / name
        self._findings = findings

    def records(self) -> Iterator[tuple[int, dict[str, object]]]:
        """Line number and object of every line that holds one."""
        opened = open_regular(self._path)
        if isinstance(opened, str):
            self._findings.add("file", self.name, None, None, opened, "a regular file")
            return
        with opened as file:
            try:
                yield from self._records(file)
            except OSError as error:
                found = f"a read error ({os.strerror(error.errno or 0)})"
                self._findings.add("file", self.name, None, None, found, "a readable file")

    def _records(self, file: BinaryIO) -> Iterator[tuple[int, dict[str, object]]]:
        digest = hashlib.sha256()
        last = b"\n"
        empty = True
        broken = 0
        while line := file.readline(_LINE_B + 1):
            self.lines += 1
            if len(line) > _LINE_B:
                found = f"a line of more than {_LINE_B} bytes"
                self._report("line", found, "one record per line; the rest is not read")
                return
            self.size_b += len(line)
            digest.update(line)
            last = line
            text = line.strip()
            if not text:
                continue
            empty = False
            if b"\r" in text or text.startswith(b"\x00"):
                # PolyTrace's readers would end the line there.
                broken += 1
                self._report("json", "a carriage return or NUL inside", "one JSON object per line")
                continue
            try:
                value = loads(text)
            except MalformedJson as error:
                broken += 1
                self._report("json", str(error), "one JSON object per line")
                continue
            if not isinstance(value, dict):
                broken += 1
                self._report("json", f"a JSON {_kind(value)}", "a JSON object")
                continue
            yield self.lines, value
        self.sha256 = digest.hexdigest()
        self.whole = not broken
        if empty:
            self._findings.add("empty", self.name, None, None, "no record", "at least one")
        elif not last.endswith(b"\n"):
            found, expected = "no line end after the last record", "one: the file may be cut off"
            self._findings.add(
                "line_end", self.name, self.lines, None, found, expected, warning=True
            )

    def _report(self, kind: str, found: str, expected: str) -> None:
        self._findings.add(kind, self.name, self.lines, None, found, expected)


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "array"
    if isinstance(value, str):
        return "string"
    return "number" if isinstance(value, (int, float)) and value is not True else "constant"
