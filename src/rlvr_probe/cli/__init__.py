"""The command line: ``rlvr-probe COMMAND``, one of :data:`COMMANDS`.

Each command is a module with ``add_parser(subparsers)`` and ``execute(args) -> int``. What a
command needs is imported when it is executed, so that ``run`` starts fast.

Exit codes, the same for every command but ``run``, which passes on that of its command, as
``replay`` does where that is not 0:

====  =========================================================================================
0     done
1     the thing examined is not sound: ``validate`` found problems, ``doctor`` something that
      will not be recorded, ``stuck`` something that takes too long, or died, ``compare`` what
      takes longer than ``--fail-above`` allows, ``replay`` did a part of the workload only
2     it could not be done: wrong usage, no such recording, nothing to convert, a folder that is
      in the way, a full disk, a collector that does not answer, or does not take everything
130   interrupted
====  =========================================================================================
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from rlvr_probe.exceptions import ProbeError

__all__ = [
    "COMMANDS",
    "INTERRUPTED",
    "OK",
    "UNABLE",
    "UNSOUND",
    "CommandParser",
    "Subparsers",
    "add_run",
    "complain",
    "main",
    "orderly",
]

OK = 0
UNSOUND = 1
UNABLE = 2
INTERRUPTED = 130

COMMANDS = (
    "run",
    "replay",
    "show",
    "characterize",
    "compare",
    "fidelity",
    "stuck",
    "ls",
    "compact",
    "upload",
    "convert",
    "validate",
    "export",
    "doctor",
    "sidecar",
)

_EPILOG = """\
exit codes: 0 done; 1 the thing examined is not sound (validate found problems, doctor
something that will not be recorded, stuck something that takes too long, or died, compare
what takes longer than --fail-above allows, replay did a part only); 2 it could not be done
(wrong usage, no such recording, nothing to convert, a folder in the way, a full disk, a
collector that does not answer or does not take everything); 130 interrupted.
'run' exits with the code of its command, 'replay' where that is not 0."""


class CommandParser(argparse.ArgumentParser):
    """A parser that can look at its arguments to find out which ones it takes.

    Attributes:
        extend: Called once, with the parser and what it shall parse; it may add arguments.
    """

    extend: Callable[[argparse.ArgumentParser, Sequence[str]], None] | None = None

    # The overloads of the standard library say no more than this.
    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        """Let ``extend`` add arguments, then parse; as the method of the standard library."""
        extend, self.extend = self.extend, None
        if extend is not None:
            extend(self, args or ())
        return super().parse_known_args(args, namespace)


Subparsers: TypeAlias = "argparse._SubParsersAction[CommandParser]"


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a run."""
    parser.add_argument(
        "run", metavar="RUN", type=Path, help="a run folder, or a folder of runs: the newest"
    )


class _Version(argparse.Action):
    """Prints the version; looks it up only then."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"rlvr-probe {version('rlvr-probe')}")
        parser.exit()


def complain(message: str) -> None:
    """Print a message to stderr as one line, whatever characters are in it."""
    line = "".join(c if c.isprintable() else " " for c in message)
    encoding = sys.stderr.encoding or "utf-8"
    print(f"rlvr-probe: {line.encode(encoding, 'replace').decode(encoding)}", file=sys.stderr)


@contextmanager
def orderly() -> Iterator[None]:
    """SIGTERM, which by default ends a process at once, ends the block as Ctrl-C does.

    In a thread beside the main one nothing is changed: Python lets that one alone handle signals.
    """
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in ``argv`` and return its exit code.

    Args:
        argv: Arguments without the program name; by default those of this process.
    """
    parser = argparse.ArgumentParser(
        prog="rlvr-probe",
        description="The flight recorder of RL post-training.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version)
    subparsers = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=CommandParser
    )
    for command in COMMANDS:
        importlib.import_module(f"rlvr_probe.cli.{command}").add_parser(subparsers)
    try:
        args = parser.parse_args(argv)
        code: int = args.execute(args)
        # A reader that went away shows only when the rest is flushed.
        if sys.stdout is not None:
            sys.stdout.flush()
    except ProbeError as error:
        complain(str(error))
        return UNABLE
    except BrokenPipeError:
        # Python would try to flush again at its end and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return OK
    except OSError as error:
        name = os.path.basename(str(error.filename)) if error.filename else ""
        # What the system said, without a path that the user did not give.
        complain(f"{name}: {error.strerror}" if name else str(error.strerror or error))
        return UNABLE
    except KeyboardInterrupt:
        return INTERRUPTED
    return code
