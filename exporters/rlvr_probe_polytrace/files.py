"""Files of a workload: their names, and bounded reading of untrusted ones.

Only regular files are read, and only strict JSON is taken.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

from rlvr_probe.exceptions import ValidationError
from rlvr_probe_polytrace.findings import Findings, Location, shown

__all__ = [
    "ENV",
    "FILTER",
    "FLAVORS",
    "FORMAL_LOG",
    "FORMAT",
    "MANIFEST",
    "MULTITURN",
    "MULTITURN_FLAVOR",
    "PACKED",
    "PACKED_FLAVOR",
    "REWARDS",
    "STEP_NAME",
    "SUITE",
    "FileReader",
    "Folder",
    "of_group",
    "step_file",
]

_T = TypeVar("_T")

FORMAT = "rlvr-probe/polytrace"
"""Value of ``format`` in the manifest."""

PACKED = "packed_lengths"
REWARDS = "reward_timings"
MULTITURN = "multiturn_workload"
FILTER = "dapo_filter_indices.jsonl"

PACKED_FLAVOR = "packed"
MULTITURN_FLAVOR = "multiturn"
FLAVORS = (PACKED_FLAVOR, MULTITURN_FLAVOR)
"""What a workload can be written as."""

MANIFEST = "manifest.json"
SUITE = "suite.yaml"
FORMAL_LOG = "formal.log"
ENV = "benchmark.env"

STEP_NAME = re.compile(rf"({PACKED}|{REWARDS}|{MULTITURN})_step_(.+)\.jsonl", re.DOTALL)
"""File name of one step: kind, then the name of the step."""
_STEP_NUMBER = re.compile(r"0|[1-9]\d{0,8}", re.ASCII)

_LINE_B = 16 * 2**20
"""Longest line read, bytes. The longest published one has some ten thousand."""
_WHOLE_B = 256 * 2**20
"""Largest manifest, config or log read whole, bytes: about a million steps."""

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def step_file(kind: str, step: int) -> str:
    """Name of the file of ``kind`` for workload step ``step``."""
    return f"{kind}_step_{step}.jsonl"


def of_group(name: str, group: int | None) -> str:
    """Name of a file that is there once per launch, for the launch of one group; None for all."""
    if group is None:
        return name
    stem, _, suffix = name.rpartition(".")
    return f"{stem}_group_{group}.{suffix}"


class MalformedJson(Exception):
    """A text other than strict JSON; the message is short and quotes nothing but key names."""


def _loads(data: bytes) -> object:
    """The JSON value in ``data``: UTF-8, no key twice, every number finite, no deep nesting.

    Raises:
        MalformedJson: It is something else.
    """
    try:
        return _DECODER.decode(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise MalformedJson(f"invalid UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise MalformedJson(f"invalid JSON at column {error.pos + 1}: {error.msg}") from None
    except RecursionError:
        raise MalformedJson("JSON nested too deeply") from None
    except ValueError:
        # Python refuses to convert integers of thousands of digits.
        raise MalformedJson("an integer of thousands of digits") from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object without a key that stands twice, which msgspec would take."""
    value = dict(pairs)
    if len(value) != len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise MalformedJson(f"key {json.dumps(twice)[:60]} twice")
    return value


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise MalformedJson("a number too large for a float")
    return value


def _constant(name: str) -> object:
    raise MalformedJson(f"{name}, which JSON does not have")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)


def _open_regular(path: Path) -> BinaryIO | str:
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


def _blocks(path: Path) -> Iterator[bytes | str]:
    """The content of a regular file in blocks; at last in words why it could not be read on."""
    opened = _open_regular(path)
    if isinstance(opened, str):
        yield opened
        return
    with opened as file:
        try:
            while block := file.read(2**20):
                yield block
        except OSError as error:
            yield f"a file that cannot be read ({os.strerror(error.errno or 0)})"


