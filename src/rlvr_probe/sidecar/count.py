"""How many lines the journal of a sidecar holds, noted beside it: so a cut or deleted one is seen.

The file is an open-span table without slots, for the readers of those.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from rlvr_probe.access import PRIVATE, Access
from rlvr_probe.filesystem import file_system, is_network
from rlvr_probe.model import schema

__all__ = ["Count"]

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class Count:
    """Notes how far one process came. As there are no tables on network file systems, nor is it."""

    def __init__(self, folder: Path, process: str, access: Access = PRIVATE) -> None:
        """Make nothing yet.

        Args:
            folder: Where its journal is.
            process: Process key.
            access: Who may read it.
        """
        self._access = access
        self._path = folder / f"p{process}{schema.OPEN_SUFFIX}"
        self._process = process.encode()
        self._fd = -1
        self._wanted = True

    def note(self, now_ns: int, lost: int, written: int, *, ended: bool = False) -> None:
        """Note that the process was alive at ``now_ns`` (CLOCK_MONOTONIC).

        Where that cannot be written, what the journal lacks is not seen.

        Args:
            now_ns: The moment.
            lost: Rows lost so far.
            written: Lines that its journal holds: they were written before.
            ended: Whether it closed its journal in an orderly way.
        """
        block = schema.pack_block(
            schema.OPEN_HEADER, schema.OPEN_MAGIC, self._process,
            now_ns, 0, 0, int(ended), lost, written,
        )  # fmt: skip
        try:
            if self._ready():
                os.pwrite(self._fd, block.ljust(schema.OPEN_SLOT_BYTES, b"\0"), 0)
        except OSError:  # no room, or it was deleted together with the folder
            self._wanted = False

    def _ready(self) -> bool:
        if self._fd >= 0 and os.fstat(self._fd).st_nlink == 0:
            os.close(self._fd)
            self._fd = -1
        if self._fd < 0 and self._wanted:
            self._wanted = not is_network(file_system(self._path.parent))
            if self._wanted:
                self._fd = self._access.open(self._path, _FLAGS)
        return self._fd >= 0
