"""How much room a recording may take: a budget per run and node, and a rest that is left free.

The user's checkpoint matters more than our trace. What is recorded in numbers stops first, turns
and tool calls; then what grows with the batch, lengths and rewards; the stages of a step never.

Files of one node are known by their names, which start with a tag of the node, so that their sizes
are found without opening the files of ten thousand others. A process looks when it starts, so that
many short ones end as well, and again each time it has written a thousandth of the budget; on a
network file system only then, since ten thousand that start together would ask for all files each.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rlvr_probe.filesystem import file_system, is_network, least_free_b
from rlvr_probe.probe.identity import NODE_DIGITS

__all__ = ["ALWAYS", "FINE", "SAMPLES", "Room", "Space", "read_room", "write_room"]

ALWAYS, SAMPLES, FINE = 0, 1, 2
"""Kinds of rows, by what they are worth: FINE stops first, ALWAYS never."""

_FINE_SHARE: Final = 0.8
"""Of the budget. The last fifth is kept for lengths and rewards."""

_RELIEF: Final = 1.25
"""So many times what has to be free ends the shortage: what is recorded should not flap."""

_ROOM_NAME: Final = "room"
_ROOM: Final = struct.Struct("<QQQ")

_LEAST_CHUNK_B: Final = 64 << 10
_NETWORK_LOOK_B: Final = 16 << 20
_NETWORK_LOOK_NS: Final = 10_000_000_000


class Space:
    """The room that one process may still take. Used by one thread at a time.

    Attributes:
        limit: The most valuable kind of rows that is not to be written; above FINE if all are.
        reason: Why, in a word: ``budget`` or ``low_space``.
        said: The same with figures.
    """

    def __init__(self, folder: Path, process: str, budget_b: int, free_b: int | None) -> None:
        """Look at nothing yet.

        Args:
            folder: Where this process writes: the run folder, or a spool.
            process: Process key, which starts with the node's tag.
            budget_b: What the files of this run and node may take together, bytes.
            free_b: What has to stay free; None: a tenth of the file system, 10 GiB at most.
        """
        self.limit = FINE + 1
        self.reason = self.said = ""
        self._folder = folder
        self._prefix = f"p{process[:NODE_DIGITS]}"
        self._budget_b = budget_b
        self._free_b = free_b
        self._quantum_b = max(_LEAST_CHUNK_B, budget_b // 1024)
        self._used = (0, 0)
        self._elsewhere_b = 0
        self._scanned = False
        self._last_b = 0
        self._network: bool | None = None
        self._looked = (0, 0)
        self._short = FINE + 1
        self._low = ""

    def look(self, written_b: int, now_ns: int) -> int:
        """Find out what may be written next; :attr:`limit`.

        Args:
            written_b: What this process has written so far, bytes.
            now_ns: CLOCK_MONOTONIC.
        """
        next_b = max(_LEAST_CHUNK_B, written_b - self._last_b)
        self._last_b = written_b
        if self._network is None:
            self._network = self._find_network()
        over, spent = self._over_budget(written_b, next_b)
        if self._due(written_b, now_ns):
            self._looked = (written_b, now_ns)
            self._look_at_disk(next_b)
        self.limit = min(over, self._short)
        if self.limit > FINE:
            self.reason = self.said = ""
        elif self._short <= over:
            self.reason, self.said = "low_space", self._low
        else:
            self.reason, self.said = "budget", spent
        return self.limit

    def _over_budget(self, written_b: int, next_b: int) -> tuple[int, str]:
        at, used_b = self._used
        first = not self._scanned and self._network is False
        if first or written_b - at >= self._quantum_b:
            self._scanned = True
            at, used_b = self._used = (written_b, self._scan())
        total_b = used_b + self._elsewhere_b + written_b - at + next_b
        if total_b > self._budget_b:
            limit = SAMPLES
        else:
            limit = FINE if total_b > _FINE_SHARE * self._budget_b else FINE + 1
        return limit, f"budget {_mib(self._budget_b)} MiB"

    def _scan(self) -> int:
        """Bytes in this run's files of this node; files of others are not even looked at."""
        total = 0
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.startswith(self._prefix):
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:  # deleted meanwhile, file by file or as a whole
            return total
        return total

    def _find_network(self) -> bool | None:
        try:
            return is_network(file_system(self._folder))
        except OSError:  # not made yet
            return None

    def _due(self, written_b: int, now_ns: int) -> bool:
        """Always where it takes a microsecond; on a network file system it asks the server."""
        return not self._network or (
            written_b - self._looked[0] >= _NETWORK_LOOK_B
            or now_ns - self._looked[1] >= _NETWORK_LOOK_NS
        )

    def _look_at_disk(self, next_b: int) -> None:
        try:
            disk = os.statvfs(self._folder)
        except OSError:
            return
        here = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
        target = read_room(self._folder)
        self._elsewhere_b = target.others_b
        # A file system without a known size has none.
        rooms = [room for room in (here, (target.size_b, target.free_b)) if room[0]]
        if not rooms:
            return
        short = [self._find_short(size_b, free_b - next_b) for size_b, free_b in rooms]
        self._short = min(short)
        size_b, free_b = rooms[short.index(self._short)]
        self._low = f"low_space {_mib(free_b)} MiB free of {_mib(size_b)}"

    def _find_short(self, size_b: int, left_b: int) -> int:
        """What is not to be written to a disk on which so much is left."""
        floor_b = least_free_b(size_b) if self._free_b is None else self._free_b
        # Kinds that are stopped come back only when there is clearly room for them.
        if left_b < floor_b / 2 * (_RELIEF if self._short <= SAMPLES else 1):
            return SAMPLES
        if left_b < floor_b * (_RELIEF if self._short <= FINE else 1):
            return FINE
        return FINE + 1


@dataclass(frozen=True, slots=True)
class Room:
    """What a sidecar notes in a spool of the file system that the run folder is on.

    Attributes:
        size_b: Its size; 0 if unknown.
        free_b: What is free there.
        others_b: What earlier processes of this run and node left in the run folder.
    """

    size_b: int = 0
    free_b: int = 0
    others_b: int = 0


def read_room(spool: Path) -> Room:
    """What is noted in a spool; in a folder that is none, nothing is."""
    try:
        with open(spool / _ROOM_NAME, "rb", buffering=0) as file:
            data = file.read(_ROOM.size + 1)
    except OSError:
        return Room()
    return Room(*_ROOM.unpack(data)) if len(data) == _ROOM.size else Room()


def write_room(spool: Path, room: Room) -> None:
    """Note it.

    Raises:
        OSError: It cannot be written.
    """
    own = spool / f"{_ROOM_NAME}.{os.urandom(4).hex()}"
    own.write_bytes(_ROOM.pack(room.size_b, room.free_b, room.others_b))
    own.replace(spool / _ROOM_NAME)


def _mib(size_b: int) -> int:
    return size_b >> 20
