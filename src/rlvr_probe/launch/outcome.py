"""How a command ended: what it left in its run folder, and the line that says so.

Found without reading the recording.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from rlvr_probe.model.schema import (
    JOURNAL_SUFFIX,
    OPEN_HEADER,
    OPEN_SLOT_BYTES,
    OPEN_SUFFIX,
    PACKED_SUFFIX,
    PACKED_SUFFIXES,
    unpack_block,
)
from rlvr_probe.probe.launcher_notices import Notice
from rlvr_probe.spool import find

__all__ = ["Losses", "losses", "nothing_recorded", "processes", "recorded"]

_BEGINNING_B = 4096
_READ_B = 64 << 20
_CHUNK_B = 64 << 10
_LOST = re.compile(rb'^\["lost",\d+,"(\w{1,64})",(\d{1,18})\]$', re.M)


@dataclass(frozen=True, slots=True)
class Losses:
    """Records that were lost.

    Attributes:
        count: All of them.
        reasons: Of how many it is known why.
        full: The disk has no room left, not even to say why.
    """

    count: int
    reasons: Mapping[str, int]
    full: bool = False


def processes(folder: Path, environ: Mapping[str, str]) -> set[str]:
    """Names of the processes of the command that wrote a journal for ``folder``."""
    paths = _paths(folder, environ)
    names = [path.name for path in paths if not _is_count(path)]
    journals = {
        path.name.partition(".")[0]: path
        for path in paths
        if path.name.endswith(
            (JOURNAL_SUFFIX, *(JOURNAL_SUFFIX + form for form in PACKED_SUFFIXES))
        )
    }
    # A sidecar has no table with slots; on a network file system no process has one.
    tables = {name.removesuffix(OPEN_SUFFIX) for name in names if name.endswith(OPEN_SUFFIX)}
    return {
        process for process, path in journals.items() if process in tables or not _is_sidecar(path)
    }


def losses(folder: Path, environ: Mapping[str, str], of: Collection[str]) -> Losses:
    """Records that processes lost, as far as is known without reading all that they wrote."""
    tables, journals = dict[str, Path](), dict[str, Path]()
    for path in sorted(_paths(folder, environ), key=lambda path: path.name):
        process = path.name.partition(".")[0]
        if process in of and path.name.endswith(OPEN_SUFFIX):
            tables[process] = path
        elif process in of and path.name.endswith(JOURNAL_SUFFIX):
            journals[process] = path
    total, reasons = 0, Counter[str]()
    for process in of:
        lost = _read_lost(tables.get(process))
        if lost == 0:
            continue
        told = _read_reasons(journals.get(process))
        total += max(lost or 0, sum(told.values()))
        reasons.update(told)
    return Losses(total, reasons, _is_full(folder))


def _is_full(folder: Path) -> bool:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    # A file system without a known size has none.
    return disk.f_blocks > 0 and disk.f_bavail * disk.f_frsize < _CHUNK_B


def _read_lost(table: Path | None) -> int | None:
    """Records that a process lost, by its table of open spans; None if that is unknown."""
    try:
        data = b"" if table is None else table.read_bytes()
    except OSError:
        return None
    header = unpack_block(OPEN_HEADER, data, 0)
    return None if header is None else header[6]


def _read_reasons(journal: Path | None) -> dict[str, int]:
    """The last totals in the last file of a journal, by reason."""
    try:
        data = b"" if journal is None else journal.read_bytes()[-_READ_B:]
    except OSError:
        return {}
    return {found[1].decode(): int(found[2]) for found in _LOST.finditer(data)}


def _is_count(path: Path) -> bool:
    """Whether a file is what a sidecar has in place of a table of open spans."""
    try:
        return path.name.endswith(OPEN_SUFFIX) and path.stat().st_size <= OPEN_SLOT_BYTES
    except FileNotFoundError:  # moved, or deleted
        return False


def _paths(folder: Path, environ: Mapping[str, str]) -> list[Path]:
    """Files of a run on this node: those in its spool, then those in its folder."""
    spool = find(folder, environ)
    return [path for place in (spool, folder) if place is not None for path in _list(place)]


def _list(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in os.listdir(folder)]
    except OSError:
        return []


def _is_sidecar(path: Path) -> bool:
    """Whether a journal says that its process is a sidecar, which stands in its first rows."""
    try:
        with path.open("rb") as file:
            data = file.read(_BEGINNING_B)
    except OSError:
        return False
    if path.name.endswith(PACKED_SUFFIX):
        import zlib

        try:
            data = zlib.decompressobj(31).decompress(data, _BEGINNING_B)
        except zlib.error:
            return False
    return b',"sidecar"]' in data


def recorded(count: int, shown: str, lost: Losses, notices: Sequence[Notice]) -> str:
    """Where the recording is, what is missing in it, and what to type next.

    Args:
        count: Processes that recorded something.
        shown: Run folder as the user typed it.
        lost: Records that were lost.
        notices: From processes of the command.
    """
    path = quote(shown)
    text = f"recorded {_count_of(count)} in {path}"
    if lost.count:
        most = sorted(lost.reasons.items(), key=lambda item: (-item[1], item[0]))
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in most)
        text += f"; LOST {lost.count:,} records" + (f" ({reasons})" if reasons else "")
        text += ", the disk is full" if lost.full else ""
    refused = _refused(notices)
    if refused:
        text += f"; {refused}"
    return f"{text}; next: rlvr-probe show {path}"


def nothing_recorded(
    status: int, shown: str, frameworks: Sequence[str], notices: Sequence[Notice]
) -> str:
    """Why nothing was recorded, as far as it is known.

    Args:
        status: Exit status of the command.
        shown: Run folder as the user typed it.
        frameworks: Names of those that were to be recorded.
        notices: From processes of the command.
    """
    refused = _refused(notices)
    if refused:
        return f"nothing was recorded in {quote(shown)}: {refused}"
    failed = _texts(notices, "failed")
    if failed:
        return f"nothing was recorded: {'; '.join(failed)}; rlvr-probe doctor looks all of it up"
    imported = _texts(notices, "imported")
    if imported:
        count = len({notice.pid for notice in notices})
        end = f"ended with status {status}" if status else "ended"
        return (
            f"nothing was recorded: {_count_of(count)} imported {' and '.join(imported)}, and the"
            f" command {end} before its first stage"
        )
    *others, last = frameworks or ("a framework, of which none is known here",)
    names = f"{', '.join(others)} or {last}" if others else last
    return (
        f"nothing was recorded: no Python process of the command imported {names} on this node, or"
        " its Python has no rlvr-probe; run rlvr-probe doctor with that Python"
    )


def _refused(notices: Sequence[Notice]) -> str:
    """Who could not write, and why not."""
    codes = _texts(notices, "refused")
    if not codes:
        return ""
    count = len({notice.pid for notice in notices if notice.kind == "refused"})
    return f"{_count_of(count)} could not write there ({', '.join(map(_explain, codes))})"


def _explain(code: str) -> str:
    import errno

    number = getattr(errno, code.upper(), None)
    return os.strerror(number) if isinstance(number, int) else code


def _texts(notices: Sequence[Notice], kind: str) -> list[str]:
    return list(dict.fromkeys(notice.text for notice in notices if notice.kind == kind))


def _count_of(count: int) -> str:
    return f"{count} process" if count == 1 else f"{count} processes"
