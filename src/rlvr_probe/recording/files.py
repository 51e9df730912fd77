"""Finds a recording on disk: which folder is a run, which files are whose, which may be read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlvr_probe.access import barrier, user_name, whose
from rlvr_probe.exceptions import RecordingError
from rlvr_probe.filesystem import reach
from rlvr_probe.model import schema
from rlvr_probe.recording.chunks import Source, open_source
from rlvr_probe.spool import every, find
from rlvr_probe.storage import is_remote

__all__ = [
    "JOURNAL", "RunFiles", "Segment", "check_readable", "find_run", "list_denied", "list_files",
]  # fmt: skip

JOURNAL = re.compile(
    rf"p([0-9a-f]{{16}})\.([0-9]{{4,9}}){re.escape(schema.JOURNAL_SUFFIX)}"
    rf"({'|'.join(map(re.escape, schema.PACKED_SUFFIXES))})?"
)
"""Name of a segment: process key, number, and what it was made of it once it was finished."""

_PACKED_TIMES = 5
"""So many times is a segment as large as what becomes of it."""

_TABLE = re.compile(rf"p([0-9a-f]{{16}}){re.escape(schema.OPEN_SUFFIX)}")


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a process's journal.

    Attributes:
        path: Where it lies; a sidecar may compress or compact it at any time, or move it.
        size_b: What it takes there, bytes.
        moved: Where it is to be moved to from a spool, or None.
    """

    process: str
    number: int
    path: Path
    size_b: int
    moved: Path | None = None

    def open(self) -> AbstractContextManager[Source]:
        """What the process wrote, as far as it is known of by ``size_b``.

        Raises:
            OSError: There is no such file any more, in any form.
        """
        return open_source(self.path, self.size_b, self.moved)


@dataclass(slots=True)
class RunFiles:
    """What lies in a run folder.

    Attributes:
        folder: The run folder.
        others: Folders of the same run, where nodes kept a part of it each.
        spool: What processes of this node write is there first; None if there is no spool.
        segments: Journal files by process key, in the order of their numbers.
        tables: Open-span tables by process key.
        strangers: Names of journal-like files that cannot be ours: another name, no regular file.
    """

    folder: Path
    others: tuple[Path, ...] = ()
    spool: Path | None = None
    segments: dict[str, list[Segment]] = field(default_factory=dict)
    tables: dict[str, Path] = field(default_factory=dict)
    strangers: list[str] = field(default_factory=list)

    @property
    def size_b(self) -> int:
        """Bytes in all journals."""
        return sum(part.size_b for parts in self.segments.values() for part in parts)

    @property
    def written_b(self) -> int:
        """About how many bytes they had when they were written."""
        return sum(
            part.size_b * (1 if part.path.suffix == schema.JOURNAL_SUFFIX else _PACKED_TIMES)
            for parts in self.segments.values()
            for part in parts
        )


def find_run(path: Path) -> Path:
    """The run folder that ``path`` means: itself, or the newest of the runs in it.

    The newest is the one whose journals were written to last.

    Raises:
        RecordingError: There is none, or none that the user may read.
    """
    if find(path) is not None:
        return path
    check_readable(path)
    spooled = [
        (written, target.folder.name, path / target.folder.name)
        for spool, target in every()
        if target.folder.parent == reach(path)[0] and (written := _last_write(spool)) is not None
    ]
    if not path.exists() and not spooled:
        raise RecordingError(f"{path} does not exist; expected a run folder, or a folder of runs")
    if not path.is_dir() and not spooled:
        raise RecordingError(f"{path} is a file; expected the run folder it lies in")
    if _last_write(path) is not None:
        return path
    folders = [child for child in (_children(path) if path.is_dir() else ()) if child.is_dir()]
    runs = spooled + [
        (written, folder.name, folder)
        for folder in folders
        if (written := _last_write(folder)) is not None
    ]
    if not runs:
        for folder in folders:
            check_readable(folder)
        raise RecordingError(
            f"{path} holds no recording: no {schema.segment_name('<process>', 0)} in it or in a"
            " folder directly below it"
        )
    return max(runs)[2]


def list_denied(path: Path, run: Path) -> list[Path]:
    """Folders beside ``run`` that may be newer and that the user may not read, the newest first.

    Of such a folder nothing but its own time is known, which is that of the last file made in it:
    that is compared with the time of ``run``.

    Args:
        path: What :func:`find_run` was asked for.
        run: What it answered.
    """
    own = _status(find(run) or run)
    if run == path or own is None:
        return []
    denied = [
        (status.st_mtime, Path(entry.path))
        for entry in _names(path)
        # No run has such a name.
        if not entry.name.startswith(".")
        if (status := _status(Path(entry.path))) is not None
        if stat.S_ISDIR(status.st_mode) and status.st_mtime > own.st_mtime
        if not _is_readable(Path(entry.path))
    ]
    return [folder for _, folder in sorted(denied, reverse=True)]