class Folder:
    """The directory of a workload, of which nothing is trusted.

    Attributes:
        path: Where it is.
        names: Of everything in it, sorted.
        steps: Step files by kind and step; shards of single ranks and odd names are not among them.
        findings: Takes what is wrong.

    Raises:
        ValidationError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.findings = Findings()
        self.steps: dict[str, dict[int, str]] = {PACKED: {}, REWARDS: {}, MULTITURN: {}}
        try:
            self.names = sorted(os.listdir(path))
        except OSError as error:
            raise ValidationError(
                f"{path}: found nothing readable ({os.strerror(error.errno or 0)}), expected a "
                "directory; give the folder that holds the step files"
            ) from None
        for name in self.names:
            match = STEP_NAME.fullmatch(name)
            if match is not None and _STEP_NUMBER.fullmatch(match[2]):
                self.steps[match[1]][int(match[2])] = name

    def no_step_file(self) -> ValidationError:
        """The error of a directory without a step file."""
        return ValidationError(
            f"{self.path}: found no step file among {len(self.names)} entries, expected "
            f"{step_file(PACKED, 0)} or {step_file(MULTITURN, 0)}; give the folder of one run"
        )

    def raise_first(self) -> None:
        """Raise the first problem, if there is any other than warnings.

        Raises:
            ValidationError: There is.
        """
        problems = [problem for problem in self.findings.problems() if not problem.warning]
        if problems:
            errors = self.findings.errors
            more = f"; {errors - 1} more" if errors > 1 else ""
            raise ValidationError(
                f"{self.path}: {problems[0]}{more}: rlvr-probe validate names all"
            )

    def at(self, name: str) -> Location:
        """The location of a file as a whole."""
        return Location(self.findings, name)

    def read(self, name: str) -> bytes | None:
        """All of a regular file of bounded size, or None and a problem."""
        data = bytearray()
        for block in _blocks(self.path / name):
            if isinstance(block, bytes):
                data += block
            if isinstance(block, str) or len(data) > _WHOLE_B:
                found = block if isinstance(block, str) else f"more than {_WHOLE_B} bytes"
                self.at(name).report("file", None, found, "a regular file")
                return None
        return bytes(data)

    def read_json(self, name: str) -> dict[str, object] | None:
        """The JSON object in a file, or None and a problem."""
        data = self.read(name)
        if data is None:
            return None
        try:
            value = _loads(data)
        except MalformedJson as error:
            found = str(error)
        else:
            if isinstance(value, dict):
                return value
            found = shown(value)
        self.at(name).report("json", None, found, "one JSON object")
        return None

    def digest(self, name: str) -> tuple[str, int, int] | str:
        """(SHA-256 in hex, lines, bytes) of a regular file, or in words why it was not read."""
        digest = hashlib.sha256()
        lines = size_b = 0
        for block in _blocks(self.path / name):
            if isinstance(block, str):
                return block
            digest.update(block)
            lines += block.count(b"\n")
            size_b += len(block)
        return digest.hexdigest(), lines, size_b


class FileReader:
    """Records of a JSON Lines file with their locations; what is wrong goes to the findings.

    Attributes:
        name: As reported.
        location: Of the file as a whole.
        lines, size_b: Read so far.
        sha256: Hex digest of the file; None until it was read to its end.
        whole: Whether every line was a sound record; meant for after the last one.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self.name = name
        self.location = folder.at(name)
        self.lines = 0
        self.size_b = 0
        self.sha256: str | None = None
        self.whole = False
        self._path = folder.path / name

    def records(self, kind: type[_T]) -> Iterator[tuple[Location, _T]]:
        """Location and record of every line that holds one of ``kind``."""
        opened = _open_regular(self._path)
        if isinstance(opened, str):
            self.location.report("file", None, opened, "a regular file")
            return
        broken = 0
        with opened as file:
            try:
                for location, text in self._texts(file):
                    record = _record(location, text, kind)
                    if record is None:
                        broken += 1
                    else:
                        yield location, record
            except OSError as error:
                found = f"a read error ({os.strerror(error.errno or 0)})"
                self.location.report("file", None, found, "a readable file")
        self.whole = self.sha256 is not None and not broken

    def _texts(self, file: BinaryIO) -> Iterator[tuple[Location, bytes]]:
        """Location and text of every line that is not blank."""
        digest = hashlib.sha256()
        last = b"\n"
        empty = True
        while line := file.readline(_LINE_B + 1):
            self.lines += 1
            location = Location(self.location.findings, self.name, self.lines)
            if len(line) > _LINE_B:
                found = f"a line of more than {_LINE_B} bytes"
                location.report("line", None, found, "one record per line; the rest is not read")
                return
            self.size_b += len(line)
            digest.update(line)
            last = line
            if text := line.strip():
                empty = False
                yield location, text
        self.sha256 = digest.hexdigest()
        if empty:
            self.location.report("empty", None, "no record", "at least one")
        elif not last.endswith(b"\n"):
            found, expected = "no line end after the last record", "one: the file may be cut off"
            end = Location(self.location.findings, self.name, self.lines)
            end.report("line_end", None, found, expected, warning=True)


def _record(location: Location, text: bytes, kind: type[_T]) -> _T | None:
    """The record of one line, or None and a problem."""
    try:
        if b"\r" in text or text.startswith(b"\x00"):
            # PolyTrace's readers would end the line there.
            raise MalformedJson("a carriage return or NUL inside")
        value = _loads(text)
    except MalformedJson as error:
        location.report("json", None, str(error), "one JSON object per line")
        return None
    return location.convert(value, kind)
