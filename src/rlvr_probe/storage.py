"""Places outside the file system: ``s3://bucket/name``, and what else fsspec knows.

A place is used like a path; a library makes it one, which only who names such a place needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_probe.exceptions import ProbeError, StorageError

if TYPE_CHECKING:
    import duckdb

__all__ = [
    "answering", "attach", "delete_below", "is_remote", "list_names", "list_tags", "read_all",
    "to_place",
]  # fmt: skip

_SCHEME = "://"


def to_place(text: str) -> Path:
    """What a user names: a path, or a place in object storage that can be used like one.

    Raises:
        ProbeError: What it takes is not installed.
        StorageError: The storage does not answer.
    """
    if not is_remote(text):
        return Path(text)
    try:
        with answering(text):
            place: Path = import_module("upath").UPath(text)
            # What was listed earlier in this process may have changed since.
            place.fs.invalidate_cache()  # type: ignore[attr-defined]
            place.exists()
    except ImportError as error:
        raise ProbeError(
            f"{text} takes universal-pathlib and the library of its storage: {error}; install them"
            " with pip install 'rlvr-probe[s3]', or beside the one of another storage, such as"
            " gcsfs"
        ) from None
    return place


@contextmanager
def answering(place: Path | str) -> Iterator[None]:
    """Errors in the block are one of ours: each storage has classes of its own.

    Raises:
        StorageError: The storage does not answer, or refuses.
    """
    try:
        yield
    except (ImportError, ProbeError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever the library of a storage raises
        kind = type(error).__name__
        raise StorageError(f"{place} cannot be reached: {kind}: {error}", kind) from None


def is_remote(place: Path | str) -> bool:
    """Whether a place, or what a user calls it, is in object storage."""
    return _SCHEME in str(place)


def attach(sql: duckdb.DuckDBPyConnection, place: Path) -> bool:
    """Let DuckDB read and write where a place is; whether that is in object storage."""
    remote = is_remote(place)
    if remote:
        files: Any = place.fs  # type: ignore[attr-defined]
        known = files.protocol if isinstance(files.protocol, str) else files.protocol[0]
        if not sql.filesystem_is_registered(known):
            sql.register_filesystem(files)
    return remote


def delete_below(place: Path, *, first: str) -> None:
    """Delete all objects below a place, that of one name before any other.

    Raises:
        StorageError: The storage refuses.
    """
    files: Any = place.fs  # type: ignore[attr-defined]
    root: str = place.path  # type: ignore[attr-defined]
    with answering(place):
        if files.exists(f"{root}/{first}"):
            files.rm_file(f"{root}/{first}")
        if files.exists(root):
            files.rm(root, recursive=True)


def list_names(place: Path) -> list[str]:
    """What a place holds, by name; nothing where there is no such place."""
    if not is_remote(place):
        return [path.name for path in place.iterdir()] if place.is_dir() else []
    return [name for name, _ in _listed(place)]


def list_tags(place: Path, suffix: str) -> dict[str, str]:
    """The files of a place with a suffix, by name without it, and what changes when they do.

    That is empty where the storage does not say; there are none where there is no such place.
    """
    if not is_remote(place):
        return {path.name[: -len(suffix)]: "" for path in place.glob(f"*{suffix}")}
    return {
        name[: -len(suffix)]: str(about.get("ETag") or about.get("etag") or "")
        for name, about in _listed(place)
        if name.endswith(suffix)
    }


def _listed(place: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names below a prefix of object storage, and what the storage says of each."""
    files: Any = place.fs  # type: ignore[attr-defined]
    try:
        found = files.ls(place.path, detail=True, refresh=True)  # type: ignore[attr-defined]
    except FileNotFoundError:
        return
    for about in found:
        yield str(about["name"]).rstrip("/").rpartition("/")[2], about


def read_all(places: Sequence[Path]) -> list[bytes | None]:
    """What is in each of these places of one storage; None where there is nothing to read."""
    if places and is_remote(places[0]):
        files: Any = places[0].fs  # type: ignore[attr-defined]
        paths: list[str] = [place.path for place in places]  # type: ignore[attr-defined]
        # All at once: each takes a round trip.
        found = files.cat(paths, on_error="return")
        return [data if isinstance(data := found.get(path), bytes) else None for path in paths]
    return [_read(place) for place in places]


def _read(place: Path) -> bytes | None:
    try:
        return place.read_bytes()
    except OSError:
        return None
