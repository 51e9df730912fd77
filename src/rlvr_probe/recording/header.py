"""Line 1 of a journal, checked: whose it is, where and when it began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from rlvr_probe.exceptions import RecordingError
from rlvr_probe.model import schema

__all__ = ["Header", "parse_header"]

_DECODER = msgspec.json.Decoder()
_TIME_MAX = 1 << 63


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
    if version != schema.SCHEMA_VERSION:
        newer = version > schema.SCHEMA_VERSION
        raise RecordingError(
            f"{name} has journal schema {version}, written by rlvr-probe"
            f" {_text(found, 'probe') or 'of an unknown version'}; this version reads schema"
            f" {schema.SCHEMA_VERSION}: "
            + ("install a newer rlvr-probe" if newer else "read it with the version that wrote it")
        )
    process, run = _text(found, "process"), _text(found, "run")
    mono_ns, epoch_ns = _whole(found, "mono_ns"), _whole(found, "epoch_ns")
    segment, pid = _whole(found, "segment"), _whole(found, "pid")
    if not process or not run or None in (mono_ns, epoch_ns, segment, pid):
        return None
    ids = found.get("ids")
    return Header(
        process=process,
        segment=segment or 0,
        run=run,
        job=_text(found, "job") or f"process {process}",
        owner=_text(found, "owner") or None,
        host=_text(found, "host"),
        boot=_text(found, "boot"),
        pid=pid or 0,
        ppid=_whole(found, "ppid") or 0,
        start_ticks=_whole(found, "start_ticks"),
        mono_ns=mono_ns or 0,
        epoch_ns=epoch_ns or 0,
        probe=_text(found, "probe"),
        names=_whole(found, "names") or 0,
        python=_text(found, "python"),
        rank=_whole(found, "rank"),
        local_rank=_whole(found, "local_rank"),
        world_size=_whole(found, "world_size"),
        ids={key: value for key, value in ids.items() if isinstance(value, str)}
        if isinstance(ids, dict)
        else {},
    )


def _text(found: Mapping[str, object], key: str) -> str:
    value = found.get(key)
    return value if isinstance(value, str) else ""


def _whole(found: Mapping[str, object], key: str) -> int | None:
    value = found.get(key)
    return value if type(value) is int and 0 <= value < _TIME_MAX else None
