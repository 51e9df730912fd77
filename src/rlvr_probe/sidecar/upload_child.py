"""The child of a sidecar that uploads the run folder, and how the sidecar sees to it.

A process of its own, so that a storage that hangs holds up nothing, and its libraries take memory
that the kernel takes back first. It ends when the sidecar does: the pipe between them breaks.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from rlvr_probe.exceptions import ProbeError, StorageError
from rlvr_probe.sidecar.subprocesses import Faults, become, close_pipes, start

__all__ = ["UploadChild", "main"]

_END: Final = b"e"
"""What the sidecar says when no process writes to the run any more."""

_ROUND_S: Final = 10.0
_START_NS: Final = 30_000_000_000
_LOOK_S: Final = 0.1
_WAIT_S: Final = 2.0


class UploadChild:
    """The child, as its sidecar sees it."""

    def __init__(
        self, folder: Path, lake: str, prefix: str, fault: Callable[[str, str], None]
    ) -> None:
        """Start nothing yet.

        Args:
            folder: Run folder.
            lake: Where runs lie, in object storage.
            prefix: First letters of the names of this node's files.
            fault: Called with a place and an error, once for each that there is.
        """
        self._arguments = str(folder), lake, prefix
        self._faults = Faults("sidecar.upload", fault)
        self._process: subprocess.Popen[bytes] | None = None
        self._due_ns = 0

    def look(self, now_ns: int) -> None:
        """See to it that it runs; hear what there is to say."""
        if self._process is None and now_ns >= self._due_ns:
            self._due_ns = now_ns + _START_NS
            self._process = start("upload_child", *self._arguments)
        self._faults.hear(self._process)
        if self._process is not None and self._process.poll() is not None:
            self._faults.add(f"status {self._process.returncode}")
            self._process = None

    def finish(self, timeout_s: float, beat: Callable[[], object]) -> None:
        """Have the rest uploaded, and wait for it.

        Args:
            timeout_s: How long that may take, s.
            beat: Called while it takes.
        """
        until = time.monotonic() + timeout_s
        if self._process is None or self._process.poll() is not None:
            self._process = start("upload_child", *self._arguments)
        process = self._process
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.write(_END)
        while time.monotonic() < until and process.poll() is None:
            beat()
            self._faults.hear(self._process)
            time.sleep(_LOOK_S)
        self._faults.hear(self._process)
        self.stop()

    def stop(self) -> None:
        """End it as it is."""
        process, self._process = self._process, None
        if process is not None:
            close_pipes(process)
            process.kill()
            process.wait()


# -------------------------------------------------------------------- the child


def main() -> None:
    """Upload the folder of the second argument to the lake of the third, until the run ends."""
    folder, lake, prefix = Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    become("rlvr-upload")
    with suppress(OSError):
        os.nice(19)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    from rlvr_probe.sidecar.uploader import Uploader
    from rlvr_probe.storage import to_place

    uploader: Uploader | None = None
    is_over = False
    while True:
        try:
            if uploader is None:
                uploader = Uploader(folder, to_place(lake), prefix)
            uploader.round(whole=is_over)
            if is_over:
                return
        except (OSError, ProbeError) as error:
            kind = error.kind if isinstance(error, StorageError) else type(error).__name__
            with suppress(OSError):
                os.write(1, kind.encode("ascii", "replace") + b"\n")
        if select.select([0], [], [], _WAIT_S if is_over else _ROUND_S)[0]:
            if not os.read(0, 64):  # the sidecar is gone, or has waited long enough
                sys.exit(is_over)
            is_over = True
