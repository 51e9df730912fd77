"""Line 1 of a journal, checked: whose it is, where and when it started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from rlvr_probe.exceptions import RecordingError
from rlvr_probe.model import schema

__all__ = ["Header", "parse_header"]

_DECODER = msgspec.json.Decoder()
_TIME_MAX = 1 << 63
_NEEDED = frozenset({"mono_ns", "epoch_ns", "segment", "pid"})


@dataclass(frozen=True, slots=True)
class Header:
    """A header as :data:`rlvr_probe.model.schema.HEADER_KEYS` describes it."""

    process: str
    segment: int
    run: str
    job: str
    owner: str | None
    host: str
    boot: str
    pid: int
    ppid: int
    start_ticks: int | None
    mono_ns: int
    epoch_ns: int
    probe: str
    names: int
    python: str
    rank: int | None
    local_rank: int | None
    world_size: int | None
    ids: Mapping[str, str]

    @property
    def clock(self) -> str:
        """Key of the clock its times are on: one per boot id, else one per host."""
        return self.boot or f"host {self.host}"


def parse_header(line: bytes, name: str) -> Header | None:
    """The header in ``line``, or None if it is not one of ours.

    Args:
        line: First line of a file, without its end.
        name: Name of the file, for messages.

    Raises:
        RecordingError: It is ours, in another format than this version reads.
    """
    try:
        found = _DECODER.decode(line)
    except (ValueError, msgspec.DecodeError, RecursionError):  # no ValueError before 0.21
        return None
    if not isinstance(found, dict) or found.get("journal") != "rlvr-probe":
        return None
    version = found.get("schema")
    if type(version) is not int or version < 1:
        return None
    texts = {key: value for key, value in found.items() if isinstance(value, str)}
    numbers = {
        key: value for key, value in found.items() if type(value) is int and 0 <= value < _TIME_MAX
    }
    if version != schema.SCHEMA_VERSION:
        newer = version > schema.SCHEMA_VERSION
        raise RecordingError(
            f"{name} has journal schema {version}, written by rlvr-probe"
            f" {texts.get('probe') or 'of an unknown version'}; this version reads schema"
            f" {schema.SCHEMA_VERSION}: "
            + ("install a newer rlvr-probe" if newer else "read it with the version that wrote it")
        )
    process, run, ids = texts.get("process"), texts.get("run"), found.get("ids")
    if not process or not run or not numbers.keys() >= _NEEDED:
        return None
    return Header(
        process=process,
        segment=numbers["segment"],
        run=run,
        job=texts.get("job") or f"process {process}",
        owner=texts.get("owner") or None,
        host=texts.get("host", ""),
        boot=texts.get("boot", ""),
        pid=numbers["pid"],
        ppid=numbers.get("ppid", 0),
        start_ticks=numbers.get("start_ticks"),
        mono_ns=numbers["mono_ns"],
        epoch_ns=numbers["epoch_ns"],
        probe=texts.get("probe", ""),
        names=numbers.get("names", 0),
        python=texts.get("python", ""),
        rank=numbers.get("rank"),
        local_rank=numbers.get("local_rank"),
        world_size=numbers.get("world_size"),
        ids={key: text for key, text in (ids if isinstance(ids, dict) else {}).items()
             if isinstance(text, str)},
    )  # fmt: skip
