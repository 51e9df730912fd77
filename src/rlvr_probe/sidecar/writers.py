"""Who on this node writes to a run, and which of their files are finished. Found out by looking.

Only names are listed; of each process a header is read once, and what it says is not believed
further than to compare it with ``/proc``.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from rlvr_probe.exceptions import RecordingError
from rlvr_probe.filesystem import file_system, is_network
from rlvr_probe.model import names, schema
from rlvr_probe.probe.identity import NODE_DIGITS
from rlvr_probe.recording.files import JOURNAL
from rlvr_probe.recording.header import Header
from rlvr_probe.recording.opentable import read_ended
from rlvr_probe.recording.process_state import Machine
from rlvr_probe.recording.processes import read_beginning

__all__ = ["Finished", "Writers"]

_LOOKS: Final = 5
"""How often a header is looked for that is not there yet."""

_TAIL_B: Final = 4096
_ROUNDS: Final = 10

Finished = tuple[Path, bool]
"""A segment that no process writes to any more, and whether that is certain."""


class Writers:
    """Processes of this boot that have a journal in the run folder, without sidecars.

    Attributes:
        run: Run id, once a header was found; empty before.
        alive: How many of them were running and had not closed their journal at the last look.
        gone: The folder was not there at the last look.
    """

    def __init__(
        self,
        folder: Path,
        own: str,
        *,
        every_node: bool = False,
        machine: Machine | None = None,
    ) -> None:
        """Look at nothing yet.

        Args:
            folder: Run folder.
            own: Process key of this sidecar; its first digits are those of the node.
            every_node: Find what is finished of other nodes, too.
            machine: This machine.
        """
        self.run = ""
        self.alive = 0
        self.gone = False
        self._folder = folder
        self._own = own
        self._prefix = "p" if every_node else f"p{own[:NODE_DIGITS]}"
        self._machine = Machine() if machine is None else machine
        self._headers: dict[str, Header | None] = {}
        self._sidecars: set[str] = set()
        self._looks: dict[str, int] = {}
        self._over: dict[str, bool] = {}
        self._segments: dict[str, list[int]] = {}
        self._network: bool | None = None
        self._round = 0

    def look(self) -> list[Finished]:
        """Look once more; segments that are finished, in the order of their names."""
        if self._is_due():
            self._segments = self._list()
            for process, numbers in self._segments.items():
                if self._looks.get(process, 0) < _LOOKS:
                    self._identify(process, min(numbers))
        self.alive = 0
        found = list[Finished]()
        for process, numbers in self._segments.items():
            last = max(numbers)
            over = process != self._own and self._is_over(process, last)
            for number in sorted(numbers):
                path = self._folder / schema.segment_name(process, number)
                if number < last:
                    found.append((path, True))
                elif over:
                    found.append((path, self._over[process]))
        return found

    def look_over(self) -> set[str]:
        """Processes that write no more, by a single look."""
        self.look()
        return set(self._over)

    def _is_due(self) -> bool:
        """Whether to list the folder: always, but for a server that thousands of nodes would ask.

        There it is every tenth time, and as long as no process is known to write.
        """
        if self._network is None:
            try:
                self._network = is_network(file_system(self._folder))
            except OSError:  # gone
                return True
        self._round += 1
        return not self._network or not self.alive or self._round % _ROUNDS == 0

    def _list(self) -> dict[str, list[int]]:
        """Numbers of the segments of each process that are not compressed."""
        segments = dict[str, list[int]]()
        try:
            with os.scandir(self._folder) as entries:
                names = [entry.name for entry in entries if entry.name.startswith(self._prefix)]
        except OSError:
            self.gone = True
            return segments
        self.gone = False
        for name in names:
            found = JOURNAL.fullmatch(name)
            if found is not None and not found[3]:
                segments.setdefault(found[1], []).append(int(found[2]))
        return segments

    def _identify(self, process: str, number: int) -> None:
        """Read whose a journal is. A sidecar records what it is a moment after its start."""
        self._looks[process] = self._looks.get(process, 0) + 1
        path = self._folder / schema.segment_name(process, number)
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                self._looks[process] = _LOOKS
                return
            header, role = read_beginning(path)
        except (OSError, RecordingError):
            return
        if header is None or header.process != process:
            return
        self._headers[process] = header if self._machine.is_home_of(header) else None
        if role == names.SIDECAR:
            self._sidecars.add(process)
        self.run = self.run or header.run

    def _is_over(self, process: str, last: int) -> bool:
        """Whether a process writes no more; counts it if it does."""
        if process in self._over:
            return True
        ended = read_ended(self._folder / f"p{process}{schema.OPEN_SUFFIX}", process)
        if ended:
            self._over[process] = True
            return True
        header = self._headers.get(process)
        state = "unknown" if header is None else self._machine.state(header, ended=False)
        if state == "running":
            self.alive += process not in self._sidecars
            return False
        closed = ended is None and _ends(self._folder / schema.segment_name(process, last))
        # One of another container looks dead from here: only a process's own word is certain.
        if closed or state == "died":
            self._over[process] = closed
        return process in self._over


def _ends(path: Path) -> bool:
    """Whether a journal has its closing row; for those without a table of open spans."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        size = os.fstat(fd).st_size
        return b'\n["end",' in os.pread(fd, _TAIL_B, max(0, size - _TAIL_B))
    except OSError:
        return False
    finally:
        os.close(fd)
