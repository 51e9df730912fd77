"""The launcher: a command recorded without a line of it changed.

Every Python process below the command inherits ``RLVR_PROBE_*`` and is reached by the start-up
hook. The launcher itself loads nothing else, creates no folder and waits.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote

from rlvr_probe import identity
from rlvr_probe.config import DISABLED, Config
from rlvr_probe.launch import foreground
from rlvr_probe.model.schema import JOURNAL_SUFFIX, OPEN_SLOT_BYTES, OPEN_SUFFIX, PACKED_SUFFIX
from rlvr_probe.spool import find

__all__ = ["launch"]

NOT_EXECUTABLE = 126
NOT_FOUND = 127

_BEGINNING_B = 4096


def launch(
    command: Sequence[str],
    *,
    out: str | None = None,
    run_id: str | None = None,
    frameworks: str | None = None,
    environ: Mapping[str, str] | None = None,
    first: Callable[[Config], str] | None = None,
) -> int:
    """Run ``command`` recorded and say in one line on stderr where the recording is.

    Takes this process over: see :func:`rlvr_probe.launch.foreground.run`.

    Args:
        command: Program and arguments.
        out: Folder of recordings, as typed.
        run_id: Run id.
        frameworks: Integrations to use, separated by commas.
        environ: Environment of the command before ours is added; default that of this process.
        first: What to say before it, in one line; empty for nothing.

    Returns:
        Exit status of the command, 128 + n after signal n; 127 if there is no such command, 126 if
        it cannot be executed.

    Raises:
        ConfigError: An argument or ``RLVR_PROBE_*`` variable cannot be used.
    """
    environ = os.environ if environ is None else environ
    config = Config.from_environ(environ, out=out, run_id=run_id, frameworks=frameworks)
    if config.disabled:
        status = _run(command, environ)
        _say(environ, f"nothing was recorded: {DISABLED} is set")
        return status
    run = identity.run_id(config, environ)
    folder = config.out / run
    # Paths are shown as they were typed: ours may hold a home folder.
    shown = os.path.join(out or environ.get("RLVR_PROBE_OUT") or "rlvr-probe-runs", run)
    writable = _writable(folder)
    if not writable:
        _say(environ, f"cannot write to {quote(shown)}: the command runs unrecorded")
    elif first is not None and (text := first(config)):
        _say(environ, text)
    child = {**environ, **config.to_environ(), "RLVR_PROBE_RUN_ID": run}
    before = _processes(folder, child)
    status = _run(command, child)
    count = len(_processes(folder, child) - before)
    if count:
        noun = "process" if count == 1 else "processes"
        path = quote(shown)
        _say(environ, f"recorded {count} {noun} in {path}; next: rlvr-probe show {path}")
    elif writable and status not in (NOT_FOUND, NOT_EXECUTABLE):
        _say(
            environ,
            "nothing was recorded: no Python process of the command imported a supported "
            "framework, its Python has no rlvr-probe installed, or nothing could be written to "
            + quote(os.path.dirname(shown)),
        )
    return status


def _run(command: Sequence[str], environ: Mapping[str, str]) -> int:
    try:
        return foreground.run(command, environ)
    except FileNotFoundError:
        _print(f"{command[0]}: command not found")
        return NOT_FOUND
    except OSError as error:
        _print(f"{command[0]}: {error.strerror}")
        return NOT_EXECUTABLE


def _say(environ: Mapping[str, str], text: str) -> None:
    """One line on stderr, from one launcher of the job."""
    rank = identity.rank(environ)
    if not (rank if rank is not None else identity.slurm_rank(environ)):
        _print(text)


def _print(text: str) -> None:
    # Not through sys.stderr, which keeps what it could not write and would turn the exit status
    # into 120 at the end; but only if it was open at the start: 2 may be another file since.
    if sys.stderr is not None:
        try:
            os.write(sys.stderr.fileno(), os.fsencode(f"rlvr-probe: {text}\n"))
        except (OSError, ValueError):
            pass


def _writable(folder: Path) -> bool:
    """Whether ``folder`` can be made, as far as can be told without making it."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _processes(folder: Path, environ: Mapping[str, str]) -> set[str]:
    """Names of the processes of the command that wrote a journal for ``folder``."""
    spool = find(folder, environ)
    paths = [path for place in (spool, folder) if place is not None for path in _list(place)]
    names = [path.name for path in paths if not _is_count(path)]
    journals = {
        path.name.partition(".")[0]: path
        for path in paths
        if path.name.endswith((JOURNAL_SUFFIX, JOURNAL_SUFFIX + PACKED_SUFFIX))
    }
    # A sidecar has no table with slots; on a network file system nobody has one.
    tables = {name.removesuffix(OPEN_SUFFIX) for name in names if name.endswith(OPEN_SUFFIX)}
    return {
        process for process, path in journals.items() if process in tables or not _is_sidecar(path)
    }


def _is_count(path: Path) -> bool:
    """Whether a file is what a sidecar has in place of a table of open spans."""
    try:
        return path.name.endswith(OPEN_SUFFIX) and path.stat().st_size <= OPEN_SLOT_BYTES
    except FileNotFoundError:  # moved, or deleted
        return False


def _list(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in os.listdir(folder)]
    except OSError:
        return []


def _is_sidecar(path: Path) -> bool:
    """Whether a journal tells that its process is a sidecar, which it does first of all."""
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
