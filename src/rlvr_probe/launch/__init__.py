"""The launcher: a command recorded without a line of it changed.

Every Python process below the command inherits ``RLVR_PROBE_*`` and is reached by the start-up
hook. The launcher itself loads nothing else, creates no folder and waits.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shlex import quote
from types import MappingProxyType

from rlvr_probe.access import Access
from rlvr_probe.config import DISABLED, REPLAY, Config, place_note
from rlvr_probe.exceptions import ConfigError
from rlvr_probe.launch import foreground
from rlvr_probe.launch.outcome import losses, nothing_recorded, processes, recorded
from rlvr_probe.probe import identity
from rlvr_probe.probe.launcher_notices import NOTICES, Notice, make, read

__all__ = ["launch"]

NOT_EXECUTABLE = 126
NOT_FOUND = 127


def launch(
    command: Sequence[str],
    *,
    out: str | None = None,
    run_id: str | None = None,
    frameworks: str | None = None,
    environ: Mapping[str, str] | None = None,
    first: Callable[[Config], str] | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
    then: Callable[[Path, Access], None] | None = None,
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
        more: Variables for the command besides those of a recording.
        then: Called with the run folder, and who may read it, if the command recorded anything.

    Returns:
        Exit status of the command, 128 + n after signal n; 127 if the command does not exist,
        126 if it cannot be executed.

    Raises:
        ConfigError: An argument or ``RLVR_PROBE_*`` variable cannot be used.
    """
    # One that steers reaches the commands of `replay` alone, never those of a `run` inside of it.
    given = os.environ if environ is None else environ
    environ = {name: value for name, value in given.items() if name != REPLAY}
    config = Config.from_environ(environ, out=out, run_id=run_id, frameworks=frameworks)
    if config.disabled:
        status = _run(command, environ)
        _say(environ, f"nothing was recorded: {DISABLED} is set")
        return status
    if config.frameworks:
        _check(config.frameworks)
    run = identity.run_id(config, environ)
    meant = config.out / run
    folder = config.access.find(meant)
    # Paths are shown as they were typed: ours may hold a home folder.
    typed = out or environ.get("RLVR_PROBE_OUT") or config.out.name
    if note := place_note(config, environ):
        _say(environ, note)
        typed = str(config.out)
    shown = os.path.join(typed, folder.name)
    writable = _writable(folder)
    if not writable:
        _say(environ, f"cannot write to {quote(shown)}: the command runs unrecorded")
    elif folder != meant:
        _say(
            environ,
            f"{quote(os.path.join(typed, run))} is somebody else's, a link, or open to everybody:"
            f" recording to {quote(shown)}",
        )
    if writable and first is not None and (text := first(config)):
        _say(environ, text)
    child = {**environ, **config.to_environ(), "RLVR_PROBE_RUN_ID": run, **more}
    before = processes(folder, child)
    with _listening(child) as told:
        status = _run(command, child)
        notices = told()
    found = processes(folder, child) - before
    if found:
        _say(environ, recorded(len(found), shown, losses(folder, child, found), notices))
        if then is not None:
            then(folder, config.access)
    elif writable and status not in (NOT_FOUND, NOT_EXECUTABLE):
        _say(environ, nothing_recorded(status, shown, _wanted(config), notices))
    return status


def _check(frameworks: Sequence[str]) -> None:
    """Refuse a name that is none: the training would run unrecorded.

    Raises:
        ConfigError: No integration that is installed here has it.
    """
    from rlvr_probe.registry import names, none_called_so

    known = names()
    for name in frameworks:
        if name not in known:
            raise ConfigError(f"{name!r} cannot be recorded: {none_called_so(known)}")


def _wanted(config: Config) -> Sequence[str]:
    """Names of the integrations that were to be used."""
    if config.frameworks is not None:
        return config.frameworks
    from rlvr_probe.registry import names

    return names()


@contextmanager
def _listening(child: dict[str, str]) -> Iterator[Callable[[], list[Notice]]]:
    """Give the command a file to send notices in, unless an outer launcher did."""
    above = child.get(NOTICES)
    path = Path(above) if above else make()
    if path is None:
        yield list
        return
    child[NOTICES] = str(path)
    try:
        yield partial(read, path)
    finally:
        if not above:
            path.unlink(missing_ok=True)


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
    """Whether ``folder`` can be made, as far as is known without making it."""
    # Not by pathlib, which raises where a folder above may not be looked into.
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
