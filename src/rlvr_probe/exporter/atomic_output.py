"""Makes a directory or a file appear under its name whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rlvr_probe.access import Access
from rlvr_probe.exceptions import ProbeError
from rlvr_probe.exporter import check_place, open_new

__all__ = ["check_file", "check_free", "placed", "placed_file"]


def check_free(target: Path, *, force: bool, replaceable: Callable[[Path], bool]) -> None:
    """Refuse a target that is in the way.

    Args:
        target: Where the directory shall appear, as the user gave it.
        force: The user agrees to replace what is there.
        replaceable: Whether a directory is of the kind that may be replaced.

    Raises:
        ProbeError: It must not be replaced, or the user may not look into the folder it lies in.
    """
    check_place(target)
    if not os.path.lexists(target):
        return
    if not force:
        raise ProbeError(f"{target} exists; --force replaces it")
    if target.is_symlink() or not target.is_dir():
        raise ProbeError(f"{target} is not a directory of its own; --force does not replace it")
    if any(target.iterdir()) and not replaceable(target):
        raise ProbeError(
            f"{target} is neither empty nor such a workload; --force does not replace it"
        )


def check_file(
    target: Path,
    *,
    force: bool = True,
    replaceable: Callable[[Path], bool] | None = None,
    kind: str = "",
) -> None:
    """Refuse a file that cannot be written, or only through what lies there.

    Args:
        target: The file, as the user gave it.
        force: The user agrees to replace what is there.
        replaceable: Whether a file that is not empty may be replaced; None: any may.
        kind: What such a file is called.

    Raises:
        ProbeError: Its folder is missing, or closed to the user, or something is in the way.
    """
    check_place(target)
    if not target.absolute().parent.is_dir():
        raise ProbeError(f"{target.parent} does not exist; expected a folder to write into")
    if not os.path.lexists(target):
        return
    if not force:
        raise ProbeError(f"{target} exists; --force replaces it")
    if not stat.S_ISREG(target.lstat().st_mode):
        what = "a link" if target.is_symlink() else "not a file"
        raise ProbeError(f"{target} is {what}; expected the name of a file, new or to be replaced")
    if replaceable is not None and target.stat().st_size and not replaceable(target):
        raise ProbeError(f"{target} is neither empty nor {kind}; --force does not replace it")


@contextmanager
def placed_file(target: Path) -> Iterator[Path]:
    """A new file that becomes ``target`` if the block ends well, and vanishes otherwise.

    The user alone may read it, or the group as well, as a recording. What is there is replaced, not
    written to.

    Raises:
        ProbeError: The file system refuses.
    """
    final = Path(os.path.abspath(target))
    work = final.with_name(f".{final.name}.{os.urandom(6).hex()}.tmp")
    try:
        os.close(open_new(work))
        yield work
        os.replace(work, final)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "; nothing was left behind" if full else ""
        raise ProbeError(f"{target} cannot be written: {error.strerror or error}{hint}") from None
    finally:
        with suppress(OSError):
            work.unlink()


@contextmanager
def placed(
    target: Path,
    *,
    force: bool,
    replaceable: Callable[[Path], bool],
    access: Access | None = None,
) -> Iterator[Path]:
    """A new empty directory that becomes ``target`` if the block ends well, and vanishes otherwise.

    With ``force`` what is there is set aside by one rename and removed after the other one, so it
    is never half of the old and half of the new.

    Args:
        target: Where it shall appear.
        force: Replace what is there.
        replaceable: Whether a directory may be replaced.
        access: Who may look into it; None: whom the umask says.

    Raises:
        ProbeError: ``target`` is in the way, see :func:`check_free`.
        OSError: The file system refuses.
    """
    final = Path(os.path.abspath(target))
    made = [folder for folder in (final.parent, *final.parent.parents) if not folder.exists()]
    mark = os.urandom(6).hex()
    work = final.parent / f".{final.name}.{mark}.tmp"
    aside = final.parent / f".{final.name}.{mark}.old"
    done = False
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        work.mkdir() if access is None else access.make(work)
        yield work
        # Looked at again: writing may have taken minutes.
        check_free(target, force=force, replaceable=replaceable)
        if force and final.exists():
            os.rename(final, aside)
        try:
            os.rename(work, final)
        except OSError:
            if aside.exists():
                os.rename(aside, final)
            raise
        done = True
    finally:
        shutil.rmtree(aside if done else work, ignore_errors=True)
        if not done:
            for folder in made:
                with suppress(OSError):
                    folder.rmdir()
