"""Makes a file appear under its name whole or not at all."""

from __future__ import annotations

import errno
import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.exporter import check_place, open_new
from rlvr_probe_perfetto.timeline import HEAD

__all__ = ["check_free", "placed"]


def check_free(target: Path, *, force: bool) -> None:
    """Refuse a target that is in the way.

    Raises:
        ProbeError: It is there and must not be replaced, or its folder is not there, or not to be
            looked into.
    """
    check_place(target)
    if not target.parent.is_dir():
        raise ProbeError(f"{target.parent} is no folder; make it first")
    if not os.path.lexists(target):
        return
    if not force:
        raise ProbeError(f"{target} exists; --force replaces it")
    if target.is_symlink() or not target.is_file():
        raise ProbeError(f"{target} is not a file of its own; --force does not replace it")
    if target.stat().st_size and not _is_timeline(target):
        raise ProbeError(f"{target} is neither empty nor a timeline; --force does not replace it")


@contextmanager
def placed(target: Path, *, force: bool) -> Iterator[IO[bytes]]:
    """A new file that becomes ``target`` if the block ends well, and vanishes otherwise.

    It is compressed if its name ends in ``.gz``. Only its owner may read it, or the group as well,
    as the recording.

    Raises:
        ProbeError: ``target`` is in the way, or the file system refuses.
    """
    check_free(target, force=force)
    work = target.parent / f".{target.name}.{os.urandom(6).hex()}.tmp"
    try:
        with open(open_new(work), "wb") as stream:
            if target.suffix == ".gz":
                # No name and no time of day: the same run gives the same bytes.
                with gzip.GzipFile("", "wb", 6, stream, 0) as packed:
                    yield packed  # type: ignore[misc]
            else:
                yield stream
            stream.flush()
            os.fsync(stream.fileno())
        # Looked at again: writing may have taken minutes.
        check_free(target, force=force)
        os.replace(work, target)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "; nothing was left behind" if full else ""
        raise ProbeError(f"{target} cannot be written: {error.strerror or error}{hint}") from None
    finally:
        with suppress(OSError):
            os.unlink(work)


def _is_timeline(target: Path) -> bool:
    opened = gzip.open if target.suffix == ".gz" else open
    try:
        with opened(target, "rb") as stream:
            return stream.read(len(HEAD)) == HEAD
    except (OSError, EOFError):
        return False
