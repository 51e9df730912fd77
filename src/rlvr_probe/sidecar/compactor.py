"""The child of a sidecar that compacts finished segments, and how the sidecar asks it to.

A process of its own: it takes memory, which the kernel is to take back from it before it ends any
other process, and a library whose faults end nothing else. There is none where DuckDB is missing.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rlvr_probe.model import schema
from rlvr_probe.sidecar.segments import compact, unfinished
from rlvr_probe.sidecar.subprocesses import Faults, become, close_pipes, start

__all__ = ["Compactor", "main"]

_WAIT_S: Final = 0.02
_END_S: Final = 2.0
_DONE: Final = b"done"
_USELESS: Final = b"useless"


class Compactor:
    """The child, as its sidecar sees it."""

    def __init__(self, fault: Callable[[str, str], None]) -> None:
        """Start nothing yet; ``fault`` is called with a place and an error, once for each."""
        self._faults = Faults("sidecar.compact", fault)
        self._process: subprocess.Popen[bytes] | None = None
        self._works = find_spec("duckdb") is not None

    def compact(self, path: Path) -> Generator[None, None, bool]:
        """Put ``NAME.parquet`` beside a segment; gives way 50 times a second until it is done.

        Returns:
            Whether it is there.
        """
        if not self._works:
            return False
        if self._process is None:
            self._process = start("compactor")
        made = unfinished(Path(f"{path}{schema.COMPACTED_SUFFIX}"))
        try:
            said = yield from self._ask(self._process, f"{path}\0{made}\n".encode())
        finally:
            made.unlink(missing_ok=True)
        if said not in (_DONE, _USELESS):
            self._faults.add(said.decode("ascii", "replace"))
        return said == _DONE

    def close(self) -> None:
        """End the child."""
        process, self._process = self._process, None
        if process is not None:
            close_pipes(process)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
                return
            process.kill()
            process.wait()

    def _ask(
        self, process: subprocess.Popen[bytes], question: bytes
    ) -> Generator[None, None, bytes]:
        """What the child says of a segment."""
        if process.stdin is None or process.stdout is None:
            return b"no pipe"
        said = b""
        try:
            process.stdin.write(question)
            while not said.endswith(b"\n"):
                if select.select([process.stdout], [], [], _WAIT_S)[0]:
                    data = process.stdout.read(4096)
                    if not data:
                        break
                    said += data
                yield
        except BrokenPipeError:
            said = b""
        if not said:
            # One that cannot start, or was ended for its memory, would be again.
            self._works = False
            self.close()
            return b"status %d" % (process.returncode or 0)
        return said.strip()


# -------------------------------------------------------------------- the child


def main() -> None:
    """Compact what the sidecar names, line by line, until it ends."""
    become("rlvr-compact")
    os.umask(0o077)
    with suppress(OSError):
        os.nice(19)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    for line in sys.stdin.buffer:
        path, made = (Path(os.fsdecode(text)) for text in line[:-1].split(b"\0"))
        try:
            said = _DONE if compact(path, made) else _USELESS
        except OSError as error:
            said = type(error).__name__.encode()
        with suppress(BrokenPipeError):
            os.write(1, said + b"\n")