def list_files(folder: Path, *more: Path) -> RunFiles:
    """The files of the run in ``folder``, and of the parts of it in ``more``.

    A spool of it on this node is listed first: what is moved meanwhile is found in the folder.

    Args:
        folder: A run folder.
        more: Other folders of the same run, where nodes kept a part of it each. Of a file that is
            in several the longer copy is taken.

    Raises:
        RecordingError: A folder cannot be listed, or holds no file of ours, or none that the user
            may read.
    """
    files = _list(folder)
    files.others = more
    for other in map(_list, more):
        files.spool = files.spool or other.spool
        files.strangers += other.strangers
        for process, path in other.tables.items():
            files.tables.setdefault(process, path)
        for process, parts in other.segments.items():
            known = {part.number: part for part in files.segments.get(process, ())}
            for part in parts:
                if part.number not in known or part.size_b > known[part.number].size_b:
                    known[part.number] = part
            files.segments[process] = [known[number] for number in sorted(known)]
    return files


def _list(folder: Path) -> RunFiles:
    files = RunFiles(folder, spool=find(folder))
    paths = _children(folder) if files.spool is None else _both(files.spool, folder)
    known = dict[tuple[str, int], int]()
    for path in paths:
        journal, table = JOURNAL.fullmatch(path.name), _TABLE.fullmatch(path.name)
        if journal is None and table is None:
            if path.suffix == schema.JOURNAL_SUFFIX:
                files.strangers.append(path.name)
            continue
        status = _status(path)
        # Opening a named pipe would block.
        if status is None or not stat.S_ISREG(status.st_mode):
            files.strangers.append(path.name)
        elif journal is not None:
            process, number = journal[1], int(journal[2])
            parts = files.segments.setdefault(process, [])
            at = known.setdefault((process, number), len(parts))
            # The plain one comes first; where several are there, they hold the same lines, but for
            # a lake, where a plain one may be a first part.
            if at == len(parts):
                parts.append(Segment(process, number, path, status.st_size))
            elif parts[at].moved is None and parts[at].path.parent == path.parent:
                parts[at] = Segment(process, number, path, status.st_size)
            elif parts[at].moved is None and parts[at].path.parent != path.parent:
                parts[at] = replace(parts[at], moved=path)
        elif table is not None:
            files.tables.setdefault(table[1], path)
    if not files.segments and not files.tables:
        check_readable(folder)
        raise RecordingError(f"{folder} holds no recording")
    for parts in files.segments.values():
        parts.sort(key=lambda part: part.number)
    journals = [part.path for parts in files.segments.values() for part in parts]
    if not any(map(_is_readable, journals)):
        for path in journals:
            check_readable(path)
    return files


def _both(spool: Path, folder: Path) -> list[Path]:
    """What lies in a spool, then what lies in the run folder, which may not be there yet."""
    return [
        path
        for place in (spool, folder)
        for path in sorted(Path(entry.path) for entry in _names(place))
    ]


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise RecordingError(f"{folder} cannot be read: {error.strerror}") from None


def _names(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return


def _last_write(folder: Path) -> float | None:
    """When a journal in ``folder`` was last written to, s since 1970; None if there is none."""
    times = [
        status.st_mtime
        for entry in _names(folder)
        if JOURNAL.fullmatch(entry.name) or _TABLE.fullmatch(entry.name)
        if (status := _status(Path(entry.path))) is not None
    ]
    return max(times, default=None)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def check_readable(path: Path) -> None:
    """Refuse what is there and may not be read.

    Raises:
        RecordingError: It may not, or a folder above it may not be looked into.
    """
    if is_remote(path):  # who may is found out by reading
        return
    try:
        path.stat()
    except PermissionError:
        raise RecordingError(_text(path, barrier(path) or path.parent)) from None
    except OSError:  # not there, which others say
        return
    if not _is_readable(path):
        raise RecordingError(_text(path, path))


def _is_readable(path: Path) -> bool:
    """Whether a file may be read, or a folder listed and looked into."""
    return os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK)


def _text(path: Path, closed: Path) -> str:
    owner = closed.stat().st_uid
    what = "it" if closed == path else str(closed)
    said = f"no permission to read {path}: {what} {whose(closed)}"
    if owner == os.geteuid():
        return f"{said}; chmod -R u+rX gives it back to you"
    return (
        f"{said}, and you are {user_name(os.geteuid())}; ask {user_name(owner)} for it: chmod -R"
        " g+rX gives the group what is recorded, RLVR_PROBE_GROUP_READABLE=1 what will be"
    )
