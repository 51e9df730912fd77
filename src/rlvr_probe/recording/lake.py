"""A lake: many runs under one folder or one prefix of object storage, each with its tables.

``LAKE/run=ID/tables`` holds what ``characterize --lake`` made of a run, ``LAKE/run=ID/recording``
what its nodes uploaded, ``LAKE/summaries/ID.json`` what a list of runs says of it. A list loads
neither what reads a run nor what writes one: it is there at once.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from rlvr_probe.exceptions import RecordingError
from rlvr_probe.model import schema
from rlvr_probe.recording.files import JOURNAL
from rlvr_probe.storage import answering, is_remote, list_names, list_tags, read_all

__all__ = [
    "COLUMNS", "RECORDING", "TABLES", "list_runs", "local_folder", "put_summary", "run_folder",
    "tables_in",
]  # fmt: skip

SUMMARIES: Final = "summaries"
_SUFFIX: Final = ".json"
_INDEX: Final = "summaries.json"
TABLES: Final = "tables"
RECORDING: Final = "recording"
_RUN: Final = "run="
_T = TypeVar("_T")
_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")

COLUMNS: Final[Mapping[str, tuple[str, str]]] = {
    "run": ("VARCHAR", "run id"),
    "started": ("TIMESTAMP", "when its first process started, UTC"),
    "framework": ("VARCHAR", "name of the framework"),
    "framework_version": ("VARCHAR", "its version"),
    "algorithm": ("VARCHAR", "`grpo`, `rloo`, ..."),
    "model_type": ("VARCHAR", "architecture family of the model, for example `qwen2`"),
    "engine": ("VARCHAR", "kind of rollout engine"),
    "gpus": ("BIGINT", "GPUs of the ledger; ranks where no GPU was recorded"),
    "steps": ("BIGINT", "finished trainer steps"),
    "trajectories": ("BIGINT", "trajectories for training"),
    "hours": ("DOUBLE", "wall time, h"),
    "gpu_hours": ("DOUBLE", "GPUs times wall time, h"),
    "cause": ("VARCHAR", "kind of the first cause of lost time"),
    "cause_share": ("DOUBLE", "what it costs, as a share of the GPU time, 0..1"),
    "cause_title": ("VARCHAR", "what is wrong, in one sentence"),
    "lost": ("BIGINT", "rows known to be missing"),
}
"""By name: type in SQL, and meaning. Of a run without tables all but the first are NULL."""


def run_folder(lake: Path, run: str) -> Path:
    """Where a lake has what belongs to a run.

    Raises:
        RecordingError: The id of the run cannot be the name of a folder.
    """
    if not _ID.fullmatch(run):
        raise RecordingError(
            f"{run!r:.80} cannot be a run of a lake; expected letters, digits, '.', '_' or '-'"
        )
    return lake / f"{_RUN}{run}"


def tables_in(source: Path) -> Path | None:
    """The saved tables that a user means: those in ``source``, or those of this run of a lake."""
    from rlvr_probe.recording.tables.saved import is_saved

    found = (folder for folder in (source, source / TABLES) if is_saved(folder))
    return next(found, None)


@contextmanager
def local_folder(source: Path) -> Iterator[Path]:
    """The folder of a recording; one in object storage is fetched, until the context is left.

    Each byte is fetched once, and its checksum covers all of them, before any is believed.

    Raises:
        RecordingError: There is no recording in object storage.
    """
    if not is_remote(source):
        yield source
        return
    with answering(source):
        both = (_files(source), _files(source / RECORDING))
        wanted = [path for path in (*both[0], *both[1]) if _is_ours(path.name)]
    if not wanted:
        raise RecordingError(
            f"{source} holds neither tables nor a recording; expected a run of a lake:"
            " rlvr-probe ls lists them"
        )
    with tempfile.TemporaryDirectory(prefix="rlvr-probe-fetched-") as folder:
        for path in wanted:
            with answering(path):
                path.fs.get_file(path.path, f"{folder}/{path.name}")  # type: ignore[attr-defined]
        yield Path(folder)


def _files(place: Path) -> list[Path]:
    return list(place.iterdir()) if place.is_dir() else []


def _is_ours(name: str) -> bool:
    return JOURNAL.fullmatch(name) is not None or name.endswith(schema.OPEN_SUFFIX)


def put_summary(lake: Path, run: str, summary: Mapping[str, Any]) -> None:
    """Note what a list of runs says of one; in object storage also in the index of all.

    Raises:
        ProbeError: It cannot be written.
        StorageError: The storage refuses.
    """
    place = lake / SUMMARIES / f"{run}{_SUFFIX}"
    if not is_remote(lake):
        from rlvr_probe.exporter.atomic_output import placed_file

        place.parent.mkdir(parents=True, exist_ok=True)
        with placed_file(place) as file:
            file.write_bytes(msgspec.json.encode(summary))
        return
    with answering(lake):
        place.write_bytes(msgspec.json.encode(summary))
        # Who writes it at the same time may lose this one: then it is read by itself.
        (lake / _INDEX).write_bytes(msgspec.json.encode(_summaries(lake)))


def list_runs(lake: Path) -> list[dict[str, Any]]:
    """What a lake says of its runs, by the names of :data:`COLUMNS`; of some only the id.

    Raises:
        RecordingError: It holds no runs.
    """
    with answering(lake) if is_remote(lake) else nullcontext():
        names = [name for name in list_names(lake) if name.startswith(_RUN)]
        found = _summaries(lake)
    runs = sorted(name[len(_RUN) :] for name in names)
    if not runs:
        raise RecordingError(
            f"{lake} holds no run=ID; expected a lake: rlvr-probe characterize RUN --lake {lake}"
            " puts a run there"
        )
    return [{**(found[run].summary if run in found else {}), "run": run} for run in runs]


class _Entry(msgspec.Struct, array_like=True):
    """A summary, and what the storage said of the file that it is from; empty if nothing."""

    tag: str
    summary: dict[str, Any]


def _summaries(lake: Path) -> dict[str, _Entry]:
    """By run; one that cannot be read is absent, as it may be replaced just now."""
    tags = list_tags(lake / SUMMARIES, _SUFFIX)
    known = dict[str, _Entry]()
    if is_remote(lake):
        # The index spares a request for each run, and is believed as far as the tags are the same.
        [data] = read_all([lake / _INDEX])
        known = _decoded(data, dict[str, _Entry]) or known
    found = {run: known[run] for run, tag in tags.items() if run in known and known[run].tag == tag}
    missing = [run for run in tags if not tags[run] or run not in found]
    texts = read_all([lake / SUMMARIES / f"{run}{_SUFFIX}" for run in missing])
    for run, text in zip(missing, texts, strict=True):
        summary = _decoded(text, dict[str, Any])
        if summary is not None:
            found[run] = _Entry(tags[run], summary)
    return found


def _decoded(data: bytes | None, kind: type[_T]) -> _T | None:
    """What JSON says, if it is of a kind."""
    try:
        return None if data is None else msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return None
